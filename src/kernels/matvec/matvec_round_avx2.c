/* SPDX-License-Identifier: MIT */
/* The same operations as the reference on 32 values at a time: the same bits. */
#include <float.h>
#include <math.h>

#include "base/simd_avx2.h"
#include "kernels/matvec/matvec.h"

PAL_INLINE __m256 sizes(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

PAL_INLINE void round_block(const float *x, const pal_rounded_rows *to, size_t block) {
    const __m256i ones = _mm256_set1_epi16(1), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256 v[4], most = _mm256_setzero_ps();
    int finite = 0xff;
    for (int i = 0; i < 4; i++) {
        v[i] = vf_load(x + 8 * i);
        most = vf_max(most, sizes(v[i]));
        finite &= _mm256_movemask_ps(_mm256_cmp_ps(sizes(v[i]), _mm256_set1_ps(FLT_MAX), _CMP_LE_OQ));
    }
    const float largest = vf_maximum(most);
    const bool any = finite == 0xff && largest > PAL_ROUNDED_ZERO;
    const float d = any ? largest * (1.0f / 127.0f) : finite == 0xff ? 0 : NAN;
    const __m256 inverse = _mm256_set1_ps(any ? 127.0f / largest : 0);
    __m256i q[4];
    for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, order);
    if (!any) bytes = _mm256_setzero_si256(); /* what is not finite converts to anything */
    const __m256i quads = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), ones);
    _mm256_storeu_si256((__m256i *)(void *)(to->q + 32 * block), bytes);
    const __m256i starts = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(quads, 7));
    _mm256_storeu_si256((__m256i *)(void *)(to->starts + 8 * block), starts);
    const __m256i pairs = _mm256_hadd_epi32(quads, quads), halves = _mm256_hadd_epi32(pairs, pairs);
    const int low = _mm256_extract_epi32(halves, 0), high = _mm256_extract_epi32(halves, 4);
    to->sums[block] = d * (float)(low + high);
    to->halves[2 * block] = d * (float)low;
    to->halves[2 * block + 1] = d * (float)high;
    to->d[block] = d;
}

void pal_matvec_round_avx2(const pal_matvec_args *a, const pal_rounded_rows *to, size_t begin, size_t end) {
    const size_t in = (size_t)a->w->columns;
    for (size_t first = begin, size; first < end; first += size) {
        size = pal_matvec_group((size_t)a->rows, first);
        for (size_t k = 0; k < size; k++)
            for (size_t b = 0; b < in / PAL_ROUNDED; b++)
                round_block(a->x + (first + k) * a->ldx + b * PAL_ROUNDED, to,
                            pal_matvec_place_of(a->w, first, size, k, b));
    }
}
