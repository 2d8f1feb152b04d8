/* SPDX-License-Identifier: MIT */
/* Training: a run in its own directory, with its configuration, metrics and checkpoints. `palimpsa train` is a
 * front of this; docs/how-to/train.md explains the settings, which are its options. */
#ifndef PALIMPSA_TRAIN_H
#define PALIMPSA_TRAIN_H

#include <stdint.h>

#include "palimpsa/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What defines a run, and stands in its config.json: each is the option of the same name, with _ for -. Start from
 * pal_train_defaults. Texts are borrowed. */
typedef struct pal_train_settings {
    const char *task;  /* "mqar": multi-query associative recall; "text": language */
    const char *model; /* a preset, or a checkpoint to continue from */
    int64_t seed, steps, epochs, log_every, eval_every, checkpoint_every;
    int keep, threads, ranks; /* the last two are noted by the run itself */
    const char *save_dtype;
    double stop_score;
    bool recompute;
    /* model */
    const char *rule;
    double mesa_tolerance, expand_v;
    bool softplus_rate;
    int vocab, hidden, layers, heads, head_dim, state_size, rank, norm_groups;
    const char *forgetting; /* "small", "normal" or "very_small", or NULL: as the model has it */
    const char *init;       /* "recall", or NULL: as the task has it */
    const char *weights;    /* noted: what model was when the run began: a run directory's newest checkpoint moves on */
    /* updates */
    int batch, accumulate;
    double lr, lr_floor, beta1, beta2, eps, weight_decay, clip;
    int64_t warmup;
    const char *schedule, *decay, *optimiser_precision, *freeze, *train_only, *lr_factor;
    /* mqar */
    int seq_len, kv_pairs;
    double exponent;
    bool random_fill;
    const char *stages;
    int64_t examples, test_examples;
    /* text */
    const char *data, *valid_data, *tokenizer, *field, *shuffle, *sample;
    double valid;
    int64_t valid_tokens;
    int row, context, sample_tokens, eval_limit;
    bool no_eos, carry_state;
    const char *eval_tasks, *eval_data;
    const char *data_checksum; /* noted: of the shards, so that a run resumes on the data it began with */
} pal_train_settings;

/* The defaults of a task: "mqar" or "text". */
PAL_API pal_status pal_train_defaults(pal_train_settings *out, const char *task, pal_error *err);

typedef struct pal_train_progress {
    int stage, stages;
    int64_t step, total; /* updates done, and the most there will be */
    double loss, rate, grad_norm;
    double accuracy; /* of trained positions since the last report; NaN if the task has none */
    double score;    /* of the last evaluation: accuracy, or the negative validation loss; NaN before the first */
    bool by_loss;    /* score is the negative validation loss */
    double tokens_per_s, seconds_left;
    bool logged, evaluated; /* this report goes with a line of metrics */
    bool evaluating;        /* asked within the evaluation of this update, which is reported when it is over */
    const char *sample;     /* of text that the evaluation made; NULL: none */
} pal_train_progress;

/* What is known before the first update. */
typedef struct pal_train_plan {
    char model[64]; /* its kind */
    size_t parameters;
    size_t bytes;                          /* in addition to the weights */
    size_t activations, other_activations; /* of them, and with the other choice of recompute */
    int64_t step;                          /* that a resumed run starts from */
    double tokens;                         /* that are left to train on */
    double token_flops;                    /* arithmetic of one of them */
    char task[2048];                       /* what is trained on, a line for each stage */
} pal_train_plan;

typedef struct pal_train_run_options {
    bool resume;        /* resume from the newest checkpoint; settings may be NULL, else they must be the run's own */
    bool dry_run;       /* stop after the plan; nothing is left in `out` */
    bool any_cpu;       /* resume also where the processor that the run began on is of another kind */
    int64_t stop_after; /* updates in all, of the same schedule; 0: to the end */
    /* Called after every update, and now and then within an evaluation: updates done, of how many, with `report` up to
     * date. False: a checkpoint is written, and the run stops; an evaluation is given up, and made when the run is
     * resumed. May be NULL, as the others. */
    pal_go_on_fn *progress;
    pal_train_progress *report;
    void (*planned)(void *user, const pal_train_plan *plan);
    void (*tell)(void *user, const char *line); /* what else people may want to know */
    void *user;
    const struct pal_comm *comm; /* processes that train together, in `palimpsa`; NULL: this one alone */
} pal_train_run_options;

typedef struct pal_train_result {
    int64_t step;
    double loss, score, best_score;
    int64_t best_step, skipped; /* skipped: updates with a gradient that was not finite */
    uint64_t tokens;
    bool validated;       /* something was held back, or is made, to measure the score on */
    bool finished_before; /* nothing was left to do; the loss is NaN */
    bool at_work; /* of a failure: nothing was wrong with the settings, but the work itself failed (a full disk) */
} pal_train_result;

/* Trains in `directory`, which is made if needed and must not hold a run, unless it is resumed. PAL_STOPPED, with a
 * result, when progress or stop_after said so; a resumed run then equals an uninterrupted one bit for bit. Settings
 * that are wrong, and data that do not fit them, are refused before anything is written. options may be NULL. */
PAL_API pal_status pal_train_run(const char *directory, const pal_train_settings *settings,
                                 const pal_train_run_options *options, const pal_context *cx, pal_train_result *result,
                                 pal_error *err);

#ifdef __cplusplus
}
#endif
#endif
