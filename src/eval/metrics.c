/* SPDX-License-Identifier: MIT */
#include "eval/metrics.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/mersenne.h"
#include "base/parallel.h"
#include "base/statistics.h"

enum { CHUNK = 1000 }; /* resamples of one seed */

int pal_best_choice(const double *logprob, const uint32_t *characters, size_t count) {
    int best = 0;
    double top = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        const double x = !characters ? logprob[i] : characters[i] ? logprob[i] / characters[i] : -INFINITY;
        if (x > top) best = (int)i, top = x;
    }
    return best;
}

void pal_task_sums_free(pal_task_sums *s) {
    for (int m = 0; m < PAL_METRICS; m++) pal_free(s->values[m]);
    *s = (pal_task_sums){ 0 };
}

static pal_status grow(pal_task_sums *s, pal_error *err) {
    if (s->count < s->capacity) return PAL_OK;
    const size_t room = s->capacity ? 2 * s->capacity : 64;
    for (int m = 0; m <= PAL_METRIC_PERPLEXITY; m++) {
        void *block;
        const pal_status st = pal_alloc_named(&block, room, sizeof(double), "scores of documents", err);
        if (st) return st;
        if (s->count) memcpy(block, s->values[m], s->count * sizeof(double));
        pal_free(s->values[m]);
        s->values[m] = block;
    }
    s->capacity = room;
    return PAL_OK;
}

pal_status pal_task_count(const pal_eval_task *task, const pal_task_doc *doc, const double *logprob, const bool *greedy,
                          pal_task_sums *s, double *values, pal_error *err) {
    double own[PAL_METRICS] = { 0 };
    const pal_status st = grow(s, err);
    if (st) return st;
    if (task->kind == PAL_TASK_CHOICE) {
        own[PAL_METRIC_ACC] = pal_best_choice(logprob, NULL, doc->count) == doc->gold;
        own[PAL_METRIC_ACC_NORM] = pal_best_choice(logprob, doc->characters, doc->count) == doc->gold;
    } else if (task->kind == PAL_TASK_LAST_WORD) {
        own[PAL_METRIC_ACC] = greedy[0];
        own[PAL_METRIC_PERPLEXITY] = logprob[0];
    } else {
        s->logprob += logprob[0];
        s->words += doc->words;
        s->bytes += doc->bytes;
    }
    for (int m = 0; m <= PAL_METRIC_PERPLEXITY; m++) s->values[m][s->count] = own[m];
    s->count++;
    if (values) memcpy(values, own, sizeof own);
    return PAL_OK;
}

double pal_mean_error(const double *x, size_t n) {
    const double mean = pal_mean(x, n);
    double squares = 0;
    if (n < 2) return NAN;
    for (size_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    return sqrt(squares / (double)(n - 1)) / sqrt((double)n);
}

typedef struct {
    const double *x;
    size_t n;
    double *out;
} resampling;

static void resample_task(void *arg, size_t seed, int thread) {
    (void)thread;
    const resampling *r = arg;
    pal_mersenne random;
    pal_mersenne_seed(&random, (uint32_t)seed);
    for (int k = 0; k < CHUNK; k++) {
        double sum = 0;
        for (size_t i = 0; i < r->n; i++) sum += r->x[(size_t)(pal_mersenne_double(&random) * (double)r->n)];
        r->out[seed * CHUNK + (size_t)k] = exp(-sum / (double)r->n);
    }
}

double pal_bootstrap_perplexity(const pal_context *cx, const double *x, size_t n, int iterations) {
    const size_t seeds = (size_t)iterations / CHUNK;
    double *values = n > 1 && seeds ? pal_alloc(seeds * CHUNK, sizeof *values) : NULL;
    if (!values) return NAN;
    resampling r = { .x = x, .n = n, .out = values };
    pal_parallel_for(cx, seeds, resample_task, &r);
    const double error = pal_mean_error(values, seeds * CHUNK) * sqrt((double)(seeds * CHUNK));
    pal_free(values);
    return error;
}

double pal_task_value(const pal_eval_task *task, const pal_task_sums *s, pal_metric metric) {
    switch (metric) {
    case PAL_METRIC_PERPLEXITY: return exp(-pal_mean(s->values[metric], s->count));
    case PAL_METRIC_WORD_PERPLEXITY: return s->words ? exp(-s->logprob / (double)s->words) : NAN;
    case PAL_METRIC_BYTE_PERPLEXITY: return s->bytes ? exp(-s->logprob / (double)s->bytes) : NAN;
    case PAL_METRIC_BITS_PER_BYTE: return s->bytes ? -s->logprob / (double)s->bytes / log(2) : NAN;
    default: (void)task; return pal_mean(s->values[metric], s->count);
    }
}

double pal_task_error(const pal_context *cx, const pal_eval_task *task, const pal_task_sums *s, pal_metric metric,
                      int iterations) {
    if (task->kind == PAL_TASK_ROLLING) return NAN;
    if (metric == PAL_METRIC_PERPLEXITY) return pal_bootstrap_perplexity(cx, s->values[metric], s->count, iterations);
    return pal_mean_error(s->values[metric], s->count);
}
