/* SPDX-License-Identifier: MIT */
#include "support/support.h"

#include <math.h>

#include "kernels/matvec/matvec.h"

static void variants_match_the_reference(void **state) {
    (void)state;
    static const int widths[] = { 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 65, 300 };
    pal_rng rng = pal_rng_at(1, 2);
    for (size_t s = 0; s < PAL_COUNT(widths); s++)
        for (int rows = 1; rows <= PAL_MATVEC_ROWS; rows++) {
            const int in = widths[s], out = 1 + (int)pal_rng_below(&rng, 70);
            const size_t nx = (size_t)rows * (size_t)in, nw = (size_t)out * (size_t)in, ny = (size_t)rows * (size_t)out;
            float *x = test_guarded(nx), *w = test_guarded(nw), *ref = test_guarded(ny), *y = test_guarded(ny);
            test_fill_normal(x, nx, &rng, 1);
            test_fill_normal(w, nw, &rng, 1);
            pal_matvec_args a = {
                .rows = rows, .in = in, .out = out, .x = x, .ldx = (size_t)in, .w = w, .y = ref, .ldy = (size_t)out
            };
            for (int add = 0; add < 2; add++) {
                a.add = add;
                a.y = ref;
                pal_matvec_outputs_ref(&a, 0, (size_t)out);
                for (TEST_LEVELS(level)) {
                    pal_matvec_outputs_fn *fn = (pal_matvec_outputs_fn *)pal_variant_best(pal_matvec_outputs_variants,
                                                                                          level);
                    if (add) a.y = y, a.add = false, fn(&a, 0, (size_t)out), a.add = true;
                    a.y = y;
                    fn(&a, 0, (size_t)out);
                    test_near("matvec", y, ref, ny, 4e-7 * sqrt(in) + 4e-7);
                }
            }
            test_guarded_free(x, nx);
            test_guarded_free(w, nw);
            test_guarded_free(ref, ny);
            test_guarded_free(y, ny);
        }
}

static void a_row_gives_the_same_bits_alone_and_among_others(void **state) {
    (void)state;
    enum { IN = 77, OUT = 1003 };
    static float x[PAL_MATVEC_ROWS * IN], w[OUT * IN], all[PAL_MATVEC_ROWS * OUT], one[OUT];
    pal_rng rng = pal_rng_at(3, 4);
    test_fill_normal(x, PAL_COUNT(x), &rng, 1);
    test_fill_normal(w, PAL_COUNT(w), &rng, 1);
    for (TEST_LEVELS(level))
        for (int threads = 1; threads <= 7; threads += 3) {
            pal_context *cx = test_context(threads, pal_cpu_level_name(level));
            pal_matvec_args a = {
                .rows = PAL_MATVEC_ROWS, .in = IN, .out = OUT, .x = x, .ldx = IN, .w = w, .y = all, .ldy = OUT
            };
            pal_matvec(cx, &a);
            a.rows = 1;
            a.y = one;
            for (size_t r = 0; r < PAL_MATVEC_ROWS; r++) {
                a.x = x + r * IN;
                pal_matvec(cx, &a);
                test_same_bits("a row", one, all + r * OUT, OUT);
            }
            pal_context_free(cx);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_match_the_reference),
        cmocka_unit_test(a_row_gives_the_same_bits_alone_and_among_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
