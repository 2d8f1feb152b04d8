/* SPDX-License-Identifier: MIT */
/* Measuring a model with its tokenizer: how well it predicts text, and the tasks of lm-evaluation-harness
 * (docs/how-to/evaluate.md). */
#ifndef PALIMPSA_EVALUATE_H
#define PALIMPSA_EVALUATE_H

#include "palimpsa/bundle.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PAL_POSITION_BINS = 40 };

/* Tokens with 2^i <= p < 2^(i+1), p = tokens read before them, for the i of its place in a list. */
typedef struct pal_position_bin {
    uint64_t count;
    double nll; /* sum */
} pal_position_bin;

typedef struct pal_perplexity {
    uint64_t documents, tokens; /* tokens: predicted ones that count */
    uint64_t read;              /* all that the model predicted: more than those that count where only answers do */
    uint64_t passed_over;       /* documents that were too short */
    uint64_t bytes, words;      /* of the documents' original texts */
    double nll;                 /* sum of -log p over the predicted tokens */
    uint64_t right;             /* where only answers count: those of which every token was the likeliest */
    pal_position_bin bins[PAL_POSITION_BINS];
    pal_position_bin (*of_document)[PAL_POSITION_BINS]; /* (documents) with by_document; in the order of the data */
    size_t capacity;
    int bin_count;
    uint64_t last; /* the largest p */
    double seconds;
} pal_perplexity;
PAL_API void pal_perplexity_free(pal_perplexity *p); /* what by_document took; fine on zeroes */

typedef struct pal_evaluate_options {
    bool wikitext;          /* text: a page at each ' = Title = ' is a document; else the whole file is one */
    const char *field;      /* text: of JSONL; NULL: by the file's name */
    const char *subset;     /* text: of shards, "train", "valid" or "all"; NULL: all */
    int context;            /* of a scoring window; 0: whole documents (attention as trained, else 4096; tasks 2048) */
    int piece;              /* tokens of one pass; 0: 1024 */
    int together;           /* documents, or memories of a task, at a time; 0: 8, or what fits into 1 GiB */
    size_t from, to;        /* task: documents from .. to-1; to 0: to the end */
    pal_go_on_fn *progress; /* text: tokens, of roughly how many; task: documents; may be NULL */
    void *user;
} pal_evaluate_options;

/* data: a text or JSONL file, or a directory of shards. On PAL_STOPPED the result holds what was measured. */
PAL_API pal_status pal_evaluate_text(pal_perplexity *out, const pal_bundle *m, const char *data,
                                     const pal_evaluate_options *options, const pal_context *cx, pal_error *err);

PAL_API const char *pal_evaluate_task_at(int index); /* names of tasks; NULL past the end */
enum { PAL_TASK_METRICS = 6 };
typedef struct pal_task_result {
    size_t documents;
    int count; /* metrics */
    struct {
        const char *name;    /* "acc_norm" */
        double value, error; /* error: standard error; NaN: it has none */
        bool higher_is_better;
    } metric[PAL_TASK_METRICS];
} pal_task_result;
/* data: the directory that the task's file is in, or the file. */
PAL_API pal_status pal_evaluate_task(pal_task_result *out, const pal_bundle *m, const char *task, const char *data,
                                     const pal_evaluate_options *options, const pal_context *cx, pal_error *err);

#ifdef __cplusplus
}
#endif
#endif
