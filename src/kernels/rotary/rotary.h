/* SPDX-License-Identifier: MIT */
/* Rotary positions, half split. The leading `width` channels of a head, (x1, x2) of two halves, turn by
 * angle = position * theta^(-2m/width):
 *
 *   y = (x1 cos - x2 sin, x2 cos + x1 sin),   m = 0 .. width/2-1
 *
 * Positions count from 0 in every packed sequence, plus an offset per sequence. Cosines and sines come from a table
 * (computed in double), made once for as many positions as will be met. y may be the same rows as x, dx as dy. */
#ifndef PAL_KERNELS_ROTARY_H
#define PAL_KERNELS_ROTARY_H

#include "kernels/rows.h"

/* Row p of the table: width/2 cosines, then width/2 sines, of position first + p. */
static inline size_t pal_rotary_table_floats(int positions, int width) { return (size_t)positions * (size_t)width; }
void pal_rotary_table(const pal_context *cx, float *table, int first, int positions, int width, double theta);

typedef struct pal_rotary_args {
    int sequences;
    const int *cu_seqlens; /* N+1; NULL: one token a sequence */
    const int *offsets;    /* N positions of the first tokens; NULL: 0 */
    int heads, width;      /* channels of a head that turn, an even number */
    int stride;            /* channels from head to head; 0: width */
    const float *table;    /* from position 0 on */
    pal_const_view x;
    pal_view y;

    pal_const_view dy; /* backward: dx = the rotation the other way round of dy */
    pal_view dx;
} pal_rotary_args;
void pal_rotary(const pal_context *cx, const pal_rotary_args *a);
void pal_rotary_backward(const pal_context *cx, const pal_rotary_args *a);

/* The kernel: all heads of one token; sign +1 forward, -1 backward. */
typedef void pal_rotary_token_fn(int heads, int width, const float *table_row, float sign, const float *x, float *y);
PAL_DECLARE_VARIANTS(rotary_token)

#endif
