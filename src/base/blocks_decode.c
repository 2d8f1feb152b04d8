/* SPDX-License-Identifier: MIT */
/* Blocks to numbers, one block at a time, in plain C. The order of the operations is part of the format: other
 * programs' decoders give the same bits (tests/interop/blocks_gguf.py). */
#include "base/blocks.h"
#include "base/half.h"

static float half(const unsigned char *p) { return pal_f16_to_f32((uint16_t)(p[0] | p[1] << 8)); }

/* Bit i of 32 bits in four bytes, or of any other row of bytes. */
static int bit(const unsigned char *bits, int i) { return bits[i / 8] >> i % 8 & 1; }

/* f16 d; 32 x i8 q: x = d q */
void pal_decode_q8_0(const unsigned char *b, float *x) {
    const float d = half(b);
    for (int i = 0; i < 32; i++) x[i] = d * (float)(int8_t)b[2 + i];
}

/* f16 d; 16 bytes whose low nibbles are values 0-15 and high nibbles 16-31: x = d (q - 8) */
void pal_decode_q4_0(const unsigned char *b, float *x) {
    const float d = half(b);
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)((b[2 + i] & 15) - 8);
        x[i + 16] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

/* f16 d, f16 m; nibbles as in Q4_0: x = d q + m */
void pal_decode_q4_1(const unsigned char *b, float *x) {
    const float d = half(b), m = half(b + 2);
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)(b[4 + i] & 15) + m;
        x[i + 16] = d * (float)(b[4 + i] >> 4) + m;
    }
}

/* f16 d; 4 bytes: bit i is the fifth of value i; nibbles as in Q4_0: x = d (q - 16) */
void pal_decode_q5_0(const unsigned char *b, float *x) {
    const float d = half(b);
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)(((b[6 + i] & 15) | bit(b + 2, i) << 4) - 16);
        x[i + 16] = d * (float)((b[6 + i] >> 4 | bit(b + 2, i + 16) << 4) - 16);
    }
}

/* f16 d, f16 m; fifth bits and nibbles as in Q5_0: x = d q + m */
void pal_decode_q5_1(const unsigned char *b, float *x) {
    const float d = half(b), m = half(b + 2);
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)((b[8 + i] & 15) | bit(b + 4, i) << 4) + m;
        x[i + 16] = d * (float)(b[8 + i] >> 4 | bit(b + 4, i + 16) << 4) + m;
    }
}

/* 16 bytes: of each 16 values the scale in the low nibble, the minimum in the high one; 64 bytes of q of two bits; f16
 * d, f16 m: x = (d scale) q - (m minimum). Halves of 128 values; byte i of a half's 32 holds values i, i + 32, i + 64
 * and i + 96 of it, the first in the lowest bits. */
void pal_decode_q2_k(const unsigned char *b, float *x) {
    const float d = half(b + 80), m = half(b + 82);
    for (int i = 0; i < 256; i++) {
        const int group = i / 16, q = b[16 + i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3;
        const float ds = d * (float)(b[group] & 15), ms = m * (float)(b[group] >> 4);
        x[i] = ds * (float)q - ms;
    }
}

/* 32 bytes of third bits: bit r of byte i is that of value 32 r + i; 64 bytes of q of two bits as in Q2_K; 12 bytes of
 * scales; f16 d: x = d (scale - 32) (q - 4 (1 - third bit)). Of scale g of 16 values, the low 4 bits are nibble g / 8
 * of byte g % 8, the high 2 bits are bits 2 (g / 4) of byte 8 + g % 4. */
void pal_decode_q3_k(const unsigned char *b, float *x) {
    const float d = half(b + 108);
    for (int i = 0; i < 256; i++) {
        const int g = i / 16, low = b[96 + g % 8] >> 4 * (g / 8) & 15, high = b[104 + g % 4] >> 2 * (g / 4) & 3;
        const int q = b[32 + i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3, third = b[i % 32] >> i / 32 & 1;
        x[i] = d * (float)((low | high << 4) - 32) * (float)(q - 4 * (1 - third));
    }
}

/* Of Q4_K and Q5_K: 8 groups of 32 values, each with a 6-bit scale and a 6-bit minimum packed into 12 bytes: the low 6
 * bits of bytes 0-3 are scales and of bytes 4-7 minima of groups 0-3; groups 4-7 have their low 4 bits in bytes 8-11
 * (scale below, minimum above) and their high 2 bits on top of the bytes before. */
static void scale_and_minimum(const unsigned char *packed, int group, float *scale, float *minimum) {
    if (group < 4) {
        *scale = (float)(packed[group] & 63);
        *minimum = (float)(packed[group + 4] & 63);
    } else {
        *scale = (float)((packed[group + 4] & 15) | packed[group - 4] >> 6 << 4);
        *minimum = (float)(packed[group + 4] >> 4 | packed[group] >> 6 << 4);
    }
}

/* f16 d, f16 m; 12 bytes of scales; 128 bytes: x = (d scale) q - (m minimum). A run of 32 bytes holds one group in its
 * low nibbles and the next in its high ones. */
void pal_decode_q4_k(const unsigned char *b, float *x) {
    const float d = half(b), m = half(b + 2);
    for (int group = 0; group < 8; group++) {
        const unsigned char *q = b + 16 + 32 * (group / 2);
        float scale, minimum;
        scale_and_minimum(b + 4, group, &scale, &minimum);
        const float ds = d * scale, ms = m * minimum;
        for (int i = 0; i < 32; i++) x[32 * group + i] = ds * (float)(group % 2 ? q[i] >> 4 : q[i] & 15) - ms;
    }
}

/* As Q4_K, with 32 bytes of fifth bits before the nibbles: bit g of byte i is that of value i of group g. */
void pal_decode_q5_k(const unsigned char *b, float *x) {
    const float d = half(b), m = half(b + 2);
    for (int group = 0; group < 8; group++) {
        const unsigned char *high = b + 16, *low = b + 48 + 32 * (group / 2);
        float scale, minimum;
        scale_and_minimum(b + 4, group, &scale, &minimum);
        const float ds = d * scale, ms = m * minimum;
        for (int i = 0; i < 32; i++) {
            const int nibble = group % 2 ? low[i] >> 4 : low[i] & 15;
            x[32 * group + i] = ds * (float)(nibble | (high[i] >> group & 1) << 4) - ms;
        }
    }
}

/* 128 bytes of low nibbles, 64 bytes of two high bits, 16 x i8 scales, f16 d: x = d scale (q - 32). Halves of 128
 * values; in a half, run r of 32 values has its nibbles in bytes 32 (r % 2) .. (low for r < 2), its high bits at 2 r.
 */
void pal_decode_q6_k(const unsigned char *b, float *x) {
    const float d = half(b + 208);
    for (int part = 0; part < 2; part++) {
        const unsigned char *low = b + 64 * part, *high = b + 128 + 32 * part;
        const unsigned char *scales = b + 192 + 8 * part;
        for (int run = 0; run < 4; run++)
            for (int i = 0; i < 32; i++) {
                const int byte = low[32 * (run % 2) + i];
                const int q = (run < 2 ? byte & 15 : byte >> 4) | (high[i] >> (2 * run) & 3) << 4;
                x[128 * part + 32 * run + i] = d * (float)(int8_t)scales[2 * run + i / 16] * (float)(q - 32);
            }
    }
}

/* What the nibbles of IQ4_NL and IQ4_XS stand for. */
static const int8_t levels[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };

/* f16 d; nibbles as in Q4_0: x = d level[q] */
void pal_decode_iq4_nl(const unsigned char *b, float *x) {
    const float d = half(b);
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)levels[b[2 + i] & 15];
        x[i + 16] = d * (float)levels[b[2 + i] >> 4];
    }
}

/* f16 d; 16 bits: the high 2 bits of 8 scales; 4 bytes: their low nibbles; 8 runs of 16 bytes of nibbles as in Q4_0, a
 * run for each 32 values: x = d (scale - 32) level[q] */
void pal_decode_iq4_xs(const unsigned char *b, float *x) {
    const float d = half(b);
    for (int group = 0; group < 8; group++) {
        const int low = b[4 + group / 2] >> 4 * (group % 2) & 15, high = b[2 + group / 4] >> 2 * (group % 4) & 3;
        const float ds = d * (float)((low | high << 4) - 32);
        const unsigned char *q = b + 8 + 16 * group;
        for (int i = 0; i < 16; i++) {
            x[32 * group + i] = ds * (float)levels[q[i] & 15];
            x[32 * group + 16 + i] = ds * (float)levels[q[i] >> 4];
        }
    }
}
