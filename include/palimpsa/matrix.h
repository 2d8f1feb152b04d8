/* SPDX-License-Identifier: MIT */
/* Types of stored numbers, and a matrix that is stored in one of them. */
#ifndef PALIMPSA_MATRIX_H
#define PALIMPSA_MATRIX_H

#include <stddef.h>

#include "palimpsa/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One list for every file format. Safetensors know the types up to PAL_BOOL, GGUF some of them and the blocks after it:
 * values that share scales and exist only as whole blocks (docs/reference/formats.md). */
typedef enum pal_dtype {
    PAL_F32,
    PAL_F64,
    PAL_F16,
    PAL_BF16,
    PAL_I64,
    PAL_I32,
    PAL_I16,
    PAL_I8,
    PAL_U64,
    PAL_U32,
    PAL_U16,
    PAL_U8,
    PAL_BOOL,
    PAL_Q8_0, /* 32 values in 34 bytes */
    PAL_Q4_0, /* 32 in 18 */
    PAL_Q5_0, /* 32 in 22 */
    PAL_Q4_K, /* 256 in 144 */
    PAL_Q5_K, /* 256 in 176 */
    PAL_Q6_K, /* 256 in 210 */
    /* Only read; opened models hold them as Q8_0. */
    PAL_Q4_1,   /* 32 in 20 */
    PAL_Q5_1,   /* 32 in 24 */
    PAL_Q2_K,   /* 256 in 84 */
    PAL_Q3_K,   /* 256 in 110 */
    PAL_IQ4_NL, /* 32 in 18 */
    PAL_IQ4_XS, /* 256 in 136 */
    PAL_DTYPES
} pal_dtype;

PAL_API const char *pal_dtype_name(pal_dtype dtype); /* "F32", as in the files */
PAL_API size_t pal_dtype_values(pal_dtype dtype);    /* of a block; 1 for plain numbers */
PAL_API size_t pal_dtype_size(pal_dtype dtype);      /* bytes of a block */

/* A matrix stored row by row, each row whole blocks. Models compute with F32, F16, BF16, Q8_0, Q4_0, Q5_0, Q4_K,
 * Q5_K and Q6_K. */
typedef struct pal_matrix {
    pal_dtype type;
    const void *data;
    int rows, columns;
    size_t row_bytes; /* from a row to the next */
} pal_matrix;

/* The view of rows that follow each other without a gap. */
PAL_API pal_matrix pal_matrix_of(pal_dtype type, const void *data, int rows, int columns);
/* Whether models compute with `type`, and its blocks fill rows of `columns`. */
PAL_API int pal_matrix_fits(pal_dtype type, size_t columns);
/* Row `row` as f32, `columns` of them. The type is one that models compute with. */
PAL_API void pal_matrix_row(const pal_matrix *m, size_t row, float *x);

#ifdef __cplusplus
}
#endif
#endif
