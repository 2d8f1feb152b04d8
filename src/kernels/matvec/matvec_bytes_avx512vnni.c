/* SPDX-License-Identifier: MIT */
/* Bytes multiplied by AVX512-VNNI, four at once and without an intermediate result. One factor is unsigned: w + 128,
 * and 128 times the sum of x is where the sum starts. Vectors have 32 bytes as for AVX2: a block is one. */
#include <immintrin.h>

#include "kernels/matvec/matvec.h"

#define PAL_ISA(name) name##_avx512vnni
#define PAL_INLINE    static inline __attribute__((always_inline))

PAL_INLINE __m256i dot_of(__m256i u, __m256i x, __m256i start) {
#ifdef PAL_WIDE_EMULATION
    unsigned char us[32];
    signed char xs[32];
    int sums[8];
    _mm256_storeu_si256((__m256i *)(void *)us, u);
    _mm256_storeu_si256((__m256i *)(void *)xs, x);
    _mm256_storeu_si256((__m256i *)(void *)sums, start);
    for (int i = 0; i < 32; i++) sums[i / 4] += us[i] * xs[i];
    return _mm256_loadu_si256((const __m256i *)(const void *)sums);
#else
    return _mm256_dpbusd_epi32(start, u, x);
#endif
}

typedef __m256i signed_bytes;
PAL_INLINE signed_bytes signed_bytes_of(__m256i w) { return _mm256_xor_si256(w, _mm256_set1_epi8(-128)); }
PAL_INLINE __m256i dot_signed(signed_bytes w, __m256i x, const int *starts) {
    return dot_of(w, x, _mm256_loadu_si256((const __m256i *)(const void *)starts));
}

#include "kernels/matvec/matvec_bytes.inc"
