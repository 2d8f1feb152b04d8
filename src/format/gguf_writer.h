/* SPDX-License-Identifier: MIT */
/* A model as a GGUF file: plain Mamba2 as llama.cpp loads it, others as docs/reference/formats.md says. */
#ifndef PAL_FORMAT_GGUF_WRITER_H
#define PAL_FORMAT_GGUF_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "format/source.h"
#include "palimpsa/context.h"

typedef struct pal_gguf_contents {
    const char *architecture;                              /* "mamba2", one of pal_gguf_architectures, or a family's */
    const char *config;                                    /* JSON, for one of ours; the line below is for mamba2 */
    const struct json_t *family; /* metadata of a published family, whose names and shapes the tensors have already */
    int hidden, layers, conv, inner, state, heads, groups; /* groups: of keys and of the gated norm */
    int vocab, vocab_rows;
    double eps;
    const char *name;           /* general.name */
    const unsigned char *pairs; /* the tokenizer's key-value pairs, as text/gguf_export.h makes them */
    size_t pairs_size, pair_count;
    size_t count;
    const pal_tensor *const *tensors; /* of the source */
    const pal_dtype *types;           /* that they get; rows fill blocks */
    const pal_context *cx;            /* threads that encode; NULL: this one */
} pal_gguf_contents;

/* Written aside and renamed; an existing file is refused. */
pal_status pal_gguf_write(const char *path, const pal_source *source, const pal_gguf_contents *contents,
                          pal_go_on_fn *progress, void *user, pal_error *err);

#endif
