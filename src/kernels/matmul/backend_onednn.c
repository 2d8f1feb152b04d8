/* SPDX-License-Identifier: MIT */
/* oneDNN picks its kernels by CPU feature, not by CPU name, and is the fastest on every shape that models need. */
#include <dnnl.h>
#include <omp.h>

#include "base/parallel.h"
#include "kernels/matmul/plain.h"

void pal_matmul_backend(const pal_context *cx, pal_transpose ta, pal_transpose tb, int M, int N, int K, const float *A,
                        size_t lda, const float *B, size_t ldb, pal_accumulate acc, float *C, size_t ldc) {
    /* oneDNN takes its thread count from OpenMP; lend it ours. In a parallel region it uses one thread by itself. */
    const int before = omp_in_parallel() ? 0 : omp_get_max_threads();
    if (before) omp_set_num_threads(pal_threads(cx));
    const dnnl_status_t status = dnnl_sgemm(ta == PAL_KEEP ? 'N' : 'T', tb == PAL_KEEP ? 'N' : 'T', M, N, K, 1.0f, A,
                                            (dnnl_dim_t)lda, B, (dnnl_dim_t)ldb, acc == PAL_ADD ? 1.0f : 0.0f, C,
                                            (dnnl_dim_t)ldc);
    if (before) omp_set_num_threads(before);
    /* It refuses before it writes, for lack of RAM say. Ours is slower, but better than a C that was not computed. */
    if (status != dnnl_success) pal_matmul_plain(cx, ta, tb, M, N, K, A, lda, B, ldb, acc, C, ldc);
}
