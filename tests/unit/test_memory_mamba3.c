/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "support/memory_harness.h"

/* The rule in float64, in another frame than the library's: angles add up over the sequence, keys and queries turn by
 * their sum, and the memory never turns. A given memory begins at angle 0; the final one is turned back. */
typedef struct {
    size_t dk, dv;
    double S[4096], last_k[64], last_v[128], angle[32];
} frame;

static void turn(const frame *f, const double *x, double *to) {
    for (size_t j = 0; j < f->dk; j++) {
        const double c = cos(f->angle[j / 2]), s = sin(f->angle[j / 2]);
        if (j % 2 == 0 && j + 1 == f->dk) to[j] = x[j];
        else to[j] = j % 2 ? s * x[j - 1] + c * x[j] : c * x[j] - s * x[j + 1];
    }
}

static void read_token(frame *f, const memory_case *c, const memory_doubles *x, size_t t, size_t h, double *y) {
    const size_t H = (size_t)c->shape.heads,
                 key = (t * (size_t)c->shape.key_heads + h * (size_t)c->shape.key_heads / H) * f->dk;
    const double *v = x->input[MEMORY_V] + (t * H + h) * f->dv, *turns = x->input[MEMORY_TURN];
    const double a = exp(x->input[MEMORY_G][t * H + h]), beta = x->input[MEMORY_BETA][t * H + h],
                 lag = x->input[MEMORY_LAG][t * H + h];
    const size_t pairs = (f->dk + 1) / 2;
    double k[64], q[64];
    for (size_t p = 0; p < pairs; p++) f->angle[p] += turns[(t * H + h) * pairs + p];
    turn(f, x->input[MEMORY_K] + key, k);
    turn(f, x->input[MEMORY_Q] + key, q);
    for (size_t i = 0; i < f->dv; i++) {
        y[i] = 0;
        for (size_t j = 0; j < f->dk; j++) {
            double *S = &f->S[i * f->dk + j];
            *S = a * *S + lag * a * f->last_v[i] * f->last_k[j] + beta * v[i] * k[j];
            y[i] += *S * (double)c->scale * q[j];
        }
    }
    memcpy(f->last_k, k, f->dk * sizeof *k);
    memcpy(f->last_v, v, f->dv * sizeof *v);
}

static double head_loss(const memory_case *c, const memory_doubles *x, size_t n, size_t h) {
    static frame f;
    const size_t H = (size_t)c->shape.heads, dk = (size_t)c->shape.dk, dv = (size_t)c->shape.dv;
    const size_t part = (n * H + h) * dv * dk, last = (n * H + h) * (dk + dv);
    double sum = 0, y[128], row[64];
    assert_true(dk <= 64 && dv <= 128 && dk * dv <= 4096);
    f = (frame){ .dk = dk, .dv = dv };
    for (size_t e = 0; x->initial[0] && e < dv * dk; e++) f.S[e] = x->initial[0][part + e];
    for (size_t j = 0; x->initial[1] && j < dk; j++) f.last_k[j] = x->initial[1][last + j];
    for (size_t i = 0; x->initial[1] && i < dv; i++) f.last_v[i] = x->initial[1][last + dk + i];
    for (size_t t = (size_t)c->cu[n]; t < (size_t)c->cu[n + 1]; t++) {
        read_token(&f, c, x, t, h, y);
        for (size_t i = 0; i < dv; i++) sum += y[i] * (double)c->dy[(t * H + h) * dv + i];
    }
    for (size_t p = 0; p < (dk + 1) / 2; p++) f.angle[p] = -f.angle[p];
    for (size_t i = 0; i <= dv; i++) { /* the rows of S, and then the last key */
        turn(&f, i < dv ? f.S + i * dk : f.last_k, row);
        for (size_t j = 0; j < dk; j++)
            sum += row[j] * (double)(i < dv ? c->dfinal[0][part + i * dk + j] : c->dfinal[1][last + j]);
    }
    for (size_t i = 0; i < dv; i++) sum += f.last_v[i] * (double)c->dfinal[1][last + dk + i];
    return sum;
}

static double loss(const memory_case *c, const memory_doubles *x) {
    double sum = 0;
    for (size_t n = 0; n < (size_t)c->shape.sequences; n++)
        for (size_t h = 0; h < (size_t)c->shape.heads; h++) sum += head_loss(c, x, n, h);
    return sum;
}

static const memory_subject mamba3 = { .rule = "mamba3", .loss = loss };

static void mamba3_holds_at_any_forgetting(void **state) {
    (void)state;
    static const double strengths[][2] = { { 0, 0 },   { 1e-8, 1e-8 }, { 1e-3, 1 }, { 20, 20 },
                                           { 50, 50 }, { 50, 1e-8 },   { 80, 3 } };
    memory_check_forgetting(&mamba3, strengths, PAL_COUNT(strengths), 1);
}

/* Without lag and turns, beta is gla's factor of the value. */
static void mamba3_is_gla_without_lag_and_turns(void **state) {
    (void)state;
    static const int lengths[] = { 70, 3 };
    static const memory_subject gla = { .rule = "gla" };
    for (TEST_LEVELS(level)) {
        pal_rng rng = pal_rng_at(36, 0);
        pal_context *cx = test_context(2, pal_cpu_level_name(level));
        memory_case *c = memory_case_new(&mamba3, 2, lengths, 2, 1, 7, 9, false, 1, &rng);
        memory_case *plain = memory_case_of_shape(&gla, 2, lengths, 2, 1, 7, 9);
        memset(c->input[MEMORY_LAG], 0, c->count[MEMORY_LAG] * sizeof(float));
        memset(c->input[MEMORY_TURN], 0, c->count[MEMORY_TURN] * sizeof(float));
        for (int i = 0; i < MEMORY_INPUTS; i++)
            if (plain->input[i]) memcpy(plain->input[i], c->input[i], plain->count[i] * sizeof(float));
        for (size_t e = 0; e < plain->count[MEMORY_V]; e++) plain->input[MEMORY_V][e] *= c->input[MEMORY_BETA][e / 9];
        memory_result *x = memory_run_case(c, cx, 0, false), *expected = memory_run_case(plain, cx, 0, false);
        test_near("y", x->y, expected->y, plain->count[MEMORY_V], 1e-6);
        test_near("S", x->final[0], expected->final[0], 2 * c->part[0], 1e-6);
        memory_result_free(x);
        memory_result_free(expected);
        memory_case_free(c);
        memory_case_free(plain);
        pal_context_free(cx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MEMORY_TEST(mamba3, matches_golden, memory_check_golden),
        MEMORY_TESTS(mamba3),
        cmocka_unit_test(mamba3_holds_at_any_forgetting),
        cmocka_unit_test(mamba3_is_gla_without_lag_and_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
