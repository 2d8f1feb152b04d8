/* SPDX-License-Identifier: MIT */
/* Vector functions that need nothing but arithmetic; included at the end of simd_avx2.h, _avx512.h and _neon.h. */
#ifndef PAL_BASE_SIMD_MATH_H
#define PAL_BASE_SIMD_MATH_H

#include <stdbool.h>

/* Lane by lane a where the mask, a comparison's result, is set, and b elsewhere. */
PAL_INLINE vf vf_where(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }
PAL_INLINE bool vf_any(vi mask) { return vf_maximum(vf_where(mask, vf_set1(1.0f), vf_zero())) > 0; }

/* e^x within 2 units in the last place; 0 below -87.3, about 2.4e38 above 88.3. NaN gives a finite number: do not feed
 * it. */
PAL_INLINE vf vf_exp(vf x) {
    const vf magic = vf_set1(12582912.0f); /* 1.5 * 2^23: adding it leaves the rounded integer in the low bits */
    const vf clamped = vf_min(vf_max(x, vf_set1(-88.0f)), vf_set1(88.3f));
    const vf shifted = vf_fma(clamped, vf_set1(1.44269504f), magic);
    const vf n = shifted - magic;
    vf r = vf_fnma(n, vf_set1(0.693145752f), clamped); /* ln 2 in two parts */
    r = vf_fnma(n, vf_set1(1.42860677e-6f), r);
    vf p = vf_set1(1.38888889e-3f);
    p = vf_fma(p, r, vf_set1(8.33333333e-3f));
    p = vf_fma(p, r, vf_set1(4.16666667e-2f));
    p = vf_fma(p, r, vf_set1(1.66666667e-1f));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(p, r, vf_set1(1.0f));
    p = vf_fma(p, r, vf_set1(1.0f));
    const vi exponent = ((vi)shifted - (vi)magic + 127) << 23;
    const vi normal = (vi)(x > vf_set1(-87.3f));
    return (vf)((vi)(p * (vf)exponent) & normal);
}

/* 1/(1+e^-x). Exact division: the tails keep their relative accuracy. */
PAL_INLINE vf vf_sigmoid(vf x) { return vf_set1(1.0f) / (vf_set1(1.0f) + vf_exp(-x)); }

#endif
