/* SPDX-License-Identifier: MIT */
/* How the numbers of a stored matrix lie in memory: plain ones, and blocks whose values share scales. Files (GGUF) and
 * kernels both stand on this table. Layouts of the blocks: docs/reference/formats.md. */
#ifndef PAL_BASE_BLOCKS_H
#define PAL_BASE_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "palimpsa/matrix.h"

enum { PAL_BLOCK_VALUES_MAX = 256 };

typedef struct pal_block_format {
    pal_dtype type;
    const char *name; /* as in the files */
    uint32_t ggml;    /* its number in GGUF files */
    size_t values, bytes;
    size_t halves[2]; /* of blocks: where the f16 scale and minimum are; twice the same without a minimum */
    /* One block. Encoding is a function of the values alone: the same bytes on every machine. A block with a value that
     * is not finite gets scales that are NaN, so that the loss shows. Types without an encoder are only read: models
     * hold them as Q8_0. */
    void (*decode)(const unsigned char *block, float *x);
    void (*encode)(const float *x, unsigned char *block);
} pal_block_format;

const pal_block_format *pal_block_format_of(pal_dtype type); /* NULL: a type that models are not stored in */
/* The type that models compute with and that has this name, in capitals or not ("q8_0"); PAL_DTYPES: none has. */
pal_dtype pal_dtype_named(const char *name, size_t length);
const pal_block_format *pal_block_format_of_ggml(uint64_t ggml_id); /* NULL: not one of these */

/* n values, whole blocks. */
void pal_blocks_decode(const pal_block_format *format, const void *blocks, size_t n, float *x);
void pal_blocks_encode(const pal_block_format *format, const float *x, size_t n, void *blocks);

/* Whether the scales of n values' blocks are finite; for plain types, whether the values are. */
bool pal_blocks_finite(const pal_block_format *format, const void *blocks, size_t n);

/* Decoders of one block (blocks_decode.c). */
void pal_decode_q8_0(const unsigned char *block, float *x);
void pal_decode_q4_0(const unsigned char *block, float *x);
void pal_decode_q4_1(const unsigned char *block, float *x);
void pal_decode_q5_0(const unsigned char *block, float *x);
void pal_decode_q5_1(const unsigned char *block, float *x);
void pal_decode_q2_k(const unsigned char *block, float *x);
void pal_decode_q3_k(const unsigned char *block, float *x);
void pal_decode_q4_k(const unsigned char *block, float *x);
void pal_decode_q5_k(const unsigned char *block, float *x);
void pal_decode_q6_k(const unsigned char *block, float *x);
void pal_decode_iq4_nl(const unsigned char *block, float *x);
void pal_decode_iq4_xs(const unsigned char *block, float *x);

/* Encoders with a search for scales (blocks_encode.c). */
void pal_encode_q8_0(const float *x, unsigned char *block);
void pal_encode_q4_0(const float *x, unsigned char *block);
void pal_encode_q5_0(const float *x, unsigned char *block);
void pal_encode_q4_k(const float *x, unsigned char *block);
void pal_encode_q5_k(const float *x, unsigned char *block);
void pal_encode_q6_k(const float *x, unsigned char *block);

#endif
