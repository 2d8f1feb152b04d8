/* SPDX-License-Identifier: MIT */
/* Forward: one task per sequence and strip of channels. Backward: one per block of tokens and strip, with partial sums
 * for the gradients of taps and bias. */
#include "kernels/conv/conv.h"

#include <assert.h>
#include <string.h>

#include "base/device.h"
#include "base/parallel.h"

PAL_CONV_KERNELS(PAL_VARIANTS)

static int tokens_of(const pal_conv_args *a) { return pal_sequence_begin(a->cu_seqlens, a->sequences); }
static int strips_of(const pal_conv_args *a) { return (a->channels + PAL_CONV_STRIP - 1) / PAL_CONV_STRIP; }
static int strip_end(const pal_conv_args *a, int begin) {
    return a->channels - begin < PAL_CONV_STRIP ? a->channels : begin + PAL_CONV_STRIP;
}

void pal_conv_next_window(const pal_conv_args *a, int sequence, int begin, int end, float *next) {
    const int past = a->taps - 1, from = pal_sequence_begin(a->cu_seqlens, sequence);
    const int length = pal_sequence_begin(a->cu_seqlens, sequence + 1) - from;
    const size_t n = (size_t)(end - begin), bytes = n * sizeof *next;
    for (int i = 0; i < past; i++, next += n) {
        const int t = length - past + i; /* token of this sequence; negative: in the old window */
        if (t >= 0) memcpy(next, pal_row_in(a->x, (size_t)from + (size_t)t) + begin, bytes);
        else if (a->fresh) memset(next, 0, bytes);
        else memcpy(next, a->window[sequence] + (size_t)(past + t) * (size_t)a->channels + begin, bytes);
    }
}

typedef struct {
    const pal_conv_args *a;
    pal_conv_strip_fn *strip;
} forward_job;

static void forward_task(void *arg, size_t first, size_t last, int thread) {
    (void)thread;
    const forward_job *job = arg;
    const pal_conv_args *a = job->a;
    const size_t strips = (size_t)strips_of(a), past = (size_t)(a->taps - 1);
    float next[(PAL_CONV_MAX_TAPS - 1) * PAL_CONV_STRIP];
    for (size_t item = first; item < last; item++) {
        const int sequence = (int)(item / strips), begin = (int)(item % strips) * PAL_CONV_STRIP,
                  end = strip_end(a, begin);
        const size_t n = (size_t)(end - begin);
        const bool leaves = a->window && !(a->borrowed && a->borrowed[sequence]);
        if (leaves) pal_conv_next_window(a, sequence, begin, end, next);
        job->strip(a, sequence, begin, end);
        for (size_t i = 0; i < past && leaves; i++)
            memcpy(a->window[sequence] + i * (size_t)a->channels + begin, next + i * n, n * sizeof *next);
    }
}

void pal_conv_silu(const pal_context *cx, const pal_conv_args *a) {
    assert(a->sequences >= 1 && a->channels >= 1 && a->taps >= 1 && a->taps <= PAL_CONV_MAX_TAPS && a->w && a->x.data &&
           a->y.data);
    PAL_ON_DEVICE(cx, conv_silu, a);
    forward_job job = { .a = a, .strip = PAL_PICK(cx, conv_strip) };
    const size_t items = (size_t)a->sequences * (size_t)strips_of(a);
    const size_t elements = (size_t)tokens_of(a) * (size_t)a->channels / items; /* of an item, on average */
    pal_parallel_ranges(cx, items, pal_row_grain(elements), forward_task, &job);
}

typedef struct {
    const pal_conv_args *a;
    pal_conv_backward_strip_fn *strip;
    float *partial; /* per block of tokens: dw (channels, taps), then dbias (channels) */
} backward_job;

static size_t sums_of(const pal_conv_args *a) { return (size_t)a->channels * (size_t)(a->taps + 1); }

static void backward_task(void *arg, size_t item, int thread) {
    (void)thread;
    const backward_job *job = arg;
    const pal_conv_args *a = job->a;
    const size_t strips = (size_t)strips_of(a), block = item / strips;
    const int rows = (int)pal_sum_rows(1), first = (int)block * rows, begin = (int)(item % strips) * PAL_CONV_STRIP;
    const int last = tokens_of(a) - first < rows ? tokens_of(a) : first + rows;
    float *dw = job->partial + block * sums_of(a);
    job->strip(a, first, last, begin, strip_end(a, begin), dw, dw + (size_t)a->channels * (size_t)a->taps);
}

size_t pal_conv_silu_scratch_floats(const pal_conv_args *a) {
    return pal_sum_blocks((size_t)tokens_of(a), 1) * sums_of(a);
}

void pal_conv_silu_backward(const pal_context *cx, const pal_conv_args *a, float *scratch) {
    assert(a->sequences >= 1 && a->channels >= 1 && a->taps >= 1 && a->taps <= PAL_CONV_MAX_TAPS && scratch);
    assert(a->w && a->x.data && a->dy.data && a->dx.data);
    backward_job job = { .a = a, .strip = PAL_PICK(cx, conv_backward_strip), .partial = scratch };
    const size_t blocks = pal_sum_blocks((size_t)tokens_of(a), 1), taps = (size_t)a->channels * (size_t)a->taps;
    pal_parallel_for(cx, blocks * (size_t)strips_of(a), backward_task, &job);
    if (a->dw) pal_sum_partials(cx, a->dw, taps, scratch, sums_of(a), blocks);
    if (a->dbias) pal_sum_partials(cx, a->dbias, (size_t)a->channels, scratch + taps, sums_of(a), blocks);
}
