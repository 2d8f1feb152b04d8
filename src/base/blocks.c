/* SPDX-License-Identifier: MIT */
#include "base/blocks.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/half.h"

static uint16_t half_bits(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }
static float half(const unsigned char *p) { return pal_f16_to_f32(half_bits(p)); }

static void decode_f32(const unsigned char *b, float *x) { memcpy(x, b, sizeof *x); }
static void encode_f32(const float *x, unsigned char *b) { memcpy(b, x, sizeof *x); }
static void decode_f16(const unsigned char *b, float *x) { *x = half(b); }
static void decode_bf16(const unsigned char *b, float *x) { *x = pal_bf16_to_f32(half_bits(b)); }
static void store_half(unsigned char *b, uint16_t h) {
    b[0] = (unsigned char)h;
    b[1] = (unsigned char)(h >> 8);
}
static void encode_f16(const float *x, unsigned char *b) { store_half(b, pal_f32_to_f16(*x)); }
static void encode_bf16(const float *x, unsigned char *b) { store_half(b, pal_f32_to_bf16(*x)); }

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

enum { NO_GGML = UINT32_MAX };

#define PLAIN(type, size) [PAL_##type] = { PAL_##type, #type, NO_GGML, 1, size, NULL, NULL }
static const pal_block_format formats[PAL_DTYPES] = {
    [PAL_F32] = { PAL_F32, "F32", 0, 1, 4, decode_f32, encode_f32 },
    [PAL_F16] = { PAL_F16, "F16", 1, 1, 2, decode_f16, encode_f16 },
    [PAL_BF16] = { PAL_BF16, "BF16", 30, 1, 2, decode_bf16, encode_bf16 },
    [PAL_Q8_0] = { PAL_Q8_0, "Q8_0", 8, 32, 34, decode_q8_0, pal_encode_q8_0 },
    [PAL_Q4_0] = { PAL_Q4_0, "Q4_0", 2, 32, 18, decode_q4_0, pal_encode_q4_0 },
    [PAL_Q4_K] = { PAL_Q4_K, "Q4_K", 12, 256, 144, decode_q4_k, pal_encode_q4_k },
    [PAL_Q6_K] = { PAL_Q6_K, "Q6_K", 14, 256, 210, decode_q6_k, pal_encode_q6_k },
    PLAIN(F64, 8),
    PLAIN(I64, 8),
    PLAIN(I32, 4),
    PLAIN(I16, 2),
    PLAIN(I8, 1),
    PLAIN(U64, 8),
    PLAIN(U32, 4),
    PLAIN(U16, 2),
    PLAIN(U8, 1),
    PLAIN(BOOL, 1),
};

const pal_block_format *pal_block_format_of(pal_dtype type) { return formats[type].decode ? &formats[type] : NULL; }

const pal_block_format *pal_block_format_of_ggml(uint64_t ggml_id) {
    for (size_t i = 0; i < PAL_DTYPES; i++)
        if (formats[i].decode && formats[i].ggml == ggml_id) return &formats[i];
    return NULL;
}

void pal_blocks_decode(const pal_block_format *format, const void *blocks, size_t n, float *x) {
    const unsigned char *b = blocks;
    if (format->type == PAL_F32) memcpy(x, b, n * sizeof *x);
    else
        for (size_t i = 0; i < n; i += format->values, b += format->bytes) format->decode(b, x + i);
}

void pal_blocks_encode(const pal_block_format *format, const float *x, size_t n, void *blocks) {
    unsigned char *b = blocks;
    if (format->type == PAL_F32) memcpy(b, x, n * sizeof *x);
    else
        for (size_t i = 0; i < n; i += format->values, b += format->bytes) format->encode(x + i, b);
}

static bool finite_half(const unsigned char *p) { return (half_bits(p) & 0x7c00) != 0x7c00; }

static bool finite_block(pal_dtype type, const unsigned char *b) {
    float x;
    switch (type) {
    case PAL_F16:
    case PAL_Q8_0:
    case PAL_Q4_0: return finite_half(b);
    case PAL_Q4_K: return finite_half(b) && finite_half(b + 2);
    case PAL_Q6_K: return finite_half(b + 208);
    case PAL_BF16: return (half_bits(b) & 0x7f80) != 0x7f80;
    default: memcpy(&x, b, sizeof x); return isfinite(x);
    }
}

bool pal_blocks_finite(const pal_block_format *format, const void *blocks, size_t n) {
    const unsigned char *b = blocks;
    for (size_t i = 0; i < n; i += format->values, b += format->bytes)
        if (!finite_block(format->type, b)) return false;
    return true;
}

pal_dtype pal_dtype_named(const char *name, size_t length) {
    pal_dtype type = 0;
    while (type < PAL_DTYPES && !(formats[type].decode && strlen(formats[type].name) == length &&
                                  strncasecmp(name, formats[type].name, length) == 0))
        type++;
    return type;
}

const char *pal_dtype_name(pal_dtype dtype) { return formats[dtype].name; }
size_t pal_dtype_values(pal_dtype dtype) { return formats[dtype].values; }
size_t pal_dtype_size(pal_dtype dtype) { return formats[dtype].bytes; }

pal_matrix pal_matrix_of(pal_dtype type, const void *data, int rows, int columns) {
    const size_t row_bytes = (size_t)columns / formats[type].values * formats[type].bytes;
    return (pal_matrix){ .type = type, .data = data, .rows = rows, .columns = columns, .row_bytes = row_bytes };
}

int pal_matrix_fits(pal_dtype type, size_t columns) {
    return pal_block_format_of(type) && columns % formats[type].values == 0;
}

void pal_matrix_row(const pal_matrix *m, size_t row, float *x) {
    const unsigned char *data = m->data;
    pal_blocks_decode(pal_block_format_of(m->type), data + row * m->row_bytes, (size_t)m->columns, x);
}
