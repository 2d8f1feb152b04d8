/* SPDX-License-Identifier: MIT */
/* Products, sums, copies and squares of rows. Each number comes from at most a few exact operations on one place, so
 * one plain loop, which compilers turn into vectors, gives the same bits on every processor. An output may be the same
 * rows as any input. NaN in gives NaN out. */
#ifndef PAL_KERNELS_ELEMENTWISE_H
#define PAL_KERNELS_ELEMENTWISE_H

#include "kernels/rows.h"

typedef struct pal_elementwise_args {
    size_t rows;
    int width;
    float factor;
    pal_const_view x, by;
    pal_view y;
} pal_elementwise_args;

void pal_scale_rows(const pal_context *cx, const pal_elementwise_args *a);    /* y = factor x */
void pal_multiply_rows(const pal_context *cx, const pal_elementwise_args *a); /* y = x by */
void pal_copy_rows(const pal_context *cx, const pal_elementwise_args *a);     /* y = x */
void pal_add_rows(const pal_context *cx, const pal_elementwise_args *a);      /* y = x + by */
void pal_relu2(const pal_context *cx, const pal_elementwise_args *a);         /* y = max(x, 0)^2 */
/* y = 2 max(x, 0) by, where `by` is the gradient of relu2(x). */
void pal_relu2_backward(const pal_context *cx, const pal_elementwise_args *a);

#endif
