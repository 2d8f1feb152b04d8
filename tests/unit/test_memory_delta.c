/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "support/memory_harness.h"

/* The three rules in float64, written with the whole matrix as the paper does; gdn_app takes what is held before it
 * decays. */
static void change_by(double *S, const memory_token *t, size_t dk, size_t dv, double a, double a_held) {
    for (size_t i = 0; i < dv; i++) {
        double held = 0;
        for (size_t j = 0; j < dk; j++) held += S[i * dk + j] * t->k[j];
        for (size_t j = 0; j < dk; j++)
            S[i * dk + j] = a * S[i * dk + j] + t->beta * (t->v[i] - a_held * held) * t->k[j];
    }
}
static void change(double *S, const memory_token *t, size_t dk, size_t dv) {
    change_by(S, t, dk, dv, exp(t->g), exp(t->g));
}
static void change_app(double *S, const memory_token *t, size_t dk, size_t dv) {
    change_by(S, t, dk, dv, exp(t->g), 1);
}
static double loss(const memory_case *c, const memory_doubles *x) { return memory_matrix_loss(c, x, change); }
static double loss_app(const memory_case *c, const memory_doubles *x) { return memory_matrix_loss(c, x, change_app); }

static const memory_subject delta = { .rule = "delta", .loss = loss };
static const memory_subject gdn = { .rule = "gdn", .loss = loss };
static const memory_subject gdn_app = { .rule = "gdn_app", .loss = loss_app };

/* Keys longer than 1 make single tokens overshoot; and decays from none to one that leaves nothing. */
static void delta_holds_with_long_keys_and_any_forgetting(void **state) {
    (void)state;
    static const double strengths[][2] = {
        { 0, 0 }, { 1e-8, 1e-8 }, { 1e-3, 1 }, { 20, 20 }, { 50, 50 }, { 50, 1e-8 }
    };
    static const memory_subject *const rules[] = { &delta, &gdn, &gdn_app };
    for (size_t i = 0; i < PAL_COUNT(rules); i++)
        memory_check_forgetting(rules[i], strengths, PAL_COUNT(strengths), 1.25f);
}

/* delta is gdn without decay, bit for bit where both decay by 1. */
static void delta_is_gdn_without_decay(void **state) {
    (void)state;
    static const int lengths[] = { 70, 3 };
    pal_rng rng = pal_rng_at(34, 0), again = pal_rng_at(34, 0);
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(2, pal_cpu_level_name(level));
        memory_case *plain = memory_case_new(&delta, 2, lengths, 2, 1, 7, 9, true, 0, &rng);
        memory_case *gated = memory_case_new(&gdn, 2, lengths, 2, 1, 7, 9, true, 0, &again);
        for (int i = 0; i < 5; i++)
            if (gated->input[i]) memcpy(gated->input[i], plain->input[i], gated->count[i] * sizeof(float));
        memset(gated->input[MEMORY_G], 0, gated->count[MEMORY_G] * sizeof(float));
        memcpy(gated->initial[0], plain->initial[0], 2 * gated->part[0] * sizeof(float));
        memcpy(gated->dfinal[0], plain->dfinal[0], 2 * gated->part[0] * sizeof(float));
        memcpy(gated->dy, plain->dy, 73 * 2 * 9 * sizeof(float));
        memory_result *x = memory_run_case(plain, cx, 0, true), *expected = memory_run_case(gated, cx, 0, true);
        test_same_bits("y", x->y, expected->y, 73 * 2 * 9);
        test_same_bits("S", x->final[0], expected->final[0], 2 * plain->part[0]);
        for (int i = 0; i < 5; i++)
            if (plain->input[i]) test_same_bits("a gradient", x->grad[i], expected->grad[i], plain->count[i]);
        memory_result_free(x);
        memory_result_free(expected);
        memory_case_free(plain);
        memory_case_free(gated);
        pal_context_free(cx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MEMORY_TEST(delta, matches_golden, memory_check_golden),         MEMORY_TESTS(delta),
        MEMORY_TEST(gdn, matches_golden, memory_check_golden),           MEMORY_TESTS(gdn),
        MEMORY_TEST(gdn_app, matches_golden, memory_check_golden),       MEMORY_TESTS(gdn_app),
        cmocka_unit_test(delta_holds_with_long_keys_and_any_forgetting), cmocka_unit_test(delta_is_gdn_without_decay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
