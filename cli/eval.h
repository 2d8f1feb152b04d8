/* SPDX-License-Identifier: MIT */
/* What the parts of palimpsa eval share. */
#ifndef PAL_CLI_EVAL_H
#define PAL_CLI_EVAL_H

#include "cli.h"
#include "eval/evaluate.h"
#include "eval/task_run.h"

enum { EVAL_MODELS = 32, EVAL_TASKS = 32, EVAL_CONTEXT = 1 << 24 /* at most */ };

/* A task with the documents it is measured on. */
typedef struct eval_task {
    const pal_eval_task *task;
    pal_task_data *data; /* NULL: the task is eval_perplexity */
    size_t from, to;     /* documents from .. to-1 */
    pal_bytes shots;     /* text before every context */
} eval_task;

/* Perplexity of any text, as a task beside the others: it has no file below --data, and reads whole documents. */
extern const pal_eval_task eval_perplexity;

typedef struct eval_plan {
    eval_task tasks[EVAL_TASKS];
    int count;
} eval_plan;

typedef struct eval_plan_options {
    const char *tasks;      /* paper, all, or names with commas */
    const char *data;       /* where their files are */
    const char *text;       /* of perplexity in the list; NULL: it may not be there */
    const char *docs;       /* FROM:TO, or NULL */
    int limit;              /* the first N documents; 0: all */
    int shots;              /* examples before each question, ... */
    const char *shots_file; /* ... from here */
} eval_plan_options;

/* Finds tasks and their files. Prints a sentence and returns an exit code. Close in any case. */
int eval_plan_open(eval_plan *plan, const eval_plan_options *options);
void eval_plan_close(eval_plan *plan);
int eval_list_tasks(void);

/* What a model gave. */
typedef struct eval_result {
    bool done;
    double value[PAL_METRICS], error[PAL_METRICS];
    size_t documents;
    uint64_t cut; /* requests that lost the beginning of their context */
} eval_result;

typedef struct eval_model {
    const char *name;
    char label[64];
    int context; /* tokens that a request may read */
    eval_result results[EVAL_TASKS];
    pal_score_counts counts;
    double seconds;
} eval_model;

/* Value and standard error of every metric that the task reports. */
void eval_take_result(eval_result *out, const pal_eval_task *task, const pal_task_sums *sums, const pal_context *cx);

void eval_print_table(const eval_plan *plan, const eval_model *models, int count);
/* A results file in the shape of lm-evaluation-harness; "-": standard output. */
int eval_write_results(const eval_plan *plan, const eval_plan_options *options, const eval_model *models, int count,
                       const char *path);

/* Perplexity and loss by position. */
typedef struct eval_text_options {
    const char *models[EVAL_MODELS + 1]; /* and the baseline behind them */
    int count;                           /* without the baseline */
    const char *data, *tokenizer, *split, *field, *part, *baseline, *figure, *json;
    int context, piece, batch, least;
    bool no_prefix, by_position;
} eval_text_options;
int eval_text(eval_text_options *options, const pal_context *cx);
/* The same for one model, as a task beside others. */
int eval_text_result(eval_result *out, const char *model, const eval_text_options *options, const pal_context *cx);

typedef struct eval_tasks_options {
    eval_plan_options plan;
    const char *samples;
} eval_tasks_options;
/* What it has in common with text (models, tokenizer, sizes, --json) is there. */
int eval_tasks(const eval_tasks_options *options, const eval_text_options *text, const pal_context *cx);

int eval_write_json(const json_t *root, const char *path); /* "-": standard output */
/* For tables and figures: the last part of each name, where that tells names apart. */
void eval_make_labels(char (*labels)[64], const char *const *names, int count);

#endif
