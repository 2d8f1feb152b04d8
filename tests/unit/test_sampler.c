/* SPDX-License-Identifier: MIT */
/* Sampling: what is picked has the distribution that the options ask for. */
#include <math.h>

#include "support/support.h"

typedef struct {
    double p;
    int id;
} entry;

static int falling(const void *a, const void *b) {
    const entry *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p ? 1 : -1) : x->id - y->id;
}

/* The filters as their definitions read. */
static void plain_distribution(const pal_sampling *o, const float *logits, const unsigned char *seen,
                               const uint32_t *written, int n, double *p) {
    entry *e = malloc((size_t)n * sizeof *e);
    assert_non_null(e);
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double x = (double)logits[i];
        for (size_t b = 0; b < o->bias_count; b++)
            if (o->bias[b].id == i) x = o->bias[b].bias <= -100 ? -INFINITY : x + o->bias[b].bias;
        if (seen && seen[i] && o->repetition_penalty > 0)
            x = x > 0 ? x / o->repetition_penalty : x * o->repetition_penalty;
        if (written[i]) x -= o->presence_penalty + o->frequency_penalty * written[i];
        e[i] = (entry){ exp(x / o->temperature), i };
    }
    qsort(e, (size_t)n, sizeof *e, falling);
    int kept = o->top_k && o->top_k < n ? o->top_k : n;
    if (o->top_p > 0 && o->top_p < 1) {
        double all = 0, mass = 0;
        int k = 0;
        for (int i = 0; i < kept; i++) all += e[i].p;
        while (k < kept && mass < o->top_p * all) mass += e[k++].p;
        kept = k;
    }
    for (int i = 1; i < kept; i++)
        if (e[i].p < o->min_p * e[0].p) kept = i;
    for (int i = 0; i < n; i++) p[i] = 0;
    for (int i = 0; i < kept; i++) sum += e[i].p;
    for (int i = 0; i < kept; i++) p[e[i].id] = e[i].p / sum;
    free(e);
}

static void the_sampler_has_the_distribution_of_a_plain_reference(void **state) {
    (void)state;
    static const pal_logit_bias bias[] = { { 4, 2 }, { 9, -100 }, { 30, -1 } };
    static const pal_sampling cases[] = {
        { .temperature = 1 },
        { .temperature = 0.5 },
        { .temperature = 2 },
        { .temperature = 1, .top_k = 1 },
        { .temperature = 1, .top_k = 5 },
        { .temperature = 1, .top_k = 100 },
        { .temperature = 1, .top_p = 0.5 },
        { .temperature = 0.7, .top_p = 0.95 },
        { .temperature = 1, .top_p = 1e-9 },
        { .temperature = 1, .min_p = 0.2 },
        { .temperature = 3, .min_p = 1 },
        { .temperature = 1, .top_k = 12, .top_p = 0.8 },
        { .temperature = 1.3, .top_k = 20, .top_p = 0.9, .min_p = 0.1, .repetition_penalty = 1.5 },
        { .temperature = 1, .repetition_penalty = 3 },
        { .temperature = 1, .presence_penalty = 1.5 },
        { .temperature = 0.8, .frequency_penalty = 0.7, .repetition_penalty = 1.2 },
        { .temperature = 1, .bias = bias, .bias_count = PAL_COUNT(bias) },
        { .temperature = 2, .presence_penalty = -1, .frequency_penalty = 0.3, .bias = bias, .bias_count = 2 },
    };
    enum { N = 37, DRAWS = 20000 };
    for (size_t c = 0; c < PAL_COUNT(cases); c++) {
        pal_sampler *s;
        pal_rng rng = pal_rng_at(7, c);
        float logits[N];
        unsigned char seen[N];
        uint32_t written[N];
        double p[N], found[N] = { 0 };
        test_fill_normal(logits, N, &rng, 2);
        logits[20] = logits[3]; /* a tie */
        for (int i = 0; i < N; i++) seen[i] = i % 3 == 0, written[i] = (uint32_t)i % 4;
        OK(pal_sampling_check(&cases[c], N, err));
        OK(pal_sampler_new(&s, N, err));
        plain_distribution(&cases[c], logits, seen, written, N, p);
        for (int d = 0; d < DRAWS; d++) {
            const int32_t id = pal_sampler_pick(s, &cases[c], logits, seen, written, 99, (uint64_t)d);
            assert_in_range(id, 0, N - 1);
            found[id] += 1.0 / DRAWS;
        }
        for (int i = 0; i < N; i++) {
            const double sigma = sqrt(p[i] * (1 - p[i]) / DRAWS);
            if (!(fabs(found[i] - p[i]) <= 5 * sigma + 1e-12))
                fail_msg("case %zu: id %d was picked %g of the time, expected %g", c, i, found[i], p[i]);
        }
        pal_sampler_free(s);
    }
}

/* Most of a large vocabulary never enters the heap; what is picked is what sorting all of it gives. */
static void of_many_tokens_the_one_is_picked_that_a_sorted_list_gives(void **state) {
    (void)state;
    enum { N = 20011, DRAWS = 25, STREAM = 0x736d706c };
    static const pal_sampling cases[] = {
        { .temperature = 9, .top_k = 1 },
        { .temperature = 9, .top_k = 40 },
        { .temperature = 9, .top_k = 313 },
        { .temperature = 9, .top_k = 314 },
        { .temperature = 9, .top_k = 5000 },
        { .temperature = 9, .top_k = 400, .top_p = 0.7, .repetition_penalty = 2 },
        { .temperature = 1, .top_p = 0.02 },
        { .temperature = 2, .top_p = 0.9 },
        { .temperature = 1, .min_p = 0.3 },
        { .temperature = 5, .min_p = 0.4 },
        { .temperature = 9, .top_k = 40, .presence_penalty = 3, .frequency_penalty = -1 },
    };
    static float logits[N];
    static unsigned char seen[N];
    static uint32_t written[N];
    static double p[N];
    static entry e[N];
    pal_sampler *s;
    pal_rng rng = pal_rng_at(8, 1);
    test_fill_normal(logits, N, &rng, 2);
    for (int i = 0; i < N; i++) {
        logits[i] = roundf(16 * logits[i]) / 16; /* ties */
        seen[i] = i % 3 == 0, written[i] = (uint32_t)i % 4;
    }
    logits[5] = NAN, logits[77] = -INFINITY, logits[N - 1] = 11;
    OK(pal_sampler_new(&s, N, err));
    for (size_t c = 0; c < PAL_COUNT(cases); c++) {
        logits[5] = -INFINITY; /* NaN, to the plain one */
        plain_distribution(&cases[c], logits, seen, written, N, p);
        logits[5] = NAN;
        for (int i = 0; i < N; i++) e[i] = (entry){ p[i], i };
        qsort(e, N, sizeof *e, falling);
        for (uint64_t d = 0; d < DRAWS; d++) {
            uint32_t r[4];
            pal_random_block(99, STREAM, d, r);
            double left = (double)(((uint64_t)r[0] << 32 | r[1]) >> 11) * 0x1p-53;
            int k = 0;
            while (k < N - 1 && (left -= e[k].p) > -1e-12) k++;
            const int32_t id = pal_sampler_pick(s, &cases[c], logits, seen, written, 99, d);
            if (id != e[k].id) fail_msg("case %zu, draw %d: id %d, expected %d", c, (int)d, (int)id, e[k].id);
        }
    }
    pal_sampler_free(s);
}

static void temperature_zero_picks_the_first_largest_and_nan_is_never_picked(void **state) {
    (void)state;
    pal_sampler *s;
    float logits[5] = { 1, 3, NAN, 3, -INFINITY };
    static const pal_sampling greedy = { 0 };
    OK(pal_sampler_new(&s, 5, err));
    assert_int_equal(pal_sampler_pick(s, &greedy, logits, NULL, NULL, 1, 1), 1);
    for (int i = 0; i < 5; i++) logits[i] = NAN;
    assert_int_equal(pal_sampler_pick(s, &greedy, logits, NULL, NULL, 1, 1), -1);
    pal_sampler_free(s);
    const pal_sampling wrong[] = { { .temperature = -1 },
                                   { .temperature = NAN },
                                   { .top_k = -1 },
                                   { .top_p = 1.5 },
                                   { .top_p = -0.1 },
                                   { .min_p = 2 },
                                   { .repetition_penalty = -1 },
                                   { .repetition_penalty = NAN },
                                   { .presence_penalty = INFINITY },
                                   { .frequency_penalty = NAN },
                                   { .bias = &(pal_logit_bias){ 5, 1 }, .bias_count = 1 },
                                   { .bias = &(pal_logit_bias){ 1, NAN }, .bias_count = 1 } };
    for (size_t i = 0; i < PAL_COUNT(wrong); i++) {
        pal_error why;
        assert_int_equal(pal_sampling_check(&wrong[i], 5, &why), PAL_E_ARGUMENT);
        assert_non_null(strstr(why.text, "expected"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sampler_has_the_distribution_of_a_plain_reference),
        cmocka_unit_test(of_many_tokens_the_one_is_picked_that_a_sorted_list_gives),
        cmocka_unit_test(temperature_zero_picks_the_first_largest_and_nan_is_never_picked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
