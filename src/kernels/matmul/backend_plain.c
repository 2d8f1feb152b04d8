/* SPDX-License-Identifier: MIT */
/* No library at all: our own product. */
#include "kernels/matmul/plain.h"

void pal_matmul_backend(const pal_context *cx, pal_transpose ta, pal_transpose tb, int M, int N, int K, const float *A,
                        size_t lda, const float *B, size_t ldb, pal_accumulate acc, float *C, size_t ldc) {
    pal_matmul_plain(cx, ta, tb, M, N, K, A, lda, B, ldb, acc, C, ldc);
}
