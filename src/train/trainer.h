/* SPDX-License-Identifier: MIT */
/* The trainer: updates, logging, evaluation, checkpoints, stopping and resuming, for any task.
 *
 * A task is one or more stages (a curriculum), each a number of updates over batches that are pure functions of (stage,
 * step), or follow from a position that checkpoints record: resuming needs no replay. Between stages weights carry
 * over; moments and the schedule start anew.
 *
 * Several ranks train one model on parts of the same batches (comm/exchange.h); rank 0 writes the run's directory. */
#ifndef PAL_TRAIN_TRAINER_H
#define PAL_TRAIN_TRAINER_H

#include <jansson.h>
#include <stdbool.h>

#include "comm/comm.h"
#include "palimpsa/model.h"
#include "palimpsa/train.h"
#include "train/optimiser.h"
#include "train/schedule.h"

/* What an evaluation asks between two batches, all ranks as often as each other: PAL_STOPPED on all of them once one
 * shall stop. ask may be NULL. */
typedef struct pal_asking {
    pal_status (*ask)(void *user, pal_error *err);
    void *user;
} pal_asking;
static inline pal_status pal_ask(const pal_asking *a, pal_error *err) { return a->ask ? a->ask(a->user, err) : PAL_OK; }

typedef struct pal_task {
    void *self;
    int stages;
    int tokens, sequences; /* largest batch of any stage, for planning memory */
    const char
        *score_name; /* what evaluate's score is called in metrics: "accuracy"; NULL: lower "valid_loss" is better */
    int64_t (*steps)(void *self, int stage);
    int64_t (*epoch)(void *self, int stage); /* updates in an epoch */
    /* This rank's part of micro-batch `micro` of an update; borrowed until the next call. */
    pal_status (*batch)(void *self, int stage, int64_t step, int micro, pal_batch *out, pal_error *err);
    /* Adds what it measured to `metrics` and gives a score of which more is better: NaN where nothing was measured,
     * -INFINITY for what is not a number. Ranks share the work, and all get the same score. PAL_STOPPED: it was given
     * up, and is made when the run is resumed; rank 0, which may measure more than the others, may say so alone. */
    pal_status (*evaluate)(void *self, int stage, const pal_model *model, pal_work *work, json_t *metrics,
                           double *score, pal_error *err);

    /* Makes what needs to know the model, before the first update; bytes: what it takes. */
    pal_status (*prepare)(void *self, const pal_model *model, size_t *bytes, pal_error *err);

    /* What follows may be NULL. */
    /* Adds to every line of metrics what identifies its stage. */
    void (*describe)(void *self, int stage, json_t *metrics);
    /* Instead of pal_model_learn: adds the gradients of the batch's summed loss. */
    pal_status (*learn)(void *self, pal_model *model, pal_work *work, const pal_batch *batch, pal_loss *loss,
                        pal_error *err);
    /* Brings what other ranks hold to rank 0, which position and save are asked for. */
    pal_status (*gather)(void *self, pal_error *err);
    /* The position in the data, for trainer.json, and resuming from it; folder: the checkpoint, which rank 0 reads. */
    json_t *(*position)(void *self);
    pal_status (*resume)(void *self, const json_t *position, const char *folder, pal_error *err);
    /* More files for a checkpoint's directory; not resumable: a model directory alone. */
    pal_status (*save)(void *self, const char *folder, bool resumable, pal_error *err);
} pal_task;

typedef struct pal_train_options {
    pal_schedule_kind schedule;
    double rate, floor;
    int64_t warmup;
    int accumulate; /* micro-batches per update */
    /* Updates between two; the last is always logged, evaluated and written. log_every 0: no other; the others 0: an
     * epoch of the stage. */
    int64_t log_every, eval_every, checkpoint_every;
    int keep;             /* checkpoints to keep; 0: all */
    double stop_score;    /* a stage ends when its score exceeds this; NaN: never */
    int64_t stop_after;   /* stop cleanly after this many updates in all; 0: do not */
    pal_optimiser_options optimiser;
    bool recompute;       /* trade time for memory in long rows */
    pal_dtype best_dtype; /* of the weights in checkpoints/best; those that a run resumes from are always f32 */
} pal_train_options;

typedef struct pal_trainer {
    const char *run; /* directory */
    const pal_context *cx;
    const pal_task *task;
    const pal_comm *comm; /* NULL: one process */
    pal_train_options options;
    /* Called after every update, with `report` up to date (both may be NULL). False on any rank: a checkpoint is
     * written. */
    pal_go_on_fn *progress;
    void *user;
    pal_train_progress *report;
} pal_trainer;

/* PAL_STOPPED, with a result, when progress or stop_after said so. Trains `model` from the beginning, or from what a
 * checkpoint recorded (trainer_state as pal_checkpoint_open gave it, NULL for a new run). */
pal_status pal_train(const pal_trainer *trainer, pal_model *model, const json_t *trainer_state, int64_t step,
                     pal_train_result *result, pal_error *err);

/* Whether and how the run that a checkpoint recorded came to its end. */
typedef struct pal_train_state {
    bool finished;
    bool solved;     /* by its score: more updates would not have been made */
    int64_t planned; /* updates that it had before it, in all stages; -1: of an earlier version, which did not say */
} pal_train_state;
pal_train_state pal_train_state_of(const json_t *trainer_state); /* NULL: a run that has not begun */
/* Whether pal_train would continue from what a checkpoint of this step recorded; total: updates, with those to come. */
pal_status pal_train_state_read(const pal_task *task, const json_t *trainer_state, int64_t step, int64_t *total,
                                pal_error *err);
int64_t pal_task_steps(const pal_task *task); /* in all stages */

/* Bytes that training this model with this task needs in addition to the weights. Refuses what pal_train would refuse,
 * and prepares the task: call it first. */
typedef struct pal_train_bytes {
    size_t total;
    size_t activations,
        other_activations; /* kept from forward to backward, as asked for and with the other choice of recompute */
} pal_train_bytes;
pal_status pal_train_prepare(const pal_trainer *trainer, const pal_model *model, pal_train_bytes *plan, pal_error *err);

#endif
