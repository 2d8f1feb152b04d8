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
static void delta_allocates_nothing(void **state) { (void)state; FOR_EACH_RULE(memory_check_no_allocation); }

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
        cmocka_unit_test(delta_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
