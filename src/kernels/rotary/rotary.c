/* SPDX-License-Identifier: MIT */
#include "kernels/rotary/rotary.h"

#include <assert.h>
#include <math.h>

#include "base/device.h"
#include "base/parallel.h"

PAL_VARIANTS(rotary_token)

void pal_rotary_token_ref(int heads, int width, const float *table_row, float sign, const float *x, float *y) {
    const int half = width / 2;
    for (int h = 0; h < heads; h++, x += width, y += width)
        for (int m = 0; m < half; m++) {
            const double c = (double)table_row[m], s = (double)(sign * table_row[half + m]);
            const double x1 = (double)x[m], x2 = (double)x[half + m];
            y[m] = (float)(x1 * c - x2 * s);
            y[half + m] = (float)(x2 * c + x1 * s);
        }
}

typedef struct {
    float *table;
    int first, width;
    double theta;
} table_job;

static void table_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const table_job *job = arg;
    const int half = job->width / 2;
    for (size_t p = begin; p < end; p++) {
        float *row = job->table + p * (size_t)job->width;
        for (int m = 0; m < half; m++) {
            const double angle = ((double)job->first + (double)p) * pow(job->theta, -2.0 * m / job->width);
            row[m] = (float)cos(angle);
            row[half + m] = (float)sin(angle);
        }
    }
}

/* Angles need more digits than a device may have: rows are made here and sent there. */
static void send_table(pal_device *device, const table_job *job, int positions) {
    enum { FLOATS = 16384 };
    float rows[FLOATS];
    const int width = job->width, most = FLOATS / width;
    assert(most > 0);
    for (int p = 0; p < positions; p += most) {
        table_job piece = { .table = rows, .first = job->first + p, .width = width, .theta = job->theta };
        const size_t n = (size_t)(positions - p < most ? positions - p : most);
        table_task(&piece, 0, n, 0);
        device->ops->upload(device, job->table + (size_t)p * (size_t)width, rows, n * (size_t)width * sizeof *rows);
    }
}

void pal_rotary_table(const pal_context *cx, float *table, int first, int positions, int width, double theta) {
    assert(width >= 2 && width % 2 == 0 && positions >= 0);
    table_job job = { .table = table, .first = first, .width = width, .theta = theta };
    if (cx->device) send_table(cx->device, &job, positions);
    else pal_parallel_ranges(cx, (size_t)positions, 16, table_task, &job);
}

typedef struct {
    const pal_rotary_args *a;
    pal_rotary_token_fn *token;
    float sign;
    pal_const_view from;
    pal_view to;
} rotary_job;

static void rotary_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const rotary_job *job = arg;
    const pal_rotary_args *a = job->a;
    int n = pal_sequence_of(a->cu_seqlens, a->sequences, (int)begin);
    for (size_t t = begin; t < end; t++) {
        while ((int)t >= pal_sequence_begin(a->cu_seqlens, n + 1)) n++;
        const size_t position = t - (size_t)pal_sequence_begin(a->cu_seqlens, n) +
                                (size_t)(a->offsets ? a->offsets[n] : 0);
        const float *row = a->table + position * (size_t)a->width, *x = pal_row_in(job->from, t);
        float *y = pal_row(job->to, t);
        if (!a->stride || a->stride == a->width) job->token(a->heads, a->width, row, job->sign, x, y);
        else
            for (int h = 0; h < a->heads; h++, x += a->stride, y += a->stride)
                job->token(1, a->width, row, job->sign, x, y);
    }
}

static void rotate(const pal_context *cx, const pal_rotary_args *a, float sign, pal_const_view from, pal_view to) {
    assert(a->sequences >= 1 && a->heads >= 1 && a->width >= 2 && a->width % 2 == 0 && a->table && from.data &&
           to.data);
    PAL_ON_DEVICE(cx, rotary, a, sign, from, to);
    rotary_job job = { .a = a, .token = PAL_PICK(cx, rotary_token), .sign = sign, .from = from, .to = to };
    const size_t tokens = (size_t)pal_sequence_begin(a->cu_seqlens, a->sequences);
    pal_parallel_ranges(cx, tokens, pal_row_grain((size_t)a->heads * (size_t)a->width), rotary_task, &job);
}

void pal_rotary(const pal_context *cx, const pal_rotary_args *a) { rotate(cx, a, 1, a->x, a->y); }
void pal_rotary_backward(const pal_context *cx, const pal_rotary_args *a) { rotate(cx, a, -1, a->dy, a->dx); }
