/* SPDX-License-Identifier: MIT */
/* The head of a safetensors file, for those who write the data themselves. */
#ifndef PAL_FORMAT_SAFETENSORS_HEADER_H
#define PAL_FORMAT_SAFETENSORS_HEADER_H

#include <stdbool.h>

#include "palimpsa/safetensors.h"

/* Everything before the data. offsets[i] is where tensor i (in the caller's order) begins in the file. */
typedef struct pal_safetensors_head {
    unsigned char *bytes; /* pal_free */
    size_t size;
    size_t file; /* bytes of the whole file */
} pal_safetensors_head;

/* Checks the tensors; with_data also that they have data. `order`, if not NULL, takes the tensors as they lie in the
 * file. */
pal_status pal_safetensors_make_head(pal_safetensors_head *out, size_t *offsets, const pal_tensor **order,
                                     const char *path, const pal_tensor *tensors, size_t count,
                                     const char *const *metadata, bool with_data, pal_error *err);

/* pal_safetensors_write with data that is asked for tensor by tensor, in the order of the file. path NULL: it is asked
 * for, and nothing is written. */
typedef pal_status pal_fetch_fn(void *user, const pal_tensor *tensor, const void **data, pal_error *err);
pal_status pal_safetensors_write_fetched(const char *path, const pal_tensor *tensors, size_t count,
                                         const char *const *metadata, pal_fetch_fn *fetch, void *user, pal_error *err);

#endif
