/* SPDX-License-Identifier: MIT */
/* What a model gave on text, for the tables of palimpsa eval. */
#ifndef PAL_CLI_EVAL_TEXT_H
#define PAL_CLI_EVAL_TEXT_H

#include "eval.h"
#include "eval/perplexity.h"
#include "plot/figure.h"

typedef struct eval_measured {
    const char *name;
    char label[64]; /* for tables and figures: the last part of the name, if that distinguishes the models */
    pal_perplexity result;
    bool answers;       /* they alone counted */
    int context;        /* that was used; 0: whole documents */
    const char *why;    /* this context */
    uint64_t tokenizer; /* fingerprint */
} eval_measured;

/* all[count] is the baseline when there is one (NULL otherwise). */
int eval_show_positions(const eval_measured *all, int count, const eval_measured *baseline,
                        const eval_text_options *options);

const char *eval_axis_name(const eval_text_options *options);
/* The middle of the positions that a bin holds, on a log axis. */
double eval_bin_middle(const pal_perplexity *p, int bin);
/* "64 to 127"; last: the largest position there is. */
void eval_bin_name(char text[48], int bin, uint64_t last);
/* Written as PNG or SVG, by the name's ending, and said. */
int eval_write_figure(const pal_figure *figure, const char *path);

#endif
