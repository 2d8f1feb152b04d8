/* SPDX-License-Identifier: MIT */
#include "kernels/rows.h"

enum { SUM_CHUNK = 256 };

typedef struct {
    float *total;
    const float *partial;
    size_t stride, blocks;
} sum_job;

static void sum_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const sum_job *job = arg;
    double sum[SUM_CHUNK] = { 0 };
    for (size_t b = 0; b < job->blocks; b++)
        for (size_t i = begin; i < end; i++) sum[i - begin] += (double)job->partial[b * job->stride + i];
    for (size_t i = begin; i < end; i++) job->total[i] = (float)((double)job->total[i] + sum[i - begin]);
}

void pal_sum_partials(const pal_context *cx, float *total, size_t n, const float *partial, size_t stride,
                      size_t blocks) {
    sum_job job = { .total = total, .partial = partial, .stride = stride, .blocks = blocks };
    pal_parallel_ranges(cx, n, SUM_CHUNK, sum_task, &job);
}

int pal_sequence_of(const int *cu_seqlens, int sequences, int token) {
    if (!cu_seqlens) return token;
    int low = 0, high = sequences; /* cu_seqlens[low] <= token < cu_seqlens[high] */
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (cu_seqlens[middle] <= token) low = middle;
        else high = middle;
    }
    return low;
}
