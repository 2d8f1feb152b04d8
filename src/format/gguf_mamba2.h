/* SPDX-License-Identifier: MIT */
/* What the metadata of a GGUF file says about its model, and the architecture mamba2: its names, its shapes, and its
 * configuration as one of Hugging Face's Mamba2. */
#ifndef PAL_FORMAT_GGUF_MAMBA2_H
#define PAL_FORMAT_GGUF_MAMBA2_H

#include "format/gguf_values.h"
#include "format/source.h"

enum { PAL_GGUF_MAPPED_NAME = 96 };

/* How the extents of a tensor, listed fastest first, become ours. */
typedef enum { PAL_GGUF_VECTOR, PAL_GGUF_MATRIX, PAL_GGUF_TAPS, PAL_GGUF_FLAT, PAL_GGUF_DECAY } pal_gguf_shape;

/* What the pairs say; 0 where they say nothing. */
typedef struct pal_gguf_facts {
    pal_slice architecture, config; /* config: palimpsa.config */
    uint64_t alignment, embedding, blocks, feed_forward, conv, inner, state, heads, groups, vocab, unpadded;
    double eps;
    pal_gguf_value tokens, kinds;
} pal_gguf_facts;

/* Keeps a pair that matters. */
pal_status pal_gguf_take(pal_gguf_facts *k, const char *path, pal_slice key, const pal_gguf_value *v, pal_error *err);
/* Whether the facts make a Mamba2. */
pal_status pal_gguf_mamba2_check(const pal_gguf_facts *k, const char *path, pal_error *err);
/* Our name of a tensor; false: it does not belong to Mamba2. */
bool pal_gguf_mamba2_name(char out[PAL_GGUF_MAPPED_NAME], pal_gguf_shape *shape, pal_slice name);
/* Extents as we list them, slowest first. A contradiction with the configuration is found when the model is built. */
void pal_gguf_mamba2_shape(pal_tensor *t, pal_gguf_shape shape, int rank, const int64_t *dims);
/* Tokens without those at the end that are marked unused, which are padding of the embedding of so many rows. */
uint64_t pal_gguf_vocabulary(const unsigned char *file, const pal_gguf_facts *k, uint64_t rows);
/* source->config, once the tensors are known. file: all of it, where the facts point into. */
pal_status pal_gguf_mamba2_config(pal_source *source, const pal_gguf_facts *k, const unsigned char *file,
                                  pal_error *err);

#endif
