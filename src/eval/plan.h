/* SPDX-License-Identifier: MIT */
/* Which tasks, which documents of them, and what a model gave. */
#ifndef PAL_EVAL_PLAN_H
#define PAL_EVAL_PLAN_H

#include "eval/task_run.h"

enum { PAL_EVAL_TASKS = 32 };

/* A task with the documents it is measured on. */
typedef struct pal_planned_task {
    const pal_eval_task *task;
    pal_task_data *data; /* NULL: the task is pal_task_perplexity */
    size_t from, to;     /* documents from .. to-1 */
    pal_bytes shots;     /* text before every context */
} pal_planned_task;

/* Perplexity of any text, as a task next to the others: it has no file below --data, and reads whole documents. */
extern const pal_eval_task pal_task_perplexity;

typedef struct pal_eval_plan {
    pal_planned_task tasks[PAL_EVAL_TASKS];
    int count;
} pal_eval_plan;

typedef struct pal_eval_plan_options {
    const char *tasks;      /* paper, all, or names with commas */
    const char *data;       /* where their files are */
    const char *text;       /* of perplexity in the list; NULL: it may not be there */
    const char *docs;       /* FROM:TO, or NULL */
    int limit;              /* the first N documents; 0: all */
    int shots;              /* examples before each question, ... */
    const char *shots_file; /* ... from here */
} pal_eval_plan_options;

/* Finds tasks and their files. Close in any case. */
pal_status pal_eval_plan_open(pal_eval_plan *plan, const pal_eval_plan_options *options, pal_error *err);
void pal_eval_plan_close(pal_eval_plan *plan);

/* What a model gave. */
typedef struct pal_eval_result {
    bool done;
    double value[PAL_METRICS], error[PAL_METRICS];
    size_t documents;
    uint64_t cut; /* requests that lost the beginning of their context */
} pal_eval_result;
/* Value and standard error of every metric that the task reports. */
void pal_eval_take(pal_eval_result *out, const pal_eval_task *task, const pal_task_sums *sums, const pal_context *cx);

#endif
