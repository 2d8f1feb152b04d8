/* SPDX-License-Identifier: MIT */
/* What the parts of palimpsa eval share. */
#ifndef PAL_CLI_EVAL_H
#define PAL_CLI_EVAL_H

#include "cli.h"
#include "eval/evaluate.h"
#include "eval/plan.h"

enum { EVAL_MODELS = 32, EVAL_TASKS = PAL_EVAL_TASKS, EVAL_CONTEXT = 1 << 24 /* at most */ };

typedef pal_eval_plan eval_plan;
typedef pal_eval_plan_options eval_plan_options;
typedef pal_planned_task eval_task;
typedef pal_eval_result eval_result;
/* Prints a sentence and returns an exit code. Close in any case. */
int eval_plan_open(eval_plan *plan, const eval_plan_options *options);
int eval_list_tasks(void);

typedef struct eval_model {
    const char *name;
    char label[64];
    int context; /* tokens that a request may read */
    eval_result results[EVAL_TASKS];
    pal_score_counts counts;
    double seconds;
} eval_model;

void eval_print_table(const eval_plan *plan, const eval_model *models, int count);
/* A results file in the shape of lm-evaluation-harness; "-": standard output. */
int eval_write_results(const eval_plan *plan, const eval_plan_options *options, const eval_model *models, int count,
                       const char *path);

/* Perplexity and loss by position. */
typedef struct eval_text_options {
    const char *models[EVAL_MODELS + 1]; /* and the baseline after them */
    int count;                           /* without the baseline */
    const char *data, *tokenizer, *split, *field, *part, *baseline, *figure, *json, *kv_type;
    int context, piece, batch, least;
    bool no_prefix, by_position, answers;
} eval_text_options;
int eval_text(eval_text_options *options, const pal_context *cx);
/* The same for one model, as one task of several. */
int eval_text_result(eval_result *out, const char *model, const eval_text_options *options, const pal_context *cx);

typedef struct eval_tasks_options {
    eval_plan_options plan;
    const char *samples;
} eval_tasks_options;
/* What it has in common with text (models, tokenizer, sizes, --json) is there. */
int eval_tasks(const eval_tasks_options *options, const eval_text_options *text, const pal_context *cx);

int eval_write_json(const json_t *root, const char *path); /* "-": standard output */
/* For tables and figures: the last part of each name, if that distinguishes them. */
void eval_make_labels(char (*labels)[64], const char *const *names, int count);

#endif
