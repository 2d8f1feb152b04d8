/* SPDX-License-Identifier: MIT */
#include "kernels/loss/cross_entropy.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/device.h"
#include "base/parallel.h"

PAL_VARIANTS(cross_entropy_rows)

void pal_cross_entropy_rows_ref(const pal_cross_entropy_args *a, size_t begin, size_t end) {
    for (size_t t = begin; t < end; t++) {
        const float *x = pal_row_in(a->logits, t);
        float *dx = a->dlogits.data ? pal_row(a->dlogits, t) : NULL;
        const int label = a->labels[t];
        int best = 0;
        for (int j = 1; j < a->vocab; j++)
            if (x[j] > x[best]) best = j;
        if (a->argmax) a->argmax[t] = best;
        if (label == PAL_LABEL_IGNORED) {
            a->nll[t] = 0;
            if (dx) memset(dx, 0, (size_t)a->vocab * sizeof *dx);
            continue;
        }
        const double largest = (double)x[best];
        double sum = 0;
        for (int j = 0; j < a->vocab; j++) sum += exp((double)x[j] - largest);
        a->nll[t] = (float)(log(sum) + largest - (double)x[label]);
        for (int j = 0; j < a->vocab && dx; j++)
            dx[j] = (float)((double)a->scale * (exp((double)x[j] - largest) / sum - (j == label ? 1 : 0)));
    }
}

size_t pal_counted_labels(const int *labels, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += labels[i] != PAL_LABEL_IGNORED;
    return count;
}

typedef struct {
    const pal_cross_entropy_args *a;
    pal_cross_entropy_rows_fn *rows;
} loss_job;

static void loss_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const loss_job *job = arg;
    job->rows(job->a, begin, end);
}

double pal_cross_entropy(const pal_context *cx, const pal_cross_entropy_args *a) {
    assert(a->vocab >= 1 && a->logits.data && a->labels && a->nll);
    loss_job job = { .a = a, .rows = PAL_PICK(cx, cross_entropy_rows) };
    if (cx->device) cx->device->ops->cross_entropy(cx->device, a);
    else pal_parallel_ranges(cx, a->rows, pal_row_grain((size_t)a->vocab), loss_task, &job);
    double sum = 0;
    for (size_t t = 0; t < a->rows; t++) sum += (double)a->nll[t];
    return sum;
}
