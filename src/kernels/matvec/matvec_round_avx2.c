/* SPDX-License-Identifier: MIT */
/* The same operations as the reference on 32 values at a time: the same bits. */
#include <float.h>
#include <math.h>

#include "base/simd_avx2.h"
#include "kernels/matvec/matvec.h"

PAL_INLINE __m256 sizes(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

PAL_INLINE void round_block(pal_dtype type, const float *x, const pal_rounded_rows *to, size_t block) {
    __m256 v[4], most = _mm256_setzero_ps();
    int finite = 0xff;
    for (int i = 0; i < 4; i++) {
        v[i] = vf_load(x + 8 * i);
        most = vf_max(most, sizes(v[i]));
        finite &= _mm256_movemask_ps(_mm256_cmp_ps(sizes(v[i]), _mm256_set1_ps(FLT_MAX), _CMP_LE_OQ));
    }
    const float largest = vf_maximum(most);
    const bool any = finite == 0xff && largest > PAL_ROUNDED_ZERO;
    const float d = any ? largest * (1.0f / PAL_ROUNDED_MOST) : finite == 0xff ? 0 : NAN;
    const __m256 inverse = _mm256_set1_ps(any ? PAL_ROUNDED_MOST / largest : 0);
    __m256i q[4];
    for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    if (!any) q[0] = q[1] = q[2] = q[3] = _mm256_setzero_si256(); /* what is not finite converts to anything */
    const __m256i eight = _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
    const __m256i swapped = _mm256_permute4x64_epi64(eight, _MM_SHUFFLE(1, 0, 3, 2));
    const __m256i pairs = _mm256_hadd_epi32(eight, swapped), sums = _mm256_hadd_epi32(pairs, pairs);
    to->sums[block] = d * (float)(_mm256_cvtsi256_si32(sums) + _mm256_extract_epi32(sums, 1));
    __m256i w0 = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[0], q[1]), _MM_SHUFFLE(3, 1, 2, 0));
    __m256i w1 = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[2], q[3]), _MM_SHUFFLE(3, 1, 2, 0));
    if (type == PAL_Q6_K) { /* pal_rounded_at() */
        const __m256i first = w0;
        w0 = _mm256_permute2x128_si256(first, w1, 0x20), w1 = _mm256_permute2x128_si256(first, w1, 0x31);
    }
    _mm256_storeu_si256((__m256i *)(void *)(to->q + 32 * block), w0);
    _mm256_storeu_si256((__m256i *)(void *)(to->q + 32 * block + 16), w1);
    to->d[block] = d;
}

void pal_matvec_round_avx2(const pal_matvec_args *a, const pal_rounded_rows *to, size_t begin, size_t end) {
    const size_t in = (size_t)a->w->columns;
    for (size_t first = begin, size; first < end; first += size) {
        size = pal_matvec_group((size_t)a->rows, first);
        for (size_t k = 0; k < size; k++)
            for (size_t b = 0; b < in / PAL_ROUNDED; b++)
                round_block(a->w->type, a->x + (first + k) * a->ldx + b * PAL_ROUNDED, to,
                            pal_matvec_place_of(a->w, first, size, k, b));
    }
}
