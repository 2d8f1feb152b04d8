/* SPDX-License-Identifier: MIT */
/* LongBench: the 21 data sets of the first version and the four-way questions of the second, scored as their authors
 * score them. Prompts are read from the files that they publish. */
#ifndef PAL_EVAL_LONGBENCH_H
#define PAL_EVAL_LONGBENCH_H

#include <jansson.h>

#include "eval/answers/chinese.h"
#include "eval/python_text.h"

enum { PAL_LONGBENCH_SETS = 21, PAL_LONGBENCH_BUCKETS = 3, PAL_LONGBENCH_CATEGORIES = 6 };

typedef enum pal_longbench_metric {
    PAL_LONGBENCH_F1,
    PAL_LONGBENCH_F1_ZH,
    PAL_LONGBENCH_ROUGE,
    PAL_LONGBENCH_ROUGE_ZH,
    PAL_LONGBENCH_CLASS,
    PAL_LONGBENCH_COUNT,
    PAL_LONGBENCH_PLACE,
    PAL_LONGBENCH_PLACE_ZH,
    PAL_LONGBENCH_CODE
} pal_longbench_metric;

typedef struct pal_longbench_set {
    const char *name;
    pal_longbench_metric metric;
    int category;    /* of pal_longbench_categories */
    int generate;    /* tokens that are written, where no file says otherwise */
    bool extended;   /* also part of LongBench-E */
    bool first_line; /* only the first line of an answer counts */
    bool one_line;   /* an answer ends at a line break */
} pal_longbench_set;
extern const pal_longbench_set pal_longbench_sets[PAL_LONGBENCH_SETS];
extern const char *const pal_longbench_categories[PAL_LONGBENCH_CATEGORIES];
const pal_longbench_set *pal_longbench_find(const char *name); /* NULL: no such set */
/* Whether a score needs Chinese words. */
bool pal_longbench_cuts_words(const pal_longbench_set *set);

/* The best score over the answers, 0 to 1. chinese may be NULL where no words are cut. */
pal_status pal_longbench_score(const pal_longbench_set *set, const pal_chinese *chinese, pal_slice prediction,
                               const json_t *answers, const json_t *classes, double *score, pal_error *err);
/* Percent with two decimals; rounded as numpy does for the buckets of LongBench-E, which are means of numpy. NaN
 * without a score. */
double pal_longbench_percent(const double *scores, size_t count);
double pal_longbench_percent_numpy(const double *scores, size_t count);
/* 0: below 4,000 words, 1: below 8,000, 2: longer. */
int pal_longbench_bucket(int64_t length);
extern const char *const pal_longbench_bucket_names[PAL_LONGBENCH_BUCKETS];

/* A template with {context} and {input} filled from a row; braces in the row's own text stay. Appends. */
pal_status pal_longbench_prompt(pal_slice template, const json_t *row, pal_bytes *prompt, pal_error *err);

/* The second version. */
pal_status pal_longbench2_prompt(pal_slice template, const json_t *row, pal_bytes *prompt, pal_error *err);
/* 'A' to 'D', or 0: the text names none. */
char pal_longbench2_answer(pal_slice response);

/* Rows by difficulty and length: overall, easy, hard, short, medium, long. */
enum { PAL_LONGBENCH2_COLUMNS = 6 };
extern const char *const pal_longbench2_columns[PAL_LONGBENCH2_COLUMNS];
typedef struct pal_longbench2_sum {
    size_t count[PAL_LONGBENCH2_COLUMNS], right[PAL_LONGBENCH2_COLUMNS], none[PAL_LONGBENCH2_COLUMNS];
} pal_longbench2_sum;
pal_status pal_longbench2_count(pal_longbench2_sum *sum, const json_t *row, char answer, bool *right, pal_error *err);
/* Percent with one decimal; compensated: no answer counts as a guess, one quarter. NaN without a row. */
double pal_longbench2_score(const pal_longbench2_sum *sum, int column, bool compensated);

/* What is longer than `most` tokens loses its middle. The first version decodes both halves alone and encodes them
 * again; the second decodes the joined ids once. Fills ids; *cut: tokens that are missing. */
typedef struct pal_middle_cut {
    const pal_tokenizer *tokenizer;
    pal_tokenizer_scratch *scratch;
    size_t most;   /* 0: nothing is cut */
    bool together; /* as in the second version */
} pal_middle_cut;
pal_status pal_cut_middle(const pal_middle_cut *m, pal_bytes *prompt, pal_ids *ids, size_t *cut, pal_error *err);

#endif
