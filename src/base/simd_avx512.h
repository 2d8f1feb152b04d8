/* SPDX-License-Identifier: MIT */
/* Vectors of 16 floats, the same names as simd_avx2.h. With PAL_WIDE_EMULATION the same names stand on portable
 * vectors: slow, but the 16-wide kernel bodies can then be tested (and sanitized) on a machine without AVX-512. */
#ifndef PAL_BASE_SIMD_AVX512_H
#define PAL_BASE_SIMD_AVX512_H

#include <immintrin.h>

#include "base/half.h"

#define PAL_W         16
#define PAL_REGISTERS 32
#define PAL_ISA(name) name##_avx512
#define PAL_INLINE    static inline __attribute__((always_inline))

typedef int vi __attribute__((vector_size(64), may_alias));

#ifndef PAL_WIDE_EMULATION

typedef __m512 vf;

PAL_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
PAL_INLINE vf vf_set1(float x) { return _mm512_set1_ps(x); }
PAL_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
PAL_INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
PAL_INLINE vf vf_load_f16(const unsigned short *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
PAL_INLINE vf vf_load_bf16(const unsigned short *p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

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

typedef struct {
    __m512d low, high;
} vd;
PAL_INLINE vd vd_zero(void) { return (vd){ _mm512_setzero_pd(), _mm512_setzero_pd() }; }
PAL_INLINE vd vd_widen(vf x) {
    return (vd){ _mm512_cvtps_pd(_mm512_castps512_ps256(x)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)) };
}
PAL_INLINE vd vd_fma(vd a, vd b, vd c) {
    return (vd){ _mm512_fmadd_pd(a.low, b.low, c.low), _mm512_fmadd_pd(a.high, b.high, c.high) };
}
PAL_INLINE vd vd_add(vd a, vd b) { return (vd){ _mm512_add_pd(a.low, b.low), _mm512_add_pd(a.high, b.high) }; }
PAL_INLINE double vd_sum(vd x) { return _mm512_reduce_add_pd(_mm512_add_pd(x.low, x.high)); }

PAL_INLINE void vf_transpose(vf x[PAL_W]) {
    __m512 a[16], b[16];
    for (int j = 0; j < 16; j += 2) {
        a[j] = _mm512_unpacklo_ps(x[j], x[j + 1]);
        a[j + 1] = _mm512_unpackhi_ps(x[j], x[j + 1]);
    }
    for (int j = 0; j < 16; j += 4) {
        b[j] = _mm512_shuffle_ps(a[j], a[j + 2], 0x44);
        b[j + 1] = _mm512_shuffle_ps(a[j], a[j + 2], 0xee);
        b[j + 2] = _mm512_shuffle_ps(a[j + 1], a[j + 3], 0x44);
        b[j + 3] = _mm512_shuffle_ps(a[j + 1], a[j + 3], 0xee);
    }
    for (int j = 0; j < 4; j++) { /* b[j + 4r] holds columns j, j+4, j+8, j+12 of rows 4r .. 4r+3 */
        const __m512 even01 = _mm512_shuffle_f32x4(b[j], b[j + 4], 0x88),
                     odd01 = _mm512_shuffle_f32x4(b[j], b[j + 4], 0xdd);
        const __m512 even23 = _mm512_shuffle_f32x4(b[j + 8], b[j + 12], 0x88),
                     odd23 = _mm512_shuffle_f32x4(b[j + 8], b[j + 12], 0xdd);
        x[j] = _mm512_shuffle_f32x4(even01, even23, 0x88);
        x[j + 4] = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
        x[j + 8] = _mm512_shuffle_f32x4(even01, even23, 0xdd);
        x[j + 12] = _mm512_shuffle_f32x4(odd01, odd23, 0xdd);
    }
}

/* x, but as a number of which the compiler knows nothing. */
PAL_INLINE vf vf_hide(vf x) {
    __asm__ volatile("" : "+v"(x));
    return x;
}

/* out[0..3] += the sums of a, b, c and d. */
PAL_INLINE void vf_add_sums4(float *out, vf a, vf b, vf c, vf d) {
    const vf ab = _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, a, b), _mm512_shuffle_ps(a, b, _MM_SHUFFLE(1, 0, 3, 2)));
    const vf cd = _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, c, d), _mm512_shuffle_ps(c, d, _MM_SHUFFLE(1, 0, 3, 2)));
    const vf x = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)),
                               _mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
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
PAL_INLINE vf vf_load_f16(const unsigned short *p) {
    vf x;
    for (int i = 0; i < PAL_W; i++) x[i] = pal_f16_to_f32(p[i]);
    return x;
}
PAL_INLINE vf vf_load_bf16(const unsigned short *p) {
    vf x;
    for (int i = 0; i < PAL_W; i++) x[i] = pal_bf16_to_f32(p[i]);
    return x;
}

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
PAL_INLINE void vf_add_sums4(float *to, vf a, vf b, vf c, vf d) {
    to[0] += vf_sum(a);
    to[1] += vf_sum(b);
    to[2] += vf_sum(c);
    to[3] += vf_sum(d);
}
PAL_INLINE void vf_transpose(vf x[PAL_W]) {
    for (int i = 0; i < PAL_W; i++)
        for (int j = 0; j < i; j++) {
            const float kept = x[i][j];
            x[i][j] = x[j][i];
            x[j][i] = kept;
        }
}

typedef struct {
    double lane[PAL_W];
} vd;
PAL_INLINE vd vd_zero(void) { return (vd){ { 0 } }; }
PAL_INLINE vd vd_widen(vf x) {
    vd wide;
    for (int i = 0; i < PAL_W; i++) wide.lane[i] = (double)x[i];
    return wide;
}
PAL_INLINE vd vd_fma(vd a, vd b, vd c) {
    for (int i = 0; i < PAL_W; i++) c.lane[i] = __builtin_fma(a.lane[i], b.lane[i], c.lane[i]);
    return c;
}
PAL_INLINE vd vd_add(vd a, vd b) {
    for (int i = 0; i < PAL_W; i++) a.lane[i] += b.lane[i];
    return a;
}
PAL_INLINE double vd_sum(vd x) {
    for (int half = PAL_W / 2; half; half /= 2)
        for (int i = 0; i < half; i++) x.lane[i] += x.lane[i + half];
    return x.lane[0];
}

PAL_INLINE vf vf_hide(vf x) {
    __asm__ volatile("" : "+m"(x));
    return x;
}
#endif

#include "base/simd_math.h"

#endif
