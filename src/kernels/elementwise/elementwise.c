/* SPDX-License-Identifier: MIT */
#include "kernels/elementwise/elementwise.h"

#include "base/device.h"

typedef void row_fn(size_t n, float factor, const float *x, const float *by, float *y);

static void scale_row(size_t n, float factor, const float *x, const float *by, float *y) {
    (void)by;
    for (size_t i = 0; i < n; i++) y[i] = factor * x[i];
}

static void multiply_row(size_t n, float factor, const float *x, const float *by, float *y) {
    (void)factor;
    for (size_t i = 0; i < n; i++) y[i] = x[i] * by[i];
}

static void copy_row(size_t n, float factor, const float *x, const float *by, float *y) {
    (void)factor, (void)by;
    for (size_t i = 0; i < n; i++) y[i] = x[i];
}

static void add_row(size_t n, float factor, const float *x, const float *by, float *y) {
    (void)factor;
    for (size_t i = 0; i < n; i++) y[i] = x[i] + by[i];
}

static void relu2_row(size_t n, float factor, const float *x, const float *by, float *y) {
    (void)factor, (void)by;
    for (size_t i = 0; i < n; i++) {
        const float kept = x[i] < 0 ? 0 : x[i];
        y[i] = kept * kept;
    }
}

static void relu2_backward_row(size_t n, float factor, const float *x, const float *by, float *y) {
    (void)factor;
    for (size_t i = 0; i < n; i++) y[i] = 2 * (x[i] < 0 ? 0 : x[i]) * by[i];
}

typedef struct {
    const pal_elementwise_args *a;
    row_fn *row;
} elementwise_job;

static void elementwise_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const elementwise_job *job = arg;
    const pal_elementwise_args *a = job->a;
    for (size_t r = begin; r < end; r++)
        job->row((size_t)a->width, a->factor, pal_row_in(a->x, r), a->by.data ? pal_row_in(a->by, r) : NULL,
                 pal_row(a->y, r));
}

static void run(const pal_context *cx, const pal_elementwise_args *a, pal_device_elementwise kind) {
    static row_fn *const rows[] = { [PAL_DEVICE_SCALE] = scale_row, [PAL_DEVICE_MULTIPLY] = multiply_row,
                                    [PAL_DEVICE_COPY] = copy_row,   [PAL_DEVICE_ADD] = add_row,
                                    [PAL_DEVICE_RELU2] = relu2_row, [PAL_DEVICE_RELU2_BACKWARD] = relu2_backward_row };
    PAL_ON_DEVICE(cx, elementwise, kind, a);
    elementwise_job job = { a, rows[kind] };
    pal_parallel_ranges(cx, a->rows, pal_row_grain((size_t)a->width), elementwise_task, &job);
}

void pal_scale_rows(const pal_context *cx, const pal_elementwise_args *a) { run(cx, a, PAL_DEVICE_SCALE); }
void pal_multiply_rows(const pal_context *cx, const pal_elementwise_args *a) { run(cx, a, PAL_DEVICE_MULTIPLY); }
void pal_copy_rows(const pal_context *cx, const pal_elementwise_args *a) { run(cx, a, PAL_DEVICE_COPY); }
void pal_add_rows(const pal_context *cx, const pal_elementwise_args *a) { run(cx, a, PAL_DEVICE_ADD); }
void pal_relu2(const pal_context *cx, const pal_elementwise_args *a) { run(cx, a, PAL_DEVICE_RELU2); }
void pal_relu2_backward(const pal_context *cx, const pal_elementwise_args *a) { run(cx, a, PAL_DEVICE_RELU2_BACKWARD); }
