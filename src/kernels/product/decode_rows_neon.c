/* SPDX-License-Identifier: MIT */
/* Rows of any type to f32, with the operations of the reference. */
#include <string.h>

#include "base/half.h"
#include "base/simd_neon.h"
#include "kernels/product/product.h"

PAL_INLINE float half_at(const unsigned char *p) {
    unsigned short h;
    memcpy(&h, p, sizeof h);
    return pal_f16_to_f32(h);
}

/* x[0..15] = scale q - minus */
PAL_INLINE void put16(float *x, int8x16_t q, float scale, float minus) {
    const int16x8_t low = vmovl_s8(vget_low_s8(q)), high = vmovl_high_s8(q);
    const int32x4_t wide[4] = { vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)),
                                vmovl_high_s16(high) };
    for (int i = 0; i < 4; i++)
        vf_store(x + 4 * i, vf_fma(vcvtq_f32_s32(wide[i]), vf_set1(scale), vf_set1(-minus)));
}
PAL_INLINE int8x16_t nibbles(const unsigned char *p, int high) {
    const uint8x16_t b = vld1q_u8(p);
    return vreinterpretq_s8_u8(high ? vshrq_n_u8(b, 4) : vandq_u8(b, vdupq_n_u8(15)));
}

static void q8_0(const unsigned char *b, float *x) {
    const float d = half_at(b);
    for (int i = 0; i < 32; i += 16) put16(x + i, vld1q_s8((const int8_t *)b + 2 + i), d, 0);
}

static void q4_0(const unsigned char *b, float *x) {
    const float d = half_at(b);
    for (int high = 0; high < 2; high++) put16(x + 16 * high, vsubq_s8(nibbles(b + 2, high), vdupq_n_s8(8)), d, 0);
}

static void q5_0(const unsigned char *b, float *x) {
    static const uint8_t bits[16] = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
    const float d = half_at(b);
    for (int high = 0; high < 2; high++) {
        const uint8x16_t spread = vcombine_u8(vdup_n_u8(b[2 + 2 * high]), vdup_n_u8(b[3 + 2 * high]));
        const uint8x16_t fifth = vandq_u8(vtstq_u8(spread, vld1q_u8(bits)), vdupq_n_u8(16));
        const int8x16_t five = vorrq_s8(nibbles(b + 6, high), vreinterpretq_s8_u8(fifth));
        put16(x + 16 * high, vsubq_s8(five, vdupq_n_s8(16)), d, 0);
    }
}

/* Q4_K, and with fifth bits before the nibbles Q5_K. */
PAL_INLINE void groups_of_32(const unsigned char *b, float *x, bool fifth) {
    const float d = half_at(b), m = half_at(b + 2);
    const unsigned char *packed = b + 4, *low = b + (fifth ? 48 : 16);
    for (int g = 0; g < 8; g++) {
        const int scale = g < 4 ? packed[g] & 63 : (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
        const int minimum = g < 4 ? packed[g + 4] & 63 : packed[g + 4] >> 4 | packed[g] >> 6 << 4;
        for (int i = 0; i < 32; i += 16) {
            int8x16_t q = nibbles(low + 32 * (g / 2) + i, g % 2);
            if (fifth) {
                const uint8x16_t bits = vshlq_u8(vld1q_u8(b + 16 + i), vdupq_n_s8((int8_t)(4 - g)));
                q = vorrq_s8(q, vreinterpretq_s8_u8(vandq_u8(bits, vdupq_n_u8(16))));
            }
            put16(x + 32 * g + i, q, d * (float)scale, m * (float)minimum);
        }
    }
}
static void q4_k(const unsigned char *b, float *x) { groups_of_32(b, x, false); }
static void q5_k(const unsigned char *b, float *x) { groups_of_32(b, x, true); }

static void q6_k(const unsigned char *b, float *x) {
    const float d = half_at(b + 208);
    for (int part = 0; part < 2; part++)
        for (int i = 0; i < 32; i += 16) {
            const uint8x16_t high = vld1q_u8(b + 128 + 32 * part + i);
            const uint8x16_t two[4] = { vshlq_n_u8(high, 4), vshlq_n_u8(high, 2), high, vshrq_n_u8(high, 2) };
            for (int run = 0; run < 4; run++) {
                const int8x16_t low = nibbles(b + 64 * part + 32 * (run % 2) + i, run >= 2);
                const int8x16_t above = vreinterpretq_s8_u8(vandq_u8(two[run], vdupq_n_u8(0x30)));
                const signed char scale = (signed char)b[192 + 8 * part + 2 * run + i / 16];
                put16(x + 128 * part + 32 * run + i, vsubq_s8(vorrq_s8(low, above), vdupq_n_s8(32)), d * (float)scale,
                      0);
            }
        }
}

static void plain(const pal_matrix *w, const unsigned char *row, float *x) {
    const size_t n = (size_t)w->columns;
    const unsigned short *h = (const unsigned short *)(const void *)row;
    size_t i = 0;
    if (w->type == PAL_F32) memcpy(x, row, n * sizeof *x);
    else if (w->type == PAL_F16) {
        for (; i + PAL_W <= n; i += PAL_W) vf_store(x + i, vf_load_f16(h + i));
        for (; i < n; i++) x[i] = pal_f16_to_f32(h[i]);
    } else {
        for (; i + PAL_W <= n; i += PAL_W) vf_store(x + i, vf_load_bf16(h + i));
        for (; i < n; i++) x[i] = pal_bf16_to_f32(h[i]);
    }
}

void pal_decode_rows_neon(const pal_matrix *w, size_t begin, size_t end, float *out) {
    const size_t values = pal_dtype_values(w->type), bytes = pal_dtype_size(w->type), in = (size_t)w->columns;
    for (size_t o = begin; o < end; o++, out += in) {
        const unsigned char *row = (const unsigned char *)w->data + o * w->row_bytes;
        if (values == 1) plain(w, row, out);
        else
            for (size_t at = 0; at < in; at += values, row += bytes)
                if (w->type == PAL_Q8_0) q8_0(row, out + at);
                else if (w->type == PAL_Q4_0) q4_0(row, out + at);
                else if (w->type == PAL_Q5_0) q5_0(row, out + at);
                else if (w->type == PAL_Q4_K) q4_k(row, out + at);
                else if (w->type == PAL_Q5_K) q5_k(row, out + at);
                else q6_k(row, out + at);
    }
}
