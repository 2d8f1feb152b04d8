/* SPDX-License-Identifier: MIT */
/* RULER: its thirteen tasks, its files, and its score. Data stands in LENGTH/TASK/validation.jsonl, predictions in
 * TASK.jsonl, as RULER's own programs write them. */
#ifndef PAL_EVAL_RULER_H
#define PAL_EVAL_RULER_H

#include <jansson.h>

#include "eval/python_text.h"

enum { PAL_RULER_TASKS = 13 };

typedef enum pal_ruler_haystack {
    PAL_RULER_NOISE,     /* one line again and again */
    PAL_RULER_ESSAY,     /* a text of the user's */
    PAL_RULER_NEEDLES,   /* sentences like those that are asked for */
    PAL_RULER_VARIABLES, /* names that are given values and passed on */
    PAL_RULER_COMMON,    /* numbered words */
    PAL_RULER_FREQUENT,  /* words by the law of Zipf */
    PAL_RULER_DOCUMENTS  /* with a question about one of them */
} pal_ruler_haystack;

typedef struct pal_ruler_task {
    const char *name;
    int generate; /* tokens that are written */
    bool any;     /* one reference of several is enough (question answering) */
    pal_ruler_haystack haystack;
    int keys, values, asked;   /* needles: how many are stated, values of each, keys that are asked for */
    bool uuid_key, uuid_value; /* else a word and a number */
    int set;                   /* documents: 0 SQuAD 2.0, 1 HotpotQA */
} pal_ruler_task;
extern const pal_ruler_task pal_ruler_tasks[PAL_RULER_TASKS]; /* in RULER's order */
const pal_ruler_task *pal_ruler_find(const char *name);       /* NULL: no such task */

typedef enum pal_ruler_scoring {
    PAL_RULER_OWN,    /* percent, rounded to two decimals */
    PAL_RULER_LM_EVAL /* lm-evaluation-harness: fractions, and a mean over references in question answering too */
} pal_ruler_scoring;

/* What the rows of a task gave so far. Starts from zeroes. */
typedef struct pal_ruler_sum {
    double score;
    size_t count, empty; /* empty: predictions without a character */
    bool unknown;        /* the first row's first reference is null: nothing can be right */
} pal_ruler_sum;

/* Adds a prediction; references is a list of texts. *score, if not NULL, takes this row's own, 0 to 1. */
pal_status pal_ruler_count(const pal_ruler_task *task, pal_ruler_scoring scoring, pal_slice prediction,
                           const json_t *references, pal_ruler_sum *sum, double *score, pal_error *err);
/* The score of all rows: percent with two decimals, or a fraction; NaN without a row. */
double pal_ruler_score(pal_ruler_scoring scoring, const pal_ruler_sum *sum);

/* A row of data as a prompt: `input` and after it `answer_prefix`, where there is one; lm-evaluation-harness puts a
 * blank between them where none is. Appends. */
pal_status pal_ruler_prompt(const json_t *row, pal_ruler_scoring scoring, pal_bytes *prompt, pal_error *err);

#endif
