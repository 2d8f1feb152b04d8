/* SPDX-License-Identifier: MIT */
/* A fast 64-bit hash for checksums and fingerprints. It finds accidents, not attackers. */
#ifndef PAL_BASE_HASH_H
#define PAL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Continues `seed` over n bytes; start with 0. The result depends on the bytes and where the calls are cut. */
static inline uint64_t pal_hash(uint64_t seed, const void *data, size_t n) {
    const unsigned char *bytes = data;
    uint64_t hash = seed ^ (n * 0x9e3779b97f4a7c15u);
    for (; n >= 8; n -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    uint64_t tail = 0;
    if (n) memcpy(&tail, bytes, n); /* an empty file has no bytes to point at */
    hash = (hash ^ tail) * 0xbf58476d1ce4e5b9u;
    return hash ^ hash >> 32;
}

#endif
