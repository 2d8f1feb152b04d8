/* SPDX-License-Identifier: MIT */
/* The same with the instruction that multiplies and adds at once, which needs no 512 bits to pay: the same bits. */
#include <immintrin.h>

#include "kernels/matvec/matvec.h"

#define PAL_ISA(name) name##_avx512vnni
#define PAL_INLINE    static inline __attribute__((always_inline))

PAL_INLINE __m256i dot(__m256i start, __m256i w, __m256i x) {
#ifdef PAL_WIDE_EMULATION
    return _mm256_add_epi32(start, _mm256_madd_epi16(w, x));
#else
    return _mm256_dpwssd_epi32(start, w, x);
#endif
}

#include "kernels/matvec/matvec_blocks.inc"
