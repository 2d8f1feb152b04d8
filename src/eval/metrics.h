/* SPDX-License-Identifier: MIT */
/* From scores to the numbers that are reported, and their standard errors. */
#ifndef PAL_EVAL_METRICS_H
#define PAL_EVAL_METRICS_H

#include "eval/tasks/task.h"
#include "palimpsa/context.h"

enum { PAL_BOOTSTRAP = 100000 };

/* Which choice wins: the largest sum, or the largest sum per character of the choice; the first of equal ones. A choice
 * without characters never wins by length. */
int pal_best_choice(const double *logprob, const uint32_t *characters, size_t count);

/* What the documents of a task gave so far. */
typedef struct pal_task_sums {
    double *values[PAL_METRICS]; /* (count) acc and acc_norm: 0 or 1; perplexity: the log probability itself */
    size_t count, capacity;
    double logprob;        /* rolling: sums over documents */
    uint64_t words, bytes; /* rolling */
} pal_task_sums;
void pal_task_sums_free(pal_task_sums *s);

/* Adds a document with the log probability and greedy flag of each choice (rolling: of the text). values, if not NULL,
 * takes this document's own numbers (PAL_METRICS). */
pal_status pal_task_count(const pal_eval_task *task, const pal_task_doc *doc, const double *logprob, const bool *greedy,
                          pal_task_sums *sums, double *values, pal_error *err);

/* A metric of all documents and its standard error (NaN: has none). iterations: resamples for perplexity. */
double pal_task_value(const pal_eval_task *task, const pal_task_sums *s, pal_metric metric);
double pal_task_error(const pal_context *cx, const pal_eval_task *task, const pal_task_sums *s, pal_metric metric,
                      int iterations);

/* Standard error of the mean: sqrt(sum (x-m)^2 / (n-1)) / sqrt(n). */
double pal_mean_error(const double *x, size_t n);
/* Standard deviation of exp(-mean) over resamples of x, drawn as lm-evaluation-harness draws them. */
double pal_bootstrap_perplexity(const pal_context *cx, const double *x, size_t n, int iterations);

#endif
