/* SPDX-License-Identifier: MIT */
#include "format/gguf_types.h"

#include <math.h>

#include "base/context.h"
#include "base/half.h"

static float half(const unsigned char *p) { return pal_f16_to_f32((uint16_t)(p[0] | p[1] << 8)); }

/* f16 d; 32 x i8 q: x = d q */
static void decode_q8_0(const unsigned char *b, float *x) {
    const float d = half(b);
    for (int i = 0; i < 32; i++) x[i] = d * (float)(int8_t)b[2 + i];
}

/* f16 d; 16 bytes whose low nibbles are values 0-15 and high nibbles 16-31: x = d (q - 8) */
static void decode_q4_0(const unsigned char *b, float *x) {
    const float d = half(b);
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)((b[2 + i] & 15) - 8);
        x[i + 16] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

/* 8 groups of 32 values, each with a 6-bit scale and a 6-bit minimum packed into 12 bytes: the low 6 bits of bytes 0-3
 * are scales and of bytes 4-7 minima of groups 0-3; groups 4-7 have their low 4 bits in bytes 8-11 (scale below,
 * minimum above) and their high 2 bits on top of the bytes before. */
static void q4_k_scale(const unsigned char *packed, int group, float *scale, float *minimum) {
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
static void decode_q4_k(const unsigned char *b, float *x) {
    const float d = half(b), m = half(b + 2);
    for (int group = 0; group < 8; group++) {
        const unsigned char *q = b + 16 + 32 * (group / 2);
        float scale, minimum;
        q4_k_scale(b + 4, group, &scale, &minimum);
        const float ds = d * scale, ms = m * minimum;
        for (int i = 0; i < 32; i++) x[32 * group + i] = ds * (float)(group % 2 ? q[i] >> 4 : q[i] & 15) - ms;
    }
}

/* 128 bytes of low nibbles, 64 bytes of two high bits, 16 x i8 scales, f16 d: x = d scale (q - 32). Halves of 128
 * values; in a half, run r of 32 values has its nibbles in bytes 32 (r % 2) .. (low for r < 2), its high bits at 2 r.
 */
static void decode_q6_k(const unsigned char *b, float *x) {
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

static const pal_gguf_format formats[] = {
    { PAL_GGML_F32, "F32", 1, 4, NULL },
    { PAL_GGML_F16, "F16", 1, 2, NULL },
    { PAL_GGML_BF16, "BF16", 1, 2, NULL },
    { PAL_GGML_Q8_0, "Q8_0", 32, 34, decode_q8_0 },
    { PAL_GGML_Q4_0, "Q4_0", 32, 18, decode_q4_0 },
    { PAL_GGML_Q4_K, "Q4_K", 256, 144, decode_q4_k },
    { PAL_GGML_Q6_K, "Q6_K", 256, 210, decode_q6_k },
};

const pal_gguf_format *pal_gguf_format_of(uint64_t id) {
    for (size_t i = 0; i < PAL_COUNT(formats); i++)
        if (formats[i].id == id) return &formats[i];
    return NULL;
}

const char *pal_gguf_format_name(uint64_t id) {
    static const char *const names[] = { "F32",     "F16",    "Q4_0",    "Q4_1",  NULL,     NULL,    "Q5_0",  "Q5_1",
                                         "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
                                         "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
                                         "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16" };
    return id < PAL_COUNT(names) ? names[id] : NULL;
}

void pal_q8_0_encode(const float *x, unsigned char *block) {
    float largest = 0;
    for (int i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(x[i]));
    const float d = largest / 127, inverse = d > 0 ? 1 / d : 0;
    const uint16_t stored = pal_f32_to_f16(d);
    block[0] = (unsigned char)stored;
    block[1] = (unsigned char)(stored >> 8);
    for (int i = 0; i < 32; i++) {
        const float q = roundf(x[i] * inverse);
        block[2 + i] = (unsigned char)(int8_t)(q >= -127 && q <= 127 ? q
                                                                     : 0); /* a NaN or an infinity has no place here */
    }
}
