/* SPDX-License-Identifier: MIT */
/* The Palimpsa rule by the checks that every rule passes. test_memory_palimpsa_accuracy.c compares it with the formula
 * over the whole range of decays and importances. */
#include <math.h>

#include "base/alloc.h"
#include "support/memory_harness.h"
#include "support/palimpsa_problem.h"

/* The rule in float64. */
static double loss(const memory_case *c, const memory_doubles *x) {
    const size_t H = (size_t)c->shape.heads, KH = (size_t)c->shape.key_heads, dk = (size_t)c->shape.dk,
                 dv = (size_t)c->shape.dv;
    double sum = 0, *M = pal_alloc(2 * dv * dk, sizeof *M), *I = M + dv * dk;
    for (size_t n = 0; n < (size_t)c->shape.sequences; n++)
        for (size_t h = 0; h < H; h++) {
            const size_t part = (n * H + h) * dv * dk, key = h * KH / H;
            const double A = x->input[MEMORY_A][h], prior = x->input[MEMORY_IP][h];
            for (size_t e = 0; e < dv * dk; e++) {
                I[e] = x->initial[1] ? x->initial[1][part + e] : prior;
                M[e] = x->initial[0] ? x->initial[0][part + e] * I[e] : 0;
            }
            for (size_t t = (size_t)c->cu[n]; t < (size_t)c->cu[n + 1]; t++) {
                const double *q = x->input[MEMORY_Q] + (t * KH + key) * dk,
                             *k = x->input[MEMORY_K] + (t * KH + key) * dk;
                const double kept = exp(-A * x->input[MEMORY_DT][t * H + h]);
                for (size_t i = 0; i < dv; i++) {
                    const size_t row = (t * H + h) * dv + i;
                    for (size_t j = 0; j < dk; j++) {
                        const size_t e = i * dk + j;
                        M[e] = kept * M[e] + x->input[MEMORY_V][row] * k[j];
                        I[e] = kept * I[e] + (1 - kept) * prior + x->input[MEMORY_B][row] * k[j] * k[j];
                        const double read = (double)c->scale * q[j];
                        sum += read * M[e] / I[e] * (double)c->dy[row] + read * read / I[e] * (double)c->dy_var[row];
                    }
                }
            }
            for (size_t e = 0; e < dv * dk; e++)
                sum += M[e] / I[e] * (double)c->dfinal[0][part + e] + I[e] * (double)c->dfinal[1][part + e];
        }
    pal_free(M);
    return sum;
}

/* Importance is never below its prior. */
static void fill_initial(memory_case *c, pal_rng *rng) {
    const size_t heads = (size_t)c->shape.heads, size = c->part[1] / heads;
    for (size_t p = 0; p < (size_t)c->shape.sequences * heads; p++)
        for (size_t e = 0; e < size; e++)
            c->initial[1][p * size + e] = c->input[MEMORY_IP][p % heads] + 3 * (float)pal_rng_uniform(rng);
}

static const memory_subject palimpsa = {
    .rule = "palimpsa", .loss = loss, .fill_initial = fill_initial, .accept_out = 2e-5, .accept_grad = 5e-5
};

static void export_gives_back_what_import_took(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(41, 1);
    problem p = problem_new(&rng, (recipe){ .N = 3, .dk = 5, .dv = 19, .initial = true, .adt_lo = 1, .adt_hi = 1 });
    outcome o = outcome_new(&p);
    memories m = memories_new(&p);
    memories_export(&p, &m, &o);
    test_same_bits("I", o.x[I_T], p.in[IN_I0], problem_input_count(&p, IN_I0));
    test_near("mu", o.x[MU_T], p.in[IN_MU0], problem_input_count(&p, IN_MU0), 2e-7);
    memories_free(&p, &m);
    outcome_free(&p, &o);
    problem_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MEMORY_TEST(palimpsa, matches_recorded_numbers, memory_check_golden),
        MEMORY_TESTS(palimpsa),
        cmocka_unit_test(export_gives_back_what_import_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
