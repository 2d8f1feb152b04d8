/* SPDX-License-Identifier: MIT */
/* Plain Mamba2 as a GGUF file that llama.cpp loads. */
#ifndef PAL_FORMAT_GGUF_WRITER_H
#define PAL_FORMAT_GGUF_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "format/source.h"

typedef struct pal_gguf_plan {
    int hidden, layers, conv, inner, state, heads, groups; /* groups: of keys and of the gated norm */
    int vocab, vocab_rows;
    double eps;
    const char *name;           /* general.name */
    const unsigned char *pairs; /* the tokenizer's key-value pairs, as text/gguf_export.h makes them */
    size_t pairs_size, pair_count;
    int type; /* pal_dtype of the matrices; -1: as in the source. Everything else is F32. */
    size_t count;
    const pal_tensor *const *tensors; /* of the source */
} pal_gguf_plan;

/* Written aside and renamed; an existing file is refused. */
pal_status pal_gguf_write(const char *path, const pal_source *source, const pal_gguf_plan *plan, pal_go_on_fn *progress,
                          void *user, pal_error *err);

#endif
