/* SPDX-License-Identifier: MIT */
/* No library at all: rows of C in parallel, the inner loop over contiguous memory wherever the transposes allow it.
 * Slow, but it runs everywhere and gives the same bits for any number of threads. */
#include <string.h>

#include "base/parallel.h"
#include "kernels/matmul/matmul.h"

typedef struct {
    pal_transpose ta, tb;
    int N, K;
    const float *A, *B;
    size_t lda, ldb, ldc;
    pal_accumulate acc;
    float *C;
} matmul_job;

static void rows_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const matmul_job *job = arg;
    const size_t N = (size_t)job->N, K = (size_t)job->K;
    for (size_t m = begin; m < end; m++) {
        float *c = job->C + m * job->ldc;
        if (job->acc == PAL_OVERWRITE) memset(c, 0, N * sizeof *c);
        if (job->tb == PAL_KEEP) {
            for (size_t k = 0; k < K; k++) {
                const float a = job->ta == PAL_KEEP ? job->A[m * job->lda + k] : job->A[k * job->lda + m];
                const float *b = job->B + k * job->ldb;
                for (size_t n = 0; n < N; n++) c[n] += a * b[n];
            }
        } else {
            for (size_t n = 0; n < N; n++) {
                const float *b = job->B + n * job->ldb;
                float sum = 0;
                for (size_t k = 0; k < K; k++)
                    sum += (job->ta == PAL_KEEP ? job->A[m * job->lda + k] : job->A[k * job->lda + m]) * b[k];
                c[n] += sum;
            }
        }
    }
}

void pal_matmul_backend(const pal_context *cx, pal_transpose ta, pal_transpose tb, int M, int N, int K, const float *A,
                        size_t lda, const float *B, size_t ldb, pal_accumulate acc, float *C, size_t ldc) {
    matmul_job job = {
        .ta = ta, .tb = tb, .N = N, .K = K, .A = A, .B = B, .lda = lda, .ldb = ldb, .ldc = ldc, .acc = acc, .C = C
    };
    pal_parallel_ranges(cx, (size_t)M, 16, rows_task, &job);
}
