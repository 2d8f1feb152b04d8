/* SPDX-License-Identifier: MIT */
/* The key-value pairs of a GGUF file. Every count and length is checked against the bytes that are left, so that no
 * number in a file costs more than the file. */
#ifndef PAL_FORMAT_GGUF_VALUES_H
#define PAL_FORMAT_GGUF_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "palimpsa/status.h"
#include "palimpsa/view.h"

typedef enum pal_gguf_type {
    PAL_GGUF_U8,
    PAL_GGUF_I8,
    PAL_GGUF_U16,
    PAL_GGUF_I16,
    PAL_GGUF_U32,
    PAL_GGUF_I32,
    PAL_GGUF_F32,
    PAL_GGUF_BOOL,
    PAL_GGUF_STRING,
    PAL_GGUF_ARRAY,
    PAL_GGUF_U64,
    PAL_GGUF_I64,
    PAL_GGUF_F64,
    PAL_GGUF_TYPES
} pal_gguf_type;

typedef struct pal_gguf_reader {
    const unsigned char *data;
    size_t size, at;
    bool bad; /* a read went beyond the end, or met what cannot be; stays true */
} pal_gguf_reader;

typedef struct pal_gguf_value {
    uint64_t type, element; /* element: of an array */
    uint64_t count;
    pal_slice text; /* of a string */
    size_t at;      /* of an array: where its first element is */
    uint64_t bits;  /* of a number, zero-extended */
} pal_gguf_value;

uint64_t pal_gguf_number(pal_gguf_reader *r, size_t bytes);
pal_slice pal_gguf_string(pal_gguf_reader *r);
pal_gguf_value pal_gguf_read(pal_gguf_reader *r); /* one value; moves past it */
bool pal_gguf_is(pal_slice key, const char *name);

/* Magic, version (2 or 3), and the numbers of tensors and of pairs. */
pal_status pal_gguf_begin(pal_gguf_reader *r, const char *path, uint64_t *tensors, uint64_t *pairs, pal_error *err);

#endif
