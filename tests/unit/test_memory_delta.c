/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "base/alloc.h"
#include "support/memory_harness.h"

/* The three rules in float64, written with the whole matrix as the paper does: S[i][j] as exported. */
static double loss(const memory_case *c, const memory_doubles *x) {
    const pal_memory_shape *s = &c->shape;
    const bool app = strcmp(c->rule->name, "gdn_app") == 0;
    const size_t H = (size_t)s->heads, KH = (size_t)s->key_heads, dk = (size_t)s->dk, dv = (size_t)s->dv;
    double sum = 0, *S = pal_alloc(dv * dk, sizeof *S);
    for (size_t n = 0; n < (size_t)s->sequences; n++)
        for (size_t h = 0; h < H; h++) {
            const size_t part = (n * H + h) * dv * dk, key = h * KH / H;
            for (size_t e = 0; e < dv * dk; e++) S[e] = x->initial[0] ? x->initial[0][part + e] : 0;
            for (size_t t = (size_t)c->cu[n]; t < (size_t)c->cu[n + 1]; t++) {
                const double *q = x->input[0] + (t * KH + key) * dk, *k = x->input[1] + (t * KH + key) * dk;
                const double *v = x->input[2] + (t * H + h) * dv, beta = x->input[4][t * H + h];
                const double a = x->input[6] ? exp(x->input[6][t * H + h]) : 1;
                for (size_t i = 0; i < dv; i++) {
                    double held = 0, y = 0;
                    for (size_t j = 0; j < dk; j++) held += S[i * dk + j] * k[j];
                    for (size_t j = 0; j < dk; j++) {
                        S[i * dk + j] = a * S[i * dk + j] + beta * (v[i] - (app ? held : a * held)) * k[j];
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

static const memory_subject subjects[] = {
    { .rule = "delta", .loss = loss },
    { .rule = "gdn", .loss = loss },
    { .rule = "gdn_app", .loss = loss },
};
#define FOR_EACH_RULE(check)                                                    \
    for (size_t i = 0; i < PAL_COUNT(subjects); i++) check(&subjects[i])

static void delta_rules_match_golden(void **state) { (void)state; FOR_EACH_RULE(memory_check_golden); }
static void delta_gradients_match_differences(void **state) { (void)state; FOR_EACH_RULE(memory_check_gradients); }
static void delta_pieces_and_steps_equal_whole(void **state) { (void)state; FOR_EACH_RULE(memory_check_splits); }
static void delta_packed_equals_separate(void **state) { (void)state; FOR_EACH_RULE(memory_check_packed); }
static void delta_is_the_same_for_any_thread_count(void **state) { (void)state; FOR_EACH_RULE(memory_check_threads); }
static void delta_levels_match_the_reference(void **state) { (void)state; FOR_EACH_RULE(memory_check_levels); }
static void delta_shared_keys_equal_repeated_keys(void **state) { (void)state; FOR_EACH_RULE(memory_check_groups); }
static void delta_gradients_are_optional(void **state) { (void)state; FOR_EACH_RULE(memory_check_optional); }
static void delta_starts_from_nothing_when_asked(void **state) { (void)state; FOR_EACH_RULE(memory_check_starts); }
static void delta_allocates_nothing(void **state) { (void)state; FOR_EACH_RULE(memory_check_no_allocation); }

/* Keys longer than 1 make single tokens overshoot; and decays from none to one that leaves nothing. */
static void delta_holds_with_long_keys_and_any_forgetting(void **state) {
    (void)state;
    static const double strengths[][2] = { { 0, 0 }, { 1e-8, 1e-8 }, { 1e-3, 1 }, { 20, 20 }, { 50, 50 }, { 50, 1e-8 } };
    static const int lengths[] = { 67, 5 };
    pal_rng rng = pal_rng_at(31, 0);
    pal_context *ref = test_context(1, "ref");
    for (size_t rule = 0; rule < PAL_COUNT(subjects); rule++)
        for (TEST_LEVELS(level))
            for (size_t i = 0; i < PAL_COUNT(strengths); i++) {
                memory_case *c = memory_case_new(&subjects[rule], 2, lengths, 2, 2, 9, 12, true, 1, &rng);
                pal_context *cx = test_context(2, pal_cpu_level_name(level));
                for (size_t j = 0; j < c->count[1]; j++) c->input[1][j] *= 1.25f;
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

/* delta is gdn without decay, bit for bit where both decay by 1. */
static void delta_is_gdn_without_decay(void **state) {
    (void)state;
    static const int lengths[] = { 70, 3 };
    pal_rng rng = pal_rng_at(34, 0), again = pal_rng_at(34, 0);
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(2, pal_cpu_level_name(level));
        memory_case *delta = memory_case_new(&subjects[0], 2, lengths, 2, 1, 7, 9, true, 0, &rng);
        memory_case *gdn = memory_case_new(&subjects[1], 2, lengths, 2, 1, 7, 9, true, 0, &again);
        for (int i = 0; i < 5; i++)
            if (gdn->input[i]) memcpy(gdn->input[i], delta->input[i], gdn->count[i] * sizeof(float));
        memset(gdn->input[6], 0, gdn->count[6] * sizeof(float));
        memcpy(gdn->initial[0], delta->initial[0], 2 * gdn->part[0] * sizeof(float));
        memcpy(gdn->dfinal[0], delta->dfinal[0], 2 * gdn->part[0] * sizeof(float));
        memcpy(gdn->dy, delta->dy, 73 * 2 * 9 * sizeof(float));
        memory_result *x = memory_run_case(delta, cx, 0, true), *expected = memory_run_case(gdn, cx, 0, true);
        test_same_bits("y", x->y, expected->y, 73 * 2 * 9);
        test_same_bits("S", x->final[0], expected->final[0], 2 * delta->part[0]);
        for (int i = 0; i < 5; i++)
            if (delta->input[i]) test_same_bits("a gradient", x->grad[i], expected->grad[i], delta->count[i]);
        memory_result_free(x);
        memory_result_free(expected);
        memory_case_free(delta);
        memory_case_free(gdn);
        pal_context_free(cx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delta_rules_match_golden),
        cmocka_unit_test(delta_gradients_match_differences),
        cmocka_unit_test(delta_pieces_and_steps_equal_whole),
        cmocka_unit_test(delta_packed_equals_separate),
        cmocka_unit_test(delta_is_the_same_for_any_thread_count),
        cmocka_unit_test(delta_levels_match_the_reference),
        cmocka_unit_test(delta_shared_keys_equal_repeated_keys),
        cmocka_unit_test(delta_gradients_are_optional),
        cmocka_unit_test(delta_starts_from_nothing_when_asked),
        cmocka_unit_test(delta_allocates_nothing),
        cmocka_unit_test(delta_holds_with_long_keys_and_any_forgetting),
        cmocka_unit_test(delta_is_gdn_without_decay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
