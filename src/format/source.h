/* SPDX-License-Identifier: MIT */
/* Any checkpoint as one thing: a configuration and named tensors, whatever files hold them. What is read: a directory
 * with safetensors (one file or shards) or with a torch pytorch_model.bin (one or shards), and a GGUF file. Mamba2 in
 * GGUF is turned into Hugging Face's, and published families (families/family.h) into lists of blocks under our names.
 *
 * Opening maps files and reads no tensor. Most tensors then lie in the mapping as they are (`data`); those that have to
 * be made (quantised ones, A_log of a GGUF) have none, and pal_source_read makes any part of them. */
#ifndef PAL_FORMAT_SOURCE_H
#define PAL_FORMAT_SOURCE_H

#include <jansson.h>

#include "palimpsa/safetensors.h"

/* One file that holds tensors; each kind of file fills one. A tensor is named by its index within the file. */
typedef struct pal_tensor_file {
    void *handle;
    /* Compares the bytes of a tensor with the checksum that the file keeps; NULL: it keeps none. */
    pal_status (*check)(void *handle, size_t index, pal_error *err);
    /* Values of a tensor without data; NULL: all have data. */
    pal_status (*read)(const void *handle, size_t index, size_t first, size_t count, float *to, pal_error *err);
    void (*close)(void *handle);
} pal_tensor_file;

typedef struct pal_source {
    char *path;         /* resolved: of a run directory, its newest checkpoint */
    bool one_file;      /* path is a file that holds everything, a tokenizer too; otherwise a directory */
    json_t *config;     /* as pal_config_read understands it */
    size_t count;
    pal_tensor *tensors; /* sorted by name */
    struct {
        size_t file, index;
        const char *stored;         /* type in the file: "F32", "Q4_K" */
        const unsigned char *bytes; /* of a GGUF file: what it holds there, in that type */
        const char *name;           /* in the file, where that is another; or NULL */
    } * origin;                     /* of each tensor */
    size_t ignored, ignored_bytes;  /* tensors of the files outside the model: of pictures, and the like */
    size_t file_count;
    pal_tensor_file *files;
} pal_source;

pal_status pal_source_open(pal_source *out, const char *path, pal_error *err);
/* The same to be trained or written anew: heads that a GGUF file has in another order come in the order of groups. */
pal_status pal_source_open_grouped(pal_source *out, const char *path, pal_error *err);
void pal_source_close(pal_source *source);                                     /* a zeroed one is fine */
const pal_tensor *pal_source_find(const pal_source *source, const char *name); /* NULL if absent */
/* The type that the file stores, which is not the dtype for quantised tensors (they read as F32). */
const char *pal_source_stored(const pal_source *source, const pal_tensor *tensor);
/* What the file calls it. */
const char *pal_source_name(const pal_source *source, const pal_tensor *tensor);
/* What a GGUF file holds for this tensor, to be copied into another file unchanged; NULL: the source is none. */
const unsigned char *pal_source_gguf_bytes(const pal_source *source, const pal_tensor *tensor);

/* Must be called before `data` of a tensor is believed; the second time costs nothing. */
pal_status pal_source_check(const pal_source *source, const pal_tensor *tensor, pal_error *err);
/* Elements first .. first+count-1 as f32; checks first. */
pal_status pal_source_read(const pal_source *source, const pal_tensor *tensor, size_t first, size_t count, float *to,
                           pal_error *err);
/* The same of values that lie in memory, in a type that models compute with. */
void pal_values_decode(pal_dtype type, const void *data, size_t first, size_t count, float *to);
size_t pal_tensor_bytes(const pal_tensor *tensor); /* of its data */

/* For those who fill a source: a file with room for `tensors` tensors, and a tensor of the last file. Names are
 * borrowed from the file. Afterwards pal_source_sort puts them in order and refuses a name that is there twice. */
pal_status pal_source_add_file(pal_source *source, const pal_tensor_file *file, size_t tensors, pal_error *err);
void pal_source_add(pal_source *source, const pal_tensor *tensor, size_t index, const char *stored);
pal_status pal_source_sort(pal_source *source, pal_error *err);

#endif
