/* SPDX-License-Identifier: MIT */
/* Number formats of GGUF tensors: blocks of values that share a scale. */
#ifndef PAL_FORMAT_GGUF_TYPES_H
#define PAL_FORMAT_GGUF_TYPES_H

#include <stddef.h>
#include <stdint.h>

enum { PAL_GGUF_BLOCK_MAX = 256 };

/* Numbers of types in files. */
enum {
    PAL_GGML_F32 = 0,
    PAL_GGML_F16 = 1,
    PAL_GGML_Q4_0 = 2,
    PAL_GGML_Q8_0 = 8,
    PAL_GGML_Q4_K = 12,
    PAL_GGML_Q6_K = 14,
    PAL_GGML_BF16 = 30
};

typedef struct pal_gguf_format {
    uint32_t id;
    const char *name;
    size_t values, bytes;                                 /* of a block */
    void (*decode)(const unsigned char *block, float *x); /* NULL: plain numbers */
} pal_gguf_format;

const pal_gguf_format *pal_gguf_format_of(uint64_t id); /* NULL: not read here */
const char *pal_gguf_format_name(uint64_t id);          /* of formats not read here too; NULL: no such number */

/* 32 values to 34 bytes: scale max|x|/127 in f16, values rounded to nearest. */
void pal_q8_0_encode(const float *x, unsigned char *block);

#endif
