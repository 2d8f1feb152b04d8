/* SPDX-License-Identifier: MIT */
#include "base/simd_avx2.h"
#include "kernels/product/product.h"

typedef __m256i vw;
PAL_INLINE vw vw_zero(void) { return _mm256_setzero_si256(); }
PAL_INLINE vw vw_load(const int16_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
PAL_INLINE vw vw_pair(const int16_t *p) {
    int both;
    __builtin_memcpy(&both, p, sizeof both);
    return _mm256_set1_epi32(both);
}
PAL_INLINE vw vw_dot(vw start, vw w, vw x) { return _mm256_add_epi32(start, _mm256_madd_epi16(w, x)); }
PAL_INLINE vw vw_hide(vw x) {
    __asm__ volatile("" : "+x"(x));
    return x;
}
PAL_INLINE vf vw_floats(vw x) { return _mm256_cvtepi32_ps(x); }

#include "kernels/product/product_blocks.inc"
