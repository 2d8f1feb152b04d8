/* SPDX-License-Identifier: MIT */
/* Models of every kind as they run: stepping, splitting and batching change nothing. */
#include "support/support.h"

#include <math.h>

#include "base/alloc.h"
#include "model/model.h"
#include "model/state.h"
#include "support/models.h"

enum { V = TEST_VOCAB, LENGTH = 23, MOST_ROWS = 32 /* embedding rows with padding */ };

/* Logits of one sequence run whole; (n, rows). */
static float *whole(runner *f, const int32_t *ids, int n) {
    const int cu[2] = { 0, n };
    const pal_batch batch = { .tokens = n, .sequences = 1, .ids = ids, .cu_seqlens = cu };
    float *logits = pal_alloc((size_t)n * f->rows, sizeof *logits);
    OK(pal_model_forward(f->model, f->work, &batch, NULL, n, logits, err));
    return logits;
}

static void stepping_equals_forward(void **state) {
    (void)state;
    for (size_t k = 0; k < test_kind_count; k++) {
        runner f = test_runner(k, PAL_FOR_INFERENCE, (pal_work_options){ .tokens = LENGTH });
        int32_t ids[LENGTH];
        pal_state *s;
        float step[MOST_ROWS];
        test_ids(ids, LENGTH, V, 3);
        float *logits = whole(&f, ids, LENGTH);
        OK(pal_state_new(&s, f.model, LENGTH, err));
        for (int t = 0; t < LENGTH; t++) {
            OK(pal_model_step(f.model, f.work, &s, 1, &ids[t], step, err));
            test_near(f.name, step, logits + (size_t)t * f.rows, f.rows, 2e-5);
        }
        assert_int_equal(pal_state_position(s), LENGTH);
        pal_state_free(s);
        pal_free(logits);
        test_runner_free(&f);
    }
}

/* Three sequences cut at random, their pieces run together in batches of mixed lengths. */
/* A loose tolerance changes what the model says, a tight one hardly. */
static void mesa_tolerance_reaches_the_memory(void **state) {
    (void)state;
    static const double tolerances[] = { 0, 1e-6, 0.5 };
    float logits[3][MOST_ROWS];
    int32_t ids[LENGTH];
    test_ids(ids, LENGTH, V, 3);
    pal_context *cx = test_context(1, NULL);
    for (size_t i = 0; i < PAL_COUNT(tolerances); i++) {
        test_kind kind = *test_kind_named("rule mesa");
        kind.mesa_tolerance = tolerances[i];
        pal_model *model = test_model(&kind, PAL_FOR_INFERENCE, cx);
        test_last_logits(model, cx, ids, LENGTH, logits[i]);
        pal_model_close(model);
    }
    const size_t rows = V; /* the embedding has no padding here */
    assert_true(test_nmax(logits[1], logits[0], rows) < 1e-4);
    assert_true(test_nmax(logits[2], logits[0], rows) > 1e-3);
    pal_context_free(cx);
}

static void any_split_through_states_equals_the_whole(void **state) {
    (void)state;
    const int cases = test_cases(1, 50);
    for (size_t k = 0; k < test_kind_count; k++) {
        runner f = test_runner(k, PAL_FOR_INFERENCE, (pal_work_options){ .tokens = 3 * LENGTH, .sequences = 3 });
        float *found = pal_alloc(3 * LENGTH * f.rows, sizeof *found);
        for (int round = 0; round < cases; round++) {
            pal_rng rng = pal_rng_at(5, (uint64_t)round);
            int32_t ids[3][LENGTH], packed[3 * LENGTH];
            pal_state *s[3];
            float *logits[3];
            int done[3] = { 0 }, length[3];
            for (int i = 0; i < 3; i++) {
                length[i] = 1 + (int)pal_rng_below(&rng, LENGTH);
                test_ids(ids[i], LENGTH, V, 10 * (uint64_t)round + (uint64_t)i);
                logits[i] = whole(&f, ids[i], length[i]);
                OK(pal_state_new(&s[i], f.model, LENGTH, err));
            }
            for (;;) {
                pal_state *now[3];
                int cu[4] = { 0 }, who[3], n = 0;
                for (int i = 0; i < 3; i++) {
                    const int left = length[i] - done[i];
                    const int piece = left ? (int)pal_rng_below(&rng, (uint32_t)left + 1) : 0;
                    if (!piece) continue;
                    memcpy(packed + cu[n], ids[i] + done[i], (size_t)piece * sizeof *packed);
                    cu[n + 1] = cu[n] + piece;
                    now[n] = s[i];
                    who[n++] = i;
                }
                if (n) {
                    const pal_batch batch = { .tokens = cu[n], .sequences = n, .ids = packed, .cu_seqlens = cu };
                    OK(pal_model_continue(f.model, f.work, now, &batch, NULL, cu[n], found, err));
                    for (int i = 0; i < n; i++) {
                        const int piece = cu[i + 1] - cu[i];
                        test_near(f.name, found + (size_t)cu[i] * f.rows,
                                  logits[who[i]] + (size_t)done[who[i]] * f.rows, (size_t)piece * f.rows, 3e-5);
                        done[who[i]] += piece;
                    }
                }
                if (done[0] == length[0] && done[1] == length[1] && done[2] == length[2]) break;
            }
            for (int i = 0; i < 3; i++) pal_state_free(s[i]), pal_free(logits[i]);
        }
        pal_free(found);
        test_runner_free(&f);
    }
}

/* Two sequences continue from one state, which stays as it is; a third makes a copy its own. */
static void a_borrowed_state_is_left_as_it_was(void **state) {
    (void)state;
    enum { BEFORE = 9, AFTER = 5, EACH = AFTER - 1 };
    for (size_t k = 0; k < test_kind_count; k++) {
        runner f = test_runner(k, PAL_FOR_INFERENCE,
                               (pal_work_options){ .tokens = LENGTH, .sequences = 3, .loss = true });
        const int cu[4] = { 0, EACH, 2 * EACH, 3 * EACH };
        const bool borrowed[3] = { true, true, false };
        int32_t before[BEFORE], after[AFTER], ids[3 * EACH], target[3 * EACH];
        int at[3 * EACH];
        float nll[3 * EACH];
        unsigned char correct[3 * EACH];
        pal_state *s, *own, *kept;
        pal_error why;
        test_ids(before, BEFORE, V, 6);
        test_ids(after, AFTER, V, 7);
        OK(pal_state_new(&s, f.model, LENGTH, err));
        OK(pal_state_new(&own, f.model, LENGTH, err));
        OK(pal_state_new(&kept, f.model, LENGTH, err));
        OK(pal_model_prefill(f.model, f.work, s, before, BEFORE, NULL, err));
        OK(pal_state_copy(own, s, err));
        OK(pal_state_copy(kept, s, err));
        for (int i = 0; i < 3 * EACH; i++) at[i] = i, ids[i] = after[i % EACH], target[i] = after[i % EACH + 1];
        const pal_batch batch = { .tokens = 3 * EACH, .sequences = 3, .ids = ids, .cu_seqlens = cu };
        const pal_status st = pal_model_score_rows(f.model, f.work, (pal_state *[]){ s, s, own }, borrowed, &batch, at,
                                                   target, 3 * EACH, nll, correct, &why);
        if (pal_model_grows(pal_model_config_of(f.model))) {
            assert_int_equal(st, PAL_E_ARGUMENT);
            assert_non_null(strstr(why.text, "sequence 0 borrows its state"));
        } else {
            assert_int_equal(st, PAL_OK);
            test_near(f.name, nll, nll + 2 * EACH, EACH, 1e-5);
            test_near(f.name, nll + EACH, nll + 2 * EACH, EACH, 1e-5);
            assert_memory_equal(s->data, kept->data, s->fixed * sizeof *s->data);
            assert_int_equal(pal_state_position(s), BEFORE);
            assert_int_equal(pal_state_position(own), BEFORE + EACH);
            assert_true(memcmp(own->data, kept->data, s->fixed * sizeof *s->data) != 0);
            assert_int_equal(pal_model_score_rows(f.model, f.work, (pal_state *[]){ s, own, s }, borrowed, &batch, at,
                                                  target, 3 * EACH, nll, correct, &why),
                             PAL_E_ARGUMENT);
            assert_non_null(strstr(why.text, "sequences 0 and 2 share one state"));
        }
        pal_state_free(s), pal_state_free(own), pal_state_free(kept);
        test_runner_free(&f);
    }
}

static void prefill_in_pieces_equals_prefill_at_once(void **state) {
    (void)state;
    for (size_t k = 0; k < test_kind_count; k++) {
        runner f = test_runner(k, PAL_FOR_INFERENCE, (pal_work_options){ .tokens = LENGTH }),
               small = test_runner(k, PAL_FOR_INFERENCE, (pal_work_options){ .tokens = 5 });
        int32_t ids[LENGTH];
        pal_state *a, *b;
        float one[MOST_ROWS], many[MOST_ROWS];
        test_ids(ids, LENGTH, V, 4);
        OK(pal_state_new(&a, f.model, LENGTH, err));
        OK(pal_state_new(&b, small.model, LENGTH, err));
        OK(pal_model_prefill(f.model, f.work, a, ids, LENGTH, one, err));
        OK(pal_model_prefill(small.model, small.work, b, ids, LENGTH, many, err));
        test_near(f.name, many, one, f.rows, 2e-5);
        pal_state_reset(b);
        OK(pal_model_prefill(small.model, small.work, b, ids, LENGTH, one, err));
        test_same_bits("after a reset", one, many, f.rows);
        pal_state_free(a);
        pal_state_free(b);
        test_runner_free(&f);
        test_runner_free(&small);
    }
}

/* One sequence alone, and the same next to a neighbour whose every activation is NaN. Token V-1 has an embedding of
 * NaN; with a tied head its own column of the logits is NaN for everyone and is left out. */
/* Angles are computed as far as sequences came: by a long piece, by short ones and by steps they are the same. */
static void attention_far_from_the_start_knows_its_position(void **state) {
    (void)state;
    enum { FAR = 700 };
    runner f = test_runner(8, PAL_FOR_INFERENCE, (pal_work_options){ .tokens = FAR }),
           small = test_runner(8, PAL_FOR_INFERENCE, (pal_work_options){ .tokens = 5, .context = FAR });
    int32_t ids[FAR];
    pal_state *s;
    float one[MOST_ROWS];
    test_ids(ids, FAR, V, 6);
    assert_true(pal_model_grows(&f.model->config));
    float *logits = whole(&f, ids, FAR);
    OK(pal_state_new(&s, small.model, FAR, err));
    OK(pal_model_prefill(small.model, small.work, s, ids, FAR / 2, one, err));
    test_near("pieces", one, logits + (size_t)(FAR / 2 - 1) * f.rows, f.rows, 2e-5);
    for (int t = FAR / 2; t < FAR; t++) OK(pal_model_step(small.model, small.work, &s, 1, &ids[t], one, err));
    test_near("steps", one, logits + (size_t)(FAR - 1) * f.rows, f.rows, 2e-5);
    pal_state_free(s);
    pal_free(logits);
    test_runner_free(&small);
    test_runner_free(&f);
}

static void a_neighbour_full_of_nan_changes_nothing(void **state) {
    (void)state;
    for (size_t k = 0; k < test_kind_count; k++) {
        runner f = test_runner(k, PAL_FOR_INFERENCE, (pal_work_options){ .tokens = 3 * LENGTH, .sequences = 3 });
        const size_t E = (size_t)pal_model_config_of(f.model)->hidden;
        int32_t ids[3 * LENGTH];
        test_ids(ids, 3 * LENGTH, V - 1, 6);
        for (size_t i = 0; i < E; i++)
            f.model->parameters[f.model->table.entries[0].view.offset + (V - 1) * E + i] = NAN;
        float *alone = whole(&f, ids + LENGTH, LENGTH), *beside = pal_alloc(LENGTH * f.rows, sizeof *beside);
        for (int t = 0; t < LENGTH; t++) ids[t] = ids[2 * LENGTH + t] = V - 1;
        const int cu[4] = { 0, LENGTH, 2 * LENGTH, 3 * LENGTH };
        int at[LENGTH];
        for (int t = 0; t < LENGTH; t++) at[t] = LENGTH + t;
        const pal_batch batch = { .tokens = 3 * LENGTH, .sequences = 3, .ids = ids, .cu_seqlens = cu };
        OK(pal_model_forward(f.model, f.work, &batch, at, LENGTH, beside, err));
        pal_state *s[3];
        float step[3 * MOST_ROWS];
        for (int i = 0; i < 3; i++) OK(pal_state_new(&s[i], f.model, LENGTH, err));
        for (int t = 0; t < LENGTH; t++) {
            const int32_t now[3] = { ids[t], ids[LENGTH + t], ids[2 * LENGTH + t] };
            test_near(f.name, beside + (size_t)t * f.rows, alone + (size_t)t * f.rows, V - 1, 1e-5);
            OK(pal_model_step(f.model, f.work, s, 3, now, step, err));
            test_near(f.name, step + f.rows, alone + (size_t)t * f.rows, V - 1, 2e-5);
            assert_true(isnan(step[0]) && isnan(step[2 * f.rows]));
        }
        for (int i = 0; i < 3; i++) pal_state_free(s[i]);
        pal_free(alone);
        pal_free(beside);
        test_runner_free(&f);
    }
}

/* Decoding reads weights with a kernel whose sums do not depend on the number of rows. */
static void co_batched_steps_equal_solo_steps_bit_for_bit(void **state) {
    (void)state;
    enum { N = 5 };
    for (size_t k = 0; k < test_kind_count; k++) {
        runner f = test_runner(k, PAL_FOR_INFERENCE, (pal_work_options){ .tokens = LENGTH, .sequences = N });
        pal_state *together[N], *alone[N];
        float all[N * MOST_ROWS], one[MOST_ROWS];
        for (int i = 0; i < N; i++) {
            OK(pal_state_new(&together[i], f.model, LENGTH, err));
            OK(pal_state_new(&alone[i], f.model, LENGTH, err));
        }
        for (uint64_t t = 0; t < 9; t++) {
            int32_t ids[N];
            test_ids(ids, N, V, 100 + t);
            OK(pal_model_step(f.model, f.work, together, N, ids, all, err));
            for (int i = 0; i < N; i++) {
                OK(pal_model_step(f.model, f.work, &alone[i], 1, &ids[i], one, err));
                test_same_bits(f.name, one, all + (size_t)i * f.rows, f.rows);
            }
        }
        for (int i = 0; i < N; i++) pal_state_free(together[i]), pal_state_free(alone[i]);
        test_runner_free(&f);
    }
}

static void without_importance_a_model_equals_its_ablation(void **state) {
    (void)state;
    static const size_t kinds[][2] = { { 0, 1 }, { 3, 4 } };
    for (size_t k = 0; k < PAL_COUNT(kinds); k++) {
        runner meta = test_runner(kinds[k][0], PAL_FOR_INFERENCE, (pal_work_options){ .tokens = LENGTH });
        runner plain = test_runner(kinds[k][1], PAL_FOR_INFERENCE, (pal_work_options){ .tokens = LENGTH });
        for (size_t i = 0; i < pal_model_weight_count(meta.model); i++) {
            const pal_weight *w = pal_model_weight(meta.model, i);
            float *x = meta.model->parameters + w->offset;
            if (strstr(w->name, "b_scale"))
                for (size_t j = 0; j < w->count; j++) x[j] = -1e4f;
            if (strstr(w->name, "Ip_log")) /* a prior of 1, as the ablation has */
                for (size_t j = 0; j < w->count; j++) x[j] = 0;
        }
        int32_t ids[LENGTH];
        test_ids(ids, LENGTH, V, 8);
        float *a = whole(&meta, ids, LENGTH), *b = whole(&plain, ids, LENGTH);
        test_near(meta.name, a, b, LENGTH * meta.rows, 5e-6);
        pal_free(a);
        pal_free(b);
        test_runner_free(&meta);
        test_runner_free(&plain);
    }
}

static void wrong_calls_get_one_sentence(void **state) {
    (void)state;
    runner f = test_runner(8, PAL_FOR_INFERENCE, (pal_work_options){ .tokens = 8, .sequences = 2 });
    pal_error why;
    pal_state *s[2];
    float logits[8 * MOST_ROWS];
    pal_loss loss;
    const int32_t good[4] = { 1, 2, 3, 4 }, bad[4] = { 1, V, 3, 4 }, negative[4] = { -1, 2, 3, 4 };
    const int cu[2] = { 0, 4 }, wrong[2] = { 0, 3 };
    OK(pal_state_new(&s[0], f.model, 5, err));
    OK(pal_state_new(&s[1], f.model, 5, err));
    pal_batch b = { .tokens = 4, .sequences = 1, .ids = bad, .cu_seqlens = cu };
    assert_int_equal(pal_model_forward(f.model, f.work, &b, NULL, 4, logits, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "vocabulary"));
    b.ids = negative;
    assert_int_equal(pal_model_forward(f.model, f.work, &b, NULL, 4, logits, &why), PAL_E_ARGUMENT);
    b.ids = good;
    b.cu_seqlens = wrong;
    assert_int_equal(pal_model_forward(f.model, f.work, &b, NULL, 4, logits, &why), PAL_E_ARGUMENT);
    b.cu_seqlens = cu;
    assert_int_equal(pal_model_loss(f.model, f.work, &b, &loss, NULL, &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_model_learn(f.model, f.work, &b, 1, &loss, NULL, &why), PAL_E_ARGUMENT);
    pal_state *const twice[2] = { s[0], s[0] };
    assert_int_equal(pal_model_step(f.model, f.work, twice, 2, good, logits, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "share"));
    assert_int_equal(pal_model_prefill(f.model, f.work, s[0], good, 4, logits, &why), PAL_OK);
    assert_int_equal(pal_model_prefill(f.model, f.work, s[0], good, 2, logits, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "a maximum context of"));
    assert_int_equal(pal_state_position(s[0]), 4);
    assert_int_equal(pal_model_step(f.model, f.work, s, 1, good, logits, &why), PAL_OK);
    assert_int_equal(pal_model_step(f.model, f.work, s, 1, good, logits, &why), PAL_E_ARGUMENT);
    pal_work *work;
    assert_int_equal(pal_work_new(&work, f.model, f.cx, &(pal_work_options){ .tokens = 8, .training = true }, &why),
                     PAL_E_ARGUMENT);
    assert_int_equal(pal_work_new(&work, f.model, f.cx, &(pal_work_options){ .tokens = 0 }, &why), PAL_E_ARGUMENT);
    pal_state_free(s[0]);
    pal_state_free(s[1]);
    test_runner_free(&f);
}

static void making_a_model_survives_memory_running_out(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    const pal_model_config c = test_model_config(&test_kinds[5]);
    for (uint64_t nth = 1;; nth++) {
        pal_model *model;
        pal_work *work = NULL;
        pal_state *s = NULL;
        pal_error err;
        pal_alloc_fail_at(nth);
        pal_status st = pal_model_new(&model, &c, 1, PAL_FOR_TRAINING, cx, &err);
        if (!st) st = pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = 8, .training = true }, &err);
        if (!st) st = pal_state_new(&s, model, 8, &err);
        pal_alloc_fail_at(0);
        pal_state_free(s);
        pal_work_free(work);
        pal_model_close(model);
        if (!st) break;
        assert_int_equal(st, PAL_E_MEMORY);
    }
    pal_context_free(cx);
}

/* Rules cut few sequences differently from many; whatever number comes, the workspace was planned for it. */
static void any_number_of_sequences_fits_the_plan(void **state) {
    (void)state;
    enum { MOST = 24, TOKENS = 2 * MOST };
    for (size_t k = 0; k < test_kind_count; k++) {
        runner f = test_runner(k, PAL_FOR_TRAINING,
                               (pal_work_options){ .tokens = TOKENS, .sequences = MOST, .training = true });
        int32_t ids[TOKENS];
        int cu[MOST + 1];
        test_ids(ids, TOKENS, V, 12);
        for (int n = 1; n <= MOST; n++) {
            pal_loss loss;
            for (int i = 0; i <= n; i++) cu[i] = TOKENS * i / n;
            const pal_batch batch = { .tokens = TOKENS, .sequences = n, .ids = ids, .cu_seqlens = cu, .targets = ids };
            OK(pal_model_learn(f.model, f.work, &batch, 1.0f, &loss, NULL, err));
            assert_int_equal(loss.count, TOKENS);
        }
        test_runner_free(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stepping_equals_forward),
        cmocka_unit_test(mesa_tolerance_reaches_the_memory),
        cmocka_unit_test(any_split_through_states_equals_the_whole),
        cmocka_unit_test(a_borrowed_state_is_left_as_it_was),
        cmocka_unit_test(prefill_in_pieces_equals_prefill_at_once),
        cmocka_unit_test(attention_far_from_the_start_knows_its_position),
        cmocka_unit_test(a_neighbour_full_of_nan_changes_nothing),
        cmocka_unit_test(co_batched_steps_equal_solo_steps_bit_for_bit),
        cmocka_unit_test(without_importance_a_model_equals_its_ablation),
        cmocka_unit_test(wrong_calls_get_one_sentence),
        cmocka_unit_test(making_a_model_survives_memory_running_out),
        cmocka_unit_test(any_number_of_sequences_fits_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
