/* SPDX-License-Identifier: MIT */
/* The bytes of all tokens in one order, such that tokens that begin alike lie together. */
#ifndef PAL_GRAMMAR_SPELLINGS_H
#define PAL_GRAMMAR_SPELLINGS_H

#include "text/tokenizer.h"

/* A node of a trie, in the order of a walk that goes down first. */
typedef struct pal_letter {
    uint32_t end;   /* the first node after those below this one */
    uint32_t first; /* in order: tokens that end here, up to the next node's */
    uint16_t depth; /* from 1 */
    uint8_t byte;
} pal_letter;

typedef struct pal_letters {
    pal_letter *node; /* one more than nodes: its first is the end of order */
    uint32_t nodes;
    uint32_t *order; /* ids */
} pal_letters;

typedef struct pal_spellings {
    const pal_tokenizer *tok;
    pal_letters all;
    pal_letters rest; /* those of them with other than plain bytes, see pal_byte_is_plain() */
    uint64_t *plain;  /* a bit by id: the others */
    size_t words;     /* of such a set */
    size_t longest;   /* bytes */
} pal_spellings;

enum { PAL_SPELLING_MOST = 4096 }; /* bytes; longer tokens are never written under a grammar */

pal_status pal_spellings_new(pal_spellings **out, const pal_tokenizer *tok, pal_error *err);
void pal_spellings_free(pal_spellings *s);
/* What a token is for a grammar; special tokens are their names between two marks. Appends nothing for a token that is
 * never written: without text, unknown, or one that ends texts. */
pal_status pal_spell(const pal_tokenizer *tok, uint32_t id, pal_bytes *out, pal_error *err);

/* Bytes that are in most tokens, and in strings of JSON without further ado. */
static inline bool pal_byte_is_plain(unsigned char b) { return b >= 0x20 && b < 0x7F && b != '"' && b != '\\'; }

#endif
