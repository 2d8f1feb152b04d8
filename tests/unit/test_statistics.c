/* SPDX-License-Identifier: MIT */
/* Statistics of runs, against numbers worked out by hand or from textbooks. */
#include "support/support.h"

#include <math.h>

#include "base/statistics.h"

#define near(found, expected, tolerance)                                     \
    do {                                                                     \
        const double found_ = (found), expected_ = (expected);               \
        if (!(fabs(found_ - expected_) <= (tolerance)))                      \
            fail_msg(#found " is %.17g, expected %.17g", found_, expected_); \
    } while (0)

static void sign_flips_are_counted_exactly(void **state) {
    (void)state;
    near(pal_sign_flip_p((double[]){ 1, 2, 3 }, 3), 2.0 / 8, 0);  /* all signs equal */
    near(pal_sign_flip_p((double[]){ 1, 2, -3 }, 3), 1, 0);       /* the sum is 0 */
    near(pal_sign_flip_p((double[]){ 4, 2, -1 }, 3), 4.0 / 8, 0); /* sums 7, 5 and their negatives */
    near(pal_sign_flip_p((double[]){ 0.1, 0.2, 0.3, 0.3 }, 4), 2.0 / 16, 0);
    assert_true(isnan(pal_sign_flip_p(NULL, 0)));
    double many[PAL_SIGN_FLIP_MOST + 1] = { 1 };
    assert_true(isnan(pal_sign_flip_p(many, PAL_SIGN_FLIP_MOST + 1)));
}

static void holm_adjusts_in_order_of_size(void **state) {
    (void)state;
    double p[] = { 0.04, 0.01, 0.03, 0.005 };
    pal_holm(p, 4);
    near(p[3], 0.02, 1e-15);
    near(p[1], 0.03, 1e-15);
    near(p[2], 0.06, 1e-15);
    near(p[0], 0.06, 1e-15); /* not below the one before */
    double few[] = { NAN, 0.6, 0 };
    pal_holm(few, 3);
    assert_true(isnan(few[0]) && few[1] == 1 && few[2] == 0 && !signbit(few[2]));
}

/* quantiles of Student's distribution from a table: 12.706, 4.303, 2.201 and 1.984 for 1, 2, 11 and 99 degrees of
 * freedom */
static void t_intervals_are_those_of_the_table(void **state) {
    (void)state;
    static const struct {
        size_t n;
        double t;
    } cases[] = { { 2, 12.7062 }, { 3, 4.30265 }, { 12, 2.20099 }, { 100, 1.98422 } };
    double x[100];
    for (size_t c = 0; c < PAL_COUNT(cases); c++) {
        const size_t n = cases[c].n;
        double squares = 0, mean;
        for (size_t i = 0; i < n; i++) x[i] = (double)(i * i % 7);
        mean = pal_mean(x, n);
        for (size_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
        const pal_interval of = pal_t_interval(x, n);
        const double half = cases[c].t * sqrt(squares / (double)(n - 1) / (double)n);
        near(of.low, mean - half, 1e-5 * half);
        near(of.high, mean + half, 1e-5 * half);
    }
    assert_true(isnan(pal_t_interval(x, 1).low) && isnan(pal_t_interval(x, 0).high));
}

static void bootstrap_covers_the_mean(void **state) {
    (void)state;
    pal_interval of, again;
    pal_error err;
    const double x[] = { 0.1, 0.5, 0.2, 0.9, 0.4, 0.3, 0.8, 0.6 };
    assert_int_equal(pal_bootstrap_mean(&of, x, 8, &err), PAL_OK);
    assert_int_equal(pal_bootstrap_mean(&again, x, 8, &err), PAL_OK);
    assert_true(of.low == again.low && of.high == again.high);
    const double deviation = sqrt(0.55 / 8) /
                             sqrt(8); /* of the mean of a resample: sum of squares around .475 is .555 */
    near(of.low, 0.475 - 1.96 * deviation, 0.02);
    near(of.high, 0.475 + 1.96 * deviation, 0.02);
    assert_int_equal(pal_bootstrap_mean(&of, (double[]){ 2, 2, 2 }, 3, &err), PAL_OK);
    assert_true(of.low == 2 && of.high == 2);
    const double pairs[8] = { 2, 2, 2, 2, 2, 2, 2, 2 }, halves[4] = { 1, 2, 4, 0.5 }, sums[4] = { 3, 6, 12, 1.5 };
    assert_int_equal(pal_bootstrap_ratio(&of, x, pairs, 8, &err), PAL_OK); /* equal weights: the mean, halved */
    assert_true(fabs(of.low - again.low / 2) < 1e-12 && fabs(of.high - again.high / 2) < 1e-12);
    assert_int_equal(pal_bootstrap_ratio(&of, sums, halves, 4, &err), PAL_OK); /* drawn together, always 3 */
    assert_true(fabs(of.low - 3) < 1e-12 && fabs(of.high - 3) < 1e-12);
    assert_int_equal(pal_bootstrap_mean(&of, x, 1, &err), PAL_OK);
    assert_true(isnan(of.low) && isnan(of.high));
}

/* Weeks in remission of 42 patients (Freireich et al. 1963), an example of every textbook: log-rank 16.79. */
static void survival_matches_a_textbook(void **state) {
    (void)state;
    static const double treated[] = { 6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35 };
    static const bool relapsed[] = { 1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0 };
    static const double control[] = { 1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23 };
    bool all[21];
    for (int i = 0; i < 21; i++) all[i] = true;
    const pal_times a = { 21, treated, relapsed }, b = { 21, control, all };
    near(1 - pal_share_by(&a, 6), 0.8571, 5e-5);
    near(1 - pal_share_by(&a, 9.5), 0.8067, 5e-5);
    near(1 - pal_share_by(&a, 23), 0.4482, 5e-5);
    near(pal_share_by(&a, 5), 0, 0);
    near(pal_median_time(&a), 23, 0);
    near(pal_median_time(&b), 8, 0);
    near(pal_log_rank_p(&a, &b), erfc(sqrt(16.79 / 2)), 1e-7);
    near(pal_log_rank_p(&b, &a), pal_log_rank_p(&a, &b), 1e-15);
    const pal_times none = { 2, (double[]){ 5, 5 }, (bool[]){ false, false } };
    assert_true(isnan(pal_log_rank_p(&none, &none)) && isnan(pal_median_time(&none)));
    near(pal_share_by(&none, 9), 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sign_flips_are_counted_exactly),     cmocka_unit_test(holm_adjusts_in_order_of_size),
        cmocka_unit_test(t_intervals_are_those_of_the_table), cmocka_unit_test(bootstrap_covers_the_mean),
        cmocka_unit_test(survival_matches_a_textbook),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
