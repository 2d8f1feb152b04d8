/* SPDX-License-Identifier: MIT */
/* Any CBLAS (OpenBLAS, BLIS, ...). Debian's OpenBLAS does not recognise some new processors and then runs five times
 * slower than it could; OPENBLAS_CORETYPE helps. */
#include <cblas.h>

#include "kernels/matmul/matmul.h"

void pal_matmul_backend(const pal_context *cx, pal_transpose ta, pal_transpose tb, int M, int N, int K, const float *A,
                        size_t lda, const float *B, size_t ldb, pal_accumulate acc, float *C, size_t ldc) {
    (void)cx;
    cblas_sgemm(CblasRowMajor, ta == PAL_KEEP ? CblasNoTrans : CblasTrans, tb == PAL_KEEP ? CblasNoTrans : CblasTrans, M, N, K,
                1.0f, A, (int)lda, B, (int)ldb, acc == PAL_ADD ? 1.0f : 0.0f, C, (int)ldc);
}
