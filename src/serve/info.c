/* SPDX-License-Identifier: MIT */
/* What the server is and does: models, health, metrics. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "format/json.h"
#include "serve/inside.h"

static json_t *name_json(const serve_model *m) { return m ? json_string(m->name) : json_null(); }

static const serve_model *plain_version(const pal_server *s, const serve_model *m) {
    for (int i = s->given; i < s->count; i++)
        if (s->models[i].plain_of == m) return &s->models[i];
    return NULL;
}

static void describe(const pal_server *s, const serve_model *m, json_t *to) {
    const pal_model_config *c = pal_model_config_of(m->bundle.model);
    char kind[64];
    int heads, keys, values;
    json_t *rules = json_array();
    pal_model_describe(c, kind);
    pal_model_widest(c, &heads, &keys, &values);
    for (int i = 0; i < c->layers; i++) pal_json_append(rules, json_string(pal_model_layer_rule(c, i)));
    pal_json_update(to,
                    json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:b}", "kind", kind, "tokenizer",
                              pal_tokenizer_kind(m->bundle.tokenizer), "vocabulary", c->vocab, "layers", c->layers,
                              "heads", heads, "keys", keys, "values", values, "rules", rules, "plain",
                              name_json(plain_version(s, m)), "plain_of", name_json(m->plain_of), "recall", c->mqar));
}

static json_t *model_json(const pal_server *s, const serve_model *m) {
    const pal_model *weights = (m->plain_of ? m->plain_of : m)->bundle.model;
    json_t *one = json_pack("{s:s, s:s, s:I, s:s, s:I, s:I}", "id", m->name, "object", "model", "created",
                            (json_int_t)m->created, "owned_by", "palimpsa", "parameters",
                            (json_int_t)pal_model_parameters(weights), "memory_bytes",
                            (json_int_t)pal_state_bytes(m->bundle.model, m->context));
    describe(s, m, one);
    return one;
}

serve_result serve_model_get(serve_exchange *x) {
    const char *name = x->path + strlen("/v1/models/"); /* of any length */
    for (int i = 0; i < x->server->count; i++)
        if (strcmp(x->server->models[i].name, name) == 0)
            return serve_reply_json(x, 200, model_json(x->server, &x->server->models[i]));
    return serve_error(x, 404, "model", "no model is called '%.100s'", name);
}

serve_result serve_models(serve_exchange *x) {
    json_t *list = json_array();
    for (int i = 0; i < x->server->count; i++) pal_json_append(list, model_json(x->server, &x->server->models[i]));
    return serve_reply_json(x, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

serve_result serve_health(serve_exchange *x) {
    pthread_mutex_lock(&x->server->lock);
    const bool stopping = x->server->stopping;
    pthread_mutex_unlock(&x->server->lock);
    return serve_reply_json(x, stopping ? 503 : 200, json_pack("{s:s}", "status", stopping ? "stopping" : "ok"));
}

serve_result serve_metrics(serve_exchange *x) {
    pal_server *s = x->server;
    char text[4096];
    pthread_mutex_lock(&s->lock);
    const int size = snprintf(
        text, sizeof text,
        "# HELP palimpsa_requests_total Requests answered, by any status.\n# TYPE palimpsa_requests_total counter\n"
        "palimpsa_requests_total %llu\n"
        "# HELP palimpsa_errors_total Requests answered with a status of 400 or more.\n# TYPE palimpsa_errors_total "
        "counter\npalimpsa_errors_total %llu\n"
        "# HELP palimpsa_refused_total Requests refused because the queue was full.\n# TYPE palimpsa_refused_total "
        "counter\npalimpsa_refused_total %llu\n"
        "# HELP palimpsa_cancelled_total Requests whose client went away.\n# TYPE palimpsa_cancelled_total counter\n"
        "palimpsa_cancelled_total %llu\n"
        "# HELP palimpsa_prompt_tokens_total Tokens read.\n# TYPE palimpsa_prompt_tokens_total counter\n"
        "palimpsa_prompt_tokens_total %llu\n"
        "# HELP palimpsa_written_tokens_total Tokens written.\n# TYPE palimpsa_written_tokens_total counter\n"
        "palimpsa_written_tokens_total %llu\n"
        "# HELP palimpsa_prompt_seconds_total Time spent reading prompts.\n# TYPE palimpsa_prompt_seconds_total "
        "counter\npalimpsa_prompt_seconds_total %.6f\n"
        "# HELP palimpsa_write_seconds_total Time spent writing.\n# TYPE palimpsa_write_seconds_total counter\n"
        "palimpsa_write_seconds_total %.6f\n"
        "# HELP palimpsa_queue Requests that wait.\n# TYPE palimpsa_queue gauge\npalimpsa_queue %d\n"
        "# HELP palimpsa_texts_running Texts that are read or written now.\n# TYPE palimpsa_texts_running gauge\n"
        "palimpsa_texts_running %d\n"
        "# HELP palimpsa_cached_tokens_total Tokens of prompts that were known already.\n"
        "# TYPE palimpsa_cached_tokens_total counter\npalimpsa_cached_tokens_total %llu\n"
        "# HELP palimpsa_cache_bytes Memories of prompts in RAM.\n# TYPE palimpsa_cache_bytes gauge\n"
        "palimpsa_cache_bytes %zu\n"
        "# HELP palimpsa_text_bytes Memories of texts that run.\n# TYPE palimpsa_text_bytes gauge\n"
        "palimpsa_text_bytes %zu\n"
        "# HELP palimpsa_memory_disk_bytes Files of kept memories.\n# TYPE palimpsa_memory_disk_bytes gauge\n"
        "palimpsa_memory_disk_bytes %zu\n"
        "# HELP palimpsa_connections Open connections.\n# TYPE palimpsa_connections gauge\npalimpsa_connections %d\n"
        "# HELP palimpsa_uptime_seconds Time since the start.\n# TYPE palimpsa_uptime_seconds gauge\n"
        "palimpsa_uptime_seconds %.3f\n",
        (unsigned long long)s->counts.requests, (unsigned long long)s->counts.errors,
        (unsigned long long)s->counts.refused, (unsigned long long)s->counts.cancelled,
        (unsigned long long)s->engine.read, (unsigned long long)s->engine.written, s->engine.read_seconds,
        s->engine.write_seconds, s->queued, s->texts_running, (unsigned long long)s->counts.cached_tokens,
        s->cache_bytes, s->session_bytes, s->store.used, s->connection_count, pal_seconds() - s->started);
    pthread_mutex_unlock(&s->lock);
    return serve_reply(x, 200, "text/plain; version=0.0.4", text, (size_t)size);
}
