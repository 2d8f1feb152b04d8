/* SPDX-License-Identifier: MIT */
/* C[M,N] = op(A)[M,K] op(B)[K,N] (+ C), row major, op is the matrix or its transpose.
 *
 * lda is the row length in memory of A as stored (ldb, ldc likewise), so parts of wider matrices work. C aliases
 * neither A nor B. With M, N or K zero, C is zeroed (or kept, when adding). Uses all threads of cx; called from inside
 * a parallel task it runs on that task's thread alone, and then gives the same bits for any number of threads.
 *
 * The backend is chosen at configure time (PALIMPSA_MATMUL): oneDNN, CBLAS, or plain C. */
#ifndef PAL_KERNELS_MATMUL_H
#define PAL_KERNELS_MATMUL_H

#include <stdbool.h>
#include <stddef.h>

#include "palimpsa/context.h"

typedef enum { PAL_KEEP, PAL_TRANSPOSE } pal_transpose;
typedef enum { PAL_OVERWRITE, PAL_ADD } pal_accumulate;

void pal_matmul(const pal_context *cx, pal_transpose ta, pal_transpose tb, int M, int N, int K, const float *A,
                size_t lda, const float *B, size_t ldb, pal_accumulate acc, float *C, size_t ldc);

/* The plain loop that every backend is checked against. */
void pal_matmul_ref(pal_transpose ta, pal_transpose tb, int M, int N, int K, const float *A, size_t lda, const float *B,
                    size_t ldb, pal_accumulate acc, float *C, size_t ldc);

/* A backend's only function. M, N, K >= 1. */
void pal_matmul_backend(const pal_context *cx, pal_transpose ta, pal_transpose tb, int M, int N, int K, const float *A,
                        size_t lda, const float *B, size_t ldb, pal_accumulate acc, float *C, size_t ldc);

#endif
