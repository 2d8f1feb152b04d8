/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "base/alloc.h"
#include "data/mqar.h"
#include "support/support.h"
#include "train/task_mqar.h"

typedef struct {
    pal_mqar *data;
    pal_context *cx;
    int32_t *ids, *labels;
    void *scratch;
    size_t count;
} fixture;

static fixture make(pal_mqar_config config, uint64_t seed, pal_mqar_subset split, size_t count, int threads) {
    fixture f = { .cx = test_context(threads, NULL), .count = count };
    pal_error err;
    if (pal_mqar_new(&f.data, &config, seed, split, &err)) fail_msg("%s", err.text);
    f.ids = pal_alloc(count * (size_t)config.length, sizeof *f.ids);
    f.labels = pal_alloc(count * (size_t)config.length, sizeof *f.labels);
    const size_t bytes = pal_mqar_scratch_bytes(f.data, f.cx);
    f.scratch = pal_alloc(bytes, 1);
    memset(f.scratch, 0xA5, bytes); /* nothing may depend on what scratch holds */
    return f;
}

static void drop(fixture *f) {
    pal_mqar_free(f->data);
    pal_context_free(f->cx);
    pal_free(f->ids);
    pal_free(f->labels);
    pal_free(f->scratch);
}

static void fill(fixture *f, uint64_t first) {
    pal_mqar_fill(f->data, f->cx, first, f->count, f->ids, f->labels, f->scratch);
}

/* Slot of key i for each i; checks everything the definition says about one example. */
static void check_example(const pal_mqar_config *c, const int32_t *ids, const int32_t *labels, int *slots) {
    const int N = c->pairs, V = c->vocabulary, S = c->length / 2 - N;
    int asked = 0;
    for (int i = 0; i < N; i++) {
        assert_in_range(ids[2 * i], 1, V / 2 - 1);
        assert_in_range(ids[2 * i + 1], V / 2, V - 1);
        for (int j = 0; j < i; j++) assert_true(ids[2 * i] != ids[2 * j] && ids[2 * i + 1] != ids[2 * j + 1]);
        slots[i] = -1;
    }
    for (int t = 0; t < c->length; t++) {
        if (labels[t] == PAL_MQAR_IGNORED) {
            if (t >= 2 * N && !c->random_fill) assert_int_equal(ids[t], 0);
            assert_in_range(ids[t], 0, V - 1);
            continue;
        }
        assert_true(t >= 2 * N && t % 2 == 0);
        int i = 0;
        while (i < N && ids[2 * i] != ids[t]) i++;
        assert_true(i < N);
        assert_int_equal(labels[t], ids[2 * i + 1]);
        assert_int_equal(slots[i], -1);
        slots[i] = (t - 2 * N) / 2;
        assert_in_range(slots[i], 0, S - 1);
        asked++;
    }
    assert_int_equal(asked, N);
}

static const double *tensor(const pal_safetensors *file, const char *name, size_t count) {
    const pal_tensor *t = pal_safetensors_find(file, name);
    assert_non_null(t);
    assert_int_equal(t->dtype, PAL_F64);
    assert_int_equal(t->count, count);
    return t->data;
}

/* A share found in ours of n examples against one found in theirs of n: both are binomial. */
static void near_share(const char *what, int slot, double ours, double theirs, double n) {
    const double p = 0.5 * (ours + theirs), deviation = sqrt(2 * p * (1 - p) / n);
    if (!(fabs(ours - theirs) <= 5 * deviation + 1e-12))
        fail_msg("%s of slot %d: %.5f, recorded %.5f, deviation %.5f", what, slot, ours, theirs, deviation);
}

static void check_statistics(const char *path, pal_mqar_config config) {
    enum { EXAMPLES = 20000, BLOCK = 500, MAX = 64 };
    const int N = config.pairs, S = config.length / 2 - N;
    assert_true(N <= MAX && S <= MAX);
    pal_safetensors *file;
    pal_error err;
    if (pal_safetensors_open(&file, path, &err)) fail_msg("%s", err.text);
    const double *mean = tensor(file, "slot_mean", (size_t)N), *sem = tensor(file, "slot_sem", (size_t)N);
    const double *first = tensor(file, "slot_hist_first", (size_t)S), *last = tensor(file, "slot_hist_last", (size_t)S);
    const double *used = tensor(file, "slot_used", (size_t)S);

    /* The recorded examples obey our reading of the definition. */
    const pal_tensor *inputs = pal_safetensors_find(file, "inputs"), *labels = pal_safetensors_find(file, "labels");
    int slots[MAX];
    for (int64_t e = 0; e < inputs->shape[0]; e++) {
        int32_t row[2][256];
        for (int t = 0; t < config.length; t++) {
            row[0][t] = (int32_t)((const int64_t *)inputs->data)[e * config.length + t];
            row[1][t] = (int32_t)((const int64_t *)labels->data)[e * config.length + t];
        }
        check_example(&config, row[0], row[1], slots);
    }

    double our_mean[MAX] = { 0 }, our_square[MAX] = { 0 }, our_first[MAX] = { 0 }, our_last[MAX] = { 0 },
           our_used[MAX] = { 0 };
    fixture f = make(config, 1, PAL_MQAR_TRAIN, BLOCK, 2);
    for (int block = 0; block < EXAMPLES / BLOCK; block++) {
        fill(&f, (uint64_t)block * BLOCK);
        for (int e = 0; e < BLOCK; e++) {
            check_example(&config, f.ids + e * config.length, f.labels + e * config.length, slots);
            for (int i = 0; i < N; i++) {
                our_mean[i] += (double)slots[i] / EXAMPLES;
                our_square[i] += (double)slots[i] * slots[i] / EXAMPLES;
                our_used[slots[i]] += 1.0 / EXAMPLES;
            }
            our_first[slots[0]] += 1.0 / EXAMPLES;
            our_last[slots[N - 1]] += 1.0 / EXAMPLES;
        }
    }
    double normalise_first = 0, normalise_last = 0;
    for (int c = 0; c < S; c++) normalise_first += first[c], normalise_last += last[c];
    for (int i = 0; i < N; i++) {
        const double our_sem = sqrt((our_square[i] - our_mean[i] * our_mean[i]) / EXAMPLES);
        const double accept = 4.5 * sqrt(our_sem * our_sem + sem[i] * sem[i]);
        if (!(fabs(our_mean[i] - mean[i]) <= accept))
            fail_msg("key %d: mean slot %.4f, recorded %.4f, accepted distance %.4f", i, our_mean[i], mean[i], accept);
        if (!(fabs(our_sem / sem[i] - 1) < 0.05)) fail_msg("key %d: spread %.5f, recorded %.5f", i, our_sem, sem[i]);
    }
    for (int c = 0; c < S; c++) {
        near_share("first key's share", c, our_first[c], first[c] / normalise_first, EXAMPLES);
        near_share("last key's share", c, our_last[c], last[c] / normalise_last, EXAMPLES);
        near_share("use", c, our_used[c], used[c], EXAMPLES);
    }
    drop(&f);
    pal_safetensors_close(file);
}

static void slots_have_the_recorded_statistics(void **state) {
    (void)state;
    check_statistics(PAL_TEST_GOLDEN "/mqar/mqar_L128_N32.safetensors",
                     (pal_mqar_config){ 128, 32, 8192, 0.01, false });
    check_statistics(PAL_TEST_GOLDEN "/mqar/mqar_L64_N8.safetensors", (pal_mqar_config){ 64, 8, 8192, 0.01, false });
}

static void keys_and_values_are_uniform(void **state) {
    (void)state;
    enum { EXAMPLES = 4000, V = 18 };
    const pal_mqar_config config = { 16, 4, V, 0.01, true };
    fixture f = make(config, 3, PAL_MQAR_TEST, EXAMPLES, 2);
    fill(&f, 0);
    double counts[4][2][V] = { 0 }, blank[V] = { 0 }, blanks = 0;
    for (size_t e = 0; e < EXAMPLES; e++) {
        const int32_t *ids = f.ids + e * 16, *labels = f.labels + e * 16;
        for (int i = 0; i < 4; i++) counts[i][0][ids[2 * i]]++, counts[i][1][ids[2 * i + 1]]++;
        for (int t = 8; t < 16; t++)
            if (labels[t] == PAL_MQAR_IGNORED) blank[ids[t]]++, blanks++;
    }
    for (int i = 0; i < 4; i++)
        for (int id = 0; id < V; id++) {
            const double keys = id >= 1 && id <= V / 2 - 1 ? EXAMPLES / 8.0 : 0,
                         values = id >= V / 2 ? EXAMPLES / 9.0 : 0;
            assert_true(fabs(counts[i][0][id] - keys) <= 5 * sqrt(keys));
            assert_true(fabs(counts[i][1][id] - values) <= 5 * sqrt(values));
        }
    for (int id = 0; id < V; id++) assert_true(fabs(blank[id] - blanks / V) <= 5 * sqrt(blanks / V));
    drop(&f);
}

static void random_configurations_keep_the_structure(void **state) {
    (void)state;
    const int cases = getenv("PALIMPSA_TEST_LONG") ? 1000 : 60;
    pal_rng rng = pal_rng_at(11, 4);
    for (int k = 0; k < cases; k++) {
        pal_mqar_config c = { .random_fill = k % 3 == 0 };
        c.pairs = 1 + (int)pal_rng_below(&rng, 70);
        c.length = 4 * c.pairs + 2 * (int)pal_rng_below(&rng, k % 2 ? 100 : 1);
        c.vocabulary = 2 * (c.pairs + 1) + (int)pal_rng_below(&rng, k % 4 ? 3 : 5000); /* the least, or more */
        c.exponent = -3 + 6 * pal_rng_uniform(&rng);
        fixture f = make(c, pal_rng_u32(&rng), k % 2 ? PAL_MQAR_TEST : PAL_MQAR_TRAIN, 5, 1 + k % 3);
        fill(&f, pal_rng_u32(&rng));
        int slots[100];
        for (size_t e = 0; e < f.count; e++)
            check_example(&c, f.ids + e * (size_t)c.length, f.labels + e * (size_t)c.length, slots);
        drop(&f);
    }
}

static void examples_depend_on_seed_and_index_alone(void **state) {
    (void)state;
    enum { COUNT = 64, L = 48 };
    const pal_mqar_config config = { L, 10, 300, 0.01, true };
    fixture all = make(config, 9, PAL_MQAR_TRAIN, COUNT, 1);
    fill(&all, 1000);
    const uint64_t before = pal_alloc_count();
    fill(&all, 1000);
    assert_int_equal(pal_alloc_count() - before, 0);
    for (int threads = 1; threads <= 5; threads += 2) {
        fixture part = make(config, 9, PAL_MQAR_TRAIN, 7, threads);
        for (size_t first = 0; first + 7 <= COUNT; first += 7) {
            const size_t from = COUNT - 7 - first; /* backwards */
            fill(&part, 1000 + from);
            assert_memory_equal(part.ids, all.ids + from * L, 7 * L * sizeof(int32_t));
            assert_memory_equal(part.labels, all.labels + from * L, 7 * L * sizeof(int32_t));
        }
        drop(&part);
    }
    drop(&all);
}

static void seeds_splits_and_lengths_share_no_example(void **state) {
    (void)state;
    const pal_mqar_config config = { 64, 16, 8192, 0.01, false }, longer = { 66, 16, 8192, 0.01, false };
    fixture sets[] = { make(config, 1, PAL_MQAR_TRAIN, 50, 1), make(config, 1, PAL_MQAR_TEST, 50, 1),
                       make(config, 2, PAL_MQAR_TRAIN, 50, 1), make(longer, 1, PAL_MQAR_TRAIN, 50, 1) };
    for (size_t a = 0; a < PAL_COUNT(sets); a++) fill(&sets[a], 0);
    for (size_t a = 0; a < PAL_COUNT(sets); a++)
        for (size_t b = 0; b < PAL_COUNT(sets); b++)
            for (int i = 0; i < 50; i++)
                for (int j = 0; j < 50; j++) {
                    const int32_t *x = sets[a].ids + i * pal_mqar_config_of(sets[a].data)->length;
                    const int32_t *y = sets[b].ids + j * pal_mqar_config_of(sets[b].data)->length;
                    if (a != b || i != j) assert_true(memcmp(x, y, 4 * sizeof *x) != 0);
                }
    for (size_t a = 0; a < PAL_COUNT(sets); a++) drop(&sets[a]);
}

static void bad_configurations_are_refused_with_a_sentence(void **state) {
    (void)state;
    static const struct {
        pal_mqar_config config;
        const char *says;
    } cases[] = {
        { { 128, 33, 8192, 0.01, false }, "33 pairs need a length of at least 132, found 128" },
        { { 129, 32, 8192, 0.01, false }, "length 129 is odd" },
        { { 128, 0, 8192, 0.01, false }, "0 pairs" },
        { { 128, -4, 8192, 0.01, false }, "-4 pairs" },
        { { -128, 4, 8192, 0.01, false }, "found -128" },
        { { 0, 1, 8192, 0.01, false }, "found 0" },
        { { 1 << 30, 1 << 29, INT32_MAX, 0.01, false }, "at least 2147483648" },
        { { 128, 32, 65, 0.01, false }, "vocabulary of 65 is too small for 32 pairs, expected at least 66" },
        { { 128, 32, -1, 0.01, false }, "vocabulary of -1" },
        { { 128, 32, 8192, NAN, false }, "exponent nan" },
        { { 128, 32, 8192, -INFINITY, false }, "exponent -inf" },
        { { 128, 32, 8192, 1e4, false }, "exponent 10000" },
        { { 128, 32, 8192, -1e4, false }, "exponent -10000" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_mqar *data;
        pal_error err;
        assert_int_equal(pal_mqar_new(&data, &cases[i].config, 1, PAL_MQAR_TRAIN, &err), PAL_E_ARGUMENT);
        assert_null(data);
        if (!strstr(err.text, cases[i].says)) fail_msg("case %zu says '%s'", i, err.text);
    }
}

/* A stage whose tokens no int holds. */
static void a_batch_that_is_too_large_is_refused(void **state) {
    (void)state;
    const pal_mqar_options o = {
        .stages = 1,
        .stage = { { .data = { 1 << 20, 4, 8192, 0.01, false }, .batch = 1 << 20, .steps = 1 } },
        .test_examples = 1,
        .accumulate = 1
    };
    pal_context *cx = test_context(1, NULL);
    pal_mqar_task *t;
    pal_task task;
    pal_error why;
    assert_int_equal(pal_mqar_task_new(&t, cx, &o, &task, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "a batch of 1048576 x 1048576 tokens is too large"));
    pal_context_free(cx);
}

static void short_memory_is_reported(void **state) {
    (void)state;
    const pal_mqar_config config = { 128, 32, 8192, 0.01, false };
    for (uint64_t at = 1; at <= 2; at++) {
        pal_mqar *data;
        pal_error err;
        pal_alloc_fail_at(at);
        assert_int_equal(pal_mqar_new(&data, &config, 1, PAL_MQAR_TRAIN, &err), PAL_E_MEMORY);
        pal_alloc_fail_at(0);
        assert_null(data);
    }
}

static void accuracy_counts_per_example_and_by_distance(void **state) {
    (void)state;
    /* keys 1, 2 with values 9, 10; slots 1 and 0 of 2: key 2 (position 2) asked at 4, key 1 (position 0) at 6 */
    const pal_mqar_config config = { 8, 2, 16, 0.01, false };
    const int32_t ids[2][8] = { { 1, 9, 2, 10, 2, 0, 1, 0 }, { 3, 11, 4, 12, 3, 0, 4, 0 } };
    const int32_t labels[2][8] = { { -100, -100, -100, -100, 10, -100, 9, -100 },
                                   { -100, -100, -100, -100, 11, -100, 12, -100 } };
    pal_mqar_score score = { 0 };
    assert_true(isnan(pal_mqar_accuracy(&score)));
    const int32_t predicted[4] = { 10, 1, 11, 12 };
    pal_mqar_score_add(&score, &config, 2, ids[0], labels[0], predicted);
    assert_true(pal_mqar_accuracy(&score) == 0.75);
    assert_true(isnan(pal_mqar_accuracy_at(&score, 0)));
    assert_true(pal_mqar_accuracy_at(&score, 1) == 1.0);                  /* distance 2, right */
    assert_true(fabs(pal_mqar_accuracy_at(&score, 2) - 2.0 / 3) < 1e-15); /* distances 6 (wrong), 4 and 4 (right) */
    pal_mqar_score_add(&score, &config, 1, ids[0], labels[0], predicted);
    assert_int_equal(score.examples, 3);
    assert_true(fabs(pal_mqar_accuracy(&score) - 2.0 / 3) < 1e-15);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_have_the_recorded_statistics),
        cmocka_unit_test(keys_and_values_are_uniform),
        cmocka_unit_test(random_configurations_keep_the_structure),
        cmocka_unit_test(examples_depend_on_seed_and_index_alone),
        cmocka_unit_test(seeds_splits_and_lengths_share_no_example),
        cmocka_unit_test(bad_configurations_are_refused_with_a_sentence),
        cmocka_unit_test(a_batch_that_is_too_large_is_refused),
        cmocka_unit_test(short_memory_is_reported),
        cmocka_unit_test(accuracy_counts_per_example_and_by_distance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
