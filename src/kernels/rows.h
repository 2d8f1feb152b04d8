/* SPDX-License-Identifier: MIT */
/* What row kernels share. An activation is [rows, channels], possibly some columns of a wider matrix (pal_view); rows
 * are split over threads in blocks whose size depends on the problem only. Sums over rows (gradients of parameters) are
 * taken in blocks too: each block writes its partial sum into scratch, and the partial sums are added in a fixed order,
 * so no bit of a result depends on the number of threads. */
#ifndef PAL_KERNELS_ROWS_H
#define PAL_KERNELS_ROWS_H

#include <stddef.h>

#include "base/context.h"
#include "base/parallel.h"
#include "palimpsa/view.h"

static inline pal_const_view pal_reading(pal_view v) { return (pal_const_view){ v.data, v.stride }; }
static inline float *pal_row(pal_view v, size_t row) { return v.data + row * v.stride; }
static inline const float *pal_row_in(pal_const_view v, size_t row) { return v.data + row * v.stride; }

/* Rows that one task takes: enough work to be worth a task, so small problems stay on the calling thread. */
static inline size_t pal_row_grain(size_t channels) {
    enum { TASK_ELEMENTS = 16384 };
    return channels >= TASK_ELEMENTS ? 1 : TASK_ELEMENTS / (channels ? channels : 1);
}

/* Defines NAME_over_rows(cx, args, rows, channels): a variant that sums over no rows, on all of args' rows. */
#define PAL_OVER_ROWS(name, args, function)                                                               \
    typedef struct {                                                                                      \
        const args *a;                                                                                    \
        function *rows;                                                                                   \
    } name##_job;                                                                                         \
    static void name##_task(void *arg, size_t begin, size_t end, int thread) {                            \
        (void)thread;                                                                                     \
        const name##_job *job = arg;                                                                      \
        job->rows(job->a, begin, end);                                                                    \
    }                                                                                                     \
    static void name##_over_rows(const pal_context *cx, const args *a, function *rows, size_t channels) { \
        name##_job job = { a, rows };                                                                     \
        pal_parallel_ranges(cx, a->rows, pal_row_grain(channels), name##_task, &job);                     \
    }

/* Rows in one partial sum (the last may have fewer) and the number of partial sums. `terms` is what one row adds to one
 * number; 128 terms are few enough to be added in f32. */
static inline size_t pal_sum_rows(size_t terms) { return terms >= 128 ? 1 : 128 / terms; }
static inline size_t pal_sum_blocks(size_t rows, size_t terms) {
    return (rows + pal_sum_rows(terms) - 1) / pal_sum_rows(terms);
}

/* Where the block that begins with this row puts its sums of `width` numbers; partial NULL: nowhere. */
static inline float *pal_sum_block(float *partial, size_t begin, size_t terms, size_t width) {
    return partial ? partial + begin / pal_sum_rows(terms) * width : NULL;
}

/* total[i] += sum over blocks b of partial[b*stride + i], i < n, in double and in order of b. */
void pal_sum_partials(const pal_context *cx, float *total, size_t n, const float *partial, size_t stride,
                      size_t blocks);

/* The packed sequence that holds `token`: n with cu_seqlens[n] <= token < cu_seqlens[n+1]. A NULL cu_seqlens stands for
 * one token a sequence. */
int pal_sequence_of(const int *cu_seqlens, int sequences, int token);
static inline int pal_sequence_begin(const int *cu_seqlens, int n) { return cu_seqlens ? cu_seqlens[n] : n; }

#endif
