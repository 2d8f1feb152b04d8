/* SPDX-License-Identifier: MIT */
#include "layers/dense.h"

#include <assert.h>
#include <string.h>

#include "base/device.h"
#include "base/parallel.h"
#include "kernels/product/product.h"

enum {
    STEP_ROWS = 8, /* a prompt that is no longer is read as steps are */
    PANEL_FLOATS = 1 << 20,
    PANEL_LEAST = 16
};

static bool follows(const pal_matrix *w, const pal_matrix *next) {
    return next->type == w->type && next->row_bytes == w->row_bytes &&
           next->data == (const char *)w->data + (size_t)w->rows * w->row_bytes;
}

/* Whether the gradients of matrix i and of the next follow each other too, where there are any. */
static bool gradients_follow(const pal_dense *l, int i) {
    if (!l->trains) return true;
    return l->dw[i] && l->dw[i + 1] == l->dw[i] + (size_t)l->out[i] * (size_t)l->in;
}

/* The matrices from `first` on whose weights are of one type and follow each other without a gap, as one matrix;
 * returns their number. */
static int joined(const pal_dense *l, int first, pal_matrix *all) {
    int count = 1;
    *all = l->w[first];
    while (first + count < l->matrices) {
        const int last = first + count - 1;
        if (!follows(&l->w[last], &l->w[last + 1]) || !gradients_follow(l, last)) break;
        all->rows += l->out[first + count++];
    }
    return count;
}

void pal_dense_forward(const pal_pass *ps, const pal_dense *l, int rows, const float *x, size_t ldx, pal_accumulate acc,
                       float *y, size_t ldy) {
    assert(pal_dense_scratch_bytes(l, rows) <= ps->scratch_bytes);
    const bool steps = !ps->cu_seqlens || ps->apart || rows <= STEP_ROWS;
    for (int i = 0, at = 0; i < l->matrices;) {
        pal_matrix w;
        const int count = joined(l, i, &w);
        const pal_matvec_args args = { .w = &w,
                                       .rows = rows,
                                       .x = x,
                                       .ldx = ldx,
                                       .add = acc == PAL_ADD,
                                       .y = y + at,
                                       .ldy = ldy,
                                       .scratch = ps->scratch };
        if (steps) pal_matvec(ps->cx, &args);
        else pal_product(ps->cx, &args);
        i += count;
        at += w.rows;
    }
}

/* Rows of a matrix that are decoded at once. */
static int panel_rows(const pal_matrix *w) {
    const int rows = PANEL_FLOATS / w->columns;
    return rows < PANEL_LEAST ? PANEL_LEAST : rows;
}

/* F32 needs none. */
size_t pal_dense_scratch_bytes(const pal_dense *l, int rows) {
    size_t most = 0;
    for (int i = 0; i < l->matrices; i++) {
        if (l->w[i].type == PAL_F32) continue;
        const size_t forward = pal_product_scratch_bytes(rows, l->in); /* a step needs no more */
        const size_t backward = l->trains ? (size_t)panel_rows(&l->w[i]) * (size_t)l->in * sizeof(float) : 0;
        if (forward > most) most = forward;
        if (backward > most) most = backward;
    }
    return most;
}

typedef struct {
    const pal_matrix *w;
    float *to;
    size_t first;
    pal_decode_rows_fn *decode;
} panel_job;

static void panel_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const panel_job *job = arg;
    job->decode(job->w, job->first + begin, job->first + end, job->to + begin * (size_t)job->w->columns);
}

/* dx = or += dy w, where w is decoded some rows at a time. */
static void back_through(const pal_pass *ps, const pal_matrix *w, int rows, const float *dy, size_t ldy,
                         pal_accumulate acc, float *dx, size_t lddx) {
    const int most = panel_rows(w);
    for (int begin = 0; begin < w->rows; begin += most) {
        const int count = w->rows - begin < most ? w->rows - begin : most;
        panel_job job = { w, ps->scratch, (size_t)begin, PAL_PICK(ps->cx, decode_rows) };
        pal_parallel_ranges(ps->cx, (size_t)count, PANEL_LEAST, panel_task, &job);
        pal_matmul(ps->cx, PAL_KEEP, PAL_KEEP, rows, w->columns, count, dy + begin, ldy, job.to, (size_t)w->columns,
                   begin ? PAL_ADD : acc, dx, lddx);
    }
}

void pal_dense_backward(const pal_pass *ps, const pal_dense *l, int rows, const float *x, size_t ldx, const float *dy,
                        size_t ldy, pal_accumulate acc, float *dx, size_t lddx) {
    const pal_context *cx = ps->cx;
    for (int i = 0, at = 0; i < l->matrices;) {
        pal_matrix w;
        const int count = joined(l, i, &w);
        if (l->dw[i] && x)
            pal_matmul(cx, PAL_TRANSPOSE, PAL_KEEP, w.rows, l->in, rows, dy + at, ldy, x, ldx, PAL_ADD, l->dw[i],
                       (size_t)l->in);
        if (dx && w.type == PAL_F32)
            pal_matmul(cx, PAL_KEEP, PAL_KEEP, rows, l->in, w.rows, dy + at, ldy, w.data, (size_t)l->in,
                       i ? PAL_ADD : acc, dx, lddx);
        else if (dx) back_through(ps, &w, rows, dy + at, ldy, i ? PAL_ADD : acc, dx, lddx);
        i += count;
        at += w.rows;
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
    PAL_ON_DEVICE(cx, bias_add, y, ldy, (size_t)rows, width, bias);
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
    PAL_ON_DEVICE(cx, copy, to, from, n);
    copy_job job = { .to = to, .from = from };
    pal_parallel_ranges(cx, n, COPY_FLOATS, copy_task, &job);
}

void pal_clear_floats(const pal_context *cx, float *x, size_t n) {
    PAL_ON_DEVICE(cx, fill, x, n, 0);
    copy_job job = { .to = x };
    pal_parallel_ranges(cx, n, COPY_FLOATS, copy_task, &job);
}
