/* SPDX-License-Identifier: MIT */
/* y[r,o] = (y[r,o] +) sum_i x[r,i] w[o,i] for many rows: prompts.
 *
 * Blocks meet rows that are rounded as pal_matvec rounds them, where a processor multiplies words faster than floats; a
 * row then gives the same bits among any others and for any number of threads. F32 is multiplied as it lies by
 * pal_matmul. Everything else is decoded to f32 first, some rows at a time into a panel that stays in the cache; there,
 * the bits of a row depend on how many there are, and x is not rounded. */
#ifndef PAL_KERNELS_PRODUCT_H
#define PAL_KERNELS_PRODUCT_H

#include "kernels/matvec/matvec.h"

/* a->scratch: pal_product_scratch_bytes(), on 64 bytes; F32 needs none. */
void pal_product(const pal_context *cx, const pal_matvec_args *a);
/* Enough for any type, and for fewer rows or columns. */
size_t pal_product_scratch_bytes(int rows, int columns);

/* out[i,:] = row ids[i] of w in f32, rows of out `ld` apart. ids lie in 0 .. w->rows-1. */
void pal_gather_rows(const pal_context *cx, const pal_matrix *w, const int32_t *ids, size_t count, float *out,
                     size_t ld);

/* Rows begin .. end-1 of w in f32, one after the other. */
typedef void pal_decode_rows_fn(const pal_matrix *w, size_t begin, size_t end, float *out);
PAL_DECLARE_VARIANTS(decode_rows)

/* Outputs begin .. end-1 of all rounded rows, w in blocks; begin is a multiple of 32. */
typedef void pal_product_blocks_fn(const pal_matvec_job *job, size_t begin, size_t end);
PAL_DECLARE_VARIANTS(product_blocks)

#endif
