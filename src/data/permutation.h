/* SPDX-License-Identifier: MIT */
/* A shuffle without a table: a permutation of 0 .. n-1 that is computed where it is asked for. A Feistel network
 * permutes the numbers of the smallest even count of bits that holds n; what lands outside is sent through again until
 * it is inside. */
#ifndef PAL_DATA_PERMUTATION_H
#define PAL_DATA_PERMUTATION_H

#include <stdint.h>

static inline uint64_t pal_mix64(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* index < n. Below four rounds through the network on average. */
static inline uint64_t pal_permute(uint64_t index, uint64_t n, uint64_t key) {
    enum { ROUNDS = 6 };
    int half = 1;
    while (half < 32 && (n - 1) >> 2 * half) half++;
    const uint64_t mask = half == 32 ? 0xffffffffu : ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = index >> half, right = index & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            const uint64_t next = left ^ (pal_mix64(right + pal_mix64(key + round * 0x9e3779b97f4a7c15u)) & mask);
            left = right;
            right = next;
        }
        index = left << half | right;
    } while (index >= n);
    return index;
}

#endif
