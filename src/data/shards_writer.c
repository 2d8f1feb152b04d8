/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/map.h"
#include "data/shards_inside.h"

struct pal_shard_writer {
    pal_writer file;
    uint64_t number, tokenizer;
    uint32_t vocabulary;
    int width;
    unsigned char *buffer; /* HASH_BLOCK bytes of tokens that are not written yet */
    size_t buffered;
    uint64_t token_sum, count, ended;
    unsigned char *table;
    size_t documents, capacity;
    uint64_t bytes, words;
    bool continues, pairs;
    uint64_t response; /* of the document that is being written */
};

void pal_shard_writer_drop(pal_shard_writer *w) {
    if (!w) return;
    pal_writer_drop(&w->file);
    pal_free(w->buffer);
    pal_free(w->table);
    pal_free(w);
}

void pal_shard_writer_continue(pal_shard_writer *w) { w->continues = true; }

void pal_shard_writer_response(pal_shard_writer *w, uint64_t token) {
    w->pairs = true;
    w->response = token;
}

uint64_t pal_shard_writer_count(const pal_shard_writer *w) { return w->count; }

static pal_status put(pal_shard_writer *w, const void *data, size_t bytes, pal_error *err) {
    errno = 0;
    if (bytes && fwrite(data, 1, bytes, w->file.stream) != bytes)
        return pal_fail(err, PAL_E_IO, "%s: cannot write: %s", w->file.path, strerror(errno ? errno : EIO));
    return PAL_OK;
}

static pal_status flush_tokens(pal_shard_writer *w, pal_error *err) {
    if (!w->buffered) return PAL_OK;
    w->token_sum = pal_hash(w->token_sum, w->buffer, w->buffered);
    const pal_status st = put(w, w->buffer, w->buffered, err);
    w->buffered = 0;
    return st;
}

pal_status pal_shard_writer_new(pal_shard_writer **out, const char *directory, uint64_t number, uint64_t tokenizer,
                                uint32_t vocabulary, pal_error *err) {
    char path[4096], name[32];
    static const unsigned char blank[HEADER];
    pal_shard_writer *w;
    pal_status st;
    *out = NULL;
    if (number >= MOST_SHARDS)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: more than %d shards; make them larger", directory, MOST_SHARDS);
    snprintf(name, sizeof name, "%05" PRIu64 ".shard", number);
    if ((st = path_of(path, directory, name, err)) || (st = pal_alloc_named((void **)&w, 1, sizeof *w, "a shard", err)))
        return st;
    w->number = number, w->tokenizer = tokenizer, w->vocabulary = vocabulary, w->width = width_of(vocabulary);
    if ((st = pal_alloc_named((void **)&w->buffer, HASH_BLOCK, 1, "a shard", err)) ||
        (st = pal_writer_open(&w->file, path, err)) || (st = put(w, blank, HEADER, err))) {
        pal_shard_writer_drop(w);
        return st;
    }
    *out = w;
    return PAL_OK;
}

pal_status pal_shard_writer_tokens(pal_shard_writer *w, const uint32_t *ids, size_t count, pal_error *err) {
    pal_status st;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= w->vocabulary)
            return pal_fail(err, PAL_E_ARGUMENT, "%s: id %" PRIu32 " in a vocabulary of %" PRIu32, w->file.path, ids[i],
                            w->vocabulary);
        if (w->width == 2) {
            const uint16_t id = (uint16_t)ids[i];
            memcpy(w->buffer + w->buffered, &id, 2);
        } else memcpy(w->buffer + w->buffered, &ids[i], 4);
        w->buffered += (size_t)w->width;
        if (w->buffered == HASH_BLOCK && (st = flush_tokens(w, err))) return st;
    }
    w->count += count;
    return PAL_OK;
}

pal_status pal_shard_writer_end_document(pal_shard_writer *w, uint64_t bytes, uint64_t words, pal_error *err) {
    if (w->documents == w->capacity) {
        const size_t larger = w->capacity ? 2 * w->capacity : 1024;
        void *table;
        const pal_status st = pal_alloc_named(&table, larger, PAIRS_ENTRY, "a table of documents", err);
        if (st) return st;
        if (w->documents) memcpy(table, w->table, w->documents * PAIRS_ENTRY);
        pal_free(w->table);
        w->table = table;
        w->capacity = larger;
    }
    unsigned char *entry = w->table + w->documents++ * PAIRS_ENTRY;
    put64(entry, w->count), put64(entry + 8, bytes), put64(entry + 16, words), put64(entry + 24, w->response);
    w->response = 0;
    w->ended = w->count;
    w->bytes += bytes, w->words += words;
    return PAL_OK;
}

pal_status pal_shard_writer_finish(pal_shard_writer *w, pal_shard_sums *sums, pal_error *err) {
    static const unsigned char zero[8];
    unsigned char header[HEADER] = { 0 };
    const size_t size = w->pairs ? PAIRS_ENTRY : ENTRY, table = w->documents * size;
    pal_status st = PAL_OK;
    if (!w->documents || w->ended != w->count)
        st = pal_fail(err, PAL_E_ARGUMENT, "%s: a shard must end with a document", w->file.path);
    for (size_t d = 1; d < w->documents && !w->pairs; d++) /* nothing says where responses begin */
        memmove(w->table + d * ENTRY, w->table + d * PAIRS_ENTRY, ENTRY);
    if (!st) st = flush_tokens(w, err);
    if (!st) st = put(w, zero, (8 - w->count * (uint64_t)w->width % 8) % 8, err);
    if (!st) st = put(w, w->table, table, err);
    memcpy(header, SHARD_MAGIC, 8);
    put32(header + AT_VERSION, w->pairs ? PAIRS_VERSION : VERSION), put32(header + AT_WIDTH, (uint32_t)w->width);
    put64(header + AT_TOKENIZER, w->tokenizer), put64(header + AT_VOCABULARY, w->vocabulary);
    put64(header + AT_DOCUMENTS, w->documents), put64(header + AT_TOKENS, w->count),
        put64(header + AT_NUMBER, w->number), put64(header + AT_CONTINUES, w->continues);
    put64(header + AT_TOKEN_SUM, w->token_sum),
        put64(header + AT_TABLE_SUM, w->documents ? pal_hash(0, w->table, table) : 0);
    put64(header + AT_SUM, pal_hash(0, header, AT_SUM));
    if (!st && fseek(w->file.stream, 0, SEEK_SET) != 0)
        st = pal_fail(err, PAL_E_IO, "%s: cannot write: %s", w->file.path, strerror(errno));
    if (!st) st = put(w, header, HEADER, err);
    if (!st) st = pal_writer_commit(&w->file, err);
    *sums = (pal_shard_sums){ .documents = w->documents,
                              .tokens = w->count,
                              .bytes = w->bytes,
                              .words = w->words,
                              .checksum = get64(header + AT_SUM) };
    pal_shard_writer_drop(w);
    return st;
}
