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
                const double *v = x->input[2] + (t * H + h) * dv, *b = x->input[3] + (t * H + h) * dv;
                double kk = 0;
                for (size_t j = 0; j < dk; j++) kk += k[j] * k[j];
                for (size_t i = 0; i < dv; i++) {
                    const double r = b[i] / (1 + b[i] * kk);
                    double y = 0;
                    for (size_t j = 0; j < dk; j++) {
                        S[i * dk + j] = (1 - r * k[j] * k[j]) * S[i * dk + j] + r * v[i] * k[j];
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

static const memory_subject longhorn = { .rule = "longhorn", .loss = loss };

static void longhorn_matches_golden(void **state) { (void)state; memory_check_golden(&longhorn); }
static void longhorn_gradients_match_differences(void **state) { (void)state; memory_check_gradients(&longhorn); }
static void longhorn_pieces_and_steps_equal_whole(void **state) { (void)state; memory_check_splits(&longhorn); }
static void longhorn_packed_equals_separate(void **state) { (void)state; memory_check_packed(&longhorn); }
static void longhorn_is_the_same_for_any_thread_count(void **state) { (void)state; memory_check_threads(&longhorn); }
static void longhorn_levels_match_the_reference(void **state) { (void)state; memory_check_levels(&longhorn); }
static void longhorn_shared_keys_equal_repeated_keys(void **state) { (void)state; memory_check_groups(&longhorn); }
static void longhorn_gradients_are_optional(void **state) { (void)state; memory_check_optional(&longhorn); }
static void longhorn_starts_from_nothing_when_asked(void **state) { (void)state; memory_check_starts(&longhorn); }
static void longhorn_allocates_nothing(void **state) { (void)state; memory_check_no_allocation(&longhorn); }

/* r = b/(1 + b k.k) must neither overflow nor lose the limit r = 1/k.k; at b = 0 the memory does not move. */
static void longhorn_holds_from_no_gate_to_a_huge_one(void **state) {
    (void)state;
    static const int lengths[] = { 70 };
    static const float gates[] = { 0.0f, 1e-8f, 1e6f, 1e30f };
    pal_rng rng = pal_rng_at(31, 0);
    for (size_t g = 0; g < PAL_COUNT(gates); g++) {
        memory_case *c = memory_case_new(&longhorn, 1, lengths, 2, 2, 12, 20, true, 1, &rng);
        for (size_t i = 0; i < c->count[3]; i++) c->input[3][i] = gates[g];
        pal_context *ref = test_context(1, "ref"), *cx = test_context(1, NULL);
        memory_result *exact = memory_run_case(c, ref, 0, true), *x = memory_run_case(c, cx, 0, true);
        test_near("y", x->y, exact->y, (size_t)c->shape.tokens * 40, 1e-5);
        test_near("S", x->final[0], exact->final[0], c->part[0], 1e-5);
        if (gates[g] == 0.0f) test_same_bits("S", x->final[0], c->initial[0], c->part[0]);
        for (int i = 0; i < 3; i++) test_near("gradient", x->grad[i], exact->grad[i], c->count[i], 2e-5);
        memory_result_free(exact);
        memory_result_free(x);
        memory_case_free(c);
        pal_context_free(ref);
        pal_context_free(cx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(longhorn_matches_golden),
        cmocka_unit_test(longhorn_gradients_match_differences),
        cmocka_unit_test(longhorn_pieces_and_steps_equal_whole),
        cmocka_unit_test(longhorn_packed_equals_separate),
        cmocka_unit_test(longhorn_is_the_same_for_any_thread_count),
        cmocka_unit_test(longhorn_levels_match_the_reference),
        cmocka_unit_test(longhorn_shared_keys_equal_repeated_keys),
        cmocka_unit_test(longhorn_gradients_are_optional),
        cmocka_unit_test(longhorn_starts_from_nothing_when_asked),
        cmocka_unit_test(longhorn_allocates_nothing),
        cmocka_unit_test(longhorn_holds_from_no_gate_to_a_huge_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
