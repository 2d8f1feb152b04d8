/* SPDX-License-Identifier: MIT */
/* Products of matrices the size of a chunk or of one head's memory, whose operands sit in cache: too small for the
 * packing and set-up of a general matrix multiply, and half of them triangular.
 *
 *     C[M,N] = keep C + A[M,K] B[K,N]
 *
 * A's element (m,k) is A[m*a_row + k*a_col]; B's element (k,n) is B[k*b_row + n], or B[n*b_row + k] when transposed.
 * With keep 0, C is not read. C aliases neither. Each element of C is one chain of fused multiply-adds over ascending
 * k, however the product is cut. */
#ifndef PAL_MEMORY_LINEAR_TILE_H
#define PAL_MEMORY_LINEAR_TILE_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    PAL_TILE_FULL,
    PAL_TILE_A_LOWER, /* A is zero above its diagonal (and the zeros are stored), so that part is skipped */
    PAL_TILE_A_UPPER, /* A is zero below its diagonal, likewise */
    PAL_TILE_C_LOWER, /* only n <= m is needed; the rest of C is written or not */
} pal_tile_form;

typedef struct {
    const float *data;
    size_t row, col; /* distance between rows and columns; one of them is 1 */
} pal_tile_operand;

typedef void pal_tile_product_fn(pal_tile_form form, int M, int N, int K, pal_tile_operand A, pal_tile_operand B,
                                 float keep, float *C, size_t ldc);
pal_tile_product_fn pal_tile_product_avx2, pal_tile_product_avx512, pal_tile_product_neon, pal_tile_product_simd128;

#endif
