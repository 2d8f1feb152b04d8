/* SPDX-License-Identifier: MIT */
/* The Palimpsa rule against a float64 twin of its formula: gradients, odd sizes, the whole range of decays and
 * importances, long sequences. */
#include <math.h>

#include "support/palimpsa_problem.h"

static void gradients_match_differences(void **state) {
    (void)state;
    static const int gradient_of[INPUTS] = { DQ, DK, DV, DB, DDT, DA, DIP, DMU0, DI0, -1, -1, -1, -1 };
    pal_rng rng = pal_rng_at(31, 1);
    for (int c = 0; c < test_cases(4, 40); c++) {
        recipe r = recipe_usual(&rng);
        r.N = 2, r.dk = draw(&rng, 1, 5), r.dv = draw(&rng, 1, 5), r.length = draw(&rng, 1, 40), r.initial = c % 2,
        r.final = c / 2 % 2;
        problem p = problem_new(&rng, r);
        for (TEST_LEVELS(level)) {
            pal_context *cx = test_context(1, pal_cpu_level_name(level));
            outcome o = outcome_new(&p);
            twin w = twin_new(&p);
            problem_run(cx, &p, (wanted){ true, true }, &o);
            for (int i = 0; i < INPUTS; i++) {
                if (gradient_of[i] < 0 || !p.in[i]) continue;
                const size_t n = problem_input_count(&p, i);
                const double scale = test_largest(o.x[gradient_of[i]], n);
                for (int tries = 0; tries < 6; tries++) {
                    const size_t e = pal_rng_below(&rng, (uint32_t)n);
                    const double x = w.in[i][e], step = 1e-6 * fmax(1e-2, fabs(x));
                    w.in[i][e] = x + step;
                    double slope = twin_loss(&p, &w);
                    w.in[i][e] = x - step;
                    slope = (slope - twin_loss(&p, &w)) / (2 * step);
                    w.in[i][e] = x;
                    const double found = (double)o.x[gradient_of[i]][e];
                    if (!(fabs(found - slope) <= 1e-4 * scale + 1e-6))
                        fail_msg("%s[%zu] at %s is %.9g, differences give %.9g", problem_results[gradient_of[i]].name,
                                 e, pal_cpu_level_name(level), found, slope);
                }
            }
            twin_free(&w);
            outcome_free(&p, &o);
            pal_context_free(cx);
        }
        problem_free(&p);
    }
}

/* Every level against the float64 twin. range: said with a failure; longer: accepted beyond the usual. */
static void levels_match_the_twin(problem *p, wanted want, const char *range, double longer) {
    twin w = twin_new(p);
    twin_run(p, &w, want);
    if (!want.variance) memset(w.x[Y_VAR], 0, problem_result_count(p, Y_VAR) * sizeof(double));
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        outcome o = outcome_new(p);
        char what[96];
        problem_run(cx, p, want, &o);
        snprintf(what, sizeof what, "%s%s", pal_cpu_level_name(level), range);
        outcome_check(what, p, &o, &w, want, longer);
        outcome_free(p, &o);
        pal_context_free(cx);
    }
    twin_free(&w);
}

/* Sizes under, at and over the widths of vectors, tiles and blocks, with and without everything that is optional. */
static void every_level_matches_the_formula_at_odd_sizes(void **state) {
    (void)state;
    static const int sizes[] = { 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 48, 63, 65, 130 };
    pal_rng rng = pal_rng_at(32, 1);
    for (int c = 0; c < test_cases(40, 400); c++) {
        recipe r = recipe_usual(&rng);
        r.dk = sizes[draw(&rng, 0, (int)PAL_COUNT(sizes) - 1)], r.dv = sizes[draw(&rng, 0, (int)PAL_COUNT(sizes) - 1)];
        if (c % 4 == 0) r.adt_hi = 12; /* some decays strong, some not */
        if (c % 10 == 9)
            r.N = 17, r.length = 5, r.group = 2, r.dv = 70; /* key gradients summed by the items themselves */
        problem p = problem_new(&rng, r);
        levels_match_the_twin(&p, (wanted){ true, c % 2 }, "", 0);
        problem_free(&p);
    }
}

/* From no forgetting to complete forgetting, from no importance to a huge one, from one token to many. */
static void accuracy_holds_over_the_whole_range(void **state) {
    (void)state;
    static const double adt[][2] = { { 1e-8, 1e-8 }, { 1e-5, 1e-4 }, { 0.1, 0.5 }, { 2, 4 }, { 20, 50 }, { 1e-8, 50 } };
    static const double b[][2] = { { 0, 0 }, { 1e-8, 1e-6 }, { 0.1, 2 }, { 1e5, 1e6 }, { 1e-6, 1e6 } };
    static const int lengths[] = { 1, 33, 300 };
    pal_rng rng = pal_rng_at(33, 1);
    for (size_t x = 0; x < PAL_COUNT(adt); x++)
        for (size_t z = 0; z < PAL_COUNT(b); z++)
            for (size_t l = 0; l < PAL_COUNT(lengths); l++) {
                problem p = problem_new(&rng, (recipe){ .N = 1,
                                                        .H = 4,
                                                        .group = 1,
                                                        .dk = 9,
                                                        .dv = 17,
                                                        .length = lengths[l],
                                                        .initial = l == 1,
                                                        .adt_lo = adt[x][0],
                                                        .adt_hi = adt[x][1],
                                                        .b_lo = b[z][0],
                                                        .b_hi = b[z][1] });
                char range[64];
                snprintf(range, sizeof range, ", A dt %g..%g, b %g..%g", adt[x][0], adt[x][1], b[z][0], b[z][1]);
                for (int variance = 0; variance < 2; variance++)
                    levels_match_the_twin(&p, (wanted){ true, variance }, range, p.T * 0x1p-24);
                problem_free(&p);
            }
}

/* An importance of 1e24 and more over a prior of 1e-8. */
static void accuracy_holds_far_above_the_prior(void **state) {
    (void)state;
    static const double adt[][2] = { { 1e-8, 1e-4 }, { 1e-3, 1 }, { 1e-8, 50 } };
    pal_rng rng = pal_rng_at(35, 1);
    for (size_t x = 0; x < PAL_COUNT(adt); x++) {
        problem p = problem_new(&rng, (recipe){ .N = 1,
                                                .H = 2,
                                                .group = 1,
                                                .dk = 9,
                                                .dv = 17,
                                                .length = 70,
                                                .adt_lo = adt[x][0],
                                                .adt_hi = adt[x][1],
                                                .b_lo = 1e12,
                                                .b_hi = 1e13 });
        for (size_t i = 0; i < problem_input_count(&p, IN_IP); i++) p.in[IN_IP][i] = 1e-8f;
        for (size_t i = 0; i < problem_input_count(&p, IN_K); i++) p.in[IN_K][i] *= 1e6f;
        levels_match_the_twin(&p, (wanted){ 0 }, ", far above the prior", 0);
        problem_free(&p);
    }
}

/* Answers are linear in the values: far from the least normal number, a power of two changes their exponents alone. */
static void small_values_are_answered_as_exactly_as_large_ones(void **state) {
    (void)state;
    static const double adt[][2] = { { 1e-5, 1e-4 }, { 0.01, 0.1 }, { 0.1, 0.6 } };
    static const int lengths[] = { 1, 33, 70 };
    pal_rng rng = pal_rng_at(36, 1);
    for (size_t x = 0; x < PAL_COUNT(adt); x++)
        for (size_t l = 0; l < PAL_COUNT(lengths); l++) {
            problem p = problem_new(&rng, (recipe){ .N = 1,
                                                    .H = 2,
                                                    .group = 1,
                                                    .dk = 6,
                                                    .dv = 17,
                                                    .length = lengths[l],
                                                    .adt_lo = adt[x][0],
                                                    .adt_hi = adt[x][1],
                                                    .b_lo = 0.1,
                                                    .b_hi = 2 });
            for (TEST_LEVELS(level)) {
                pal_context *cx = test_context(1, pal_cpu_level_name(level));
                outcome large = outcome_new(&p), small = outcome_new(&p);
                problem_run(cx, &p, (wanted){ 0 }, &large);
                for (size_t i = 0; i < problem_input_count(&p, IN_V); i++) p.in[IN_V][i] *= 0x1p-20f;
                problem_run(cx, &p, (wanted){ 0 }, &small);
                for (size_t i = 0; i < problem_input_count(&p, IN_V); i++) p.in[IN_V][i] *= 0x1p20f;
                for (size_t i = 0; i < problem_result_count(&p, Y); i++)
                    if (small.x[Y][i] != large.x[Y][i] * 0x1p-20f)
                        fail_msg("y[%zu] at %s, A dt %g..%g, %d tokens: %.9g from values, %.9g from 2^-20 of them", i,
                                 pal_cpu_level_name(level), adt[x][0], adt[x][1], lengths[l], (double)large.x[Y][i],
                                 (double)small.x[Y][i]);
                outcome_free(&p, &large);
                outcome_free(&p, &small);
                pal_context_free(cx);
            }
            problem_free(&p);
        }
}

static void accuracy_holds_over_100000_tokens(void **state) {
    (void)state;
    static const double adt[][2] = { { 1e-8, 1e-8 }, { 1e-8, 1 } };
    pal_rng rng = pal_rng_at(34, 1);
    for (size_t x = 0; x < PAL_COUNT(adt); x++) {
        problem p = problem_new(&rng, (recipe){ .N = 1,
                                                .H = 1,
                                                .group = 1,
                                                .dk = 3,
                                                .dv = 2,
                                                .length = 100000,
                                                .adt_lo = adt[x][0],
                                                .adt_hi = adt[x][1],
                                                .b_lo = 0.1,
                                                .b_hi = 10 });
        levels_match_the_twin(&p, (wanted){ true, false }, "", p.T * 0x1p-24);
        problem_free(&p);
    }
}

/* With b = 0 importance never leaves Ip: y is a linear memory's, S <- alpha S + v/Ip k^T. */
static void without_importance_it_is_gla_on_v_over_Ip(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(38, 1);
    problem p = problem_new(
        &rng, (recipe){ .N = 1, .H = 1, .group = 1, .dk = 12, .dv = 20, .length = 150, .adt_lo = 1e-4, .adt_hi = 1 });
    double S[20 * 12] = { 0 }, *y = calloc(problem_input_count(&p, IN_V), sizeof *y);
    for (int t = 0; t < p.T; t++)
        for (int i = 0; i < p.dv; i++)
            for (int j = 0; j < p.dk; j++) {
                const double alpha = exp(-(double)p.in[IN_A][0] * (double)p.in[IN_DT][t]);
                double *s = &S[i * p.dk + j];
                *s = alpha * *s +
                     (double)p.in[IN_V][t * p.dv + i] / (double)p.in[IN_IP][0] * (double)p.in[IN_K][t * p.dk + j];
                y[t * p.dv + i] += *s * (double)p.in[IN_Q][t * p.dk + j] * (double)p.scale;
            }
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        outcome o = outcome_new(&p);
        problem_run(cx, &p, (wanted){ 0 }, &o);
        const double found = test_nmax_f64(o.x[Y], y, problem_input_count(&p, IN_V));
        if (!(found <= 5e-6)) fail_msg("%s: error %.3g", pal_cpu_level_name(level), found);
        outcome_free(&p, &o);
        pal_context_free(cx);
    }
    free(y);
    problem_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(every_level_matches_the_formula_at_odd_sizes),
        cmocka_unit_test(accuracy_holds_over_the_whole_range),
        cmocka_unit_test(accuracy_holds_far_above_the_prior),
        cmocka_unit_test(small_values_are_answered_as_exactly_as_large_ones),
        cmocka_unit_test(accuracy_holds_over_100000_tokens),
        cmocka_unit_test(without_importance_it_is_gla_on_v_over_Ip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
