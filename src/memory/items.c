/* SPDX-License-Identifier: MIT */
#include "memory/items.h"

#include "base/parallel.h"

int pal_items_sequence(const pal_memory_shape *s, int length, size_t piece) {
    int low = 0, high = s->sequences;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (pal_items_first(s, length, middle) <= piece) low = middle;
        else high = middle;
    }
    return low;
}

typedef struct {
    const float *parts;
    int slots;
    size_t rows, channels;
    pal_view sum;
} sum_job;

static void sum_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const sum_job *job = arg;
    for (size_t t = begin; t < end; t++) {
        float *sum = job->sum.data + t * job->sum.stride;
        for (size_t c = 0; c < job->channels; c++) sum[c] = job->parts[t * job->channels + c];
        for (size_t slot = 1; slot < (size_t)job->slots; slot++) {
            const float *part = job->parts + (slot * job->rows + t) * job->channels;
            for (size_t c = 0; c < job->channels; c++) sum[c] += part[c];
        }
    }
}

void pal_items_sum(const pal_context *cx, const float *parts, int slots, int rows, int channels, pal_view sum) {
    sum_job job = { parts, slots, (size_t)rows, (size_t)channels, sum };
    pal_parallel_ranges(cx, job.rows, 64, sum_task, &job);
}
