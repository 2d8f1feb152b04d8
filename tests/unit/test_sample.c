/* SPDX-License-Identifier: MIT */
/* Samples of training: text as a session writes it, whatever the sizes of vocabularies. */
#include "support/support.h"
#include "support/text.h"
#include "text/strings.h"
#include "train/sample.h"

static void collect(void *user, const pal_token *t) {
    if (t->text.size) OK(pal_bytes_append(user, t->text.data, t->text.size, err));
}

/* A model with many more ids than the tokenizer has, as padded vocabularies are; SentencePiece, whose words carry the
 * blank in front of them. */
static void a_sample_is_what_a_session_writes(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    pal_tokenizer *tok = test_tiny(TINY_SPM);
    const pal_preset_options sizes = { .task = "text",
                                       .vocab = 4 * (int)pal_tokenizer_size(tok),
                                       .hidden = 16,
                                       .layers = 1,
                                       .head_dim = 8,
                                       .state_size = 4,
                                       .rank = 2 };
    pal_model_config c;
    pal_model *model;
    pal_engine *engine;
    pal_session *session;
    pal_ids ids = { 0 };
    pal_bytes sample = { 0 }, text = { 0 };
    OK(pal_model_preset(&c, "palimpsa-m", &sizes, err));
    OK(pal_model_new(&model, &c, 1, PAL_FOR_TRAINING, cx, err));
    OK(pal_sample_prompt(tok, "the", &ids, err));
    OK(pal_engine_new(&engine, model, tok, cx, NULL, err));
    OK(pal_session_new(&session, engine, err));
    size_t blanks = 0, kept = 0;
    for (uint64_t seed = 0; seed < 10; seed++) {
        OK(pal_sample(&sample, model, tok, cx, "the", 300, seed, err));
        pal_session_reset(session);
        OK(pal_session_begin(
            session, ids.data, ids.count,
            &(pal_session_options){
                .sampling = { .temperature = 1 }, .seed = seed, .max_tokens = 300, .on_token = collect, .user = &text },
            err));
        while (pal_engine_step(engine)) {
        }
    }
    for (size_t i = 0; i < text.size; i++) blanks += text.data[i] == ' ';
    for (size_t i = 0; i < sample.size; i++) kept += sample.data[i] == ' ';
    assert_true(blanks > 10); /* other bytes may have become U+FFFD */
    assert_int_equal(kept, blanks);
    pal_bytes_free(&sample);
    pal_bytes_free(&text);
    pal_ids_free(&ids);
    pal_session_free(session);
    pal_engine_free(engine);
    pal_model_close(model);
    pal_tokenizer_close(tok);
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_sample_is_what_a_session_writes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
