/* SPDX-License-Identifier: MIT */
/* Safetensors files, read by mapping and written atomically.
 *
 * The reader is strict: header of at most 100 MB that starts with '{', unique names, known dtypes, sizes that follow
 * from the shapes, and data that covers the file from the end of the header to its last byte without hole or overlap. A
 * file that breaks a rule is refused with a sentence; no number in a file makes us allocate more than a small multiple
 * of the file's own size. */
#ifndef PALIMPSA_SAFETENSORS_H
#define PALIMPSA_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "palimpsa/matrix.h"
#include "palimpsa/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PAL_MAX_RANK 8

typedef struct pal_tensor {
    const char *name;
    pal_dtype dtype;
    int rank;
    int64_t shape[PAL_MAX_RANK];
    size_t count; /* elements; 1 for rank 0 */
    const void *data;
} pal_tensor;

typedef struct pal_safetensors pal_safetensors;

PAL_API pal_status pal_safetensors_open(pal_safetensors **out, const char *path, pal_error *err);
/* The same from memory that stays valid until close; `name` stands for the path in messages. */
PAL_API pal_status pal_safetensors_parse(pal_safetensors **out, const char *name, const void *bytes, size_t size,
                                         pal_error *err);
PAL_API void pal_safetensors_close(pal_safetensors *st);

/* Tensors in the order of their data. Views are borrowed until close. */
PAL_API size_t pal_safetensors_count(const pal_safetensors *st);
PAL_API const pal_tensor *pal_safetensors_at(const pal_safetensors *st, size_t index);
PAL_API const pal_tensor *pal_safetensors_find(const pal_safetensors *st, const char *name); /* NULL if absent */
PAL_API const char *pal_safetensors_metadata(const pal_safetensors *st, const char *key);    /* NULL if absent */

/* Converts any numeric tensor to f32; dst has tensor->count elements. I64 beyond 2^24 rounds. */
PAL_API pal_status pal_tensor_to_f32(const pal_tensor *tensor, float *dst, pal_error *err);

/* Checks the tensors (names, dtypes, counts that follow from the shapes), then writes path through a temporary next to
 * it (written, synced, renamed, directory synced): afterwards the path holds the old file or the new one, never a part.
 * metadata: key, value, key, value, ..., NULL; or NULL for none. */
PAL_API pal_status pal_safetensors_write(const char *path, const pal_tensor *tensors, size_t count,
                                         const char *const *metadata, pal_error *err);

#ifdef __cplusplus
}
#endif
#endif
