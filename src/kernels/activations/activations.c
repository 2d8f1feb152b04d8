/* SPDX-License-Identifier: MIT */
/* Rows over threads, and the lists of variants. */
#include "kernels/activations/activations.h"

#include <assert.h>

#include "base/device.h"
#include "base/parallel.h"

PAL_ACTIVATION_KERNELS(PAL_VARIANTS)

PAL_OVER_ROWS(activate, pal_activation_args, pal_activate_rows_fn)

typedef struct {
    const pal_activation_args *a;
    pal_activate_backward_rows_fn *rows;
    float *partial;
} activate_backward_job;

static void activate_backward_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const activate_backward_job *job = arg;
    job->rows(job->a, begin, end, pal_sum_block(job->partial, begin, 1, (size_t)job->a->width));
}

void pal_activate(const pal_context *cx, const pal_activation_args *a) {
    assert(a->width >= 1 && a->x.data && a->y.data);
    PAL_ON_DEVICE(cx, activate, a);
    activate_over_rows(cx, a, PAL_PICK(cx, activate_rows), (size_t)a->width);
}

size_t pal_activate_scratch_floats(const pal_activation_args *a) {
    return pal_sum_blocks(a->rows, 1) * (size_t)a->width;
}

void pal_activate_backward(const pal_context *cx, const pal_activation_args *a, float *scratch) {
    assert(a->width >= 1 && a->dy.data && a->dx.data && (a->kind == PAL_SILU ? a->x.data : a->y.data) &&
           (!a->dbias || scratch));
    activate_backward_job job = { .a = a,
                                  .rows = PAL_PICK(cx, activate_backward_rows),
                                  .partial = a->dbias ? scratch : NULL };
    pal_parallel_ranges(cx, a->rows, pal_sum_rows(1), activate_backward_task, &job);
    if (a->dbias)
        pal_sum_partials(cx, a->dbias, (size_t)a->width, scratch, (size_t)a->width, pal_sum_blocks(a->rows, 1));
}

PAL_OVER_ROWS(swiglu, pal_swiglu_args, pal_swiglu_rows_fn) /* forward and backward have the same form */

void pal_swiglu(const pal_context *cx, const pal_swiglu_args *a) {
    assert(a->width >= 1 && a->gate.data && a->up.data && a->y.data);
    PAL_ON_DEVICE(cx, swiglu, a);
    swiglu_over_rows(cx, a, PAL_PICK(cx, swiglu_rows), (size_t)a->width);
}

void pal_swiglu_backward(const pal_context *cx, const pal_swiglu_args *a) {
    assert(a->width >= 1 && a->gate.data && a->up.data && a->dy.data && a->dgate.data && a->dup.data);
    swiglu_over_rows(cx, a, PAL_PICK(cx, swiglu_backward_rows), (size_t)a->width);
}

PAL_OVER_ROWS(head, pal_head_gate_args, pal_head_gate_rows_fn)

typedef struct {
    const pal_head_gate_args *a;
    pal_head_gate_backward_rows_fn *rows;
    float *partial; /* per block: dc, then dD */
} head_backward_job;

static void head_backward_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const head_backward_job *job = arg;
    const size_t heads = (size_t)job->a->heads;
    float *partial = pal_sum_block(job->partial, begin, 1, 2 * heads);
    job->rows(job->a, begin, end, job->a->dc && job->a->db.data ? partial : NULL,
              job->a->dD && job->a->d_o.data ? partial + heads : NULL);
}

void pal_head_gate(const pal_context *cx, const pal_head_gate_args *a) {
    assert(a->heads >= 1 && a->width >= 1 && a->x.data && a->s.data && a->v.data &&
           (!a->b.data || (a->pre.data && a->c)));
    PAL_ON_DEVICE(cx, head_gate, a);
    head_over_rows(cx, a, PAL_PICK(cx, head_gate_rows), (size_t)a->heads * (size_t)a->width);
}

void pal_head_skip(const pal_context *cx, const pal_head_gate_args *a) {
    assert(a->heads >= 1 && a->width >= 1 && a->x.data && a->o.data && a->D);
    PAL_ON_DEVICE(cx, head_skip, a);
    head_over_rows(cx, a, PAL_PICK(cx, head_skip_rows), (size_t)a->heads * (size_t)a->width);
}

size_t pal_head_gate_scratch_floats(const pal_head_gate_args *a) {
    return 2 * pal_sum_blocks(a->rows, 1) * (size_t)a->heads;
}

void pal_head_gate_backward(const pal_context *cx, const pal_head_gate_args *a, float *scratch) {
    assert(a->heads >= 1 && a->width >= 1 && a->x.data && a->s.data && a->dv.data && a->dx.data && a->ds.data &&
           scratch);
    assert((!a->db.data || (a->pre.data && a->dpre.data && a->c)) && (!a->d_o.data || a->D));
    const size_t heads = (size_t)a->heads, blocks = pal_sum_blocks(a->rows, 1);
    head_backward_job job = { .a = a, .rows = PAL_PICK(cx, head_gate_backward_rows), .partial = scratch };
    pal_parallel_ranges(cx, a->rows, pal_sum_rows(1), head_backward_task, &job);
    if (a->dc && a->db.data) pal_sum_partials(cx, a->dc, heads, scratch, 2 * heads, blocks);
    if (a->dD && a->d_o.data) pal_sum_partials(cx, a->dD, heads, scratch + heads, 2 * heads, blocks);
}
