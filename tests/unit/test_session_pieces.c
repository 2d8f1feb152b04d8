/* SPDX-License-Identifier: MIT */
/* Sessions whose prompts are read piece by piece, and pieces layer by layer, next to others that write. */
#include "infer/session.h"
#include "model/state.h"
#include "support/sessions.h"

enum { PARTS_PROMPT = 45, PARTS_TOKENS = 9 };
static const pal_engine_options whole_pieces = { .piece = 16, .variance = true },
                                one_layer_a_step = { .piece = 16, .variance = true, .read_seconds = 1e-9 };

/* One writes while two prompts are read. */
static void run_three(const speaker *f, const pal_engine_options *options, written w[3]) {
    uint32_t prompt[PARTS_PROMPT];
    pal_engine *e = test_engine(f, options);
    pal_session *s[3];
    for (int i = 0; i < 3; i++) {
        w[i] = (written){ 0 };
        test_prompt(prompt, PARTS_PROMPT, (uint64_t)i);
        s[i] = test_session(e);
        test_begin(s[i], &w[i], prompt, i ? PARTS_PROMPT - (size_t)i : 1,
                   (pal_session_options){ .sampling = { .temperature = 1 },
                                          .max_tokens = i ? PARTS_TOKENS : 60,
                                          .logprobs = true,
                                          .prompt_logprobs = i != 1 });
    }
    test_run(e);
    for (int i = 0; i < 3; i++) pal_session_free(s[i]);
    pal_engine_free(e);
}

/* A piece that is read layer by layer, with steps of others in between, gives the same bits. */
static void parts_of_a_piece_change_nothing(void **state) {
    (void)state;
    for (size_t k = 0; k < test_kind_count; k++) {
        speaker f = test_speaker(k);
        static written whole[3], parts[3];
        run_three(&f, &whole_pieces, whole);
        run_three(&f, &one_layer_a_step, parts);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(whole[i].count, parts[i].count);
            assert_memory_equal(whole[i].ids, parts[i].ids, sizeof(int32_t) * (size_t)whole[i].count);
            assert_memory_equal(whole[i].logprob, parts[i].logprob, sizeof(double) * (size_t)whole[i].count);
            assert_memory_equal(whole[i].variance, parts[i].variance, sizeof(double) * (size_t)whole[i].count);
        }
        test_speaker_free(&f);
    }
}

/* Ended amid a piece, a session holds it whole; emptied or freed there, it leaves nothing. */
static void a_session_may_end_amid_a_piece(void **state) {
    (void)state;
    enum { PROMPT = 30, TOKENS = 8 };
    speaker f = test_speaker(3);
    static written expected, w;
    uint32_t prompt[PROMPT];
    test_prompt(prompt, PROMPT, 4);
    const pal_session_options o = { .max_tokens = TOKENS, .logprobs = true };
    pal_engine *e = test_engine(&f, &one_layer_a_step);
    pal_session *s = test_session(e), *other = test_session(e);
    expected = (written){ 0 };
    test_begin(s, &expected, prompt, PROMPT, o);
    for (int layer = 0; layer < pal_model_config_of(f.model)->layers; layer++) {
        assert_int_equal(pal_state_position(pal_session_state(s)), 0);
        pal_engine_step(e);
    }
    assert_int_equal(pal_state_position(pal_session_state(s)), 16);
    test_run(e);
    enum { CANCEL, RESET, FREE, PAUSE, WAYS };
    for (int way = 0; way < WAYS; way++) {
        pal_session_reset(s);
        test_begin(s, &w, prompt, PROMPT, o);
        pal_engine_step(e);
        assert_int_equal(pal_state_position(pal_session_state(s)), 0);
        w = (written){ 0 };
        if (way == CANCEL) {
            pal_session_cancel(s);
            assert_int_equal(pal_engine_busy(e), 0);
            assert_int_equal(pal_state_position(pal_session_state(s)), 16);
            assert_int_equal(pal_state_pending(pal_session_state(s)), prompt[16]);
            test_begin(s, &w, prompt + 17, PROMPT - 17, o);
        } else if (way == PAUSE) { /* what was begun is read to its end, or the other could never read */
            static written w2;
            w2 = (written){ 0 };
            pal_session_pause(s, true);
            pal_session_reset(other);
            test_begin(other, &w2, prompt, PROMPT, o);
            do pal_engine_step(e);
            while (e->under_way != other || !pal_state_position(pal_session_state(other)));
            assert_int_equal(pal_state_position(pal_session_state(s)), 16);
            pal_session_pause(s, false); /* has waited longer, but the other is amid its second piece */
            test_run(e);
            assert_memory_equal(w2.logprob, expected.logprob, sizeof(double) * TOKENS);
        } else {
            if (way == RESET) pal_session_reset(s);
            else pal_session_free(s), s = test_session(e);
            test_begin(s, &w, prompt, PROMPT, o);
        }
        test_run(e);
        assert_int_equal(w.count, TOKENS);
        assert_memory_equal(w.ids, expected.ids, sizeof(int32_t) * TOKENS);
        assert_memory_equal(w.logprob, expected.logprob, sizeof(double) * TOKENS);
    }
    pal_session_free(s);
    pal_session_free(other);
    pal_engine_free(e);
    test_speaker_free(&f);
}

static int written_by(const written *w) { return w->count; }

/* A long prompt does not keep writers waiting, and long prompts do not keep short ones waiting. */
static void nobody_starves(void **state) {
    (void)state;
    enum { LONG = 400, PIECE = 8 };
    speaker f = test_speaker(3);
    static written writer, reader[2], late;
    uint32_t prompt[LONG];
    test_prompt(prompt, LONG, 1);
    writer = reader[0] = reader[1] = late = (written){ 0 };
    pal_engine *e = test_engine(&f, &(pal_engine_options){ .piece = PIECE });
    pal_session *s[4];
    for (int i = 0; i < 4; i++) s[i] = test_session(e);
    test_begin(s[0], &writer, prompt, 1, (pal_session_options){ .max_tokens = 300 });
    pal_engine_step(e);
    for (int i = 0; i < 2; i++)
        test_begin(s[1 + i], &reader[i], prompt, LONG, (pal_session_options){ .max_tokens = 5 });
    for (int step = 0; step < 10; step++) {
        const int before = written_by(&writer);
        const int64_t read = pal_state_position(pal_session_state(s[1])) + pal_state_position(pal_session_state(s[2]));
        pal_engine_step(e);
        assert_int_equal(written_by(&writer), before + 1);
        assert_int_equal(pal_state_position(pal_session_state(s[1])) + pal_state_position(pal_session_state(s[2])),
                         read + PIECE);
    }
    test_begin(s[3], &late, prompt, 2 * PIECE, (pal_session_options){ .max_tokens = 5 });
    for (int step = 0; step < 6; step++) pal_engine_step(e); /* two rounds of three readers */
    assert_int_equal(written_by(&late), 1);
    test_run(e);
    for (int i = 0; i < 2; i++) assert_int_equal(reader[i].count, 5);
    for (int i = 0; i < 4; i++) pal_session_free(s[i]);
    pal_engine_free(e);
    test_speaker_free(&f);
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_a_piece_change_nothing),
        cmocka_unit_test(a_session_may_end_amid_a_piece),
        cmocka_unit_test(nobody_starves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
