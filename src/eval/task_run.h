/* SPDX-License-Identifier: MIT */
/* A task measured on a model: documents become requests, many at a time, and scores become numbers. */
#ifndef PAL_EVAL_TASK_RUN_H
#define PAL_EVAL_TASK_RUN_H

#include "eval/metrics.h"
#include "eval/pairs.h"
#include "eval/task_data.h"

/* A document that was scored. Everything is borrowed for the call. */
typedef struct pal_task_sample {
    size_t index; /* of the document in its file */
    const json_t *row;
    const pal_task_doc *doc;
    pal_slice shots;       /* text before every context */
    const double *logprob; /* (doc->count) */
    const bool *greedy;    /* (doc->count) */
    size_t cut;            /* requests of it whose beginning was left out */
    const double *values;  /* (PAL_METRICS) */
} pal_task_sample;

typedef struct pal_task_run {
    const pal_eval_task *task;
    const pal_task_data *data;
    size_t from, to; /* documents from .. to-1 */
    pal_scorer *scorer;
    pal_encoder *encoder;
    pal_slice shots; /* put before every context; documents then share it */
    /* Whether a document was scored before: fills logprob and greedy (doc->count), and cut. NULL: none was. */
    bool (*known)(void *user, size_t index, const pal_task_doc *doc, double *logprob, bool *greedy, size_t *cut);
    pal_status (*on_sample)(void *user, const pal_task_sample *sample, pal_error *err); /* of new ones; or NULL */
    /* Before `batch` documents are scored: so many are done, and so many tokens were read for them. Or NULL. */
    void (*on_batch)(void *user, size_t done, size_t batch, uint64_t read);
    void *user;
} pal_task_run;

/* Adds to sums, in the order of the documents; *cut counts requests whose beginning was left out. */
pal_status pal_task_measure(const pal_task_run *run, pal_task_sums *sums, uint64_t *cut, pal_error *err);

/* The first `count` documents with their right answers, as a text to put before contexts. Appends. */
pal_status pal_task_shots(const pal_eval_task *task, const pal_task_data *data, size_t count, pal_bytes *out,
                          pal_error *err);

#endif
