/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "support/memory_harness.h"

/* The filter in float64, by its variance: a prediction, and then what the value corrects. */
static double loss(const memory_case *c, const memory_doubles *x) {
    const size_t H = (size_t)c->shape.heads, KH = (size_t)c->shape.key_heads, dk = (size_t)c->shape.dk,
                 dv = (size_t)c->shape.dv;
    double sum = 0;
    for (size_t n = 0; n < (size_t)c->shape.sequences; n++)
        for (size_t h = 0; h < H; h++)
            for (size_t e = 0; e < dv * dk; e++) {
                const size_t i = e / dk, j = e % dk, part = (n * H + h) * dv * dk + e, element = (h * dk + j) * dv + i;
                const double a = x->input[MEMORY_KEEP][element];
                double mean = x->initial[0] ? x->initial[0][part] : 0,
                       variance = 1 / (x->initial[1] ? x->initial[1][part] : x->input[MEMORY_IP][h]);
                for (size_t t = (size_t)c->cu[n]; t < (size_t)c->cu[n + 1]; t++) {
                    const size_t key = (t * KH + h * KH / H) * dk + j, row = (t * H + h) * dv + i;
                    const double k = x->input[MEMORY_K][key], read = (double)c->scale * x->input[MEMORY_Q][key];
                    const double predicted = a * a * variance + x->input[MEMORY_DRIFT][element];
                    const double weight = predicted * x->input[MEMORY_B][row] * k;
                    variance = predicted / (1 + weight * k);
                    mean = (a * mean + weight * x->input[MEMORY_V][row]) / (1 + weight * k);
                    sum += read * mean * (double)c->dy[row] + read * read * variance * (double)c->dy_var[row];
                }
                sum += mean * (double)c->dfinal[0][part] + (double)c->dfinal[1][part] / variance;
            }
    return sum;
}

static void fill_initial(memory_case *c, pal_rng *rng) {
    for (size_t e = 0; e < (size_t)c->shape.sequences * c->part[1]; e++)
        c->initial[1][e] = 0.5f + 3 * (float)pal_rng_uniform(rng);
}

static const memory_subject kla = { .rule = "kla", .loss = loss, .fill_initial = fill_initial };

/* Without drift a memory that fades is surer and surer that it is zero. */
static void kla_stays_finite_where_nothing_drifts(void **state) {
    (void)state;
    static const int lengths[] = { 300 };
    pal_rng rng = pal_rng_at(35, 0);
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        memory_case *c = memory_case_new(&kla, 1, lengths, 2, 2, 5, 9, false, 0, &rng);
        for (size_t i = 0; i < c->count[MEMORY_KEEP]; i++) c->input[MEMORY_KEEP][i] = i % 2 ? 0.3f : 1e-3f;
        memset(c->input[MEMORY_DRIFT], 0, c->count[MEMORY_DRIFT] * sizeof(float));
        memory_result *x = memory_run_case(c, cx, 0, true);
        for (size_t i = 0; i < 300 * 2 * 9; i++) assert_true(isfinite(x->y[i]) && isfinite(x->y_var[i]));
        for (int i = 0; i < MEMORY_INPUTS; i++)
            for (size_t e = 0; x->grad[i] && e < c->count[i]; e++) assert_true(isfinite(x->grad[i][e]));
        memory_result_free(x);
        memory_case_free(c);
        pal_context_free(cx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { MEMORY_TEST(kla, matches_golden, memory_check_golden), MEMORY_TESTS(kla),
                                        cmocka_unit_test(kla_stays_finite_where_nothing_drifts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
