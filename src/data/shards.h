/* SPDX-License-Identifier: MIT */
/* Token shards: tokenized text on disk, in a directory that also holds its tokenizer.
 *
 *     DIR/shards.json     written last: what the shards are, and where validation begins (docs/reference/formats.md)
 *     DIR/00000.shard     tokens and document boundaries; 00001.shard, ...
 *     DIR/tokenizer.json  or the tokenizer's other files
 *
 * A shard file, little-endian:
 *      0  8  "PALSHARD"
 *      8  4  version (1; 2: see below)          12  4  bytes of a token, 2 or 4
 *     16  8  fingerprint of the tokenizer       24  8  size of its vocabulary: every id is below
 *     32  8  documents D >= 1                   40  8  tokens N >= D
 *     48  8  number of this shard, from 0       56  8  1: its first document continues from the previous shard
 *     64  40 zero
 *    104  8  checksum of the tokens            112  8  checksum of the table of documents
 *    120  8  checksum of the 120 bytes above
 *    128     N tokens, zeroes up to a multiple of 8 bytes
 *            D entries of 24 bytes: end of the document in tokens, bytes and words of its original text;
 *            in version 2 of 32 bytes: also the token of the document that its response begins with
 * The file ends there. Opening maps it and checks everything but the tokens, which pal_shards_verify reads once. */
#ifndef PAL_DATA_SHARDS_H
#define PAL_DATA_SHARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "palimpsa/tokenizer.h"

/* The end of the set is for validation: its last documents, or the end of its only one. */
typedef enum pal_subset { PAL_SUBSET_ALL, PAL_SUBSET_TRAIN, PAL_SUBSET_VALID, PAL_SUBSETS } pal_subset;

/* A document's tokens, in the mapped file. A document that reaches over the end of a shard is two here. */
typedef struct pal_document {
    const unsigned char *data;
    int width; /* bytes of a token */
    uint64_t tokens;
    uint64_t response;     /* of pairs: tokens before the response */
    bool continues;        /* the rest of the document before it, which the end of a shard cut */
    uint64_t bytes, words; /* of the original text; words are the pieces between runs of white space (data/text.h) */
} pal_document;

static inline uint32_t pal_document_token(const pal_document *d, uint64_t i) {
    if (d->width == 2) {
        uint16_t id;
        memcpy(&id, d->data + 2 * i, 2);
        return id;
    }
    uint32_t id;
    memcpy(&id, d->data + 4 * i, 4);
    return id;
}
/* Tokens first .. first+count-1. False when one is not below `vocabulary`. */
bool pal_document_copy(const pal_document *d, uint64_t first, size_t count, uint32_t vocabulary, int32_t *ids);

typedef struct pal_shards pal_shards;

typedef struct pal_shards_info {
    const char *path;   /* the directory */
    uint64_t tokenizer; /* fingerprint */
    uint32_t vocabulary;
    int64_t eos; /* the id that ends every document; -1: none does */
    size_t shards;
    bool pairs;           /* documents are prompts with responses */
    uint64_t fingerprint; /* of the tokens and their boundaries: a different one means other data */
    struct {
        uint64_t documents, tokens, bytes, words;
    } subset[PAL_SUBSETS];
} pal_shards_info;

/* Opens a finished directory. Nothing in it is believed: sizes, order, checksums and the tokenizer of every shard are
 * checked. */
pal_status pal_shards_open(pal_shards **out, const char *directory, pal_error *err);
void pal_shards_close(pal_shards *shards);
const pal_shards_info *pal_shards_info_of(const pal_shards *shards);
pal_document pal_shards_document(const pal_shards *shards, pal_subset subset,
                                 uint64_t index); /* below subset[].documents */
/* Reads all tokens: their checksums, and that every id is in the vocabulary. */
pal_status pal_shards_verify(const pal_shards *shards, pal_error *err);
/* Whether a directory has a shards.json. */
bool pal_shards_exist(const char *directory);

/* Writing one shard: tokens as they come, then the end of each document. The file is written aside and renamed. */
typedef struct pal_shard_writer pal_shard_writer;
pal_status pal_shard_writer_new(pal_shard_writer **out, const char *directory, uint64_t number, uint64_t tokenizer,
                                uint32_t vocabulary, pal_error *err);
void pal_shard_writer_continue(pal_shard_writer *w); /* its first document continues from the previous shard */
/* The document that is being written is a pair, and this token of it begins the response: for all of them, or none. */
void pal_shard_writer_response(pal_shard_writer *w, uint64_t token);
pal_status pal_shard_writer_tokens(pal_shard_writer *w, const uint32_t *ids, size_t count, pal_error *err);
pal_status pal_shard_writer_end_document(pal_shard_writer *w, uint64_t bytes, uint64_t words, pal_error *err);
uint64_t pal_shard_writer_count(const pal_shard_writer *w); /* tokens so far */
/* Takes the writer over, whatever comes out. There must be a document and nothing after its end. */
typedef struct pal_shard_sums {
    uint64_t documents, tokens, bytes, words;
    uint64_t checksum; /* of the header, which holds those of the rest */
} pal_shard_sums;
pal_status pal_shard_writer_finish(pal_shard_writer *w, pal_shard_sums *sums, pal_error *err);
void pal_shard_writer_drop(pal_shard_writer *w); /* NULL is fine */

/* Writes shards.json over the shards that are there: the last step. valid: fraction of the documents, or of the text
 * when there is only one, from the end; 0: none. */
typedef struct pal_shards_summary {
    const pal_tokenizer *tokenizer;
    int64_t eos;
    size_t count;
    const pal_shard_sums *shards;
    double valid;
} pal_shards_summary;
pal_status pal_shards_finish(const char *directory, const pal_shards_summary *summary, pal_error *err);

#endif
