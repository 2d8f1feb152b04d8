/* SPDX-License-Identifier: MIT */
/* Vectors of 4 floats in WebAssembly, the same names as simd_avx2.h. Its 128-bit instructions have no fused
 * multiply-add and no estimate of 1/x: the one is rounded twice here, the other divides. */
#ifndef PAL_BASE_SIMD_WASM_H
#define PAL_BASE_SIMD_WASM_H

#include <math.h>
#include <string.h>
#include <wasm_simd128.h>

#include "base/half.h"

#define PAL_W         4
#define PAL_REGISTERS 16
#define PAL_ISA(name) name##_simd128
#define PAL_INLINE    static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(16), may_alias));
typedef int vi __attribute__((vector_size(16), may_alias));

PAL_INLINE vf vf_zero(void) { return (vf){ 0 }; }
PAL_INLINE vf vf_set1(float x) { return (vf){ x, x, x, x }; }
PAL_INLINE vf vf_load(const float *p) { return (vf)wasm_v128_load(p); }
PAL_INLINE void vf_store(float *p, vf x) { wasm_v128_store(p, (v128_t)x); }
PAL_INLINE vf vf_load_f16(const unsigned short *p) {
    return (vf){ pal_f16_to_f32(p[0]), pal_f16_to_f32(p[1]), pal_f16_to_f32(p[2]), pal_f16_to_f32(p[3]) };
}
PAL_INLINE vf vf_load_bf16(const unsigned short *p) {
    return (vf)wasm_i32x4_shl(wasm_u32x4_load16x4(p), 16);
}

PAL_INLINE vf vf_load_n(const float *p, int n) {
    vf x = vf_zero();
    if (n >= 4) return vf_load(p);
    if (n > 0) x[0] = p[0];
    if (n > 1) x[1] = p[1];
    if (n > 2) x[2] = p[2];
    return x;
}
PAL_INLINE void vf_store_n(float *p, int n, vf x) {
    if (n >= 4) {
        vf_store(p, x);
        return;
    }
    if (n > 0) p[0] = x[0];
    if (n > 1) p[1] = x[1];
    if (n > 2) p[2] = x[2];
}
PAL_INLINE vf vf_keep_n(int n, vf x, vf other) {
    const vi keep = (vi){ n, n, n, n } > (vi){ 0, 1, 2, 3 };
    return (vf)(((vi)x & keep) | ((vi)other & ~keep));
}

PAL_INLINE vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
PAL_INLINE vf vf_fnma(vf a, vf b, vf c) { return c - a * b; }
/* As the x86 ones: where one is not a number, the second. */
PAL_INLINE vf vf_max(vf a, vf b) { return (vf)wasm_f32x4_pmax((v128_t)b, (v128_t)a); }
PAL_INLINE vf vf_min(vf a, vf b) { return (vf)wasm_f32x4_pmin((v128_t)b, (v128_t)a); }
PAL_INLINE vf vf_sqrt(vf a) { return (vf)wasm_f32x4_sqrt((v128_t)a); }
PAL_INLINE vf vf_rcp(vf x) { return vf_set1(1.0f) / x; }

PAL_INLINE float vf_sum(vf x) { return (x[0] + x[1]) + (x[2] + x[3]); }
PAL_INLINE float vf_maximum(vf x) { return fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])); }

typedef double vd_half __attribute__((vector_size(16)));
typedef struct {
    vd_half low, high;
} vd;
PAL_INLINE vd vd_zero(void) { return (vd){ { 0 }, { 0 } }; }
PAL_INLINE vd vd_widen(vf x) { return (vd){ { (double)x[0], (double)x[1] }, { (double)x[2], (double)x[3] } }; }
PAL_INLINE vd vd_fma(vd a, vd b, vd c) { return (vd){ a.low * b.low + c.low, a.high * b.high + c.high }; }
PAL_INLINE vd vd_add(vd a, vd b) { return (vd){ a.low + b.low, a.high + b.high }; }
PAL_INLINE double vd_sum(vd x) {
    const vd_half both = x.low + x.high;
    return both[0] + both[1];
}

PAL_INLINE void vf_transpose(vf x[PAL_W]) {
    const vf a = { x[0][0], x[1][0], x[2][0], x[3][0] }, b = { x[0][1], x[1][1], x[2][1], x[3][1] },
             c = { x[0][2], x[1][2], x[2][2], x[3][2] }, d = { x[0][3], x[1][3], x[2][3], x[3][3] };
    x[0] = a, x[1] = b, x[2] = c, x[3] = d;
}

PAL_INLINE vf vf_hide(vf x) { return x; }

PAL_INLINE void vf_add_sums4(float *out, vf a, vf b, vf c, vf d) {
    vf_store(out, vf_load(out) + (vf){ vf_sum(a), vf_sum(b), vf_sum(c), vf_sum(d) });
}

#include "base/simd_math.h"

#endif
