/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "base/alloc.h"
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
static void gla_allocates_nothing(void **state) { (void)state; memory_check_no_allocation(&gla); }

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
        cmocka_unit_test(gla_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
