/* SPDX-License-Identifier: MIT */
/* The layout of a shard (shards.h), for those who read and write it. */
#ifndef PAL_DATA_SHARDS_INSIDE_H
#define PAL_DATA_SHARDS_INSIDE_H

#include <stdio.h>

#include "base/directory.h"
#include "data/shards.h"

enum { HEADER = 128, VERSION = 1, PAIRS_VERSION = 2, HASH_BLOCK = 1 << 20 };
enum { ENTRY = 24, PAIRS_ENTRY = 32 }; /* bytes of a document in the table */
#define SHARD_MAGIC "PALSHARD"
#define MOST_SHARDS 99999 /* five digits in a name */

/* offsets in the header */
enum {
    AT_VERSION = 8,
    AT_WIDTH = 12,
    AT_TOKENIZER = 16,
    AT_VOCABULARY = 24,
    AT_DOCUMENTS = 32,
    AT_TOKENS = 40,
    AT_NUMBER = 48,
    AT_CONTINUES = 56,
    AT_TOKEN_SUM = 104,
    AT_TABLE_SUM = 112,
    AT_SUM = 120
};

static inline uint64_t get64(const unsigned char *p) {
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}
static inline uint32_t get32(const unsigned char *p) {
    uint32_t x;
    memcpy(&x, p, 4);
    return x;
}
static inline void put64(unsigned char *p, uint64_t x) { memcpy(p, &x, 8); }
static inline void put32(unsigned char *p, uint32_t x) { memcpy(p, &x, 4); }

static inline int width_of(uint32_t vocabulary) { return vocabulary <= 65536 ? 2 : 4; }

static inline pal_status path_of(char path[4096], const char *directory, const char *name, pal_error *err) {
    return pal_path(path, 4096, err, "%s/%s", directory, name);
}

#endif
