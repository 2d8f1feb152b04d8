/* SPDX-License-Identifier: MIT */
/* Bytes multiplied where the processor has dot products: four at once and without an intermediate result. */
#include <arm_neon.h>

#include "kernels/matvec/matvec.h"

static inline __attribute__((always_inline)) int32x4_t dot(int32x4_t start, int8x16_t w, int8x16_t x) {
    return vdotq_s32(start, w, x);
}

#define PAL_BYTES_ISA(name) name##_neondot
#include "kernels/matvec/matvec_blocks_neon.inc"
