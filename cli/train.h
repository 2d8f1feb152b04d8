/* SPDX-License-Identifier: MIT */
/* The options of `palimpsa train`, and what its tasks add to it. */
#ifndef PAL_CLI_TRAIN_H
#define PAL_CLI_TRAIN_H

#include "cli.h"
#include "train/task_text.h"

/* Every option, in one place: the table of cmd_train.c points here, and so do config.json and --config files. */
typedef struct train_options {
    cli_common common;
    const char *task, *model, *rule, *out, *config, *recipe;
    bool resume, dry_run, recompute;
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
} train_options;

#define TRAIN_MOST_STEPS 1000000000LL /* sums and products of counts stay far from overflow */

/* Everything that task text has open. */
typedef struct train_text {
    pal_shards *train[PAL_SOURCES], *valid[PAL_SOURCES];
    pal_tokenizer *tokenizer;
    pal_tokenizer *asked, *own; /* those of --tokenizer and of --model, which the data must fit; may be NULL */
    pal_ids mark;               /* where responses begin, when pairs are trained on */
    pal_text_task *task;
} train_text;

/* Whether --model names files. A preset of the same name (mamba2-130m) is meant, unless a checkpoint lies in that
 * directory. */
bool train_starts_from_files(const char *model);

/* Defaults of task text, before options are read: what depends on the model and the data stays 0. */
void train_text_defaults(train_options *o);
/* Opens the data (text files become shards in RUNDIR first), settles what was left open in `o`, and makes the task. */
int train_text_open(train_text *t, train_options *o, const pal_context *cx, pal_task *task);
void train_text_close(train_text *t);

#endif
