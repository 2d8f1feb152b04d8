/* SPDX-License-Identifier: MIT */
/* palimpsa eval --tasks ruler, longbench or longbench2: long prompts answered by a model, and answers scored. */
#ifndef PAL_CLI_EVAL_LONG_H
#define PAL_CLI_EVAL_LONG_H

#include <jansson.h>

#include "eval/longbench.h"
#include "eval/ruler.h"
#include "palimpsa/palimpsa.h"

typedef enum long_kind { LONG_NONE, LONG_RULER, LONG_LONGBENCH, LONG_LONGBENCH2 } long_kind;
long_kind long_kind_of(const char *tasks); /* LONG_NONE: other tasks */

typedef struct eval_long_options {
    long_kind kind;
    const char *model;       /* NULL: recorded predictions are scored */
    const char *data;        /* as published */
    const char *predictions; /* where answers are kept, or NULL */
    const char *scoring, *chinese, *tokenizer, *json, *figure;
    int limit, context, piece, batch;
} eval_long_options;
int eval_long(const eval_long_options *o, const pal_context *cx);

enum { LONG_PATH = 4096 };

/* Rows that are answered and scored together. */
typedef struct long_set {
    char name[96];                            /* of the task or data set; of the second LongBench: of the file */
    int length;                               /* RULER: tokens, or 0 where no directory says */
    char data[LONG_PATH], answers[LONG_PATH]; /* files, or "" */
    const pal_ruler_task *task;
    const pal_longbench_set *set;
    bool extended; /* scores by length */
    bool left_out; /* Chinese, and no words can be cut */
    json_t *lines; /* answers in the form of the original's prediction files */
    size_t count, empty;
    double score[PAL_LONGBENCH2_COLUMNS], compensated; /* by bucket or column; else the first */
    size_t cut;                                        /* prompts that were cut */
    uint64_t read;                                     /* tokens of prompts, ... */
    double read_seconds;                               /* ... and how long that took */
} long_set;

typedef struct long_plan {
    const eval_long_options *options;
    pal_ruler_scoring scoring;
    pal_chinese *chinese; /* or NULL */
    long_set *sets;
    size_t count, capacity;
    json_t *prompts, *lengths; /* LongBench: by data set */
    pal_bytes template;        /* second LongBench */
    uint64_t read, written;    /* tokens */
    double read_seconds, write_seconds;
    size_t memory; /* of one text's state, in bytes */
} long_plan;

/* Finds data, or recorded predictions where there is none. Prints a sentence and returns an exit code. */
int long_plan_open(long_plan *plan, const eval_long_options *o);
void long_plan_close(long_plan *plan);

/* Fills lines: those of the predictions file, then what the model answers. */
int long_answer(long_plan *plan, const pal_context *cx);
/* Reads the lines of recorded predictions. */
int long_read_lines(long_set *set);

int long_score(long_plan *plan);
void long_print(const long_plan *plan);
int long_write_json(const long_plan *plan);
int long_draw(const long_plan *plan);

#endif
