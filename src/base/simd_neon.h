/* SPDX-License-Identifier: MIT */
/* Vectors of 4 floats on ARM64, the same names as simd_avx2.h. Two registers as one vector of 8 would make compilers
 * keep such vectors in memory; the 32 registers are used by wider tiles instead. */
#ifndef PAL_BASE_SIMD_NEON_H
#define PAL_BASE_SIMD_NEON_H

#include <arm_neon.h>

#define PAL_W         4
#define PAL_REGISTERS 32
#define PAL_ISA(name) name##_neon
#define PAL_INLINE    static inline __attribute__((always_inline))

typedef float32x4_t vf;
typedef int vi __attribute__((vector_size(16), may_alias));

PAL_INLINE vf vf_zero(void) { return vdupq_n_f32(0.0f); }
PAL_INLINE vf vf_set1(float x) { return vdupq_n_f32(x); }
PAL_INLINE vf vf_load(const float *p) { return vld1q_f32(p); }
PAL_INLINE void vf_store(float *p, vf x) { vst1q_f32(p, x); }
PAL_INLINE vf vf_load_f16(const unsigned short *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
PAL_INLINE vf vf_load_bf16(const unsigned short *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }

PAL_INLINE vf vf_load_n(const float *p, int n) {
    vf x = vf_zero();
    if (n >= 4) return vf_load(p);
    if (n >= 2) x = vcombine_f32(vld1_f32(p), vdup_n_f32(0.0f));
    if (n == 1) x = vld1q_lane_f32(p, x, 0);
    if (n == 3) x = vld1q_lane_f32(p + 2, x, 2);
    return x;
}
PAL_INLINE void vf_store_n(float *p, int n, vf x) {
    if (n >= 4) {
        vf_store(p, x);
        return;
    }
    if (n >= 2) vst1_f32(p, vget_low_f32(x));
    if (n == 1) vst1q_lane_f32(p, x, 0);
    if (n == 3) vst1q_lane_f32(p + 2, x, 2);
}
PAL_INLINE vf vf_keep_n(int n, vf x, vf other) {
    static const int places[4] = { 0, 1, 2, 3 };
    return vbslq_f32(vcgtq_s32(vdupq_n_s32(n), vld1q_s32(places)), x, other);
}

PAL_INLINE vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
PAL_INLINE vf vf_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
/* Unlike the x86 ones, NaN if any of the two is. */
PAL_INLINE vf vf_max(vf a, vf b) { return vmaxq_f32(a, b); }
PAL_INLINE vf vf_min(vf a, vf b) { return vminq_f32(a, b); }
PAL_INLINE vf vf_sqrt(vf a) { return vsqrtq_f32(a); }

/* The estimate has 8 bits: one step more than on x86, and the same last one. */
PAL_INLINE vf vf_rcp(vf x) {
    vf r = vrecpeq_f32(x);
    r = r * vrecpsq_f32(x, r);
    return vf_fma(r, vf_fnma(x, r, vf_set1(1.0f)), r);
}

PAL_INLINE float vf_sum(vf x) { return vaddvq_f32(x); }
PAL_INLINE float vf_maximum(vf x) { return vmaxvq_f32(x); }

typedef struct {
    float64x2_t low, high;
} vd;
PAL_INLINE vd vd_zero(void) { return (vd){ vdupq_n_f64(0.0), vdupq_n_f64(0.0) }; }
PAL_INLINE vd vd_widen(vf x) { return (vd){ vcvt_f64_f32(vget_low_f32(x)), vcvt_high_f64_f32(x) }; }
PAL_INLINE vd vd_fma(vd a, vd b, vd c) {
    return (vd){ vfmaq_f64(c.low, a.low, b.low), vfmaq_f64(c.high, a.high, b.high) };
}
PAL_INLINE vd vd_add(vd a, vd b) { return (vd){ vaddq_f64(a.low, b.low), vaddq_f64(a.high, b.high) }; }
PAL_INLINE double vd_sum(vd x) { return vaddvq_f64(vaddq_f64(x.low, x.high)); }

PAL_INLINE void vf_transpose(vf x[PAL_W]) {
    const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(x[0], x[1])),
                      b = vreinterpretq_f64_f32(vtrn2q_f32(x[0], x[1])),
                      c = vreinterpretq_f64_f32(vtrn1q_f32(x[2], x[3])),
                      d = vreinterpretq_f64_f32(vtrn2q_f32(x[2], x[3]));
    x[0] = vreinterpretq_f32_f64(vzip1q_f64(a, c));
    x[1] = vreinterpretq_f32_f64(vzip1q_f64(b, d));
    x[2] = vreinterpretq_f32_f64(vzip2q_f64(a, c));
    x[3] = vreinterpretq_f32_f64(vzip2q_f64(b, d));
}

PAL_INLINE vf vf_hide(vf x) {
    __asm__ volatile("" : "+w"(x));
    return x;
}

PAL_INLINE void vf_add_sums4(float *out, vf a, vf b, vf c, vf d) {
    vf_store(out, vf_load(out) + vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
}

#include "base/simd_math.h"

#endif
