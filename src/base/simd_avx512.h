/* SPDX-License-Identifier: MIT */
/* Vectors of 16 floats, the same names as simd_avx2.h. With PAL_WIDE_EMULATION the same names stand on portable vectors:
 * slow, but the 16-wide kernel bodies can then be tested (and sanitized) on a machine without AVX-512. */
#ifndef PAL_BASE_SIMD_AVX512_H
#define PAL_BASE_SIMD_AVX512_H

#include <immintrin.h>

#define PAL_W 16
#define PAL_REGISTERS 32
#define PAL_ISA(name) name##_avx512
#define PAL_INLINE static inline __attribute__((always_inline))

typedef int vi __attribute__((vector_size(64), may_alias));

#ifndef PAL_WIDE_EMULATION

typedef __m512 vf;

PAL_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
PAL_INLINE vf vf_set1(float x) { return _mm512_set1_ps(x); }
PAL_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
PAL_INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }

PAL_INLINE __mmask16 vf_lanes(int n) { return (__mmask16)((1u << n) - 1u); }
PAL_INLINE vf vf_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(vf_lanes(n), p); }
PAL_INLINE void vf_store_n(float *p, int n, vf x) { _mm512_mask_storeu_ps(p, vf_lanes(n), x); }
PAL_INLINE vf vf_keep_n(int n, vf x, vf other) { return _mm512_mask_blend_ps(vf_lanes(n), other, x); }

PAL_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
PAL_INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
PAL_INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
PAL_INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
PAL_INLINE vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }

PAL_INLINE vf vf_rcp(vf x) {
    const vf r = _mm512_rcp14_ps(x);
    return vf_fma(r, vf_fnma(x, r, vf_set1(1.0f)), r);
}

PAL_INLINE float vf_sum(vf x) { return _mm512_reduce_add_ps(x); }
PAL_INLINE float vf_maximum(vf x) { return _mm512_reduce_max_ps(x); }

/* x, but as a number of which the compiler knows nothing. */
PAL_INLINE vf vf_hide(vf x) {
    __asm__ volatile("" : "+v"(x));
    return x;
}

/* out[0..3] += the sums of a, b, c and d. */
PAL_INLINE void vf_add_sums4(float *out, vf a, vf b, vf c, vf d) {
    const vf ab = _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, a, b), _mm512_shuffle_ps(a, b, _MM_SHUFFLE(1, 0, 3, 2)));
    const vf cd = _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, c, d), _mm512_shuffle_ps(c, d, _MM_SHUFFLE(1, 0, 3, 2)));
    const vf x = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)), _mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 sum = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    _mm_storeu_ps(out, _mm_add_ps(_mm_loadu_ps(out), sum));
}

#else

typedef float vf __attribute__((vector_size(64), may_alias));

PAL_INLINE vf vf_zero(void) { return (vf){ 0 }; }
PAL_INLINE vf vf_set1(float x) { return (vf){ x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x }; }
PAL_INLINE vf vf_load(const float *p) {
    vf x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}
PAL_INLINE void vf_store(float *p, vf x) { __builtin_memcpy(p, &x, sizeof x); }

PAL_INLINE vf vf_load_n(const float *p, int n) {
    vf x = { 0 };
    for (int i = 0; i < n; i++) x[i] = p[i];
    return x;
}
PAL_INLINE void vf_store_n(float *p, int n, vf x) {
    for (int i = 0; i < n; i++) p[i] = x[i];
}
PAL_INLINE vf vf_keep_n(int n, vf x, vf other) {
    for (int i = 0; i < n; i++) other[i] = x[i];
    return other;
}

PAL_INLINE vf vf_fma(vf a, vf b, vf c) {
    for (int i = 0; i < PAL_W; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}
PAL_INLINE vf vf_fnma(vf a, vf b, vf c) { return vf_fma(-a, b, c); }
PAL_INLINE vf vf_max(vf a, vf b) {
    for (int i = 0; i < PAL_W; i++) a[i] = a[i] > b[i] ? a[i] : b[i];
    return a;
}
PAL_INLINE vf vf_min(vf a, vf b) {
    for (int i = 0; i < PAL_W; i++) a[i] = a[i] < b[i] ? a[i] : b[i];
    return a;
}
PAL_INLINE vf vf_sqrt(vf a) {
    for (int i = 0; i < PAL_W; i++) a[i] = __builtin_sqrtf(a[i]);
    return a;
}
PAL_INLINE vf vf_rcp(vf x) { return vf_set1(1.0f) / x; }

PAL_INLINE float vf_sum(vf x) {
    for (int half = PAL_W / 2; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}
PAL_INLINE float vf_maximum(vf x) {
    float m = x[0];
    for (int i = 1; i < PAL_W; i++) m = x[i] > m ? x[i] : m;
    return m;
}

PAL_INLINE vf vf_hide(vf x) {
    __asm__ volatile("" : "+m"(x));
    return x;
}
PAL_INLINE void vf_add_sums4(float *out, vf a, vf b, vf c, vf d) {
    out[0] += vf_sum(a);
    out[1] += vf_sum(b);
    out[2] += vf_sum(c);
    out[3] += vf_sum(d);
}

#endif

#include "base/simd_math.h"

#endif
