/* SPDX-License-Identifier: MIT */
/* A product that oneDNN refuses, for want of memory say, is computed all the same. In this program oneDNN's function is
 * replaced by one that always refuses; with another backend there is nothing to test. */
#include <math.h>

#include "kernels/matmul/matmul.h"
#include "support/support.h"

static int refusals;

int dnnl_sgemm(char ta, char tb, int64_t M, int64_t N, int64_t K, float alpha, const float *A, int64_t lda,
               const float *B, int64_t ldb, float beta, float *C, int64_t ldc);
int dnnl_sgemm(char ta, char tb, int64_t M, int64_t N, int64_t K, float alpha, const float *A, int64_t lda,
               const float *B, int64_t ldb, float beta, float *C, int64_t ldc) {
    (void)ta, (void)tb, (void)M, (void)N, (void)K, (void)alpha, (void)A, (void)lda, (void)B, (void)ldb, (void)beta,
        (void)C, (void)ldc;
    return ++refusals; /* 0 would be success */
}

static void a_refused_product_is_computed_all_the_same(void **state) {
    (void)state;
    enum { M = 2, N = 2, K = 3, FORMS = 8 };
    static const float left[M][K] = { { 1, 2, 3 }, { 4, 5, 6 } }, right[K][N] = { { 1, -1 }, { 2, 0 }, { 0, 3 } },
                       product[M][N] = { { 5, 8 }, { 14, 14 } };
    if (!strstr(pal_version(), "onednn")) {
        print_message("skipped: the product is not oneDNN's\n");
        skip();
    }
    pal_context *cx = test_context(2, NULL);
    refusals = 0;
    for (int form = 0; form < FORMS; form++) {
        const bool ta = form & 1, tb = form & 2, add = form & 4;
        float A[M * K], B[K * N], C[M * N];
        for (int k = 0; k < K; k++) {
            for (int m = 0; m < M; m++) A[ta ? k * M + m : m * K + k] = left[m][k];
            for (int n = 0; n < N; n++) B[tb ? n * K + k : k * N + n] = right[k][n];
        }
        for (int i = 0; i < M * N; i++) C[i] = add ? 100 : NAN;
        pal_matmul(cx, ta ? PAL_TRANSPOSE : PAL_KEEP, tb ? PAL_TRANSPOSE : PAL_KEEP, M, N, K, A, ta ? M : K, B,
                   tb ? K : N, add ? PAL_ADD : PAL_OVERWRITE, C, N);
        for (int i = 0; i < M * N; i++)
            if (!(C[i] == product[i / N][i % N] + (add ? 100 : 0)))
                fail_msg("form %d: C[%d] is %g", form, i, (double)C[i]);
    }
    assert_int_equal(refusals, FORMS);
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_refused_product_is_computed_all_the_same) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
