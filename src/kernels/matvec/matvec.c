/* SPDX-License-Identifier: MIT */
#include "kernels/matvec/matvec.h"

#include "base/parallel.h"

PAL_VARIANTS(matvec_outputs)

void pal_matvec_outputs_ref(const pal_matvec_args *a, size_t begin, size_t end) {
    const size_t in = (size_t)a->in;
    for (size_t o = begin; o < end; o++)
        for (size_t r = 0; r < (size_t)a->rows; r++) {
            double sum = 0;
            for (size_t i = 0; i < in; i++) sum += (double)a->x[r * a->ldx + i] * (double)a->w[o * in + i];
            float *y = &a->y[r * a->ldy + o];
            *y = (float)(sum + (a->add ? (double)*y : 0));
        }
}

typedef struct {
    const pal_matvec_args *a;
    pal_matvec_outputs_fn *outputs;
} matvec_job;

static void matvec_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const matvec_job *job = arg;
    job->outputs(job->a, begin, end);
}

void pal_matvec(const pal_context *cx, const pal_matvec_args *a) {
    enum { TASK_FLOATS = 1 << 16 }; /* of w: streams long enough to be fetched ahead, tasks small enough to share out */
    matvec_job job = { .a = a, .outputs = PAL_PICK(cx, matvec_outputs) };
    size_t grain = (size_t)TASK_FLOATS / (size_t)a->in / 4 * 4;
    if (grain < 4) grain = 4;
    pal_parallel_ranges(cx, (size_t)a->out, grain, matvec_task, &job);
}
