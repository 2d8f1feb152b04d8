/* SPDX-License-Identifier: MIT */
/* Loss and optimiser: what training relies on beyond the recorded numbers. */
#include <math.h>

#include "base/alloc.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/optimiser/adamw.h"
#include "palimpsa/safetensors.h"
#include "support/support.h"

static void all_ignored_gives_zero(void **state) {
    (void)state;
    enum { ROWS = 5, V = 37 };
    float *x = test_guarded(ROWS * V), *d = test_guarded(ROWS * V), *nll = test_guarded(ROWS);
    int labels[ROWS];
    pal_rng rng = pal_rng_at(1, 1);
    test_fill_normal(x, ROWS * V, &rng, 3);
    for (int t = 0; t < ROWS; t++) labels[t] = PAL_LABEL_IGNORED;
    x[2 * V] = NAN; /* ignored */
    assert_int_equal(pal_counted_labels(labels, ROWS), 0);
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(2, pal_cpu_level_name(level));
        for (int i = 0; i < ROWS * V; i++) d[i] = NAN;
        const pal_cross_entropy_args a = {
            .rows = ROWS, .vocab = V, .logits = { x, V }, .labels = labels, .scale = 1, .nll = nll, .dlogits = { d, V }
        };
        assert_true(pal_cross_entropy(cx, &a) == 0.0);
        for (int i = 0; i < ROWS * V; i++) assert_true(d[i] == 0.0f);
        for (int t = 0; t < ROWS; t++) assert_true(nll[t] == 0.0f);
        pal_context_free(cx);
    }
    test_guarded_free(x, ROWS * V), test_guarded_free(d, ROWS * V), test_guarded_free(nll, ROWS);
}

static void loss_holds_for_any_logits(void **state) {
    (void)state;
    static const int vocabularies[] = { 1, 2, 50, 1024, 8192, 50257 };
    static const double spreads[] = { 1e-3, 1, 100, 1e30 };
    pal_context *plain = test_context(1, "ref");
    pal_rng rng = pal_rng_at(2, 1);
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (size_t v = 0; v < PAL_COUNT(vocabularies); v++)
            for (size_t s = 0; s < PAL_COUNT(spreads); s++) {
                const int V = vocabularies[v];
                const size_t n = (size_t)V;
                float *x = test_guarded(n), *d = test_guarded(n), *expected = test_guarded(n), nll, expected_nll;
                int label = (int)pal_rng_below(&rng, (uint32_t)V), best, expected_best;
                test_fill_normal(x, n, &rng, spreads[s]);
                if (V > 50) x[V / 3] = -INFINITY;
                if (label == V / 3) label++;
                if (V == 1) label = 0;
                pal_cross_entropy_args a = { .rows = 1,
                                             .vocab = V,
                                             .logits = { x, n },
                                             .labels = &label,
                                             .scale = 0.5f,
                                             .nll = &expected_nll,
                                             .argmax = &expected_best,
                                             .dlogits = { expected, n } };
                pal_cross_entropy(plain, &a);
                a.nll = &nll, a.argmax = &best, a.dlogits.data = d;
                pal_cross_entropy(cx, &a);
                test_near("gradient", d, expected, n, 1e-6);
                test_near("nll", &nll, &expected_nll, 1, 1e-6);
                assert_int_equal(best, expected_best);
                a.dlogits.data = NULL; /* evaluation: no gradient, the same nll */
                const float with_gradient = nll;
                pal_cross_entropy(cx, &a);
                test_same_bits("nll alone", &nll, &with_gradient, 1);
                test_guarded_free(x, n), test_guarded_free(d, n), test_guarded_free(expected, n);
            }
        pal_context_free(cx);
    }
    pal_context_free(plain);
}

static void infinite_logits_make_their_row_nan(void **state) {
    (void)state;
    enum { V = 40 };
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        float x[2][V] = { { 0 } }, d[2][V], nll[2];
        const int labels[] = { 1, 1 };
        x[0][7] = INFINITY;
        pal_cross_entropy(cx, &(pal_cross_entropy_args){ .rows = 2,
                                                         .vocab = V,
                                                         .logits = { x[0], V },
                                                         .labels = labels,
                                                         .scale = 1,
                                                         .nll = nll,
                                                         .dlogits = { d[0], V } });
        assert_true(!isfinite(nll[0]) && isnan(d[0][7]));
        assert_true(fabsf(nll[1] - logf(V)) < 1e-6f && fabsf(d[1][0] - 1.0f / V) < 1e-8f);
        pal_context_free(cx);
    }
}

/* sizes around the vector widths; several steps, so that both moments and the bias correction matter */
static void adamw_matches_the_reference(void **state) {
    (void)state;
    pal_context *plain = test_context(1, "ref");
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (size_t n = 1; n <= 70; n++) {
            pal_rng rng = pal_rng_at(3, n);
            float *found[4], *expected[4]; /* p, m, v, g */
            for (int k = 0; k < 4; k++) {
                found[k] = test_guarded(n), expected[k] = test_guarded(n);
                test_fill_normal(found[k], n, &rng, k == 1 || k == 2 ? 0 : 1);
                memcpy(expected[k], found[k], n * sizeof(float));
            }
            for (int step = 1; step <= 4; step++) {
                test_fill_normal(found[3], n, &rng, 0.1);
                memcpy(expected[3], found[3], n * sizeof(float));
                const pal_adamw_step s = { .lr = 1e-2,
                                           .beta1 = 0.9,
                                           .beta2 = 0.95,
                                           .eps = 1e-8,
                                           .weight_decay = 0.1,
                                           .factor = 0.5,
                                           .step = step };
                pal_adamw(cx, &s, found[0], found[1], found[2], found[3], n);
                pal_adamw(plain, &s, expected[0], expected[1], expected[2], expected[3], n);
            }
            test_near("p", found[0], expected[0], n, 1e-6);
            test_near("m", found[1], expected[1], n, 1e-6);
            test_near("v", found[2], expected[2], n, 1e-6);
            test_same_bits("g", found[3], expected[3], n);
            for (int k = 0; k < 4; k++) test_guarded_free(found[k], n), test_guarded_free(expected[k], n);
        }
        pal_context_free(cx);
    }
    pal_context_free(plain);
}

/* A tensor of tests/golden/optimiser/adamw_bf16.safetensors as floats, to be freed. */
static float *recorded(const pal_safetensors *file, const char *name, char part, size_t *count) {
    char full[32];
    snprintf(full, sizeof full, "%s.%c", name, part);
    const pal_tensor *t = pal_safetensors_find(file, full);
    assert_non_null(t);
    float *x = pal_alloc(t->count, sizeof *x);
    OK(pal_tensor_to_f32(t, x, err));
    *count = t->count;
    return x;
}

/* torch's AdamW on bf16 tensors, every step from torch's own numbers and all steps in a row */
static void adamw_bf16_is_torch_step_by_step(void **state) {
    (void)state;
    enum { N = 48, STEPS = 40 };
    static const struct {
        const char *name;
        pal_adamw_step step;
    } cases[] = {
        { "recall", { .lr = 4.64e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .factor = 1 } },
        { "large", { .lr = 0.25, .beta1 = 0.4, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.5, .factor = 1 } },
        { "no_decay", { .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-15, .factor = 1 } },
    };
    pal_context *cx = test_context(2, NULL);
    pal_safetensors *file;
    OK(pal_safetensors_open(&file, PAL_TEST_GOLDEN "/optimiser/adamw_bf16.safetensors", err));
    for (size_t c = 0; c < PAL_COUNT(cases); c++) {
        size_t count[4];
        float *g = recorded(file, cases[c].name, 'g', &count[0]), *p = recorded(file, cases[c].name, 'p', &count[1]),
              *m = recorded(file, cases[c].name, 'm', &count[2]), *v = recorded(file, cases[c].name, 'v', &count[3]);
        assert_int_equal(count[0], STEPS * N);
        assert_int_equal(count[1], (STEPS + 1) * N);
        assert_int_equal(count[2], STEPS * N);
        assert_int_equal(count[3], STEPS * N);
        float found[3][N] = { { 0 } };
        memcpy(found[0], p, sizeof found[0]);
        for (int i = 0; i < STEPS; i++) {
            pal_adamw_step step = cases[c].step;
            step.step = i + 1;
            pal_adamw_bf16(cx, &step, found[0], found[1], found[2], g + i * N, N);
            test_same_bits("p", found[0], p + (i + 1) * N, N);
            test_same_bits("m", found[1], m + i * N, N);
            test_same_bits("v", found[2], v + i * N, N);
        }
        pal_free(g), pal_free(p), pal_free(m), pal_free(v);
    }
    pal_safetensors_close(file);
    pal_context_free(cx);
}

static void adamw_decays_even_when_the_rate_is_tiny(void **state) {
    (void)state;
    for (TEST_LEVELS(level)) { /* 1 - lr wd would round to a wrong factor; lr wd p must not be lost */
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        float p = 1, m = 0, v = 0, g = 0;
        for (int step = 1; step <= 1000; step++)
            pal_adamw(cx,
                      &(pal_adamw_step){ .lr = 3e-6,
                                         .beta1 = 0.9,
                                         .beta2 = 0.95,
                                         .eps = 1e-15,
                                         .weight_decay = 0.1,
                                         .factor = 1,
                                         .step = step },
                      &p, &m, &v, &g, 1);
        assert_true(fabs((double)p - pow(1 - 3e-7, 1000)) < 6e-5);
        pal_context_free(cx);
    }
}

static void global_norm_is_exact_and_deterministic(void **state) {
    (void)state;
    enum { N = 100003 };
    float *x = test_guarded(N);
    double scratch[16];
    pal_rng rng = pal_rng_at(5, 5);
    test_fill_normal(x, N, &rng, 1);
    assert_true(pal_sum_squares_blocks(N) <= PAL_COUNT(scratch));
    double expected = 0;
    for (int i = 0; i < N; i++) expected += (double)x[i] * (double)x[i];
    for (TEST_LEVELS(level)) {
        double one = 0;
        for (int threads = 1; threads <= 7; threads++) {
            pal_context *cx = test_context(threads, pal_cpu_level_name(level));
            const double sum = pal_sum_squares(cx, x, N, scratch);
            if (threads == 1) one = sum;
            assert_true(sum == one);
            assert_true(fabs(sum / expected - 1) < 1e-13);
            pal_context_free(cx);
        }
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (size_t n = 0; n <= 70; n++) {
            double plain = 0;
            const float *tail = x + N - n; /* ends at the guard page */
            for (size_t i = 0; i < n; i++) plain += (double)tail[i] * (double)tail[i];
            assert_true(fabs(pal_sum_squares(cx, tail, n, scratch) - plain) <= 1e-14 * plain);
        }
        const float before = x[N / 2];
        x[N / 2] = 1e30f; /* its square is not a float */
        assert_true(fabs(pal_sum_squares(cx, x, N, scratch) / 1e60 - 1) < 1e-6);
        x[N / 2] = NAN;
        assert_true(isnan(pal_sum_squares(cx, x, N, scratch)));
        x[N / 2] = before;
        pal_context_free(cx);
    }
    assert_true(pal_clip_factor(0.5, 1) == 1 && pal_clip_factor(100, 0) == 1);
    assert_true(fabs(pal_clip_factor(4, 1) - 1 / 4.000001) < 1e-15);
    test_guarded_free(x, N);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ignored_gives_zero),
        cmocka_unit_test(loss_holds_for_any_logits),
        cmocka_unit_test(infinite_logits_make_their_row_nan),
        cmocka_unit_test(adamw_matches_the_reference),
        cmocka_unit_test(adamw_bf16_is_torch_step_by_step),
        cmocka_unit_test(adamw_decays_even_when_the_rate_is_tiny),
        cmocka_unit_test(global_norm_is_exact_and_deterministic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
