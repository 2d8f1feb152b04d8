/* SPDX-License-Identifier: MIT */
/* Bytes multiplied by AVX2, which wants one factor unsigned: the sign of w goes over to x. Two products fit 16 bits:
 * 128 * 127 * 2 < 2^15. */
#include "base/simd_avx2.h"
#include "kernels/matvec/matvec.h"

PAL_INLINE __m256i dot_of(__m256i u, __m256i x, __m256i start) {
    return _mm256_add_epi32(start, _mm256_madd_epi16(_mm256_maddubs_epi16(u, x), _mm256_set1_epi16(1)));
}

typedef struct {
    __m256i w, size;
} signed_bytes;
PAL_INLINE signed_bytes signed_bytes_of(__m256i w) { return (signed_bytes){ w, _mm256_abs_epi8(w) }; }
PAL_INLINE __m256i dot_signed(signed_bytes w, __m256i x, const int *starts) {
    (void)starts;
    return dot_of(w.size, _mm256_sign_epi8(x, w.w), _mm256_setzero_si256());
}

#include "kernels/matvec/matvec_bytes.inc"
