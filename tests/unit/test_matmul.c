/* SPDX-License-Identifier: MIT */
/* The backend of this build, and our own product at every level, against the plain loop. */
#include <math.h>
#include <signal.h>
#include <sys/time.h>

#include "base/alloc.h"
#include "base/parallel.h"
#include "kernels/matmul/plain.h"
#include "support/support.h"

/* Every matrix ends at a guard page. */
static size_t stored(int rows, int columns, size_t row_length) {
    return rows && columns ? (size_t)(rows - 1) * row_length + (size_t)columns : 0;
}

typedef void product_fn(const pal_context *cx, pal_transpose ta, pal_transpose tb, int M, int N, int K, const float *A,
                        size_t lda, const float *B, size_t ldb, pal_accumulate acc, float *C, size_t ldc);

/* gap: how much longer rows are in memory than they need be. */
static void check_product(product_fn *product, const pal_context *cx, pal_rng *rng, pal_transpose ta, pal_transpose tb,
                          pal_accumulate acc, int M, int N, int K, size_t gap) {
    const int a_rows = ta == PAL_KEEP ? M : K, a_columns = ta == PAL_KEEP ? K : M;
    const int b_rows = tb == PAL_KEEP ? K : N, b_columns = tb == PAL_KEEP ? N : K;
    /* libraries refuse a row length of 0 even for empty matrices */
    const size_t lda = (size_t)(a_columns ? a_columns : 1) + gap, ldb = (size_t)(b_columns ? b_columns : 1) + gap,
                 ldc = (size_t)(N ? N : 1) + gap;
    const size_t na = stored(a_rows, a_columns, lda), nb = stored(b_rows, b_columns, ldb), nc = stored(M, N, ldc);
    float *A = test_guarded(na), *B = test_guarded(nb), *C = test_guarded(nc), *expected = test_guarded(nc);
    test_fill_normal(A, na, rng, 1);
    test_fill_normal(B, nb, rng, 1);
    if (acc == PAL_ADD) test_fill_normal(C, nc, rng, 1); /* else C stays NaN: overwriting must not read it */
    memcpy(expected, C, nc * sizeof *C);
    product(cx, ta, tb, M, N, K, A, lda, B, ldb, acc, C, ldc);
    pal_matmul_ref(ta, tb, M, N, K, A, lda, B, ldb, acc, expected, ldc);
    for (int m = 0; m < M; m++)
        for (size_t n = 0; n < ldc && (size_t)m * ldc + n < nc; n++) {
            const size_t at = (size_t)m * ldc + n;
            if (n >= (size_t)N) {
                if (memcmp(&C[at], &expected[at], sizeof *C) != 0) fail_msg("wrote past the end of row %d", m);
                continue;
            }
            if (!(fabs((double)C[at] - (double)expected[at]) <= 1e-6 * (8 + K)))
                fail_msg("%dx%dx%d, transposes %d %d, %s: C[%d,%zu] is %g, expected %g", M, N, K, (int)ta, (int)tb,
                         acc == PAL_ADD ? "add" : "overwrite", m, n, (double)C[at], (double)expected[at]);
        }
    test_guarded_free(A, na), test_guarded_free(B, nb), test_guarded_free(C, nc), test_guarded_free(expected, nc);
}

static void every_form_matches_the_plain_loop(void **state) {
    (void)state;
    static const int sizes[] = { 1, 2, 3, 7, 8, 9, 16, 17, 33, 70, 131 };
    const int rounds = getenv("PALIMPSA_TEST_LONG") ? 500 : 40;
    pal_rng rng = pal_rng_at(1, 1);
    for (int threads = 1; threads <= 2; threads++) {
        pal_context *cx = test_context(threads, NULL);
        for (int form = 0; form < 8; form++)
            for (int round = 0; round < rounds; round++) {
                const int M = sizes[pal_rng_below(&rng, PAL_COUNT(sizes))],
                          N = sizes[pal_rng_below(&rng, PAL_COUNT(sizes))];
                const int K = sizes[pal_rng_below(&rng, PAL_COUNT(sizes))];
                check_product(pal_matmul, cx, &rng, form & 1 ? PAL_TRANSPOSE : PAL_KEEP,
                              form & 2 ? PAL_TRANSPOSE : PAL_KEEP, form & 4 ? PAL_ADD : PAL_OVERWRITE, M, N, K,
                              pal_rng_below(&rng, 2) ? pal_rng_below(&rng, 9) : 0);
            }
        pal_context_free(cx);
    }
}

/* Sizes at and past the ends of tiles, blocks and stretches. */
static void our_own_product_matches_at_every_level(void **state) {
    (void)state;
    static const int sizes[] = { 1, 2, 5, 6, 7, 11, 12, 13, 16, 17, 32, 33, 95, 97, 256, 259 };
    const int rounds = getenv("PALIMPSA_TEST_LONG") ? 100 : 6;
    pal_rng rng = pal_rng_at(1, 4);
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(2, pal_cpu_level_name(level));
        for (int form = 0; form < 8; form++)
            for (int round = 0; round < rounds; round++) {
                int size[3];
                for (int i = 0; i < 3; i++) size[i] = sizes[pal_rng_below(&rng, PAL_COUNT(sizes))];
                check_product(pal_matmul_plain, cx, &rng, form & 1 ? PAL_TRANSPOSE : PAL_KEEP,
                              form & 2 ? PAL_TRANSPOSE : PAL_KEEP, form & 4 ? PAL_ADD : PAL_OVERWRITE, size[0],
                              size[1], size[2], pal_rng_below(&rng, 2) ? pal_rng_below(&rng, 9) : 0);
            }
        pal_context_free(cx);
    }
}

static void our_own_product_gives_the_same_bits_for_any_number_of_threads(void **state) {
    (void)state;
    enum { M = 200, N = 520, K = 300 };
    float *A = pal_alloc(M * K, 4), *B = pal_alloc(N * K, 4), *one = pal_alloc(M * N, 4), *many = pal_alloc(M * N, 4);
    pal_rng rng = pal_rng_at(1, 5);
    test_fill_normal(A, M * K, &rng, 1);
    test_fill_normal(B, N * K, &rng, 1);
    for (TEST_LEVELS(level))
        for (int threads = 1; threads <= 7; threads += 2) {
            pal_context *cx = test_context(threads, pal_cpu_level_name(level));
            float *C = threads == 1 ? one : many;
            pal_matmul_plain(cx, PAL_KEEP, PAL_TRANSPOSE, M, N, K, A, K, B, K, PAL_OVERWRITE, C, N);
            if (threads > 1) test_same_bits("our own product", many, one, M * N);
            pal_matmul_plain(cx, PAL_KEEP, PAL_TRANSPOSE, 7, N, K, A, K, B, K, PAL_OVERWRITE, many, N);
            test_same_bits("fewer rows", many, one, 7 * N);
            pal_context_free(cx);
        }
    pal_free(A), pal_free(B), pal_free(one), pal_free(many);
}

static void empty_products_zero_or_keep(void **state) {
    (void)state;
    pal_context *cx = test_context(2, NULL);
    pal_rng rng = pal_rng_at(1, 2);
    for (int empty = 1; empty < 8; empty++)
        for (int form = 0; form < 8; form++)
            check_product(pal_matmul, cx, &rng, form & 1 ? PAL_TRANSPOSE : PAL_KEEP,
                          form & 2 ? PAL_TRANSPOSE : PAL_KEEP, form & 4 ? PAL_ADD : PAL_OVERWRITE, empty & 1 ? 0 : 5,
                          empty & 2 ? 0 : 6, empty & 4 ? 0 : 7, 3);
    pal_context_free(cx);
}

enum { TASKS = 24, SIZE = 65 };
typedef struct {
    const pal_context *cx;
    const float *A, *B;
    float *C;
} inside;

static void inside_task(void *arg, size_t index, int thread) {
    (void)thread;
    const inside *in = arg;
    pal_matmul(in->cx, PAL_KEEP, PAL_TRANSPOSE, SIZE, SIZE, SIZE, in->A + index, SIZE, in->B, SIZE, PAL_OVERWRITE,
               in->C + index * SIZE * SIZE, SIZE);
}

static void works_inside_a_parallel_task_with_the_same_bits(void **state) {
    (void)state;
    enum { N = SIZE * SIZE + TASKS };
    float *A = pal_alloc(N, 4), *B = pal_alloc(N, 4), *one = pal_alloc(TASKS * SIZE * SIZE, 4),
          *many = pal_alloc(TASKS * SIZE * SIZE, 4);
    float *expected = pal_alloc(SIZE * SIZE, 4);
    pal_rng rng = pal_rng_at(1, 3);
    test_fill_normal(A, N, &rng, 1);
    test_fill_normal(B, N, &rng, 1);
    for (int threads = 1; threads <= 3; threads++) {
        pal_context *cx = test_context(threads, NULL);
        inside in = { .cx = cx, .A = A, .B = B, .C = threads == 1 ? one : many };
        pal_parallel_for(cx, TASKS, inside_task, &in);
        pal_context_free(cx);
        if (threads > 1) test_same_bits("products inside tasks", many, one, TASKS * SIZE * SIZE);
    }
    for (size_t i = 0; i < TASKS; i++) {
        pal_matmul_ref(PAL_KEEP, PAL_TRANSPOSE, SIZE, SIZE, SIZE, A + i, SIZE, B, SIZE, PAL_OVERWRITE, expected, SIZE);
        test_near("a product inside a task", one + i * SIZE * SIZE, expected, SIZE * SIZE, 1e-5);
    }
    pal_free(A), pal_free(B), pal_free(one), pal_free(many), pal_free(expected);
}

static volatile sig_atomic_t interruptions;
static void on_interruption(int number) {
    (void)number;
    interruptions++;
}

/* A context gives the main thread a stack for handlers; without it this crashes with oneDNN (base/signal_stack.h). */
static void handlers_may_interrupt_it(void **state) {
    (void)state;
    enum { M = 200, N = 100, K = 100, TIMES = 50 };
    const struct sigaction action = { .sa_handler = on_interruption, .sa_flags = SA_ONSTACK | SA_RESTART };
    const struct itimerval often = { .it_interval = { .tv_usec = 200 }, .it_value = { .tv_usec = 200 } };
    pal_context *cx = test_context(1, NULL);
    float *A = pal_alloc(M * K, 4), *B = pal_alloc(K * N, 4), *quiet = pal_alloc(M * N, 4), *C = pal_alloc(M * N, 4);
    pal_rng rng = pal_rng_at(1, 4);
    struct sigaction before;
    test_fill_normal(A, M * K, &rng, 1);
    test_fill_normal(B, K * N, &rng, 1);
    pal_matmul(cx, PAL_KEEP, PAL_KEEP, M, N, K, A, K, B, N, PAL_OVERWRITE, quiet, N);
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    while (interruptions < TIMES) {
        pal_matmul(cx, PAL_KEEP, PAL_KEEP, M, N, K, A, K, B, N, PAL_OVERWRITE, C, N);
        test_same_bits("an interrupted product", C, quiet, M * N);
        pal_free(pal_alloc(M, 4)); /* would notice a heap that is not whole */
    }
    setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
    sigaction(SIGALRM, &before, NULL);
    pal_free(A), pal_free(B), pal_free(quiet), pal_free(C);
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_matches_the_plain_loop),
        cmocka_unit_test(our_own_product_matches_at_every_level),
        cmocka_unit_test(our_own_product_gives_the_same_bits_for_any_number_of_threads),
        cmocka_unit_test(empty_products_zero_or_keep),
        cmocka_unit_test(works_inside_a_parallel_task_with_the_same_bits),
        cmocka_unit_test(handlers_may_interrupt_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
