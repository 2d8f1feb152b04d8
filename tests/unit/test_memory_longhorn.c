/* SPDX-License-Identifier: MIT */
#include "support/memory_harness.h"

/* The rule in float64. */
static void change(double *S, const memory_token *t, size_t dk, size_t dv) {
    double kk = 0;
    for (size_t j = 0; j < dk; j++) kk += t->input[MEMORY_K][j] * t->input[MEMORY_K][j];
    for (size_t i = 0; i < dv; i++) {
        const double r = t->input[MEMORY_B][i] / (1 + t->input[MEMORY_B][i] * kk);
        for (size_t j = 0; j < dk; j++)
            S[i * dk + j] = (1 - r * t->input[MEMORY_K][j] * t->input[MEMORY_K][j]) * S[i * dk + j] +
                            r * t->input[MEMORY_V][i] * t->input[MEMORY_K][j];
    }
}
static double loss(const memory_case *c, const memory_doubles *x) { return memory_matrix_loss(c, x, change); }

static const memory_subject longhorn = { .rule = "longhorn", .loss = loss };

/* r = b/(1 + b k.k) must neither overflow nor lose the limit r = 1/k.k; at b = 0 the memory does not move. */
static void longhorn_holds_from_no_gate_to_a_huge_one(void **state) {
    (void)state;
    static const int lengths[] = { 70 };
    static const float gates[] = { 0.0f, 1e-8f, 1e6f, 1e30f, 3e38f };
    pal_rng rng = pal_rng_at(31, 0);
    for (size_t g = 0; g < PAL_COUNT(gates); g++) {
        memory_case *c = memory_case_new(&longhorn, 1, lengths, 2, 2, 12, 20, true, 1, &rng);
        for (size_t i = 0; i < c->count[MEMORY_B]; i++) c->input[MEMORY_B][i] = gates[g];
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

/* b k.k overflows single precision here, and r is still 1/k.k: forward, backward and step as the reference. */
static void longhorn_holds_where_gate_times_key_overflows(void **state) {
    (void)state;
    static const int lengths[] = { 9 };
    static const float cases[][2] = { { 3e38f, 1 }, { 1e20f, 1e10f }, { 3e38f, 1e10f } }; /* b, size of k */
    for (size_t n = 0; n < PAL_COUNT(cases); n++) {
        pal_rng rng = pal_rng_at(32, n);
        memory_case *c = memory_case_new(&longhorn, 1, lengths, 1, 1, 12, 20, true, 1, &rng);
        const float size = cases[n][1];
        for (size_t i = 0; i < c->count[MEMORY_B]; i++) c->input[MEMORY_B][i] = cases[n][0];
        for (size_t i = 0; i < c->count[MEMORY_K]; i++) c->input[MEMORY_K][i] *= size;
        for (size_t i = 0; i < c->count[MEMORY_V]; i++) c->input[MEMORY_V][i] *= size; /* S stays of size one */
        pal_context *ref = test_context(1, "ref");
        memory_result *exact = memory_run_case(c, ref, 0, true);
        for (TEST_LEVELS(level)) {
            pal_context *cx = test_context(1, pal_cpu_level_name(level));
            memory_result *x = memory_run_case(c, cx, 0, true), *steps = memory_run_pieces(c, cx, true, &rng);
            test_near("y", x->y, exact->y, (size_t)c->shape.tokens * 20, 1e-5);
            test_near("y of steps", steps->y, exact->y, (size_t)c->shape.tokens * 20, 1e-5);
            test_near("S", x->final[0], exact->final[0], c->part[0], 1e-5);
            for (int i = MEMORY_Q; i <= MEMORY_V; i++)
                test_near("gradient", x->grad[i], exact->grad[i], c->count[i], 2e-5);
            memory_result_free(x);
            memory_result_free(steps);
            pal_context_free(cx);
        }
        memory_result_free(exact);
        memory_case_free(c);
        pal_context_free(ref);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MEMORY_TEST(longhorn, matches_golden, memory_check_golden),
        MEMORY_TESTS(longhorn),
        cmocka_unit_test(longhorn_holds_from_no_gate_to_a_huge_one),
        cmocka_unit_test(longhorn_holds_where_gate_times_key_overflows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
