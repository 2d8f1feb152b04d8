/* SPDX-License-Identifier: MIT */
/* What the server is: models and health. */
#include <string.h>

#include "format/json.h"
#include "infer/frames.h"
#include "serve/inside.h"

static json_t *name_json(const serve_model *m) { return m ? json_string(m->name) : json_null(); }

static const serve_model *plain_version(const pal_server *s, const serve_model *m) {
    for (int i = s->given; i < s->count; i++)
        if (s->models[i].plain_of == m) return &s->models[i];
    return NULL;
}

/* What chats with it can do; null: its template is not known. */
static json_t *chat_json(const serve_model *m) {
    const pal_chat *c = pal_chat_for(m->chat, true);
    if (!c) return json_null();
    return json_pack("{s:b, s:s?, s:b}", "tools", c->takes_tools, "calls", c->syntax ? c->syntax->name : NULL,
                     "thinking", c->think_close != NULL);
}

static json_t *model_json(const pal_server *s, const serve_model *m) {
    const pal_model *weights = (m->plain_of ? m->plain_of : m)->bundle.model;
    json_t *one = json_pack("{s:s, s:s, s:I, s:s, s:I, s:I, s:I, s:I, s:s, s:I}", "id", m->name, "object", "model",
                            "created", (json_int_t)m->created, "owned_by", "palimpsa", "parameters",
                            (json_int_t)pal_model_parameters(weights), "memory_bytes",
                            (json_int_t)pal_state_bytes(m->bundle.model, m->context), "memory_fixed_bytes",
                            (json_int_t)pal_state_bytes(m->bundle.model, 0), "memory_page_bytes",
                            (json_int_t)m->page_bytes, "kv_type", pal_dtype_name(pal_model_kept_as(m->bundle.model)),
                            "max_context", (json_int_t)m->context);
    pal_json_update(one, pal_model_json(&m->bundle));
    pal_json_update(one, json_pack("{s:o, s:o}", "plain", name_json(plain_version(s, m)), "plain_of",
                                   name_json(m->plain_of)));
    pal_json_set(one, "chat", chat_json(m));
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
    pal_server *s = x->server;
    pthread_mutex_lock(&s->lock);
    json_t *memory = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "budget_bytes", (json_int_t)s->options.memory_budget,
                               "texts_bytes", (json_int_t)s->session_fixed, "cache_bytes", (json_int_t)s->cache_bytes,
                               "page_bytes", (json_int_t)s->page_bytes, "snapshots", (json_int_t)s->cache_count,
                               "kept_file_bytes",
                               (json_int_t)(s->cache.keep ? serve_keep_counted(s->cache.keep).bytes : 0));
    pthread_mutex_unlock(&s->lock);
    return serve_reply_json(x, 200, json_pack("{s:s, s:o, s:o}", "object", "list", "data", list, "memory", memory));
}

serve_result serve_health(serve_exchange *x) {
    pthread_mutex_lock(&x->server->lock);
    const bool stopping = x->server->stopping;
    pthread_mutex_unlock(&x->server->lock);
    return serve_reply_json(x, stopping ? 503 : 200, json_pack("{s:s}", "status", stopping ? "stopping" : "ok"));
}
