/* SPDX-License-Identifier: MIT */
/* The options of `palimpsa train`, its tasks, and the parts that it is made of. Functions that return an int return an
 * exit code, the sentence already said. */
#ifndef PAL_CLI_TRAIN_H
#define PAL_CLI_TRAIN_H

#include <jansson.h>

#include "cli.h"
#include "train/trainer.h"

/* Every option, in one place: the table of train_options.c points here, and so do config.json and --config files. */
typedef struct train_options {
    cli_common common;
    const char *task, *model, *rule, *out, *config, *recipe;
    const char *weights; /* what --model was when the run began: a run directory's newest checkpoint moves on */
    bool resume, dry_run, recompute;
    int ranks; /* processes of the run, as mpirun started them */
    double comm_timeout;
    int64_t seed, steps, epochs, stop_after, warmup, log_every, eval_every, checkpoint_every, examples, test_examples;
    int batch, accumulate, keep;
    double lr, lr_floor, beta1, beta2, eps, weight_decay, clip, stop_score;
    const char *schedule, *decay, *freeze, *train_only, *lr_factor;
    int seq_len, kv_pairs, vocab;
    double exponent;
    bool random_fill;
    const char *stages;
    int hidden, layers, heads, head_dim, state_size, rank;
    double expand_v, mesa_tolerance;
    /* text */
    const char *data, *valid_data, *tokenizer, *field, *shuffle, *sample, *save_dtype;
    const char *data_checksum; /* of the shards, so that a run goes on with the data it began with */
    double valid;
    int row, context, sample_tokens;
    int64_t valid_tokens;
    bool no_eos, carry_state;
    const char *eval_tasks, *eval_data;
    int eval_limit;
} train_options;

#define TRAIN_MOST_STEPS 1000000000LL /* sums and products of counts stay far from overflow */

/* What a task adds to the command. */
typedef struct train_task {
    const char *name;
    const char *group; /* of its options, which other tasks refuse */
    void (*defaults)(train_options *o);
    /* What is wrong whatever the data are: nothing is read or written. model: what --model plans. */
    int (*check)(const train_options *o, const pal_model_config *model);
    /* All ranks call it, rank 0 makes files. Opens the data, settles what was left open in `o`, and makes the task.
     * model as above, NULL when resuming. *self is to be closed also after a failure. */
    int (*open)(void **self, train_options *o, const pal_model_config *model, const pal_context *cx, pal_task *task);
    void (*close)(void *self, bool began);                  /* began: what was made for the run belongs to it now */
    double (*tokens)(const void *self);                     /* of the whole run */
    double (*labelled)(const void *self);                   /* share of its tokens that have a target */
    void (*tell)(const train_options *o, const void *self); /* the plan: a line for people */
    void (*report)(const void *self, const pal_train_result *result); /* the result: a sentence without its end */
} train_task;
extern const train_task train_mqar, train_text;
const train_task *train_task_named(const char *name); /* NULL: no such task */

/* train_options.c */
enum { TRAIN_OPTIONS = 80 };
size_t train_option_table(train_options *o, cli_option table[TRAIN_OPTIONS]);
int train_check_counts(const train_options *o); /* those of every task */
int train_settings(const train_options *o, pal_train_options *t);

/* train_model.c */
/* The configuration of a new model, and whether it suits the task; of a preset without a vocabulary, with the
 * preset's. */
int train_plan_model(const train_options *o, pal_model_config *config);
/* A new model: a preset with the sizes asked for, or the weights of a checkpoint. */
int train_make_model(const train_options *o, const pal_context *cx, pal_model **model);
/* A model of these ids, given by --model, holds those of the task. */
int train_check_vocabulary(const train_options *o, int vocab, int ids);

/* train_config.c: config.json */
json_t *train_config(const cli_usage *usage, const train_task *task);
int train_write_config(const char *path, const json_t *config);
/* The command that makes such a run again; to be freed. NULL: of a task that is not known. For pal_runs_options. */
char *train_command(const json_t *config, const char *directory);
/* Whether a run may go on with these options. *nothing: it is finished, and no more was asked for; *extended: it was
 * finished and is given more updates. state: of its newest checkpoint at `step`, NULL without one. */
typedef struct train_resumed {
    const train_task *task;
    const char *path; /* config.json */
    const json_t *wanted, *state;
    int64_t step, total; /* total: updates that the task has now */
    bool constant;       /* the learning rate */
} train_resumed;
int train_may_resume(const train_resumed *r, bool *nothing, bool *extended);

/* train_eval.c: tasks that are measured at evaluations */
typedef struct train_eval train_eval;
int train_eval_check(const train_options *o);
/* *out: NULL where no tasks are asked for; to be closed also after a failure. model NULL: a resumed run, whose
 * documents were checked when it began. Tokenizer and context are borrowed. */
int train_eval_open(train_eval **out, const train_options *o, const pal_model_config *model,
                    const pal_tokenizer *tokenizer, const pal_context *cx);
void train_eval_close(train_eval *e); /* NULL is fine */
/* For pal_text_options: user is a train_eval. */
pal_status train_eval_run(void *user, const pal_model *model, json_t *metrics, pal_error *err);

#endif
