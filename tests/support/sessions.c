/* SPDX-License-Identifier: MIT */
#include "support/sessions.h"

static void listen(void *user, const pal_token *t) {
    written *w = user;
    if (t->id >= 0) {
        w->ids[w->count] = t->id;
        w->logprob[w->count] = t->logprob;
        w->variance[w->count++] = t->variance;
    }
    if (t->text.size) memcpy(w->text + w->size, t->text.data, t->text.size);
    w->size += t->text.size;
    w->finish = t->finish;
    w->edge[w->size] = true;
}

speaker test_speaker(size_t kind) {
    speaker f = { .cx = test_context(1, NULL), .tok = test_letters() };
    f.model = test_model(&test_kinds[kind], PAL_FOR_INFERENCE, f.cx);
    return f;
}

void test_speaker_free(speaker *f) {
    pal_tokenizer_close(f->tok);
    pal_model_close(f->model);
    pal_context_free(f->cx);
}

pal_engine *test_engine(const speaker *f, const pal_engine_options *options) {
    pal_engine *e;
    OK(pal_engine_new(&e, f->model, f->tok, f->cx, options, err));
    return e;
}

pal_session *test_session(pal_engine *e) {
    pal_session *s;
    OK(pal_session_new(&s, e, err));
    return s;
}

void test_begin(pal_session *s, written *w, const uint32_t *ids, size_t count, pal_session_options o) {
    o.on_token = listen;
    o.user = w;
    OK(pal_session_begin(s, ids, count, &o, err));
}

void test_run(pal_engine *e) {
    while (pal_engine_step(e)) {
    }
}

void test_prompt(uint32_t *ids, int n, uint64_t seed) { test_ids((int32_t *)ids, n, TEST_VOCAB, seed); }

speaker test_tiny_speaker(tiny_kind kind) {
    speaker f = { .cx = test_context(1, NULL), .tok = test_tiny(kind) };
    const pal_preset_options sizes = { .task = "text",
                                       .vocab = (int)pal_tokenizer_size(f.tok) + 3, /* more than the tokenizer has */
                                       .hidden = 16,
                                       .layers = 1,
                                       .head_dim = 8,
                                       .state_size = 4,
                                       .rank = 2 };
    pal_model_config c;
    OK(pal_model_preset(&c, "palimpsa-m", &sizes, err));
    OK(pal_model_new(&f.model, &c, 1, PAL_FOR_INFERENCE, f.cx, err));
    return f;
}
