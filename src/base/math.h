/* SPDX-License-Identifier: MIT */
/* Scalar functions written so that no argument overflows or loses digits. The vector versions live in simd_*.h. */
#ifndef PAL_BASE_MATH_H
#define PAL_BASE_MATH_H

#include <math.h>

static inline float pal_sigmoid(float x) {
    const float e = expf(-fabsf(x));
    return (x >= 0 ? 1.0f : e) / (1.0f + e);
}
static inline float pal_softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
static inline float pal_silu(float x) { return x * pal_sigmoid(x); }
/* d silu(x) / dx */
static inline float pal_silu_slope(float x) {
    const float s = pal_sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}
/* softplus(pal_softplus_inverse(y)) = y for y > 0 */
static inline double pal_softplus_inverse(double y) { return y + log(-expm1(-y)); }

#endif
