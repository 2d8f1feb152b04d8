/* SPDX-License-Identifier: MIT */
/* Any CBLAS (OpenBLAS, BLIS, ...). Debian's OpenBLAS does not recognise some new processors and then runs five times
 * slower than it could; OPENBLAS_CORETYPE helps. */
#include <cblas.h>
#include <omp.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/parallel.h"
#include "kernels/matmul/matmul.h"

#ifdef PAL_OPENBLAS_THREADS
/* OpenBLAS keeps one number of threads for the whole process. Returns the one before. */
static int set_threads(int threads) {
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER; /* an omp critical would export its name */
    pthread_mutex_lock(&one_at_a_time);
    const int before = openblas_get_num_threads();
    if (before != threads) openblas_set_num_threads(threads);
    pthread_mutex_unlock(&one_at_a_time);
    return before;
}
#else /* a library without this call decides by itself */
static int set_threads(int threads) { return threads; }
#endif

void pal_matmul_backend(const pal_context *cx, pal_transpose ta, pal_transpose tb, int M, int N, int K, const float *A,
                        size_t lda, const float *B, size_t ldb, pal_accumulate acc, float *C, size_t ldc) {
    /* The tasks of a parallel region all want one thread; they leave it so, since others may still be computing. */
    const bool inside = omp_in_parallel();
    const int before = set_threads(inside ? 1 : pal_threads(cx));
    cblas_sgemm(CblasRowMajor, ta == PAL_KEEP ? CblasNoTrans : CblasTrans, tb == PAL_KEEP ? CblasNoTrans : CblasTrans,
                M, N, K, 1.0f, A, (int)lda, B, (int)ldb, acc == PAL_ADD ? 1.0f : 0.0f, C, (int)ldc);
    if (!inside) set_threads(before);
}
