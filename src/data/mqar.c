/* SPDX-License-Identifier: MIT */
/* Slots are drawn from a binary tree of sums of weights: a draw walks down from the root, and the slot it takes is set
 * to zero and the sums above it are added up anew, so no rounding accumulates and a taken slot weighs exactly nothing.
 * Keys and values come from a partial Fisher-Yates shuffle of a table that is put back afterwards, so an example costs
 * time proportional to L, not to V. */
#include "data/mqar.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/parallel.h"
#include "base/random.h"

struct pal_mqar {
    pal_mqar_config config;
    uint64_t key;    /* seed of this data set's streams; example i is stream i */
    int slots;       /* S */
    int leaves;      /* S rounded up to a power of two */
    double *weights; /* tree of 2*leaves: node n sums nodes 2n and 2n+1, slot c is node leaves + c */
};

/* One thread's part of the scratch. */
typedef struct {
    double *tree;       /* (2*leaves) */
    uint32_t *shuffled; /* (V - V/2) entry i of the table is shuffled[i] ^ i: all zeros is the identity */
    uint32_t *touched;  /* (N) entries that are not zero */
} workspace;

pal_status pal_mqar_check(const pal_mqar_config *c, pal_error *err) {
    if (c->pairs < 1) return pal_fail(err, PAL_E_ARGUMENT, "mqar: %d pairs, expected at least 1", c->pairs);
    if (c->length % 2 != 0)
        return pal_fail(err, PAL_E_ARGUMENT, "mqar: length %d is odd, expected an even number", c->length);
    if ((int64_t)c->pairs * 4 > c->length)
        return pal_fail(err, PAL_E_ARGUMENT, "mqar: %d pairs need a length of at least %lld, found %d", c->pairs,
                        (long long)c->pairs * 4, c->length);
    /* Keys are N distinct ids of V/2-1; values have at least as many. */
    if (c->vocabulary / 2 <= c->pairs)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "mqar: a vocabulary of %d is too small for %d pairs, expected at least %lld", c->vocabulary,
                        c->pairs, 2 * ((long long)c->pairs + 1));
    if (!isfinite(c->exponent))
        return pal_fail(err, PAL_E_ARGUMENT, "mqar: exponent %g, expected a finite number", c->exponent);
    const int last_slot = c->length / 2 - c->pairs;
    const double last = pow(last_slot, c->exponent - 1);
    if (!(last > 1e-290 && last < 1e290))
        return pal_fail(
            err, PAL_E_ARGUMENT,
            "mqar: with exponent %g the weight of the last slot is %g, expected a number that can be added to 1",
            c->exponent, last);
    return PAL_OK;
}

pal_status pal_mqar_new(pal_mqar **out, const pal_mqar_config *config, uint64_t seed, pal_mqar_subset subset,
                        pal_error *err) {
    *out = NULL;
    pal_status st = pal_mqar_check(config, err);
    if (st) return st;
    pal_mqar *data;
    if ((st = pal_alloc_named((void **)&data, 1, sizeof *data, "an MQAR data set", err))) return st;
    data->config = *config;
    data->slots = config->length / 2 - config->pairs;
    for (data->leaves = 1; data->leaves < data->slots; data->leaves *= 2) {
    }
    uint32_t key[4];
    const uint64_t shape = (uint64_t)config->length << 32 | (uint64_t)config->pairs;
    pal_random_block(seed, 0x6d716172u /* "mqar" */ + ((uint64_t)subset << 32), shape, key);
    data->key = (uint64_t)key[0] << 32 | key[1];

    const size_t leaves = (size_t)data->leaves;
    if ((st = pal_alloc_named((void **)&data->weights, 2 * leaves, sizeof *data->weights, "the weights of MQAR slots",
                              err))) {
        pal_mqar_free(data);
        return st;
    }
    for (int c = 0; c < data->slots; c++) data->weights[leaves + (size_t)c] = pow(c + 1, config->exponent - 1);
    for (size_t n = leaves - 1; n > 0; n--) data->weights[n] = data->weights[2 * n] + data->weights[2 * n + 1];
    *out = data;
    return PAL_OK;
}

void pal_mqar_free(pal_mqar *data) {
    if (!data) return;
    pal_free(data->weights);
    pal_free(data);
}

const pal_mqar_config *pal_mqar_config_of(const pal_mqar *data) { return &data->config; }

/* Values are the larger set: V - V/2 ids. */
static size_t table_size(const pal_mqar *data) {
    return (size_t)(data->config.vocabulary - data->config.vocabulary / 2);
}

static void lay_out(const pal_mqar *data, pal_arena *arena, workspace *w) {
    w->tree = pal_take(arena, 2 * (size_t)data->leaves, sizeof *w->tree);
    w->shuffled = pal_take(arena, table_size(data), sizeof *w->shuffled);
    w->touched = pal_take(arena, (size_t)data->config.pairs, sizeof *w->touched);
}

static size_t workspace_bytes(const pal_mqar *data) {
    pal_arena arena = { 0 };
    workspace w;
    lay_out(data, &arena, &w);
    return (arena.used + 63) / 64 * 64;
}

size_t pal_mqar_scratch_bytes(const pal_mqar *data, const pal_context *cx) {
    return workspace_bytes(data) * (size_t)pal_context_threads(cx);
}

/* n distinct numbers of 0 .. range-1, uniform, in random order; number i goes to out[i*step] plus base. */
static void draw_distinct(workspace *w, pal_rng *rng, uint32_t n, uint32_t range, int32_t *out, size_t step,
                          uint32_t base) {
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t j = i + pal_rng_below(rng, range - i);
        const uint32_t at_j = w->shuffled[j] ^ j, at_i = w->shuffled[i] ^ i;
        out[i * step] = (int32_t)(base + at_j);
        w->shuffled[j] = at_i ^ j; /* entry i is not looked at again, so it need not receive at_j */
        w->touched[i] = j;
    }
    for (uint32_t i = 0; i < n; i++) w->shuffled[w->touched[i]] = 0;
}

static int draw_slot(workspace *w, pal_rng *rng, int leaves) {
    double at = pal_rng_uniform(rng) * w->tree[1];
    int node = 1;
    while (node < leaves) {
        node *= 2;
        /* The second condition holds except for rounding in the subtraction. */
        if (at >= w->tree[node] && w->tree[node + 1] > 0) at -= w->tree[node++];
    }
    const int slot = node - leaves;
    w->tree[node] = 0;
    for (node /= 2; node > 0; node /= 2) w->tree[node] = w->tree[2 * node] + w->tree[2 * node + 1];
    return slot;
}

static void make_example(const pal_mqar *data, workspace *w, uint64_t index, int32_t *ids, int32_t *labels) {
    const pal_mqar_config *c = &data->config;
    const int L = c->length, N = c->pairs, V = c->vocabulary;
    pal_rng rng = pal_rng_at(data->key, index);

    draw_distinct(w, &rng, (uint32_t)N, (uint32_t)(V / 2 - 1), ids, 2, 1);
    draw_distinct(w, &rng, (uint32_t)N, (uint32_t)(V - V / 2), ids + 1, 2, (uint32_t)(V / 2));
    for (int t = 0; t < L; t++) labels[t] = PAL_MQAR_IGNORED;
    memset(ids + 2 * N, 0, (size_t)(L - 2 * N) * sizeof *ids);

    memcpy(w->tree, data->weights, 2 * (size_t)data->leaves * sizeof *w->tree);
    for (int i = 0; i < N; i++) {
        const int t = 2 * N + 2 * draw_slot(w, &rng, data->leaves);
        ids[t] = ids[2 * i];
        labels[t] = ids[2 * i + 1];
    }
    if (c->random_fill)
        for (int t = 2 * N; t < L; t++)
            if (labels[t] == PAL_MQAR_IGNORED) ids[t] = (int32_t)pal_rng_below(&rng, (uint32_t)V);
}

typedef struct {
    const pal_mqar *data;
    uint64_t first;
    int32_t *ids, *labels;
    char *scratch;
    size_t scratch_each;
} fill_job;

static void fill_range(void *arg, size_t begin, size_t end, int thread) {
    const fill_job *job = arg;
    const size_t L = (size_t)job->data->config.length;
    pal_arena arena = { .base = job->scratch + (size_t)thread * job->scratch_each, .capacity = job->scratch_each };
    workspace w;
    lay_out(job->data, &arena, &w);
    assert(!arena.bad);
    memset(w.shuffled, 0, table_size(job->data) * sizeof *w.shuffled);
    for (size_t e = begin; e < end; e++)
        make_example(job->data, &w, job->first + e, job->ids + e * L, job->labels + e * L);
}

void pal_mqar_fill(const pal_mqar *data, const pal_context *cx, uint64_t first, size_t count, int32_t *ids,
                   int32_t *labels, void *scratch) {
    fill_job job = { data, first, ids, labels, scratch, workspace_bytes(data) };
    pal_parallel_ranges(cx, count, 8, fill_range, &job);
}

static int distance_bin(int distance) {
    int bin = 0;
    while (distance >>= 1) bin++;
    return bin;
}

void pal_mqar_score_add(pal_mqar_score *score, const pal_mqar_config *c, size_t count, const int32_t *ids,
                        const int32_t *labels, const int32_t *predicted) {
    for (size_t e = 0; e < count; e++, ids += c->length, labels += c->length) {
        int right = 0;
        for (int t = 2 * c->pairs; t < c->length; t++) {
            if (labels[t] == PAL_MQAR_IGNORED) continue;
            int key_at = 0;
            while (key_at < 2 * c->pairs && ids[key_at] != ids[t]) key_at += 2;
            const int bin = distance_bin(t - key_at);
            const bool good = *predicted++ == labels[t];
            score->asked[bin]++;
            score->right[bin] += good;
            right += good;
        }
        score->sum += (double)right / c->pairs;
        score->examples++;
    }
}

double pal_mqar_accuracy(const pal_mqar_score *score) {
    return score->examples ? score->sum / (double)score->examples : NAN;
}

double pal_mqar_accuracy_at(const pal_mqar_score *score, int bin) {
    return score->asked[bin] ? (double)score->right[bin] / (double)score->asked[bin] : NAN;
}
