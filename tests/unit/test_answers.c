/* SPDX-License-Identifier: MIT */
/* Many prompts answered at a time: each as a session alone would, whatever else is there. */
#include "infer/session.h"
#include "support/sessions.h"

enum { PROMPTS = 23, LONGEST = 40, TOKENS = 20 };

typedef struct {
    char text[PROMPTS][512];
    size_t size[PROMPTS];
    int64_t tokens[PROMPTS];
    pal_finish finish[PROMPTS];
    int told[PROMPTS], count, most; /* most: answers that are needed */
} answers;

static bool take(void *user, const pal_answer *a) {
    answers *all = user;
    assert_true(a->prompt < PROMPTS && a->text.size < sizeof all->text[0]);
    if (a->text.size) memcpy(all->text[a->prompt], a->text.data, a->text.size);
    all->size[a->prompt] = a->text.size;
    all->tokens[a->prompt] = a->tokens;
    all->finish[a->prompt] = a->finish;
    all->told[a->prompt]++;
    return ++all->count < all->most;
}

static uint32_t ids[PROMPTS][LONGEST];
static const char *const vowels[] = { "e", "ab" };

/* Prompts of many lengths; some end at a stop string, one may write nothing. */
static void make(pal_prompt *prompts) {
    for (int i = 0; i < PROMPTS; i++) {
        test_prompt(ids[i], LONGEST, (uint64_t)i);
        prompts[i] = (pal_prompt){ .ids = ids[i],
                                   .count = 1 + (size_t)i * 7 % LONGEST,
                                   .max_tokens = i == 5 ? 0 : TOKENS - i % 4,
                                   .stop = i % 3 ? NULL : vowels,
                                   .stop_count = i % 3 ? 0 : 2,
                                   .ignore_eos = i % 2 };
    }
}

static void answers_equal_sessions_of_their_own(void **state) {
    (void)state;
    const size_t kinds[] = { 0, 3, 6, 8 };
    for (size_t k = 0; k < PAL_COUNT(kinds); k++) {
        speaker f = test_speaker(kinds[k]);
        pal_engine *e = test_engine(&f, &(pal_engine_options){ .piece = 8 });
        pal_prompt prompts[PROMPTS];
        static answers all;
        make(prompts);
        for (int together = 0; together <= 5; together += 5) {
            all = (answers){ .most = 1000 };
            OK(pal_engine_answer(e, prompts, PROMPTS, together, take, &all, err));
            assert_int_equal(all.count, PROMPTS);
            assert_int_equal(pal_engine_busy(e), 0);
            int stopped = 0;
            for (int i = 0; i < PROMPTS; i++) {
                static written w;
                w = (written){ 0 };
                pal_session *s = test_session(e);
                test_begin(s, &w, prompts[i].ids, prompts[i].count,
                           (pal_session_options){ .max_tokens = prompts[i].max_tokens,
                                                  .stop = prompts[i].stop,
                                                  .stop_count = prompts[i].stop_count,
                                                  .ignore_eos = prompts[i].ignore_eos });
                test_run(e);
                assert_int_equal(all.told[i], 1);
                assert_int_equal(all.size[i], w.size);
                assert_memory_equal(all.text[i], w.text, w.size);
                assert_int_equal(all.tokens[i], w.count);
                assert_int_equal(all.finish[i], w.finish);
                stopped += w.finish == PAL_FINISH_STOP;
                pal_session_free(s);
            }
            if (!k) assert_true(stopped > 0);
        }
        pal_engine_free(e);
        test_speaker_free(&f);
    }
}

static void answers_that_are_not_wanted_are_not_made(void **state) {
    (void)state;
    speaker f = test_speaker(3);
    pal_engine *e = test_engine(&f, NULL);
    pal_prompt prompts[PROMPTS];
    static answers all;
    make(prompts);
    all = (answers){ .most = 4 };
    OK(pal_engine_answer(e, prompts, PROMPTS, 3, take, &all, err));
    assert_int_equal(all.count, 4);
    assert_int_equal(pal_engine_busy(e), 0);
    OK(pal_engine_answer(e, prompts, 0, 0, take, &all, err));
    assert_int_equal(all.count, 4);
    pal_engine_free(e);
    test_speaker_free(&f);
}

static void prompts_that_cannot_be_answered_are_named(void **state) {
    (void)state;
    speaker f = test_speaker(3);
    pal_engine *e = test_engine(&f, NULL);
    pal_prompt prompts[PROMPTS];
    static answers all;
    pal_error err;
    make(prompts);
    prompts[7].count = 0;
    all = (answers){ .most = 1000 };
    assert_int_equal(pal_engine_answer(e, prompts, PROMPTS, 2, take, &all, &err), PAL_E_ARGUMENT);
    assert_string_equal(err.text, "prompt 7: the prompt is empty: there is nothing to continue");
    assert_int_equal(pal_engine_busy(e), 0);
    assert_true(all.count >= 5);
    prompts[7].count = 3;
    ids[7][1] = 1u << 30;
    assert_int_equal(pal_engine_answer(e, prompts, PROMPTS, 0, take, &all, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "prompt 7: token 1 of the prompt is id 1073741824"));
    assert_int_equal(pal_engine_answer(e, prompts, PROMPTS, -1, take, &all, &err), PAL_E_ARGUMENT);
    pal_engine_free(e);
    test_speaker_free(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_equal_sessions_of_their_own),
        cmocka_unit_test(answers_that_are_not_wanted_are_not_made),
        cmocka_unit_test(prompts_that_cannot_be_answered_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
