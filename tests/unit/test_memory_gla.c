/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "base/alloc.h"
#include "memory/linear/tile.h"
#include "support/memory_harness.h"

/* The rule in float64, S[i][j] as exported. */
static double loss(const memory_case *c, const memory_doubles *x) {
    const pal_memory_shape *s = &c->shape;
    const size_t H = (size_t)s->heads, KH = (size_t)s->key_heads, dk = (size_t)s->dk, dv = (size_t)s->dv;
    double sum = 0, *S = pal_alloc(dv * dk, sizeof *S);
    for (size_t n = 0; n < (size_t)s->sequences; n++)
        for (size_t h = 0; h < H; h++) {
            const size_t part = (n * H + h) * dv * dk, key = h * KH / H;
            for (size_t e = 0; e < dv * dk; e++) S[e] = x->initial[0] ? x->initial[0][part + e] : 0;
            for (size_t t = (size_t)c->cu[n]; t < (size_t)c->cu[n + 1]; t++) {
                const double *q = x->input[0] + (t * KH + key) * dk, *k = x->input[1] + (t * KH + key) * dk;
                const double *v = x->input[2] + (t * H + h) * dv, a = exp(x->input[6][t * H + h]);
                for (size_t i = 0; i < dv; i++) {
                    double y = 0;
                    for (size_t j = 0; j < dk; j++) {
                        S[i * dk + j] = a * S[i * dk + j] + v[i] * k[j];
                        y += S[i * dk + j] * (double)c->scale * q[j];
                    }
                    sum += y * (double)c->dy[(t * H + h) * dv + i];
                }
            }
            for (size_t e = 0; e < dv * dk; e++) sum += S[e] * (double)c->dfinal[0][part + e];
        }
    pal_free(S);
    return sum;
}

static const memory_subject gla = { .rule = "gla", .loss = loss };

static void gla_matches_golden(void **state) { (void)state; memory_check_golden(&gla); }
static void gla_gradients_match_differences(void **state) { (void)state; memory_check_gradients(&gla); }
static void gla_pieces_and_steps_equal_whole(void **state) { (void)state; memory_check_splits(&gla); }
static void gla_packed_equals_separate(void **state) { (void)state; memory_check_packed(&gla); }
static void gla_is_the_same_for_any_thread_count(void **state) { (void)state; memory_check_threads(&gla); }
static void gla_levels_match_the_reference(void **state) { (void)state; memory_check_levels(&gla); }
static void gla_shared_keys_equal_repeated_keys(void **state) { (void)state; memory_check_groups(&gla); }
static void gla_gradients_are_optional(void **state) { (void)state; memory_check_optional(&gla); }
static void gla_starts_from_nothing_when_asked(void **state) { (void)state; memory_check_starts(&gla); }
static void gla_allocates_nothing(void **state) { (void)state; memory_check_no_allocation(&gla); }

/* From no decay to one that leaves nothing, and both beside each other: every level against the reference. */
static void gla_holds_at_any_forgetting(void **state) {
    (void)state;
    static const double strengths[][2] = { { 0, 0 }, { 1e-8, 1e-8 }, { 1e-3, 1 }, { 20, 20 }, { 50, 50 }, { 50, 1e-8 }, { 80, 3 } };
    static const int lengths[] = { 67, 5 };
    pal_rng rng = pal_rng_at(31, 0);
    pal_context *ref = test_context(1, "ref");
    for (TEST_LEVELS(level))
        for (size_t i = 0; i < PAL_COUNT(strengths); i++) {
            memory_case *c = memory_case_new(&gla, 2, lengths, 2, 2, 9, 12, true, 1, &rng);
            pal_context *cx = test_context(2, pal_cpu_level_name(level));
            for (size_t j = 0; j < c->count[6]; j++) c->input[6][j] = -(float)strengths[i][pal_rng_below(&rng, 2)];
            memory_result *x = memory_run_case(c, cx, 0, true), *expected = memory_run_case(c, ref, 0, true);
            test_near("y", x->y, expected->y, (size_t)c->shape.tokens * 24, 5e-6);
            test_near("S", x->final[0], expected->final[0], 2 * c->part[0], 5e-6);
            for (int input = 0; input < MEMORY_INPUTS; input++)
                if (c->input[input]) test_near("a gradient", x->grad[input], expected->grad[input], c->count[input], 1e-5);
            test_near("the gradient of S0", x->dinitial[0], expected->dinitial[0], 2 * c->part[0], 1e-5);
            memory_result_free(x);
            memory_result_free(expected);
            pal_context_free(cx);
            memory_case_free(c);
        }
    pal_context_free(ref);
}

/* A long sequence with hardly any forgetting against float64: sums of g must not lose what they add up. */
static void gla_keeps_its_accuracy_over_long_sequences(void **state) {
    (void)state;
    const int length = getenv("PALIMPSA_TEST_LONG") ? 100000 : 20000;
    static const double strengths[] = { 1e-8, 1e-4, 0.05 };
    pal_context *cx = test_context(2, NULL);
    for (size_t i = 0; i < PAL_COUNT(strengths); i++) {
        pal_rng rng = pal_rng_at(32, i);
        memory_case *c = memory_case_new(&gla, 1, &length, 1, 1, 4, 3, false, strengths[i], &rng);
        memory_result *r = memory_run_case(c, cx, 0, true);
        double S[12] = { 0 }, dS[12], worst_y = 0, scale_y = 0, worst_g = 0, scale_g = 0;
        double *kept = pal_alloc((size_t)length * 12, sizeof *kept);
        for (size_t t = 0; t < (size_t)length; t++) {
            const double a = exp((double)c->input[6][t]);
            for (size_t v = 0; v < 3; v++) {
                double y = 0;
                for (size_t k = 0; k < 4; k++) {
                    kept[t * 12 + v * 4 + k] = S[v * 4 + k];
                    S[v * 4 + k] = a * S[v * 4 + k] + (double)c->input[2][t * 3 + v] * (double)c->input[1][t * 4 + k];
                    y += S[v * 4 + k] * (double)c->scale * (double)c->input[0][t * 4 + k];
                }
                scale_y = fmax(scale_y, fabs(y));
                worst_y = fmax(worst_y, fabs(y - (double)r->y[t * 3 + v]));
            }
        }
        for (size_t e = 0; e < 12; e++) dS[e] = (double)c->dfinal[0][e];
        for (size_t t = (size_t)length; t-- > 0;) {
            const double a = exp((double)c->input[6][t]);
            double dg = 0;
            for (size_t e = 0; e < 12; e++) {
                dS[e] += (double)c->dy[t * 3 + e / 4] * (double)c->scale * (double)c->input[0][t * 4 + e % 4];
                dS[e] *= a;
                dg += dS[e] * kept[t * 12 + e];
            }
            scale_g = fmax(scale_g, fabs(dg));
            worst_g = fmax(worst_g, fabs(dg - (double)r->grad[6][t]));
        }
        /* The chunked form sums logarithms; the plain recurrence rounds once a token, which the contract allows for. */
        const double accept = pal_context_level(cx) == PAL_CPU_REF ? 2e-5 + length * 0x1p-24 : 2e-5;
        if (!(worst_y <= accept * scale_y)) fail_msg("y after %d tokens: error %g of %g", length, worst_y, scale_y);
        if (!(worst_g <= accept * scale_g)) fail_msg("gradient of g over %d tokens: error %g of %g", length, worst_g, scale_g);
        const double memory = test_nmax_f64(r->final[0], S, 12);
        if (!(memory <= accept)) fail_msg("S after %d tokens: error %g", length, memory);
        pal_free(kept);
        memory_result_free(r);
        memory_case_free(c);
    }
    pal_context_free(cx);
}

#if PAL_X86_64
/* Element (row, column) of an operand as the product sees it. */
static double element(pal_tile_operand x, int row, int column) {
    return (double)x.data[(size_t)row * x.row + (size_t)column * x.col];
}

static void check_product(pal_tile_product_fn *product, pal_tile_form form, bool turn_a, bool turn_b, int M, int N, int K, float keep, pal_rng *rng) {
    const size_t a_row = (size_t)(turn_a ? M : K), b_row = (size_t)(turn_b ? K : N);
    const size_t a_floats = (size_t)M * (size_t)K, b_floats = (size_t)K * (size_t)N, c_floats = (size_t)M * (size_t)N;
    float *a = test_guarded(a_floats), *b = test_guarded(b_floats), *c = test_guarded(c_floats), *before = test_guarded(c_floats);
    const pal_tile_operand A = { a, turn_a ? 1 : a_row, turn_a ? a_row : 1 }, B = { b, turn_b ? 1 : b_row, turn_b ? b_row : 1 };
    test_fill_normal(a, a_floats, rng, 1);
    test_fill_normal(b, b_floats, rng, 1);
    for (int m = 0; m < M; m++)
        for (int k = 0; k < K; k++)
            if ((form == PAL_TILE_A_LOWER && k > m) || (form == PAL_TILE_A_UPPER && k < m)) a[(size_t)m * A.row + (size_t)k * A.col] = 0;
    if (keep != 0) test_fill_normal(c, c_floats, rng, 1);
    memcpy(before, c, c_floats * sizeof *c);
    product(form, M, N, K, A, B, keep, c, (size_t)N);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            const size_t e = (size_t)m * (size_t)N + (size_t)n;
            double sum = keep != 0 ? (double)keep * (double)before[e] : 0, size = fabs(sum);
            for (int k = 0; k < K; k++) sum += element(A, m, k) * element(B, k, n), size += fabs(element(A, m, k) * element(B, k, n));
            if (form == PAL_TILE_C_LOWER && n > m) continue;
            if (!(fabs((double)c[e] - sum) <= (K + 2) * 0x1p-24 * size + 1e-30))
                fail_msg("form %d %d%d %dx%dx%d: (%d,%d) is %g, expected %g", form, turn_a, turn_b, M, N, K, m, n, (double)c[e], sum);
        }
    test_guarded_free(a, a_floats);
    test_guarded_free(b, b_floats);
    test_guarded_free(c, c_floats);
    test_guarded_free(before, c_floats);
}

static void tile_products_are_exact_for_all_sizes_and_forms(void **state) {
    (void)state;
    static const int sizes[] = { 1, 2, 5, 6, 7, 8, 9, 13, 16, 17, 31, 33, 64 };
    static const float keeps[] = { 0, 1, 0.5f };
    pal_rng rng = pal_rng_at(33, 0);
    for (TEST_LEVELS(level)) {
        if (level == PAL_CPU_REF) continue;
        pal_tile_product_fn *product = level == PAL_CPU_AVX512 ? pal_tile_product_avx512 : pal_tile_product_avx2;
        for (int i = 0; i < 400; i++) {
            const int M = sizes[pal_rng_below(&rng, PAL_COUNT(sizes))], N = sizes[pal_rng_below(&rng, PAL_COUNT(sizes))];
            const int K = i % 10 ? sizes[pal_rng_below(&rng, PAL_COUNT(sizes))] : 130 + (int)pal_rng_below(&rng, 200);
            const pal_tile_form form = (pal_tile_form)pal_rng_below(&rng, 4);
            const bool square = form == PAL_TILE_A_LOWER || form == PAL_TILE_A_UPPER;
            check_product(product, form, i & 1, i & 2, square ? K : form == PAL_TILE_C_LOWER ? N : M, N, K, keeps[i % 3], &rng);
        }
    }
}
#else
static void tile_products_are_exact_for_all_sizes_and_forms(void **state) { (void)state; }
#endif

static void what_does_not_exist_has_no_size(void **state) {
    (void)state;
    const pal_memory_shape shape = { .sequences = 1, .tokens = 1, .heads = 2, .key_heads = 2, .dk = 3, .dv = 4, .context = 5 };
    assert_null(pal_memory_find(NULL));
    for (int r = 0; pal_memory_at(r); r++)
        for (int part = -1; part <= 2; part++)
            assert_int_equal(pal_memory_part_floats(pal_memory_at(r), &shape, part) > 0, pal_memory_part_name(pal_memory_at(r), part) != NULL);
    float state_of[2 * 3 * 16] = { 0 }, *const nowhere[2] = { NULL, NULL };
    assert_true(sizeof state_of >= pal_memory_state_floats(pal_memory_find("gla"), &shape) * sizeof(float));
    pal_memory_export(pal_memory_find("gla"), &shape, NULL, nowhere, state_of);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gla_matches_golden),
        cmocka_unit_test(gla_gradients_match_differences),
        cmocka_unit_test(gla_pieces_and_steps_equal_whole),
        cmocka_unit_test(gla_packed_equals_separate),
        cmocka_unit_test(gla_is_the_same_for_any_thread_count),
        cmocka_unit_test(gla_levels_match_the_reference),
        cmocka_unit_test(gla_shared_keys_equal_repeated_keys),
        cmocka_unit_test(gla_gradients_are_optional),
        cmocka_unit_test(gla_starts_from_nothing_when_asked),
        cmocka_unit_test(what_does_not_exist_has_no_size),
        cmocka_unit_test(gla_allocates_nothing),
        cmocka_unit_test(gla_holds_at_any_forgetting),
        cmocka_unit_test(gla_keeps_its_accuracy_over_long_sequences),
        cmocka_unit_test(tile_products_are_exact_for_all_sizes_and_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
