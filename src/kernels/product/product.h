/* SPDX-License-Identifier: MIT */
/* y[r,o] = (y[r,o] +) sum_i x[r,i] w[o,i] for many rows: prompts. w is decoded to f32, some rows at a time into a panel
 * that stays in the cache, and multiplied by pal_matmul; F32 is multiplied as it lies. Unlike pal_matvec's, the bits of
 * a row depend on how many there are, and x is not rounded. */
#ifndef PAL_KERNELS_PRODUCT_H
#define PAL_KERNELS_PRODUCT_H

#include "kernels/matvec/matvec.h"

/* a->scratch: pal_product_scratch_bytes(), on 64 bytes; F32 needs none. */
void pal_product(const pal_context *cx, const pal_matvec_args *a);
/* Enough for any type and number of rows, and for fewer columns. */
size_t pal_product_scratch_bytes(int columns);

/* out[i,:] = row ids[i] of w in f32, rows of out `ld` apart. ids lie in 0 .. w->rows-1. */
void pal_gather_rows(const pal_context *cx, const pal_matrix *w, const int32_t *ids, size_t count, float *out,
                     size_t ld);

/* Rows begin .. end-1 of w in f32, one behind the other. */
typedef void pal_decode_rows_fn(const pal_matrix *w, size_t begin, size_t end, float *out);
PAL_DECLARE_VARIANTS(decode_rows)

#endif
