/* SPDX-License-Identifier: MIT */
/* Bytes multiplied on every ARM64. Two products fit 16 bits: 128 * 127 * 2 < 2^15. */
#include <arm_neon.h>

#include "kernels/matvec/matvec.h"

static inline __attribute__((always_inline)) int32x4_t dot(int32x4_t start, int8x16_t w, int8x16_t x) {
    const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
    return vpadalq_s16(start, vmlal_high_s8(low, w, x));
}

#define PAL_BYTES_ISA(name) name##_neon
#include "kernels/matvec/matvec_blocks_neon.inc"
