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
    const float d = any ? largest * (1.0f / 127.0f) : finite ? 0 : NAN;
    const vf inverse = vf_set1(any ? 127.0f / largest : 0);
    int halves[2];
    for (int i = 0; i < 2; i++) {
        int16x4_t q[4];
        for (int k = 0; k < 4; k++) q[k] = vqmovn_s32(vcvtnq_s32_f32(v[4 * i + k] * inverse));
        int8x16_t bytes = vcombine_s8(vqmovn_s16(vcombine_s16(q[0], q[1])), vqmovn_s16(vcombine_s16(q[2], q[3])));
        if (!any) bytes = vdupq_n_s8(0); /* what is not finite converts to anything */
        const int32x4_t quads = vpaddlq_s16(vpaddlq_s8(bytes));
        vst1q_s8(to->q + 32 * block + 16 * (size_t)i, bytes);
        vst1q_s32(to->starts + 8 * block + 4 * (size_t)i, vmulq_n_s32(quads, -128));
        halves[i] = vaddvq_s32(quads);
        to->halves[2 * block + (size_t)i] = d * (float)halves[i];
    }
    to->sums[block] = d * (float)(halves[0] + halves[1]);
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
