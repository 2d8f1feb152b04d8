/* SPDX-License-Identifier: MIT */
/* Short causal depthwise convolution followed by SiLU, or with `linear` by nothing, over packed sequences:
 *
 *   u_t[c] = sum_{i<W} w[c,i] x_{t-(W-1)+i}[c] + bias[c],     y = silu(u) or u
 *
 * Tap W-1 meets the current token. Inputs before a sequence's first token are zero, or come from its window: the last
 * W-1 raw inputs (W-1, channels), oldest first, read at the start and updated for the next call. One token a time
 * through a window gives the same bits as the whole sequence at once.
 *
 * y may be the same rows as x (each channel then loses its raw inputs, so no backward can follow); otherwise they do
 * not overlap. Backward needs x, and the windows as forward found them, and takes u again; windows are constants to it.
 * dx overlaps nothing else. */
#ifndef PAL_KERNELS_CONV_H
#define PAL_KERNELS_CONV_H

#include <stdbool.h>

#include "kernels/rows.h"

enum { PAL_CONV_MAX_TAPS = 16 };

typedef struct pal_conv_args {
    int sequences;
    const int *cu_seqlens; /* N+1 numbers from 0, strictly increasing; NULL: one token a sequence, as in decoding */
    int channels, taps;    /* 1 <= taps <= PAL_CONV_MAX_TAPS */
    bool linear;           /* no SiLU */
    const float *w;        /* (channels, taps) */
    const float *bias;     /* (channels); NULL: none */
    pal_const_view x;
    pal_view y;
    float *const *window; /* N windows; NULL: start from zero and leave nothing */
    bool fresh;           /* start from zero whatever the windows hold */
    const bool *borrowed; /* (N) true: the window is only read; NULL: none */

    pal_const_view dy;          /* backward from here on; it does not look at window and fresh */
    const float *const *before; /* N windows; NULL, or one that is NULL: zeros */
    pal_view dx;
    float *dw, *dbias; /* added to; NULL: not wanted */
} pal_conv_args;

void pal_conv_silu(const pal_context *cx, const pal_conv_args *a);
void pal_conv_silu_backward(const pal_context *cx, const pal_conv_args *a, float *scratch);
size_t pal_conv_silu_scratch_floats(const pal_conv_args *a);

/* The kernels, for channels begin .. end-1. Forward takes one sequence, last token first, so that y may lie on
 * x. Backward takes tokens first .. last-1 of the packed batch and overwrites its own sums dw (channels, taps) and
 * dbias (channels) between begin and end. A kernel is never given more than PAL_CONV_STRIP channels. */
enum { PAL_CONV_STRIP = 128 };
typedef void pal_conv_strip_fn(const pal_conv_args *a, int sequence, int begin, int end);
typedef void pal_conv_backward_strip_fn(const pal_conv_args *a, int first, int last, int begin, int end, float *dw,
                                        float *dbias);
#define PAL_CONV_KERNELS(X) X(conv_strip) X(conv_backward_strip)
PAL_CONV_KERNELS(PAL_DECLARE_VARIANTS)

/* Puts the last W-1 raw inputs of (window, x) into `next` (W-1, end-begin). Called before y overwrites x. */
void pal_conv_next_window(const pal_conv_args *a, int sequence, int begin, int end, float *next);

#endif
