/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "support/memory_harness.h"

/* The rules in float64, each as its paper writes it. S (dv, dk). */

static void decay_by(double *S, const double *g, bool wide, size_t dk, size_t dv) {
    for (size_t i = 0; i < dv; i++)
        for (size_t j = 0; j < dk; j++) S[i * dk + j] *= exp(g[wide ? j : 0]);
}
/* S <- S + factor x k' */
static void add_outer(double *S, double factor, const double *x, const double *k, size_t dk, size_t dv) {
    for (size_t i = 0; i < dv; i++)
        for (size_t j = 0; j < dk; j++) S[i * dk + j] += factor * x[i] * k[j];
}
/* v - S k, in a fixed place */
static const double *error_of(const double *S, const double *v, const double *k, size_t dk, size_t dv) {
    static double error[256];
    assert_true(dv <= PAL_COUNT(error));
    for (size_t i = 0; i < dv; i++) {
        error[i] = v ? v[i] : 0;
        for (size_t j = 0; j < dk; j++) error[i] -= S[i * dk + j] * k[j];
    }
    return error;
}

#define IN(name) t->input[MEMORY_##name]
static void change_delta(double *S, const memory_token *t, size_t dk, size_t dv) {
    add_outer(S, IN(BETA)[0], error_of(S, IN(V), IN(K), dk, dv), IN(K), dk, dv);
}
static void change_gdn(double *S, const memory_token *t, size_t dk, size_t dv) {
    decay_by(S, IN(G), false, dk, dv);
    change_delta(S, t, dk, dv);
}
static void change_gdn_app(double *S, const memory_token *t, size_t dk, size_t dv) {
    const double *error = error_of(S, IN(V), IN(K), dk, dv);
    decay_by(S, IN(G), false, dk, dv);
    add_outer(S, IN(BETA)[0], error, IN(K), dk, dv);
}
static void change_comba(double *S, const memory_token *t, size_t dk, size_t dv) {
    const double *error = error_of(S, IN(V), IN(P), dk, dv);
    decay_by(S, IN(G), false, dk, dv);
    add_outer(S, IN(BETA)[0], error, IN(K), dk, dv);
}
static void change_kda(double *S, const memory_token *t, size_t dk, size_t dv) {
    decay_by(S, IN(GK), true, dk, dv);
    change_delta(S, t, dk, dv);
}
static void change_gdn2(double *S, const memory_token *t, size_t dk, size_t dv) {
    double key[256], value[256];
    for (size_t j = 0; j < dk; j++) key[j] = IN(ERASE)[j] * IN(K)[j];
    for (size_t i = 0; i < dv; i++) value[i] = IN(WRITE)[i] * IN(V)[i];
    decay_by(S, IN(GK), true, dk, dv);
    add_outer(S, 1, error_of(S, value, key, dk, dv), IN(K), dk, dv);
}
static void change_rwkv7(double *S, const memory_token *t, size_t dk, size_t dv) {
    const double *held = error_of(S, NULL, IN(P), dk, dv);
    decay_by(S, IN(GK), true, dk, dv);
    add_outer(S, 1, held, IN(ERASE), dk, dv);
    add_outer(S, 1, IN(V), IN(K), dk, dv);
}
static void change_pkda(double *S, const memory_token *t, size_t dk, size_t dv) {
    double key[256];
    for (size_t j = 0; j < dk; j++) {
        t->more[j] = exp(IN(GP)[0]) * t->more[j] + IN(BETAP)[0] * IN(K)[j] * IN(K)[j];
        const double l = log(t->more[j] + 1e-6) + 0.2;
        key[j] = IN(K)[j] * pow(1.5, -l / (1 + fabs(l)));
    }
    decay_by(S, IN(GK), true, dk, dv);
    add_outer(S, IN(BETA)[0], error_of(S, IN(V), IN(K), dk, dv), key, dk, dv);
}
/* In precisions, as the authors write it. */
static void change_kdn(double *S, const memory_token *t, size_t dk, size_t dv) {
    double P[256], spread = IN(R)[0];
    for (size_t j = 0; j < dk; j++) {
        P[j] = exp(2 * IN(GK)[j]) * t->more[j] + IN(NOISEK)[j];
        spread += P[j] * IN(K)[j] * IN(K)[j];
    }
    for (size_t j = 0; j < dk; j++) {
        t->more[j] = 1 / (1 / P[j] + (double)dk * IN(K)[j] * IN(K)[j] / IN(R)[0]);
        P[j] *= IN(K)[j] / spread;
    }
    decay_by(S, IN(GK), true, dk, dv);
    add_outer(S, 1, error_of(S, IN(V), IN(K), dk, dv), P, dk, dv);
}
static void change_kdn_iso(double *S, const memory_token *t, size_t dk, size_t dv) {
    double mean = 0, norm = 0;
    for (size_t j = 0; j < dk; j++) mean += exp(2 * IN(GK)[j]) / (double)dk, norm += IN(K)[j] * IN(K)[j];
    const double P = mean * t->more[0] + IN(NOISE)[0];
    t->more[0] = 1 / (1 / P + norm / IN(R)[0]);
    decay_by(S, IN(GK), true, dk, dv);
    add_outer(S, P / (IN(R)[0] + P * norm), error_of(S, IN(V), IN(K), dk, dv), IN(K), dk, dv);
}

/* Memories of uncertain rules start with variances, which are positive. */
static void positive_second_part(memory_case *c, pal_rng *rng) {
    for (size_t e = 0; e < (size_t)c->shape.sequences * c->part[1]; e++)
        c->initial[1][e] = 0.2f + 2 * (float)pal_rng_uniform(rng);
}

#define SUBJECT(word)                                                          \
    static double loss_##word(const memory_case *c, const memory_doubles *x) { \
        return memory_matrix_loss(c, x, change_##word);                        \
    }                                                                          \
    static const memory_subject word = { .rule = #word, .loss = loss_##word, .fill_initial = positive_second_part }
SUBJECT(delta);
SUBJECT(gdn);
SUBJECT(gdn_app);
SUBJECT(comba);
SUBJECT(kda);
SUBJECT(gdn2);
SUBJECT(rwkv7);
SUBJECT(pkda);
SUBJECT(kdn);
SUBJECT(kdn_iso);

/* Keys longer than 1 make single tokens overshoot; and decays from none to one that leaves nothing. */
static void delta_holds_with_long_keys_and_any_forgetting(void **state) {
    (void)state;
    static const double strengths[][2] = {
        { 0, 0 }, { 1e-8, 1e-8 }, { 1e-3, 1 }, { 20, 20 }, { 50, 50 }, { 50, 1e-8 }
    };
    static const memory_subject *const rules[] = { &delta, &gdn,   &gdn_app, &comba, &kda,
                                                   &gdn2,  &rwkv7, &pkda,    &kdn,   &kdn_iso };
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
        MEMORY_TEST(delta, matches_golden, memory_check_golden),
        MEMORY_TESTS(delta),
        MEMORY_TEST(gdn, matches_golden, memory_check_golden),
        MEMORY_TESTS(gdn),
        MEMORY_TEST(gdn_app, matches_golden, memory_check_golden),
        MEMORY_TESTS(gdn_app),
        MEMORY_TEST(comba, matches_golden, memory_check_golden),
        MEMORY_TESTS(comba),
        MEMORY_TEST(kda, matches_golden, memory_check_golden),
        MEMORY_TESTS(kda),
        MEMORY_TEST(gdn2, matches_golden, memory_check_golden),
        MEMORY_TESTS(gdn2),
        MEMORY_TEST(rwkv7, matches_golden, memory_check_golden),
        MEMORY_TESTS(rwkv7),
        MEMORY_TEST(pkda, matches_golden, memory_check_golden),
        MEMORY_TESTS(pkda),
        MEMORY_TEST(kdn, matches_golden, memory_check_golden),
        MEMORY_TESTS(kdn),
        MEMORY_TEST(kdn_iso, matches_golden, memory_check_golden),
        MEMORY_TESTS(kdn_iso),
        cmocka_unit_test(delta_holds_with_long_keys_and_any_forgetting),
        cmocka_unit_test(delta_is_gdn_without_decay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
