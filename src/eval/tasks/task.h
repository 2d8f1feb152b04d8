/* SPDX-License-Identifier: MIT */
/* Evaluation tasks as a table of small descriptions: which file holds the documents, how a document becomes contexts
 * and continuations, what is reported. Requests are those of lm-evaluation-harness, byte for byte. */
#ifndef PAL_EVAL_TASK_H
#define PAL_EVAL_TASK_H

#include <jansson.h>
#include <stdbool.h>

#include "text/strings.h"

enum { PAL_TASK_CHOICES = 32 };

typedef enum pal_task_kind {
    PAL_TASK_CHOICE, /* the likeliest of several continuations should be the right one */
    PAL_TASK_LAST_WORD /* one continuation, which should be the likeliest text there is */,
    PAL_TASK_ROLLING /* a whole text */
} pal_task_kind;

typedef enum pal_metric {
    PAL_METRIC_ACC,
    PAL_METRIC_ACC_NORM,
    PAL_METRIC_PERPLEXITY,
    PAL_METRIC_WORD_PERPLEXITY,
    PAL_METRIC_BYTE_PERPLEXITY,
    PAL_METRIC_BITS_PER_BYTE,
    PAL_METRICS
} pal_metric;
const char *pal_metric_name(pal_metric metric); /* "acc_norm" */
bool pal_metric_higher_is_better(pal_metric metric);

/* A document as requests. Starts from zeroes; each make uses it again. */
typedef struct pal_task_doc {
    pal_strings texts;                     /* context and continuation of each choice; of a rolling task: the text */
    size_t count;                          /* choices; rolling: 1 */
    uint32_t characters[PAL_TASK_CHOICES]; /* code points of each choice, without the blank before it: for acc_norm */
    int gold;                              /* the right choice */
    uint64_t words, bytes;                 /* rolling: of the text before it was changed */
} pal_task_doc;
void pal_task_doc_free(pal_task_doc *doc);
static inline pal_slice pal_task_context(const pal_task_doc *d, size_t i) { return pal_strings_at(&d->texts, 2 * i); }
static inline pal_slice pal_task_continuation(const pal_task_doc *d, size_t i) {
    return pal_strings_at(&d->texts, 2 * i + 1);
}

typedef struct pal_eval_task pal_eval_task;
typedef pal_status pal_task_make_fn(const pal_eval_task *task, const json_t *row, pal_task_doc *doc, pal_error *err);

struct pal_eval_task {
    const char *name;
    const char *heading;  /* of a column */
    const char *files[4]; /* looked for in this order below --data, without .jsonl, .json or .csv */
    pal_task_kind kind;
    unsigned metrics;    /* bits of pal_metric */
    pal_metric shown;    /* in the paper's table */
    const char *version; /* of the same task in lm-evaluation-harness */
    pal_task_make_fn *make;
    const char *context;    /* "Question: {goal}\nAnswer:" */
    const char *choices[4]; /* fields with a choice each; or one that holds a list ("choices.text"); "=no": the word */
    const char *gold;       /* the field that says which choice is right: a number, ... */
    int gold_from;          /* ... of the first choice; -1: one of the labels in "choices.label"; -2: true or false */
    bool paper;             /* one of the paper's table */
};

extern const pal_eval_task pal_tasks[];               /* ends with a NULL name */
const pal_eval_task *pal_task_find(const char *name); /* NULL: no such task */

/* Text of a field, "a.b" inside an object; an error names what is missing. */
pal_status pal_task_field(const json_t *row, const char *field, pal_slice *text, pal_error *err);

/* The ones that a template does not cover. */
pal_task_make_fn pal_make_template, pal_make_hellaswag, pal_make_winogrande, pal_make_last_word, pal_make_wikitext;

/* Adds a choice: the continuation is one blank and `choice`. */
pal_status pal_task_add(pal_task_doc *doc, pal_slice context, pal_slice choice, pal_error *err);
/* The index of the right choice from a number, or a text that is one. */
pal_status pal_task_gold(const json_t *row, const char *field, int from, size_t choices, int *gold, pal_error *err);

/* Appends what the text becomes. */
pal_status pal_hellaswag_clean(pal_bytes *out, pal_slice text, pal_error *err);
pal_status pal_wikitext_detokenize(pal_bytes *out, pal_slice text, pal_error *err);

#endif
