/* SPDX-License-Identifier: MIT */
/* AdamW over flat arrays, and the global norm that clips its gradients.
 *
 *   g' = factor g                        m += (1-beta1)(g' - m)        v += (1-beta2)(g'^2 - v)
 *   p  = p - lr wd p - lr mhat / (sqrt(vhat) + eps)        mhat = m/(1-beta1^step), vhat = v/(1-beta2^step)
 *
 * The gradient itself is not changed: the clip factor is applied on the way. Arrays do not overlap. Tensors with other
 * settings (no decay, frozen) are other calls. */
#ifndef PAL_KERNELS_ADAMW_H
#define PAL_KERNELS_ADAMW_H

#include <stddef.h>
#include <stdint.h>

#include "base/context.h"

typedef struct pal_adamw_step {
    double lr, beta1, beta2, eps, weight_decay;
    double factor; /* of the gradient: pal_clip_factor(), or 1 */
    int64_t step;  /* 1 for the first update */
} pal_adamw_step;
void pal_adamw(const pal_context *cx, const pal_adamw_step *s, float *p, float *m, float *v, const float *g, size_t n);
/* The same on bf16 numbers, kept in floats: parameters, gradients and moments are rounded after each operation, in the
 * order of torch's AdamW (foreach) on bf16 tensors. Small updates, the decay of a parameter and that of v round to
 * nothing. */
void pal_adamw_bf16(const pal_context *cx, const pal_adamw_step *s, float *p, float *m, float *v, const float *g,
                    size_t n);
/* Rounds n numbers to bf16, in place. */
void pal_round_bf16(float *x, size_t n);

/* Sum of squares in double, over blocks of fixed size added in order: the same bits for any number of threads. scratch
 * holds pal_sum_squares_blocks(n) doubles. Not finite if and only if an element is not (a finite sum cannot overflow).
 */
double pal_sum_squares(const pal_context *cx, const float *x, size_t n, double *scratch);
size_t pal_sum_squares_blocks(size_t n);
/* min(1, clip/(norm + 1e-6)); 1 when clip is 0 (no clipping). A step whose norm is not finite is to be skipped. */
double pal_clip_factor(double norm, double clip);

/* The kernels. */
typedef struct pal_adamw_coefficients {
    double to_m, to_v;   /* 1-beta1, 1-beta2 */
    double decay;        /* lr wd */
    double rate;         /* lr / (1-beta1^step) */
    double v_scale, eps; /* 1/sqrt(1-beta2^step) */
    double factor;
} pal_adamw_coefficients;
typedef void pal_adamw_range_fn(const pal_adamw_coefficients *k, float *p, float *m, float *v, const float *g,
                                size_t n);
typedef double pal_sum_squares_range_fn(const float *x, size_t n);
PAL_DECLARE_VARIANTS(adamw_range)
PAL_DECLARE_VARIANTS(sum_squares_range)

#endif
