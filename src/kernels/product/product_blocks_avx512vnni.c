/* SPDX-License-Identifier: MIT */
/* 16 outputs to a vector, multiplied and added at once. */
#include "base/simd_avx512.h"
#include "kernels/product/product.h"

#undef PAL_ISA
#define PAL_ISA(name) name##_avx512vnni

#ifdef PAL_WIDE_EMULATION
typedef vi vw;
PAL_INLINE vw vw_zero(void) { return (vw){ 0 }; }
PAL_INLINE vw vw_load(const int16_t *p) {
    vw x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}
PAL_INLINE vw vw_pair(const int16_t *p) {
    int both;
    __builtin_memcpy(&both, p, sizeof both);
    return (vw){ 0 } + both;
}
PAL_INLINE vw vw_dot(vw start, vw w, vw x) {
    int16_t a[2 * PAL_W], b[2 * PAL_W];
    __builtin_memcpy(a, &w, sizeof a), __builtin_memcpy(b, &x, sizeof b);
    for (int i = 0; i < PAL_W; i++) start[i] += a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
    return start;
}
PAL_INLINE vw vw_hide(vw x) { return x; }
PAL_INLINE vf vw_floats(vw x) { return __builtin_convertvector(x, vf); }
#else
typedef __m512i vw;
PAL_INLINE vw vw_zero(void) { return _mm512_setzero_si512(); }
PAL_INLINE vw vw_load(const int16_t *p) { return _mm512_loadu_si512(p); }
PAL_INLINE vw vw_pair(const int16_t *p) {
    int both;
    __builtin_memcpy(&both, p, sizeof both);
    return _mm512_set1_epi32(both);
}
PAL_INLINE vw vw_dot(vw start, vw w, vw x) { return _mm512_dpwssd_epi32(start, w, x); }
PAL_INLINE vw vw_hide(vw x) {
    __asm__ volatile("" : "+v"(x));
    return x;
}
PAL_INLINE vf vw_floats(vw x) { return _mm512_cvtepi32_ps(x); }
#endif

#include "kernels/product/product_blocks.inc"
