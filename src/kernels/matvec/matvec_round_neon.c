/* SPDX-License-Identifier: MIT */
/* The same operations as the reference on 32 values at a time: the same bits. */
#include <float.h>
#include <math.h>

#include "base/simd_neon.h"
#include "kernels/matvec/matvec.h"

PAL_INLINE void round_block(const float *x, const pal_rounded_rows *to, size_t block) {
    vf v[8], most = vf_zero();
    for (int i = 0; i < 8; i++) v[i] = vf_load(x + 4 * i), most = vf_max(most, vabsq_f32(v[i]));
    const float largest = vf_maximum(most); /* NaN if any is */
    const bool finite = largest <= FLT_MAX, any = finite && largest > PAL_ROUNDED_ZERO;
    const float d = any ? largest * (1.0f / PAL_ROUNDED_MOST) : finite ? 0 : NAN;
    const vf inverse = vf_set1(any ? PAL_ROUNDED_MOST / largest : 0);
    int8_t *bytes = (int8_t *)(to->q + PAL_ROUNDED * block);
    int sum = 0;
    for (int i = 0; i < 4; i++) {
        const int32x4_t q0 = vcvtnq_s32_f32(v[2 * i] * inverse), q1 = vcvtnq_s32_f32(v[2 * i + 1] * inverse);
        int16x8_t q = vcombine_s16(vmovn_s32(q0), vmovn_s32(q1));
        if (!any) q = vdupq_n_s16(0); /* what is not finite converts to anything */
        vst1_s8(bytes + 8 * i, vshrn_n_s16(q, 7)); /* pal_rounded_put() */
        vst1_s8(bytes + PAL_ROUNDED + 8 * i, vmovn_s16(vandq_s16(q, vdupq_n_s16(127))));
        sum += vaddlvq_s16(q);
    }
    to->sums[block] = d * (float)sum;
    to->d[block] = d;
}

void pal_matvec_round_neon(const pal_matvec_args *a, const pal_rounded_rows *to, size_t begin, size_t end) {
    const size_t in = (size_t)a->w->columns;
    for (size_t first = begin, size; first < end; first += size) {
        size = pal_matvec_group((size_t)a->rows, first);
        for (size_t k = 0; k < size; k++)
            for (size_t b = 0; b < in / PAL_ROUNDED; b++)
                round_block(a->x + (first + k) * a->ldx + b * PAL_ROUNDED, to,
                            pal_matvec_place_of(a->w, first, size, k, b));
    }
}
