/* SPDX-License-Identifier: MIT */
/* GGUF files name the rules of a byte-level BPE; here is what the tokenizers of these names do. */
#ifndef PAL_TEXT_GGUF_PRE_H
#define PAL_TEXT_GGUF_PRE_H

#include "text/tokenizer.h"

extern const char pal_llama3_pattern[], pal_qwen2_pattern[], pal_qwen35_pattern[];

typedef struct pal_gguf_pre {
    const char *name, *pattern;
    bool nfc;
    bool whole;     /* a pre-token that is in the vocabulary is one token, whatever merges say (ignore_merges) */
    bool bos;       /* BOS is put in front where the file does not say it */
    bool raw_added; /* added tokens are found in the text before NFC, not only special ones */
} pal_gguf_pre;

const pal_gguf_pre *pal_gguf_pre_find(pal_slice name); /* NULL: not known */
/* The name for a tokenizer's rules, the first where several say the same; NULL: there is none. */
const pal_gguf_pre *pal_gguf_pre_of(const pal_tokenizer *tok);

#endif
