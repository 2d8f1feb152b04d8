/* SPDX-License-Identifier: MIT */
/* What the vector bodies (*_simd.inc) of row kernels share. Included after one of the base/simd_*.h. */
#ifndef PAL_KERNELS_SIMD_ROWS_H
#define PAL_KERNELS_SIMD_ROWS_H

/* A whole vector, or only its first `left` lanes at the end of a row (the others read as zero, and are not written). */
PAL_INLINE vf vf_load_upto(const float *p, int left) { return left >= PAL_W ? vf_load(p) : vf_load_n(p, left); }
PAL_INLINE void vf_store_upto(float *p, int left, vf x) {
    if (left >= PAL_W) vf_store(p, x);
    else vf_store_n(p, left, x);
}

/* Asks for a line of the row that comes next while this one is computed. Any address is fine. */
PAL_INLINE void prefetch_read(const float *p) { __builtin_prefetch(p, 0, 3); }
PAL_INLINE void prefetch_write(const float *p) { __builtin_prefetch(p, 1, 3); }

/* y, but NaN where x is NaN, which alone differs from itself: vf_exp hides one. */
PAL_INLINE vf vf_nan_from(vf x, vf y) { return (vf)((vi)y | (vi)(x != x)); } /* NOLINT(misc-redundant-expression) */

PAL_INLINE vf vf_silu(vf x) { return x * vf_sigmoid(x); }
/* d silu(x)/dx from x and sig(x) */
PAL_INLINE vf vf_silu_slope(vf x, vf sig) { return sig * vf_fma(x, vf_set1(1.0f) - sig, vf_set1(1.0f)); }

/* log(1+e^x) = max(x,0) + log1p(e), e = e^-|x|;  log1p(e) = 2 atanh(t), t = e/(2+e) <= 1/3, by its series: no digit is
 * lost where e is small. */
PAL_INLINE vf vf_softplus(vf x) {
    const vf e = vf_exp(-vf_max(x, -x)), t = e / (e + vf_set1(2.0f)), tt = t * t;
    vf p = vf_set1(1.0f / 15);
    p = vf_fma(p, tt, vf_set1(1.0f / 13));
    p = vf_fma(p, tt, vf_set1(1.0f / 11));
    p = vf_fma(p, tt, vf_set1(1.0f / 9));
    p = vf_fma(p, tt, vf_set1(1.0f / 7));
    p = vf_fma(p, tt, vf_set1(1.0f / 5));
    p = vf_fma(p, tt, vf_set1(1.0f / 3));
    p = vf_fma(p, tt, vf_set1(1.0f));
    return vf_nan_from(x, vf_fma(t + t, p, vf_max(x, vf_zero())));
}

/* Slope of softplus from its value y >= 0: 1 - e^-y, all digits kept for small y. e^-y = 2^n (1 + q). */
PAL_INLINE vf vf_softplus_slope(vf y) {
    const vf magic = vf_set1(12582912.0f); /* as in vf_exp */
    const vf x = vf_max(-y, vf_set1(-88.0f));
    const vf shifted = vf_fma(x, vf_set1(1.44269504f), magic), n = shifted - magic;
    vf r = vf_fnma(n, vf_set1(0.693145752f), x);
    r = vf_fnma(n, vf_set1(1.42860677e-6f), r);
    vf p = vf_set1(1.38888889e-3f);
    p = vf_fma(p, r, vf_set1(8.33333333e-3f));
    p = vf_fma(p, r, vf_set1(4.16666667e-2f));
    p = vf_fma(p, r, vf_set1(1.66666667e-1f));
    p = vf_fma(p, r, vf_set1(0.5f));
    const vf q = vf_fma(p * r, r, r), power = (vf)(((vi)shifted - (vi)magic + 127) << 23);
    return vf_nan_from(y, vf_set1(1.0f) - power - power * q);
}

#endif
