/* SPDX-License-Identifier: MIT */
#include "layers/dense.h"

#include <string.h>

#include "base/parallel.h"
#include "kernels/product/product.h"

enum { STEP_ROWS = 8 }; /* beyond this a matrix product is faster */

/* The parts from `first` on whose weights follow each other without a gap: their number and rows in all. */
static int joined(const pal_dense *l, int first, bool gradients, int *rows) {
    int count = 1;
    *rows = l->out[first];
    while (first + count < l->parts) {
        const int last = first + count - 1;
        const size_t floats = (size_t)l->out[last] * (size_t)l->in;
        if (l->w[last + 1] != l->w[last] + floats || (gradients && l->dw[last + 1] != l->dw[last] + floats)) break;
        *rows += l->out[first + count++];
    }
    return count;
}

void pal_dense_forward(const pal_context *cx, const pal_dense *l, int rows, const float *x, size_t ldx,
                       pal_accumulate acc, float *y, size_t ldy) {
    for (int part = 0, at = 0; part < l->parts;) {
        int out;
        const int count = joined(l, part, false, &out);
        const pal_matrix w = pal_matrix_of(PAL_F32, l->w[part], out, l->in);
        const pal_matvec_args args = {
            .w = &w, .rows = rows, .x = x, .ldx = ldx, .add = acc == PAL_ADD, .y = y + at, .ldy = ldy
        };
        if (rows <= STEP_ROWS) pal_matvec(cx, &args);
        else pal_product(cx, &args);
        part += count;
        at += out;
    }
}

void pal_dense_backward(const pal_context *cx, const pal_dense *l, int rows, const float *x, size_t ldx,
                        const float *dy, size_t ldy, float *dx, size_t lddx) {
    for (int part = 0, at = 0; part < l->parts;) {
        int out;
        const int count = joined(l, part, true, &out);
        if (l->dw[part])
            pal_matmul(cx, PAL_TRANSPOSE, PAL_KEEP, out, l->in, rows, dy + at, ldy, x, ldx, PAL_ADD, l->dw[part],
                       (size_t)l->in);
        if (dx)
            pal_matmul(cx, PAL_KEEP, PAL_KEEP, rows, l->in, out, dy + at, ldy, l->w[part], (size_t)l->in,
                       part ? PAL_ADD : PAL_OVERWRITE, dx, lddx);
        part += count;
        at += out;
    }
}

typedef struct {
    float *y;
    const float *dy, *bias;
    float *dbias;
    size_t ld;
    int rows, width;
} bias_job;

static void bias_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const bias_job *job = arg;
    for (size_t r = begin; r < end; r++)
        for (int i = 0; i < job->width; i++) job->y[r * job->ld + (size_t)i] += job->bias[i];
}

enum { BIAS_COLUMNS = 16, COPY_FLOATS = 1 << 15 };

/* Columns are split over threads and rows summed in order, so the sum does not depend on the number of threads. */
static void bias_backward_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const bias_job *job = arg;
    double sums[BIAS_COLUMNS] = { 0 };
    for (size_t r = 0; r < (size_t)job->rows; r++)
        for (size_t i = begin; i < end; i++) sums[i - begin] += (double)job->dy[r * job->ld + i];
    for (size_t i = begin; i < end; i++) job->dbias[i] += (float)sums[i - begin];
}

void pal_bias_add(const pal_context *cx, float *y, size_t ldy, int rows, int width, const float *bias) {
    bias_job job = { .y = y, .bias = bias, .ld = ldy, .rows = rows, .width = width };
    pal_parallel_ranges(cx, (size_t)rows, 64, bias_task, &job);
}

void pal_bias_backward(const pal_context *cx, float *dbias, const float *dy, size_t ldy, int rows, int width) {
    if (!dbias) return;
    bias_job job = { .dy = dy, .dbias = dbias, .ld = ldy, .rows = rows, .width = width };
    pal_parallel_ranges(cx, (size_t)width, BIAS_COLUMNS, bias_backward_task, &job);
}

typedef struct {
    float *to;
    const float *from;
} copy_job;

static void copy_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const copy_job *job = arg;
    if (job->from) memcpy(job->to + begin, job->from + begin, (end - begin) * sizeof *job->to);
    else memset(job->to + begin, 0, (end - begin) * sizeof *job->to);
}

void pal_copy_floats(const pal_context *cx, float *to, const float *from, size_t n) {
    copy_job job = { .to = to, .from = from };
    pal_parallel_ranges(cx, n, COPY_FLOATS, copy_task, &job);
}

void pal_clear_floats(const pal_context *cx, float *x, size_t n) {
    copy_job job = { .to = x };
    pal_parallel_ranges(cx, n, COPY_FLOATS, copy_task, &job);
}
