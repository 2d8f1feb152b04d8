/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "base/alloc.h"
#include "support/memory_harness.h"

/* The rule in float64. */
static void change(double *S, const memory_token *t, size_t dk, size_t dv) {
    const double a = exp(t->input[MEMORY_G][0]);
    for (size_t i = 0; i < dv; i++)
        for (size_t j = 0; j < dk; j++)
            S[i * dk + j] = a * S[i * dk + j] + t->input[MEMORY_V][i] * t->input[MEMORY_K][j];
}
static double loss(const memory_case *c, const memory_doubles *x) { return memory_matrix_loss(c, x, change); }

static const memory_subject gla = { .rule = "gla", .loss = loss };

/* From no decay to one that leaves nothing, and both next to each other. */
static void gla_holds_at_any_forgetting(void **state) {
    (void)state;
    static const double strengths[][2] = { { 0, 0 },   { 1e-8, 1e-8 }, { 1e-3, 1 }, { 20, 20 },
                                           { 50, 50 }, { 50, 1e-8 },   { 80, 3 } };
    memory_check_forgetting(&gla, strengths, PAL_COUNT(strengths), 1);
}

/* A long sequence with hardly any forgetting against float64: sums of g must not lose what they add up. */
static void gla_keeps_its_accuracy_over_long_sequences(void **state) {
    (void)state;
    const int length = test_cases(20000, 100000);
    static const double strengths[] = { 1e-8, 1e-4, 0.05 };
    pal_context *cx = test_context(2, NULL);
    for (size_t i = 0; i < PAL_COUNT(strengths); i++) {
        pal_rng rng = pal_rng_at(32, i);
        memory_case *c = memory_case_new(&gla, 1, &length, 1, 1, 4, 3, false, strengths[i], &rng);
        memory_result *r = memory_run_case(c, cx, 0, true);
        double S[12] = { 0 }, dS[12], worst_y = 0, scale_y = 0, worst_g = 0, scale_g = 0;
        double *kept = pal_alloc((size_t)length * 12, sizeof *kept);
        for (size_t t = 0; t < (size_t)length; t++) {
            const double a = exp((double)c->input[MEMORY_G][t]);
            for (size_t v = 0; v < 3; v++) {
                double y = 0;
                for (size_t k = 0; k < 4; k++) {
                    kept[t * 12 + v * 4 + k] = S[v * 4 + k];
                    S[v * 4 + k] = a * S[v * 4 + k] +
                                   (double)c->input[MEMORY_V][t * 3 + v] * (double)c->input[MEMORY_K][t * 4 + k];
                    y += S[v * 4 + k] * (double)c->scale * (double)c->input[MEMORY_Q][t * 4 + k];
                }
                scale_y = fmax(scale_y, fabs(y));
                worst_y = fmax(worst_y, fabs(y - (double)r->y[t * 3 + v]));
            }
        }
        for (size_t e = 0; e < 12; e++) dS[e] = (double)c->dfinal[0][e];
        for (size_t t = (size_t)length; t-- > 0;) {
            const double a = exp((double)c->input[MEMORY_G][t]);
            double dg = 0;
            for (size_t e = 0; e < 12; e++) {
                dS[e] += (double)c->dy[t * 3 + e / 4] * (double)c->scale * (double)c->input[MEMORY_Q][t * 4 + e % 4];
                dS[e] *= a;
                dg += dS[e] * kept[t * 12 + e];
            }
            scale_g = fmax(scale_g, fabs(dg));
            worst_g = fmax(worst_g, fabs(dg - (double)r->grad[MEMORY_G][t]));
        }
        /* The chunked form sums logarithms; the plain recurrence rounds once a token, which the contract allows for. */
        const double accept = pal_context_level(cx) == PAL_CPU_REF ? 2e-5 + length * 0x1p-24 : 2e-5;
        if (!(worst_y <= accept * scale_y)) fail_msg("y after %d tokens: error %g of %g", length, worst_y, scale_y);
        if (!(worst_g <= accept * scale_g))
            fail_msg("gradient of g over %d tokens: error %g of %g", length, worst_g, scale_g);
        const double memory = test_nmax_f64(r->final[0], S, 12);
        if (!(memory <= accept)) fail_msg("S after %d tokens: error %g", length, memory);
        pal_free(kept);
        memory_result_free(r);
        memory_case_free(c);
    }
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MEMORY_TEST(gla, matches_golden, memory_check_golden),
        MEMORY_TESTS(gla),
        cmocka_unit_test(gla_holds_at_any_forgetting),
        cmocka_unit_test(gla_keeps_its_accuracy_over_long_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
