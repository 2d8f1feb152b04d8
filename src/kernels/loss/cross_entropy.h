/* SPDX-License-Identifier: MIT */
/* Softmax cross entropy of rows of logits. For a counted row with label c:
 *
 *   nll = log sum_j e^(x_j) - x_c          dlogits_j = scale (softmax(x)_j - [j = c])
 *
 * Rows whose label is PAL_LABEL_IGNORED give nll 0 and gradient 0. A mean over counted rows is the caller's: count them
 * first (pal_counted_labels, over all rows of the step), pass scale = upstream gradient / count, divide the returned
 * sum by count. So logits may be made and consumed a few rows at a time. The maximum is subtracted before any
 * exponential: no finite logits overflow; -inf logits are fine, NaN or +inf make their own row NaN and no other. */
#ifndef PAL_KERNELS_CROSS_ENTROPY_H
#define PAL_KERNELS_CROSS_ENTROPY_H

#include "kernels/rows.h"

enum { PAL_LABEL_IGNORED = -100 };

typedef struct pal_cross_entropy_args {
    size_t rows;
    int vocab;
    pal_const_view logits;
    const int *labels; /* (rows) 0 .. vocab-1, or PAL_LABEL_IGNORED */
    float scale;
    float *nll;       /* (rows) out */
    int *argmax;      /* (rows) out: first index of the largest logit, for ignored rows too; NULL: not wanted */
    pal_view dlogits; /* out, may be the same rows as logits; data NULL: not wanted */
} pal_cross_entropy_args;

size_t pal_counted_labels(const int *labels, size_t n);
/* Returns the sum of nll, in double and in order of rows. */
double pal_cross_entropy(const pal_context *cx, const pal_cross_entropy_args *a);

/* The kernel: rows begin .. end-1. */
typedef void pal_cross_entropy_rows_fn(const pal_cross_entropy_args *a, size_t begin, size_t end);
PAL_DECLARE_VARIANTS(cross_entropy_rows)

#endif
