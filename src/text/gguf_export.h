/* SPDX-License-Identifier: MIT */
/* A tokenizer as the key-value pairs that llama.cpp expects in a GGUF file. */
#ifndef PAL_TEXT_GGUF_EXPORT_H
#define PAL_TEXT_GGUF_EXPORT_H

#include "text/tokenizer.h"

/* Appends the pairs and adds their number to *count. The list of tokens gets `rows` entries; ids that do not exist are
 * called [PADn] and marked unused. tok NULL: a file without a vocabulary. */
pal_status pal_gguf_export(const pal_tokenizer *tok, size_t rows, pal_bytes *out, size_t *count, pal_error *err);
/* For a file that only we read: a tokenizer.json goes into it as it is, other tokenizers as above; NULL: nothing. */
pal_status pal_gguf_export_own(const pal_tokenizer *tok, size_t rows, pal_bytes *out, size_t *count, pal_error *err);

#endif
