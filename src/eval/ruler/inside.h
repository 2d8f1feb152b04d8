/* SPDX-License-Identifier: MIT */
/* What the makers of the four kinds of tasks share. */
#ifndef PAL_EVAL_RULER_INSIDE_H
#define PAL_EVAL_RULER_INSIDE_H

#include "base/mersenne.h"
#include "eval/ruler/make.h"

struct pal_ruler_maker {
    const pal_ruler_task *task;
    const pal_ruler_templates *templates;
    const pal_ruler_sources *sources;
    const pal_tokenizer *tokenizer;
    pal_tokenizer_scratch *scratch;
    pal_ids ids;
    int length; /* in tokens, those to be written among them */
    uint32_t seed;
    pal_mersenne random, numpy; /* Python's two generators */
    size_t size, step;          /* of the haystack, in its own unit */
    size_t made;
    bool demonstrating;  /* variables: what is drawn is the demonstration */
    pal_bytes example;   /* variables: the demonstration, */
    pal_strings names;   /* ... the names in it */
    size_t example_size; /* ... and its tokens */
    uint32_t *order;     /* common words: a fixed shuffle of the list */
    pal_bytes text;      /* haystack under way */
    pal_bytes input, prefix, both, line;
    pal_strings outputs;
};

/* Draws a row with a haystack of `size` into input, prefix and outputs. */
typedef pal_status pal_ruler_draw_fn(pal_ruler_maker *m, size_t size, size_t index, pal_error *err);
pal_ruler_draw_fn pal_ruler_draw_needles, pal_ruler_draw_variables, pal_ruler_draw_common, pal_ruler_draw_questions;

/* Frequent words have their own search. */
pal_status pal_ruler_size_frequent(pal_ruler_maker *m, pal_error *err);
pal_status pal_ruler_make_frequent(pal_ruler_maker *m, size_t *tokens, pal_error *err);

/* Puts the demonstration of variables, with new names and a new value, in front of the input. */
pal_status pal_ruler_demonstrate(pal_ruler_maker *m, pal_error *err);

/* Tokens of input and prefix. */
pal_status pal_ruler_tokens(pal_ruler_maker *m, size_t *tokens, pal_error *err);

/* Appends a template; values are pairs of a name and a text, up to a NULL name. */
typedef struct pal_fill {
    const char *name; /* without braces */
    pal_slice text;
} pal_fill;
pal_status pal_ruler_fill(pal_bytes *out, const char *template, const pal_fill *values, pal_error *err);

/* A new generator with the task's seed for every use: lists of one length always get the same permutation. */
void pal_ruler_shuffle(const pal_ruler_maker *m, uint32_t *order, size_t count);

/* random.sample(range(n), k), in order. */
pal_status pal_ruler_places(pal_ruler_maker *m, size_t n, int k, uint32_t *places, pal_error *err);

void pal_ruler_clear(pal_strings *s);
pal_slice pal_ruler_number(char out[24], uint64_t number);
/* Word i of the ways to join `syllables` syllables, without a zero byte: 70 ways each. */
enum { PAL_SYLLABLES = 70 };
pal_slice pal_ruler_word(char out[24], uint32_t i, int syllables);

#endif
