/* SPDX-License-Identifier: MIT */
#include "kernels/matmul/matmul.h"

#include <string.h>

void pal_matmul(const pal_context *cx, pal_transpose ta, pal_transpose tb, int M, int N, int K, const float *A,
                size_t lda, const float *B, size_t ldb, pal_accumulate acc, float *C, size_t ldc) {
    if (M == 0 || N == 0) return;
    if (K == 0) {
        for (int m = 0; m < M && acc == PAL_OVERWRITE; m++) memset(C + (size_t)m * ldc, 0, (size_t)N * sizeof *C);
        return;
    }
    pal_matmul_backend(cx, ta, tb, M, N, K, A, lda, B, ldb, acc, C, ldc);
}

void pal_matmul_ref(pal_transpose ta, pal_transpose tb, int M, int N, int K, const float *A, size_t lda, const float *B,
                    size_t ldb, pal_accumulate acc, float *C, size_t ldc) {
    for (size_t m = 0; m < (size_t)M; m++)
        for (size_t n = 0; n < (size_t)N; n++) {
            double sum = acc == PAL_ADD ? (double)C[m * ldc + n] : 0.0;
            for (size_t k = 0; k < (size_t)K; k++) {
                const float a = ta == PAL_KEEP ? A[m * lda + k] : A[k * lda + m];
                const float b = tb == PAL_KEEP ? B[k * ldb + n] : B[n * ldb + k];
                sum += (double)a * (double)b;
            }
            C[m * ldc + n] = (float)sum;
        }
}
