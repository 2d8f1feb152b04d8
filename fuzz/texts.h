/* SPDX-License-Identifier: MIT */
#ifndef PAL_FUZZ_TEXTS_H
#define PAL_FUZZ_TEXTS_H

#include "palimpsa/tokenizer.h"

/* Encodes a text, decodes its ids at once and one by one, and compares. Returns whether it could be encoded. */
bool fuzz_text(const pal_tokenizer *tok, const void *text, size_t size, const pal_encode_options *options,
               pal_bytes *decoded);
/* The same with some texts that are hard for tokenizers. */
void fuzz_texts(const pal_tokenizer *tok);

#endif
