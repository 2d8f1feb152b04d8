/* SPDX-License-Identifier: MIT */
#ifndef PAL_FUZZ_GGUF_H
#define PAL_FUZZ_GGUF_H

#include <stddef.h>

/* Reads a GGUF file of these bytes: every tensor, the tokenizer in it, which encodes and decodes, and the model, which
 * reads a token. */
void fuzz_gguf(const void *data, size_t size);

#endif
