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

enum { NO_GGML = UINT32_MAX };

#define PLAIN(type, size) [PAL_##type] = { PAL_##type, #type, NO_GGML, 1, size, { 0 }, NULL, NULL }
#define BLOCKS(type, number, values, bytes, d, m, decode, encode) \
    [PAL_##type] = { PAL_##type, #type, number, values, bytes, { d, m }, decode, encode }
static const pal_block_format formats[PAL_DTYPES] = {
    [PAL_F32] = { PAL_F32, "F32", 0, 1, 4, { 0 }, decode_f32, encode_f32 },
    [PAL_F16] = { PAL_F16, "F16", 1, 1, 2, { 0 }, decode_f16, encode_f16 },
    [PAL_BF16] = { PAL_BF16, "BF16", 30, 1, 2, { 0 }, decode_bf16, encode_bf16 },
    BLOCKS(Q8_0, 8, 32, 34, 0, 0, pal_decode_q8_0, pal_encode_q8_0),
    BLOCKS(Q4_0, 2, 32, 18, 0, 0, pal_decode_q4_0, pal_encode_q4_0),
    BLOCKS(Q5_0, 6, 32, 22, 0, 0, pal_decode_q5_0, pal_encode_q5_0),
    BLOCKS(Q4_K, 12, 256, 144, 0, 2, pal_decode_q4_k, pal_encode_q4_k),
    BLOCKS(Q5_K, 13, 256, 176, 0, 2, pal_decode_q5_k, pal_encode_q5_k),
    BLOCKS(Q6_K, 14, 256, 210, 208, 208, pal_decode_q6_k, pal_encode_q6_k),
    BLOCKS(Q4_1, 3, 32, 20, 0, 2, pal_decode_q4_1, NULL),
    BLOCKS(Q5_1, 7, 32, 24, 0, 2, pal_decode_q5_1, NULL),
    BLOCKS(Q2_K, 10, 256, 84, 80, 82, pal_decode_q2_k, NULL),
    BLOCKS(Q3_K, 11, 256, 110, 108, 108, pal_decode_q3_k, NULL),
    BLOCKS(IQ4_NL, 20, 32, 18, 0, 0, pal_decode_iq4_nl, NULL),
    BLOCKS(IQ4_XS, 23, 256, 136, 0, 0, pal_decode_iq4_xs, NULL),
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

static bool finite_block(const pal_block_format *f, const unsigned char *b) {
    float x;
    if (f->type == PAL_F32) {
        memcpy(&x, b, sizeof x);
        return isfinite(x);
    }
    if (f->type == PAL_BF16) return (half_bits(b) & 0x7f80) != 0x7f80;
    return finite_half(b + f->halves[0]) && finite_half(b + f->halves[1]);
}

bool pal_blocks_finite(const pal_block_format *format, const void *blocks, size_t n) {
    const unsigned char *b = blocks;
    for (size_t i = 0; i < n; i += format->values, b += format->bytes)
        if (!finite_block(format, b)) return false;
    return true;
}

pal_dtype pal_dtype_named(const char *name, size_t length) {
    pal_dtype type = 0;
    while (type < PAL_DTYPES && !(formats[type].encode && strlen(formats[type].name) == length &&
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
    return formats[type].encode && columns % formats[type].values == 0;
}

void pal_matrix_row(const pal_matrix *m, size_t row, float *x) {
    const unsigned char *data = m->data;
    pal_blocks_decode(pal_block_format_of(m->type), data + row * m->row_bytes, (size_t)m->columns, x);
}
