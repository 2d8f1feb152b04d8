/* SPDX-License-Identifier: MIT */
#include "kernels/matmul/plain.h"

#include <string.h>

#include "base/parallel.h"

PAL_VARIANTS(plain_block)

void pal_plain_block_ref(const pal_plain_job *job, int m, int rows, int n, int columns) {
    const size_t K = (size_t)job->K;
    for (size_t i = (size_t)m; i < (size_t)m + (size_t)rows; i++) {
        const float *A = job->A + i * job->a_row;
        float *c = job->C + i * job->ldc + n;
        if (job->acc == PAL_OVERWRITE) memset(c, 0, (size_t)columns * sizeof *c);
        if (job->b_col == 1) {
            for (size_t k = 0; k < K; k++) {
                const float a = A[k * job->a_col], *b = job->B + k * job->b_row + n;
                for (int j = 0; j < columns; j++) c[j] += a * b[j];
            }
        } else {
            for (int j = 0; j < columns; j++) {
                const float *b = job->B + (size_t)(n + j) * job->b_col;
                float sum = c[j];
                for (size_t k = 0; k < K; k++) sum += A[k * job->a_col] * b[k];
                c[j] = sum;
            }
        }
    }
}

typedef struct {
    pal_plain_job job;
    pal_plain_block_fn *block;
    int M, N, across; /* across: blocks next to each other */
} plain_work;

static void block_task(void *arg, size_t index, int thread) {
    (void)thread;
    const plain_work *w = arg;
    const int m = (int)index / w->across * PAL_PLAIN_ROWS, n = (int)index % w->across * PAL_PLAIN_COLUMNS;
    const int rows = w->M - m, columns = w->N - n;
    w->block(&w->job, m, rows < PAL_PLAIN_ROWS ? rows : PAL_PLAIN_ROWS, n,
             columns < PAL_PLAIN_COLUMNS ? columns : PAL_PLAIN_COLUMNS);
}

void pal_matmul_plain(const pal_context *cx, pal_transpose ta, pal_transpose tb, int M, int N, int K, const float *A,
                      size_t lda, const float *B, size_t ldb, pal_accumulate acc, float *C, size_t ldc) {
    plain_work w = { .job = { .K = K, .acc = acc, .A = A, .B = B, .C = C, .ldc = ldc },
                     .block = PAL_PICK(cx, plain_block),
                     .M = M,
                     .N = N,
                     .across = (N - 1) / PAL_PLAIN_COLUMNS + 1 };
    w.job.a_row = ta == PAL_KEEP ? lda : 1, w.job.a_col = ta == PAL_KEEP ? 1 : lda;
    w.job.b_row = tb == PAL_KEEP ? ldb : 1, w.job.b_col = tb == PAL_KEEP ? 1 : ldb;
    const size_t down = (size_t)(M - 1) / PAL_PLAIN_ROWS + 1;
    pal_parallel_for(cx, down * (size_t)w.across, block_task, &w);
}
