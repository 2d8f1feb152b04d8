/* SPDX-License-Identifier: MIT */
/* Picking a token. Filters want the likeliest tokens first; a heap gives them one by one. Into the heap go only logits
 * that can be among them, found by the largest of each run: a pick costs two passes over the vocabulary, and a little
 * for each token that the filters let through. */
#include "palimpsa/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/random.h"
#include "infer/session.h"

enum {
    STREAM = 0x736d706c, /* of random numbers: apart from those that make weights and data */
    RUN = 64             /* neighbouring logits whose largest is known */
};

struct pal_sampler {
    int vocab;
    float *logits;  /* (vocab) after bias and penalties */
    float *most;    /* (runs) of each run */
    int32_t *heap;  /* (vocab) ids, the likeliest on top */
    int32_t *kept;  /* (vocab) ids in falling order */
    double *weight; /* (vocab) of kept ids, or of all ids when nothing is filtered */
};

static int runs_of(const pal_sampler *s) { return (s->vocab + RUN - 1) / RUN; }

pal_status pal_sampling_check(const pal_sampling *s, int vocab, pal_error *err) {
    if (!(s->temperature >= 0 && s->temperature <= 1e6))
        return pal_fail(err, PAL_E_ARGUMENT, "temperature is %g, expected 0 to 1e6", s->temperature);
    if (s->top_k < 0) return pal_fail(err, PAL_E_ARGUMENT, "top-k is %d, expected 0 or more", s->top_k);
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return pal_fail(err, PAL_E_ARGUMENT, "top-p is %g, expected 0 to 1", s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return pal_fail(err, PAL_E_ARGUMENT, "min-p is %g, expected 0 to 1", s->min_p);
    if (!(s->repetition_penalty == 0 || (s->repetition_penalty >= 0.01 && s->repetition_penalty <= 100)))
        return pal_fail(err, PAL_E_ARGUMENT, "the repetition penalty is %g, expected 0.01 to 100",
                        s->repetition_penalty);
    if (!(fabs(s->presence_penalty) <= 100 && fabs(s->frequency_penalty) <= 100))
        return pal_fail(err, PAL_E_ARGUMENT, "the presence and frequency penalties are %g and %g, expected -100 to 100",
                        s->presence_penalty, s->frequency_penalty);
    for (size_t i = 0; i < s->bias_count; i++)
        if (s->bias[i].id < 0 || s->bias[i].id >= vocab || !(fabs(s->bias[i].bias) <= 1e6))
            return pal_fail(err, PAL_E_ARGUMENT, "a bias of %g for id %d: expected -1e6 to 1e6 for an id of 0 to %d",
                            s->bias[i].bias, (int)s->bias[i].id, vocab - 1);
    return PAL_OK;
}

pal_status pal_sampler_new(pal_sampler **out, int vocab, pal_error *err) {
    pal_status st;
    void *block;
    *out = NULL;
    if (vocab < 1) return pal_fail(err, PAL_E_ARGUMENT, "a sampler for %d tokens: expected at least 1", vocab);
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_sampler), "a sampler", err))) return st;
    pal_sampler *s = block;
    s->vocab = vocab;
    s->logits = pal_alloc((size_t)vocab, sizeof *s->logits);
    s->most = pal_alloc((size_t)runs_of(s), sizeof *s->most);
    s->heap = pal_alloc((size_t)vocab, sizeof *s->heap);
    s->kept = pal_alloc((size_t)vocab, sizeof *s->kept);
    s->weight = pal_alloc((size_t)vocab, sizeof *s->weight);
    if (!s->logits || !s->most || !s->heap || !s->kept || !s->weight) {
        pal_sampler_free(s);
        return pal_fail(err, PAL_E_MEMORY, "out of memory for a sampler of %d tokens", vocab);
    }
    *out = s;
    return PAL_OK;
}

void pal_sampler_free(pal_sampler *s) {
    if (!s) return;
    pal_free(s->logits), pal_free(s->most), pal_free(s->heap), pal_free(s->kept), pal_free(s->weight);
    pal_free(s);
}

/* NaN becomes -inf; returns the largest. Eight lanes, which a compiler can keep in vectors. */
static float largest_of(float *x, int n) {
    enum { LANES = 8 };
    float lanes[LANES], most = -INFINITY;
    for (int j = 0; j < LANES; j++) lanes[j] = -INFINITY;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            x[i + j] = x[i + j] > -INFINITY ? x[i + j] : -INFINITY;
            lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
        }
    for (; i < n; i++) {
        if (!(x[i] > -INFINITY)) x[i] = -INFINITY;
        if (x[i] > most) most = x[i];
    }
    for (int j = 0; j < LANES; j++) most = lanes[j] > most ? lanes[j] : most;
    return most;
}

static int run_end(const pal_sampler *s, int run) { return run < s->vocab / RUN ? (run + 1) * RUN : s->vocab; }

static void penalise(pal_sampler *s, const pal_sampling *o, const unsigned char *seen, const uint32_t *written) {
    const double penalty = o->repetition_penalty;
    if (seen && penalty != 0 && penalty != 1)
        for (int i = 0; i < s->vocab; i++)
            if (seen[i]) s->logits[i] = (float)(s->logits[i] > 0 ? s->logits[i] / penalty : s->logits[i] * penalty);
    if (written && (o->presence_penalty != 0 || o->frequency_penalty != 0))
        for (int i = 0; i < s->vocab; i++)
            if (written[i])
                s->logits[i] = (float)((double)s->logits[i] - o->presence_penalty -
                                       o->frequency_penalty * (double)written[i]);
}

/* Copies the logits with bias and penalties; returns the likeliest id, or -1. */
static int32_t prepare(pal_sampler *s, const pal_sampling *o, const float *logits, const unsigned char *seen,
                       const uint32_t *written, const uint64_t *allowed) {
    memcpy(s->logits, logits, (size_t)s->vocab * sizeof *logits);
    for (int i = 0; allowed && i < s->vocab; i++)
        if (!(allowed[i / 64] >> i % 64 & 1)) s->logits[i] = -INFINITY;
    for (size_t i = 0; i < o->bias_count; i++) {
        float *x = &s->logits[o->bias[i].id];
        *x = o->bias[i].bias <= -100 ? -INFINITY : (float)((double)*x + o->bias[i].bias);
    }
    penalise(s, o, seen, written);
    int first = 0;
    for (int run = 0; run < runs_of(s); run++) {
        s->most[run] = largest_of(s->logits + run * RUN, run_end(s, run) - run * RUN);
        if (s->most[run] > s->most[first]) first = run;
    }
    for (int32_t i = first * RUN; s->most[first] > -INFINITY; i++)
        if (s->logits[i] == s->most[first]) return i;
    return -1;
}

static bool likelier(const float *logits, int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

static void sift(const float *logits, int32_t *heap, int at, int size) {
    const int32_t moving = heap[at];
    for (int child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && likelier(logits, heap[child + 1], heap[child])) child++;
        if (!likelier(logits, heap[child], moving)) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

static void make_heap(const float *logits, int32_t *heap, int size) {
    for (int i = size / 2; i-- > 0;) sift(logits, heap, i, size);
}

/* A number that at least `wanted` logits reach: each of as many runs has one. */
static float reached_by(pal_sampler *s, int wanted) {
    int size = runs_of(s);
    if (wanted > size) return -INFINITY;
    for (int run = 0; run < size; run++) s->heap[run] = run;
    make_heap(s->most, s->heap, size);
    for (int i = 1; i < wanted; i++) {
        s->heap[0] = s->heap[--size];
        sift(s->most, s->heap, 0, size);
    }
    return s->most[s->heap[0]];
}

/* The heap of all ids whose logits lie in [low, high), -inf never; returns how many. */
static int collect(pal_sampler *s, float low, float high) {
    int size = 0;
    for (int run = 0; run < runs_of(s); run++)
        for (int32_t i = run * RUN; s->most[run] >= low && i < run_end(s, run); i++)
            if (s->logits[i] >= low && s->logits[i] < high && s->logits[i] > -INFINITY) s->heap[size++] = i;
    make_heap(s->logits, s->heap, size);
    return size;
}

/* Fills kept and weight with what the filters leave; returns how many. best has weight 1. */
static int filter(pal_sampler *s, const pal_sampling *o, int32_t best) {
    enum { FEW = 256 }; /* that are looked at first where no number of tokens was asked for */
    const double top = (double)s->logits[best], scale = 1 / o->temperature;
    const bool by_mass = o->top_p > 0 && o->top_p < 1;
    int kept = 0;
    double all = 0;
    if (by_mass && !o->top_k)
        for (int32_t i = 0; i < s->vocab; i++)
            if (s->logits[i] > -INFINITY) all += exp(((double)s->logits[i] - top) * scale);
    const int most = o->top_k && o->top_k < s->vocab ? o->top_k : s->vocab;
    const float low = reached_by(s, o->top_k ? most : FEW);
    bool whole = !(low > -INFINITY);
    int size = collect(s, low, INFINITY);
    /* Without top_k the mass is known, and nothing after it need leave the heap; min_p never needs more than itself.
     */
    for (double mass = 0; kept < most;) {
        if (!size && !whole) size = collect(s, -INFINITY, low), whole = true;
        if (!size) break;
        const int32_t id = s->heap[0];
        const double weight = exp(((double)s->logits[id] - top) * scale);
        if (kept && weight < o->min_p && !(by_mass && o->top_k)) break;
        s->heap[0] = s->heap[--size];
        if (size) sift(s->logits, s->heap, 0, size);
        s->kept[kept] = id;
        s->weight[kept++] = weight;
        mass += weight;
        if (by_mass && !o->top_k && mass >= o->top_p * all) break;
    }
    if (by_mass && o->top_k) {
        double mass = 0;
        for (int i = 0; i < kept; i++) all += s->weight[i];
        for (int i = 0; i < kept; i++) {
            if (i && s->weight[i] < o->min_p) kept = i;
            else if ((mass += s->weight[i]) >= o->top_p * all) kept = i + 1;
        }
    }
    return kept;
}

static double uniform(uint64_t seed, uint64_t index) {
    uint32_t r[4];
    pal_random_block(seed, STREAM, index, r);
    return (double)(((uint64_t)r[0] << 32 | r[1]) >> 11) * 0x1p-53;
}

int32_t pal_sampler_pick(pal_sampler *s, const pal_sampling *o, const float *logits, const unsigned char *seen,
                         const uint32_t *written, uint64_t seed, uint64_t index) {
    return pal_sampler_pick_allowed(s, o, logits, seen, written, NULL, seed, index);
}

int32_t pal_sampler_pick_allowed(pal_sampler *s, const pal_sampling *o, const float *logits, const unsigned char *seen,
                                 const uint32_t *written, const uint64_t *allowed, uint64_t seed, uint64_t index) {
    const int32_t best = prepare(s, o, logits, seen, written, allowed);
    if (best < 0 || o->temperature == 0 || !(s->logits[best] < INFINITY)) return best;
    const bool all = !o->top_k && o->min_p == 0 && (o->top_p == 0 || o->top_p == 1);
    int count;
    double sum = 0;
    if (all) {
        count = s->vocab;
        for (int32_t i = 0; i < count; i++)
            s->weight[i] = exp(((double)s->logits[i] - (double)s->logits[best]) / o->temperature);
    } else {
        count = filter(s, o, best);
    }
    for (int i = 0; i < count; i++) sum += s->weight[i];
    double left = uniform(seed, index) * sum;
    int last = 0;
    for (int i = 0; i < count; i++) {
        if (s->weight[i] > 0) last = i; /* rounding may leave a rest: it goes to the last that can be */
        if ((left -= s->weight[i]) < 0) break;
    }
    return all ? last : s->kept[last];
}
