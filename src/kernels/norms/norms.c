/* SPDX-License-Identifier: MIT */
/* Rows over threads, and the lists of variants. */
#include "kernels/norms/norms.h"

#include <assert.h>

#include "base/device.h"
#include "base/parallel.h"

PAL_NORM_KERNELS(PAL_VARIANTS)

static size_t rmsnorm_weights(const pal_rmsnorm_args *a) {
    return (size_t)a->width * (size_t)(a->shared_weight ? 1 : a->groups);
}
static size_t rmsnorm_terms(const pal_rmsnorm_args *a) { return (size_t)(a->shared_weight ? a->groups : 1); }

PAL_OVER_ROWS(rmsnorm, pal_rmsnorm_args, pal_rmsnorm_rows_fn)

typedef struct {
    const pal_rmsnorm_args *a;
    pal_rmsnorm_backward_rows_fn *rows;
    float *partial; /* NULL: no gradient of the weight */
} rmsnorm_backward_job;

static void rmsnorm_backward_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const rmsnorm_backward_job *job = arg;
    job->rows(job->a, begin, end, pal_sum_block(job->partial, begin, rmsnorm_terms(job->a), rmsnorm_weights(job->a)));
}

void pal_rmsnorm(const pal_context *cx, const pal_rmsnorm_args *a) {
    assert(a->groups >= 1 && a->width >= 1 && a->x.data && a->y.data && a->w && (!a->gate || a->z.data));
    PAL_ON_DEVICE(cx, rmsnorm, a);
    rmsnorm_over_rows(cx, a, PAL_PICK(cx, rmsnorm_rows), (size_t)a->groups * (size_t)a->width);
}

size_t pal_rmsnorm_scratch_floats(const pal_rmsnorm_args *a) {
    return pal_sum_blocks(a->rows, rmsnorm_terms(a)) * rmsnorm_weights(a);
}

void pal_rmsnorm_backward(const pal_context *cx, const pal_rmsnorm_args *a, float *scratch) {
    assert(a->groups >= 1 && a->width >= 1 && a->dy.data && a->dx.data && (!a->gate || a->dz.data) &&
           (!a->dw || scratch));
    rmsnorm_backward_job job = { .a = a,
                                 .rows = PAL_PICK(cx, rmsnorm_backward_rows),
                                 .partial = a->dw ? scratch : NULL };
    pal_parallel_ranges(cx, a->rows, pal_sum_rows(rmsnorm_terms(a)), rmsnorm_backward_task, &job);
    const size_t blocks = pal_sum_blocks(a->rows, rmsnorm_terms(a));
    if (a->dw) pal_sum_partials(cx, a->dw, rmsnorm_weights(a), scratch, rmsnorm_weights(a), blocks);
}

PAL_OVER_ROWS(layernorm, pal_layernorm_args, pal_layernorm_rows_fn)

typedef struct {
    const pal_layernorm_args *a;
    pal_layernorm_backward_rows_fn *rows;
    float *partial; /* per block: dw, then db */
} layernorm_backward_job;

static void layernorm_backward_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const layernorm_backward_job *job = arg;
    const size_t width = (size_t)job->a->width;
    float *partial = pal_sum_block(job->partial, begin, 1, 2 * width);
    job->rows(job->a, begin, end, job->a->dw ? partial : NULL, job->a->db ? partial + width : NULL);
}

void pal_layernorm(const pal_context *cx, const pal_layernorm_args *a) {
    assert(a->width >= 1 && a->x.data && a->y.data && a->w && a->b);
    PAL_ON_DEVICE(cx, layernorm, a);
    layernorm_over_rows(cx, a, PAL_PICK(cx, layernorm_rows), (size_t)a->width);
}

size_t pal_layernorm_scratch_floats(const pal_layernorm_args *a) {
    return 2 * pal_sum_blocks(a->rows, 1) * (size_t)a->width;
}

void pal_layernorm_backward(const pal_context *cx, const pal_layernorm_args *a, float *scratch) {
    assert(a->width >= 1 && a->dy.data && a->dx.data && scratch);
    const size_t width = (size_t)a->width, blocks = pal_sum_blocks(a->rows, 1);
    layernorm_backward_job job = { .a = a, .rows = PAL_PICK(cx, layernorm_backward_rows), .partial = scratch };
    pal_parallel_ranges(cx, a->rows, pal_sum_rows(1), layernorm_backward_task, &job);
    if (a->dw) pal_sum_partials(cx, a->dw, width, scratch, 2 * width, blocks);
    if (a->db) pal_sum_partials(cx, a->db, width, scratch + width, 2 * width, blocks);
}

PAL_OVER_ROWS(l2norm, pal_l2norm_args, pal_l2norm_rows_fn) /* forward and backward have the same form */

void pal_l2norm(const pal_context *cx, const pal_l2norm_args *a) {
    assert(a->groups >= 1 && a->width >= 1 && a->x.data && a->y.data);
    PAL_ON_DEVICE(cx, l2norm, a);
    l2norm_over_rows(cx, a, PAL_PICK(cx, l2norm_rows), (size_t)a->groups * (size_t)a->width);
}

void pal_l2norm_backward(const pal_context *cx, const pal_l2norm_args *a) {
    assert(a->groups >= 1 && a->width >= 1 && a->x.data && a->dy.data && a->dx.data);
    l2norm_over_rows(cx, a, PAL_PICK(cx, l2norm_backward_rows), (size_t)a->groups * (size_t)a->width);
}
