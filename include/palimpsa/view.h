/* SPDX-License-Identifier: MIT */
/* Views: RAM that the caller owns and that a view only points into. */
#ifndef PALIMPSA_VIEW_H
#define PALIMPSA_VIEW_H

#include <stddef.h>

/* Rows of a matrix that may be part of a wider one: token t starts at data + t*stride (in floats). */
typedef struct pal_view {
    float *data;
    size_t stride;
} pal_view;
typedef struct pal_const_view {
    const float *data;
    size_t stride;
} pal_const_view;

/* A piece of text that the caller owns. It need not end with a zero byte and may hold some. */
typedef struct pal_slice {
    const unsigned char *data;
    size_t size;
} pal_slice;

#endif
