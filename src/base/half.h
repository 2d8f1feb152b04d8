/* SPDX-License-Identifier: MIT */
/* Half-precision numbers as files hold them. Conversion to half rounds to nearest, ties to even. */
#ifndef PAL_BASE_HALF_H
#define PAL_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float pal_bits_f32(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline uint32_t pal_f32_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float pal_bf16_to_f32(uint16_t h) { return pal_bits_f32((uint32_t)h << 16); }
static inline uint16_t pal_f32_to_bf16(float x) {
    const uint32_t bits = pal_f32_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40); /* a NaN stays a NaN */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float pal_f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    if (exponent == 31) return pal_bits_f32(sign | 0x7f800000u | fraction << 13);
    if (exponent) return pal_bits_f32(sign | (exponent + 112) << 23 | fraction << 13);
    const float tiny = (float)fraction * 0x1p-24f; /* subnormal or zero */
    return sign ? -tiny : tiny;
}
static inline uint16_t pal_f32_to_f16(float x) {
    const uint32_t bits = pal_f32_bits(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* rounds to 2^16 or more */
    if (magnitude < 0x38800000u) {                                  /* below 2^-14: subnormal */
        const float scaled = pal_bits_f32(magnitude) * 0x1p24f;
        uint32_t whole = (uint32_t)scaled;
        const float rest = scaled - (float)whole;
        whole += rest > 0.5f || (rest == 0.5f && (whole & 1));
        return (uint16_t)(sign | whole);
    }
    const uint32_t rebased = magnitude - 0x38000000u;
    return (uint16_t)(sign | (rebased + 0xfff + (rebased >> 13 & 1)) >> 13);
}

#endif
