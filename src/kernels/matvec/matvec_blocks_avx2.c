/* SPDX-License-Identifier: MIT */
/* Blocks of w against rounded rows by AVX2. */
#include "base/simd_avx2.h"
#include "kernels/matvec/matvec.h"

PAL_INLINE __m256i dot(__m256i start, __m256i w, __m256i x) {
    return _mm256_add_epi32(start, _mm256_madd_epi16(w, x));
}

#include "kernels/matvec/matvec_blocks.inc"
