/* SPDX-License-Identifier: MIT */
/* Small tokenizers of every format, built in memory, and random text. */
#ifndef PAL_TEST_TEXT_H
#define PAL_TEST_TEXT_H

#include "support/models.h"
#include "support/support.h"
#include "text/tokenizer.h"

/* Files of a tiny vocabulary. Each is appended to a zeroed pal_bytes; the caller frees it. */
void test_tiny_json(pal_bytes *out, const char *normalizer); /* byte-level BPE; normalizer: JSON, "null" for none */
void test_tiny_vocab(pal_bytes *vocab, pal_bytes *merges);   /* GPT-2's two files */
void test_tiny_spm(pal_bytes *out, bool unigram);            /* byte fallback, user-defined symbol <u> */
void test_tiny_gguf(pal_bytes *out, bool spm);

/* The same through the readers; fails the test when a reader refuses. */
typedef enum {
    TINY_BYTES,
    TINY_JSON,
    TINY_JSON_NFC,
    TINY_GPT2,
    TINY_SPM,
    TINY_UNIGRAM,
    TINY_GGUF_BPE,
    TINY_GGUF_SPM,
    TINY_TRAINED,
    TINY_KINDS
} tiny_kind;
extern const char *const tiny_names[TINY_KINDS];
pal_tokenizer *test_tiny(tiny_kind kind);
pal_tokenizer *test_open(const char *spec); /* or a failed test */
pal_tokenizer *
test_letters(void); /* of the kinds of models.h: TEST_VOCAB characters, ids by code point: \n, blank, '.', a .. z */
pal_tokenizer *
test_data_tokenizer(const char *path); /* under PALIMPSA_DATA; NULL, with a message, when that is not set */

/* One reader by number, on bytes in a block of exactly that size: json, vocab+merges, SentencePiece, GGUF. */
enum { READER_JSON, READER_VOCAB, READER_SPM, READER_GGUF, READERS };
pal_status test_read(int reader, const unsigned char *bytes, size_t size, pal_tokenizer **out, pal_error *err);

/* A text in English enough to learn from, made from a seed. */
void test_prose(pal_bytes *out, pal_rng *rng, size_t size);
/* Random text: any bytes, or valid UTF-8 of characters that Unicode 9 knows (never U+2581 or zero). */
void test_random_bytes(pal_bytes *out, pal_rng *rng, size_t most);
void test_random_text(pal_bytes *out, pal_rng *rng, size_t most);

/* Encoding with its own scratch, or a failed test. */
void test_encode(const pal_tokenizer *tok, const void *text, size_t size, pal_ids *ids);
/* The names of ids with '|' between them; those of a text's ids, which are as expected or the test fails. */
enum { TEST_NAMES = 4096 };
void test_names(const pal_tokenizer *tok, const pal_ids *ids, char names[TEST_NAMES]);
void test_names_are(const pal_tokenizer *tok, const char *what, const char *text, const char *expected);
pal_tokenizer *test_tokenizer_of(const char *json); /* of a tokenizer.json, or a failed test */

#endif
