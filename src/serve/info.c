/* SPDX-License-Identifier: MIT */
/* What the server is and does: models, health, metrics, and a description of its interface. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "serve/inside.h"

serve_result serve_models(serve_exchange *x) {
    json_t *list = json_array();
    for (int i = 0; i < x->server->count; i++) {
        const serve_model *m = &x->server->models[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:s, s:I, s:I}", "id", m->name, "object", "model",
                                              "created", (json_int_t)m->created, "owned_by", "palimpsa", "parameters",
                                              (json_int_t)pal_model_parameters(m->bundle.model), "memory_bytes",
                                              (json_int_t)pal_state_bytes(m->bundle.model, m->context)));
    }
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
        "# HELP palimpsa_uptime_seconds Time since the start.\n# TYPE palimpsa_uptime_seconds gauge\n"
        "palimpsa_uptime_seconds %.3f\n",
        (unsigned long long)s->counts.requests, (unsigned long long)s->counts.errors,
        (unsigned long long)s->counts.refused, (unsigned long long)s->counts.cancelled,
        (unsigned long long)s->engine.read, (unsigned long long)s->engine.written, s->engine.read_seconds,
        s->engine.write_seconds, s->queued, s->texts_running, pal_seconds() - s->started);
    pthread_mutex_unlock(&s->lock);
    return serve_reply(x, 200, "text/plain; version=0.0.4", text, (size_t)size);
}

static json_t *field(const char *type, const char *about) {
    return json_pack("{s:s, s:s}", "type", type, "description", about);
}

static json_t *number(const char *type, double low, double high) {
    return json_pack("{s:s, s:f, s:f}", "type", type, "minimum", low, "maximum", high);
}

static json_t *post(const char *about, json_t *properties, const char *required) {
    return json_pack("{s:{s:s, s:{s:b, s:{s:{s:{s:s, s:o, s:[s]}}}}, s:{s:{s:s}, s:{s:s}}}}", "post", "summary", about,
                     "requestBody", "required", 1, "content", "application/json", "schema", "type", "object",
                     "properties", properties, "required", required, "responses", "200", "description", "the answer",
                     "400", "description", "a field is wrong; error.param names it");
}

static json_t *get(const char *about) {
    return json_pack("{s:{s:s, s:{s:{s:s}}}}", "get", "summary", about, "responses", "200", "description", about);
}

static json_t *common(void) {
    json_t *p = json_object();
    json_object_set_new(p, "model", field("string", "a name of /v1/models; any when one is served"));
    json_object_set_new(p, "temperature", number("number", 0, 100));
    json_object_set_new(p, "top_p", number("number", 0, 1));
    json_object_set_new(p, "top_k", number("integer", -1, 2147483647));
    json_object_set_new(p, "min_p", number("number", 0, 1));
    json_object_set_new(p, "repetition_penalty", number("number", 0.01, 100));
    json_object_set_new(p, "presence_penalty", number("number", -2, 2));
    json_object_set_new(p, "frequency_penalty", number("number", -2, 2));
    json_object_set_new(p, "max_tokens", number("integer", 0, 2147483647));
    json_object_set_new(p, "n", number("integer", 1, 128));
    json_object_set_new(p, "seed", field("integer", "the same seed gives the same text"));
    json_object_set_new(p, "stop", json_pack("{s:s}", "description", "a text, or a list of at most 16"));
    json_object_set_new(p, "stream", field("boolean", "server-sent events as the text comes"));
    json_object_set_new(p, "stream_options", field("object", "include_usage: usage in the last event"));
    json_object_set_new(p, "logit_bias", field("object", "from ids to numbers, -100 to 100"));
    json_object_set_new(p, "ignore_eos", field("boolean", "go on when the model ends its text"));
    json_object_set_new(p, "variance", field("boolean", "the variance of the memory's answer beside each logprob"));
    return p;
}

serve_result serve_openapi(serve_exchange *x) {
    json_t *paths = json_object(), *completions = common(), *chats = common();
    json_object_set_new(completions, "prompt",
                        json_pack("{s:s}", "description", "a text, texts, ids, or lists of ids"));
    json_object_set_new(completions, "echo", field("boolean", "the prompt in front of the text"));
    json_object_set_new(completions, "logprobs", number("integer", 0, PAL_ALTERNATIVES));
    json_object_set_new(chats, "messages", field("array", "objects with role and content"));
    json_object_set_new(chats, "logprobs", field("boolean", "log-probabilities of the tokens"));
    json_object_set_new(chats, "top_logprobs", number("integer", 0, PAL_ALTERNATIVES));
    json_object_set_new(paths, "/v1/completions", post("Text behind a text", completions, "prompt"));
    json_object_set_new(paths, "/v1/chat/completions", post("An answer to messages", chats, "messages"));
    json_t *tokenize = json_object(), *detokenize = json_object();
    json_object_set_new(tokenize, "prompt", field("string", "the text"));
    json_object_set_new(tokenize, "add_special_tokens", field("boolean", "put the tokenizer's own around it"));
    json_object_set_new(detokenize, "tokens", field("array", "ids"));
    json_object_set_new(paths, "/tokenize", post("Text to ids", tokenize, "prompt"));
    json_object_set_new(paths, "/detokenize", post("Ids to text", detokenize, "tokens"));
    json_object_set_new(paths, "/tokenizer_info", get("The tokenizer of the first model"));
    json_object_set_new(paths, "/v1/models", get("The models that are served"));
    json_object_set_new(paths, "/health", get("Whether the server takes requests"));
    json_object_set_new(paths, "/metrics", get("Counters for Prometheus"));
    return serve_reply_json(x, 200,
                            json_pack("{s:s, s:{s:s, s:s}, s:o}", "openapi", "3.0.3", "info", "title", "palimpsa serve",
                                      "version", "1", "paths", paths));
}
