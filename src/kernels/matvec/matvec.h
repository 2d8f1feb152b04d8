/* SPDX-License-Identifier: MIT */
/* y[r,o] = (y[r,o] +) sum_i x[r,i] w[o,i] for a few rows r: what decoding does, where reading w is all the time there
 * is. Each w is read once for all rows.
 *
 * Every output is one sum in an order that depends on `in` alone: a row gives the same bits alone and among others, for
 * any number of threads. Variants differ from the reference only in rounding. Any sizes; y overlaps nothing. */
#ifndef PAL_KERNELS_MATVEC_H
#define PAL_KERNELS_MATVEC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/context.h"

enum { PAL_MATVEC_ROWS = 8 }; /* beyond this a matrix product is the better choice */

typedef struct pal_matvec_args {
    int rows, in, out;
    const float *x; /* (rows, in), rows ldx apart */
    size_t ldx;
    const float *w; /* (out, in) */
    bool add;
    float *y; /* (rows, out), rows ldy apart */
    size_t ldy;
} pal_matvec_args;

void pal_matvec(const pal_context *cx, const pal_matvec_args *a);

/* The kernel behind: outputs begin .. end-1. */
typedef void pal_matvec_outputs_fn(const pal_matvec_args *a, size_t begin, size_t end);
extern const pal_variant pal_matvec_outputs_variants[];
pal_matvec_outputs_fn pal_matvec_outputs_ref, pal_matvec_outputs_avx2, pal_matvec_outputs_avx512;

#endif
