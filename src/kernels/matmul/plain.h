/* SPDX-License-Identifier: MIT */
/* Our own matrix product, for builds without a library, and for what a library refuses. C is cut into blocks, one a
 * task; a block's rows of A and columns of B are packed, a stretch of K at a time, into tiles that registers hold. Each
 * element of C is one chain of multiply-adds over ascending k, so that the number of threads changes no bit. */
#ifndef PAL_KERNELS_MATMUL_PLAIN_H
#define PAL_KERNELS_MATMUL_PLAIN_H

#include "base/context.h"
#include "kernels/matmul/matmul.h"

enum { PAL_PLAIN_ROWS = 96, PAL_PLAIN_COLUMNS = 256, PAL_PLAIN_DEPTH = 256 }; /* of a block, and of a stretch */

typedef struct pal_plain_job {
    int K;
    pal_accumulate acc;
    const float *A, *B;
    size_t a_row, a_col; /* from A's element (m,k) to (m+1,k) and to (m,k+1); one of them is 1 */
    size_t b_row, b_col; /* from B's element (k,n) to (k+1,n) and to (k,n+1), likewise */
    float *C;
    size_t ldc;
} pal_plain_job;

/* Rows m .. m+rows-1 by columns n .. n+columns-1 of C, at most a block. */
typedef void pal_plain_block_fn(const pal_plain_job *job, int m, int rows, int n, int columns);
PAL_DECLARE_VARIANTS(plain_block)

/* As pal_matmul_backend(). */
void pal_matmul_plain(const pal_context *cx, pal_transpose ta, pal_transpose tb, int M, int N, int K, const float *A,
                      size_t lda, const float *B, size_t ldb, pal_accumulate acc, float *C, size_t ldc);

#endif
