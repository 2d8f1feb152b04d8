/* SPDX-License-Identifier: MIT */
/* A request's body, as the server reads it; the first byte chooses the path and the model. Nothing is sent or run: what
 * the handler queued is looked at and dropped. */
#include "base/alloc.h"
#include "format/json.h"
#include "input.h"
#include "serve/inside.h"
#include "support/text.h"

const serve_asset serve_assets[] = { { 0 } }; /* no page */

/* The handlers run as for a long body, aside of the HTTP thread, and so hardly touch their connection. */
const union MHD_ConnectionInfo *__wrap_MHD_get_connection_info(struct MHD_Connection *connection,
                                                               enum MHD_ConnectionInfoType type, ...);
void __wrap_MHD_resume_connection(struct MHD_Connection *connection);
const union MHD_ConnectionInfo *__wrap_MHD_get_connection_info(struct MHD_Connection *connection,
                                                               enum MHD_ConnectionInfoType type, ...) {
    (void)connection, (void)type;
    return NULL;
}
void __wrap_MHD_resume_connection(struct MHD_Connection *connection) { (void)connection; }

static serve_model models[3]; /* one for each chat template */

static pal_server *server(void) {
    static pal_server s;
    static const char *const presets[] = { "palimpsa-d", "gated-deltanet", "transformer" };
    static const char tools[] = "{{ tools|tojson }}{% for m in messages %}{{ m.role ~ ':' ~ (m.content or '') }}"
                                "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function|tojson }}</tool_call>"
                                "{% endfor %}{{ '</think>' if m.reasoning_content }}{% endfor %}";
    const char *const templates[] = { "plain", fuzz_file("tools.jinja", tools, sizeof tools - 1), "llama2" };
    pal_error err;
    if (s.models) return &s;
    s.options = (pal_serve_options){ .max_queue = 1,
                                     .max_body = 1 << 20,
                                     .max_answer = 64 << 20,
                                     .max_tokens = 1 << 17,
                                     .context = 64,
                                     .cache_distance = 256 };
    s.store = (serve_store){ .directory = pal_strdup(fuzz_path("memories/")), .limit = 1 << 20 };
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.wake, NULL);
    for (int i = 0; i < 3; i++) {
        models[i] = (serve_model){ .name = (char *)(uintptr_t)presets[i],
                                   .bundle = { .model = fuzz_model(presets[i], 2, PAL_FOR_INFERENCE),
                                               .tokenizer = i ? test_tiny(TINY_TRAINED) : test_letters() },
                                   .context = i == 2 ? s.options.context : 0,
                                   .file_bytes = 1024 };
        FUZZ_CHECK(pal_chat_open(&models[i].chat, models[i].bundle.tokenizer, templates[i], &err) == PAL_OK);
        FUZZ_CHECK(pal_tokenizer_scratch_new(&models[i].aside_scratch, models[i].bundle.tokenizer, &err) == PAL_OK);
    }
    s.models = models;
    s.count = s.given = 3;
    return &s;
}

/* What a request may ask of a model. */
static void check(const serve_job *job) {
    const size_t vocab = pal_tokenizer_size(job->model->bundle.tokenizer);
    FUZZ_CHECK(job->count >= 1 && job->count <= SERVE_MOST_TEXTS);
    FUZZ_CHECK(job->options.max_tokens >= 0 && job->options.max_tokens <= job->server->options.max_tokens);
    FUZZ_CHECK(job->answer <= job->server->options.max_answer && job->held && job->held == job->server->held);
    FUZZ_CHECK(job->alternatives >= 0 && job->alternatives <= PAL_ALTERNATIVES);
    FUZZ_CHECK(job->options.stop_count <= SERVE_MOST_STOPS + 1); /* the template's */
    for (size_t i = 0; i < job->count; i++)
        for (size_t k = 0; k < job->texts[i].prompt->count; k++) FUZZ_CHECK(job->texts[i].prompt->data[k] < vocab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static serve_handler *const handlers[] = { serve_completions,    serve_chat,        serve_observe_post,
                                               serve_observe_change, serve_tokenize,    serve_detokenize,
                                               serve_memories_make,  serve_memory_name, serve_memory_mark,
                                               serve_memory_rollback };
    enum { HANDLERS = sizeof handlers / sizeof *handlers };
    if (!size) return 0;
    pal_server *s = server();
    /* With one model its name does not matter: byte 0 chooses it; from 3 * HANDLERS on the body must name one of all. */
    const size_t chosen = data[0] / HANDLERS;
    s->models = chosen < 3 ? &models[chosen] : models;
    s->count = s->given = chosen < 3 ? 1 : 3;
    serve_aside aside = { 0 };
    serve_exchange x = { .server = s, .method = "POST", .parts = { "cmpl-0" }, .aside = &aside };
    FUZZ_CHECK(!pal_bytes_append(&x.body, data + 1, size - 1, NULL));
    pal_json_forget();
    (void)handlers[data[0] % HANDLERS](&x);
    FUZZ_CHECK(aside.handed ? x.job && !aside.response : !x.job && aside.response && x.status >= 200);
    if (x.job) {
        check(x.job);
        s->queue = NULL;
        s->queued = 0;
        if (x.job->memory) serve_memory_leave(s, x.job->memory);
        serve_job_release(x.job);
        serve_job_free(x.job);
    }
    FUZZ_CHECK(s->held == x.held); /* of a long answer */
    s->held = 0;
    if (aside.response) MHD_destroy_response(aside.response);
    pal_bytes_free(&x.body);
    return 0;
}
