/* SPDX-License-Identifier: MIT */
/* Vectors of 8 floats. Included only by *_avx2.c files, which alone are compiled for AVX2. simd_avx512.h and
 * simd_neon.h offer the same names with 16 and 4 floats, so a kernel body (*.inc) is written once for all of them.
 * Everything is static inline: no copy of an ISA function can reach code that runs on an older processor. */
#ifndef PAL_BASE_SIMD_AVX2_H
#define PAL_BASE_SIMD_AVX2_H

#include <immintrin.h>

#define PAL_W         8  /* floats in a vector */
#define PAL_REGISTERS 16 /* vector registers: decides tile sizes */
#define PAL_ISA(name) name##_avx2
#define PAL_INLINE    static inline __attribute__((always_inline))

typedef __m256 vf; /* + - * / work on it */
typedef int vi __attribute__((vector_size(32), may_alias));

PAL_INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
PAL_INLINE vf vf_set1(float x) { return _mm256_set1_ps(x); }
PAL_INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
PAL_INLINE void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
/* PAL_W numbers of 16 bits. */
PAL_INLINE vf vf_load_f16(const unsigned short *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
PAL_INLINE vf vf_load_bf16(const unsigned short *p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

/* The first n lanes, 0 <= n <= PAL_W; others read as zero and are not touched in memory. */
PAL_INLINE __m256i vf_lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
PAL_INLINE vf vf_load_n(const float *p, int n) { return _mm256_maskload_ps(p, vf_lanes(n)); }
PAL_INLINE void vf_store_n(float *p, int n, vf x) { _mm256_maskstore_ps(p, vf_lanes(n), x); }
/* Lanes below n from x, the others from other. */
PAL_INLINE vf vf_keep_n(int n, vf x, vf other) { return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(vf_lanes(n))); }

PAL_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }   /* ab + c */
PAL_INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); } /* c - ab */
PAL_INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
PAL_INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
PAL_INLINE vf vf_sqrt(vf a) { return _mm256_sqrt_ps(a); }

/* 1/x for normal x, about 1.5 units in the last place: estimate and one Newton step. Not for 0, inf or NaN. */
PAL_INLINE vf vf_rcp(vf x) {
    const vf r = _mm256_rcp_ps(x);
    return vf_fma(r, vf_fnma(x, r, vf_set1(1.0f)), r);
}

PAL_INLINE float vf_sum(vf x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
PAL_INLINE float vf_maximum(vf x) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* PAL_W doubles, for long sums of floats. */
typedef struct {
    __m256d low, high;
} vd;
PAL_INLINE vd vd_zero(void) { return (vd){ _mm256_setzero_pd(), _mm256_setzero_pd() }; }
PAL_INLINE vd vd_widen(vf x) {
    return (vd){ _mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)) };
}
PAL_INLINE vd vd_fma(vd a, vd b, vd c) { /* ab + c */
    return (vd){ _mm256_fmadd_pd(a.low, b.low, c.low), _mm256_fmadd_pd(a.high, b.high, c.high) };
}
PAL_INLINE vd vd_add(vd a, vd b) { return (vd){ _mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high) }; }
PAL_INLINE double vd_sum(vd x) {
    const __m256d both = _mm256_add_pd(x.low, x.high);
    const __m128d s = _mm_add_pd(_mm256_castpd256_pd128(both), _mm256_extractf128_pd(both, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

/* A square of PAL_W vectors: lane i of x[j] and lane j of x[i] change places. */
PAL_INLINE void vf_transpose(vf x[PAL_W]) {
    __m256 a[8], b[8];
    for (int j = 0; j < 8; j += 2) {
        a[j] = _mm256_unpacklo_ps(x[j], x[j + 1]);
        a[j + 1] = _mm256_unpackhi_ps(x[j], x[j + 1]);
    }
    for (int j = 0; j < 8; j += 4) {
        b[j] = _mm256_shuffle_ps(a[j], a[j + 2], 0x44);
        b[j + 1] = _mm256_shuffle_ps(a[j], a[j + 2], 0xee);
        b[j + 2] = _mm256_shuffle_ps(a[j + 1], a[j + 3], 0x44);
        b[j + 3] = _mm256_shuffle_ps(a[j + 1], a[j + 3], 0xee);
    }
    for (int j = 0; j < 4; j++) {
        x[j] = _mm256_permute2f128_ps(b[j], b[j + 4], 0x20);
        x[j + 4] = _mm256_permute2f128_ps(b[j], b[j + 4], 0x31);
    }
}

/* x, but as a number of which the compiler knows nothing. */
PAL_INLINE vf vf_hide(vf x) {
    __asm__ volatile("" : "+x"(x));
    return x;
}

/* out[0..3] += the sums of a, b, c and d. */
PAL_INLINE void vf_add_sums4(float *out, vf a, vf b, vf c, vf d) {
    const vf ab = _mm256_add_ps(_mm256_blend_ps(a, b, 0xcc), _mm256_shuffle_ps(a, b, _MM_SHUFFLE(1, 0, 3, 2)));
    const vf cd = _mm256_add_ps(_mm256_blend_ps(c, d, 0xcc), _mm256_shuffle_ps(c, d, _MM_SHUFFLE(1, 0, 3, 2)));
    const vf x = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)),
                               _mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
    const __m128 sum = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    _mm_storeu_ps(out, _mm_add_ps(_mm_loadu_ps(out), sum));
}

#include "base/simd_math.h"

#endif
