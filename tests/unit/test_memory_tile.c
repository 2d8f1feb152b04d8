/* SPDX-License-Identifier: MIT */
/* The small matrix products of the chunked rules against sums in float64. */
#include <math.h>

#include "memory/linear/tile.h"
#include "support/support.h"

/* Element (row, column) of an operand as the product sees it. */
static double element(pal_tile_operand x, int row, int column) {
    return (double)x.data[(size_t)row * x.row + (size_t)column * x.col];
}

static void check_product(pal_tile_product_fn *product, pal_tile_form form, bool turn_a, bool turn_b, int M, int N,
                          int K, float keep, pal_rng *rng) {
    const size_t a_row = (size_t)(turn_a ? M : K), b_row = (size_t)(turn_b ? K : N);
    const size_t a_floats = (size_t)M * (size_t)K, b_floats = (size_t)K * (size_t)N, c_floats = (size_t)M * (size_t)N;
    float *a = test_guarded(a_floats), *b = test_guarded(b_floats), *c = test_guarded(c_floats),
          *before = test_guarded(c_floats);
    const pal_tile_operand A = { a, turn_a ? 1 : a_row, turn_a ? a_row : 1 },
                           B = { b, turn_b ? 1 : b_row, turn_b ? b_row : 1 };
    test_fill_normal(a, a_floats, rng, 1);
    test_fill_normal(b, b_floats, rng, 1);
    for (int m = 0; m < M; m++)
        for (int k = 0; k < K; k++)
            if ((form == PAL_TILE_A_LOWER && k > m) || (form == PAL_TILE_A_UPPER && k < m))
                a[(size_t)m * A.row + (size_t)k * A.col] = 0;
    if (keep != 0) test_fill_normal(c, c_floats, rng, 1);
    memcpy(before, c, c_floats * sizeof *c);
    product(form, M, N, K, A, B, keep, c, (size_t)N);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            const size_t e = (size_t)m * (size_t)N + (size_t)n;
            double sum = keep != 0 ? (double)keep * (double)before[e] : 0, size = fabs(sum);
            for (int k = 0; k < K; k++)
                sum += element(A, m, k) * element(B, k, n), size += fabs(element(A, m, k) * element(B, k, n));
            if (form == PAL_TILE_C_LOWER && n > m) continue;
            if (!(fabs((double)c[e] - sum) <= (K + 2) * 0x1p-24 * size + 1e-30))
                fail_msg("form %d %d%d %dx%dx%d: (%d,%d) is %g, expected %g", form, turn_a, turn_b, M, N, K, m, n,
                         (double)c[e], sum);
        }
    test_guarded_free(a, a_floats);
    test_guarded_free(b, b_floats);
    test_guarded_free(c, c_floats);
    test_guarded_free(before, c_floats);
}

static pal_tile_product_fn *product_of(pal_cpu_level level) { /* plain code has none */
#if PAL_X86_64
    return level == PAL_CPU_AVX512 ? pal_tile_product_avx512 : level == PAL_CPU_AVX2 ? pal_tile_product_avx2 : NULL;
#elif PAL_ARM64
    return level == PAL_CPU_NEON ? pal_tile_product_neon : NULL;
#else
    (void)level;
    return NULL;
#endif
}

static void tile_products_are_exact_for_all_sizes_and_forms(void **state) {
    (void)state;
    static const int sizes[] = { 1, 2, 5, 6, 7, 8, 9, 13, 16, 17, 31, 33, 64 };
    static const float keeps[] = { 0, 1, 0.5f };
    pal_rng rng = pal_rng_at(33, 0);
    for (TEST_LEVELS(level)) {
        pal_tile_product_fn *product = product_of(level);
        if (!product) continue;
        for (int i = 0; i < 400; i++) {
            const int M = sizes[pal_rng_below(&rng, PAL_COUNT(sizes))],
                      N = sizes[pal_rng_below(&rng, PAL_COUNT(sizes))];
            const int K = i % 10 ? sizes[pal_rng_below(&rng, PAL_COUNT(sizes))] : 130 + (int)pal_rng_below(&rng, 200);
            const pal_tile_form form = (pal_tile_form)pal_rng_below(&rng, 4);
            const bool square = form == PAL_TILE_A_LOWER || form == PAL_TILE_A_UPPER;
            check_product(product, form, i & 1, i & 2,
                          square                     ? K
                          : form == PAL_TILE_C_LOWER ? N
                                                     : M,
                          N, K, keeps[i % 3], &rng);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tile_products_are_exact_for_all_sizes_and_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
