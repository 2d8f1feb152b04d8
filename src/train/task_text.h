/* SPDX-License-Identifier: MIT */
/* Language modelling as a task for the trainer: packed rows of shards, validation loss and perplexity, samples. */
#ifndef PAL_TRAIN_TASK_TEXT_H
#define PAL_TRAIN_TASK_TEXT_H

#include "data/loader.h"
#include "palimpsa/tokenizer.h"
#include "train/trainer.h"

typedef struct pal_text_options {
    int sources, valid_sources;
    pal_text_source source[PAL_SOURCES],
        valid[PAL_SOURCES];         /* no valid ones: the loss since the last evaluation is the score */
    const pal_tokenizer *tokenizer; /* borrowed; its files go into every checkpoint */
    bool responses;                 /* training on those of pairs alone */
    int row, context;
    int batch, accumulate; /* rows of a micro-batch, micro-batches of an update */
    pal_order order;
    int64_t steps;
    int64_t valid_tokens; /* of each validation source; 0: all */
    uint64_t seed;
    bool carry;           /* truncated back-propagation: memories continue from row to row of a document */
    const pal_comm *comm; /* whose ranks share every batch; NULL: one process */
    pal_asking asking;
    const char *sample; /* a prompt to continue from at each evaluation; NULL: none */
    int sample_tokens;
    /* Measures more at each evaluation and adds it to the metrics; NULL: nothing. */
    pal_status (*also)(void *user, const pal_model *model, json_t *metrics, pal_error *err);
    void *user;
} pal_text_options;

typedef struct pal_text_task pal_text_task;
pal_status pal_text_task_new(pal_text_task **out, const pal_context *cx, const pal_text_options *options,
                             pal_task *task, pal_error *err);
void pal_text_task_free(pal_text_task *task);

/* Updates that go through the training subset once. */
int64_t pal_text_epoch_steps(const pal_text_options *options);

#endif
