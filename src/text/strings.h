/* SPDX-License-Identifier: MIT */
/* Containers of the tokenizers: growing buffers, a list of byte strings, and hash maps from byte strings and from pairs
 * of ids. All are plain structs that start from zeroes. */
#ifndef PAL_TEXT_STRINGS_H
#define PAL_TEXT_STRINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "palimpsa/tokenizer.h"

#define PAL_NO_ID UINT32_MAX

/* Room for `more` elements after what is there. */
pal_status pal_bytes_reserve(pal_bytes *bytes, size_t more, pal_error *err);
pal_status pal_bytes_append(pal_bytes *bytes, const void *data, size_t size, pal_error *err);
pal_status pal_ids_reserve(pal_ids *ids, size_t more, pal_error *err);
pal_status pal_ids_append(pal_ids *ids, uint32_t id, pal_error *err);
/* Grows *block, which holds `used` elements of `size` bytes, to at least `need`; doubles, so that appending is linear.
 */
pal_status pal_grow(void **block, size_t *capacity, size_t used, size_t need, size_t size, pal_error *err);

/* How much longer a file's rules may make a text, all together: chains of them multiply. */
typedef struct pal_growth {
    size_t left, allowed;
    const char *file; /* whose tokens these are; NULL: a text to encode */
} pal_growth;
/* For a text of so many bytes that may grow so many times; rules in use stay below 14. */
static inline pal_growth pal_growth_of(size_t size, size_t times, const char *file) {
    const size_t allowed = times * size + (64 << 10);
    return (pal_growth){ .left = allowed, .allowed = allowed, .file = file };
}
pal_status pal_growth_take(pal_growth *g, size_t before, size_t after, pal_error *err); /* before bytes become after */
/* Appends text with `to` in the place of each `from`, which is not empty. */
pal_status pal_replace(pal_slice text, pal_slice from, pal_slice to, pal_growth *g, pal_bytes *out, pal_error *err);

/* For fingerprints: always the same. */
uint64_t pal_hash_bytes(const void *data, size_t size);
static inline uint64_t pal_hash_u64(uint64_t x) {
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

/* Strings 0 .. count-1, one after the other in one block. Below 4 GiB together. */
typedef struct pal_strings {
    pal_bytes bytes;
    uint32_t *start; /* count + 1 */
    size_t count, capacity;
} pal_strings;
pal_status pal_strings_add(pal_strings *s, const void *data, size_t size, pal_error *err);
void pal_strings_free(pal_strings *s);
static inline pal_slice pal_strings_at(const pal_strings *s, size_t i) {
    return (pal_slice){ s->bytes.data + s->start[i], s->start[i + 1] - s->start[i] };
}

/* Keys of the maps come from files, and a file whose keys all lie in one place would make them slow. So where a key
 * lies follows from numbers that no file knows: drawn at random before the first map. Nothing but the place of a slot
 * may follow from them. */
__extension__ typedef unsigned __int128 pal_u128;
typedef struct pal_map_secrets {
    uint64_t factor; /* below 2^61 - 1 */
    uint64_t mask, odd;
} pal_map_secrets;
extern pal_map_secrets pal_map_secret;

/* String to index: the strings stay in their pal_strings, the map holds hashes and indices. */
typedef struct pal_string_map {
    uint64_t *slots; /* upper half of the hash, then index + 1; 0 is empty */
    size_t mask, count;
} pal_string_map;
pal_status pal_string_map_reserve(pal_string_map *m, size_t count, pal_error *err);
/* Adds string `index`, or returns the index of an equal one already there. The map must have been reserved for it. */
uint32_t pal_string_map_add(pal_string_map *m, const pal_strings *s, uint32_t index);
uint32_t pal_string_map_find(const pal_string_map *m, const pal_strings *s, const void *data,
                             size_t size); /* PAL_NO_ID */
void pal_string_map_free(pal_string_map *m);

/* Two ids (or any 64-bit key but all ones) to two numbers. */
typedef struct pal_pair_slot {
    uint64_t key;
    uint32_t a, b;
} pal_pair_slot;
typedef struct pal_pair_map {
    pal_pair_slot *slots;
    size_t mask, count;
} pal_pair_map;
pal_status pal_pair_map_reserve(pal_pair_map *m, size_t count, pal_error *err);
pal_pair_slot *pal_pair_map_put(pal_pair_map *m, uint64_t key); /* the slot of key, new or old (new: a = PAL_NO_ID) */
void pal_pair_map_free(pal_pair_map *m);
static inline uint64_t pal_pair_key(uint32_t left, uint32_t right) { return (uint64_t)left << 32 | right; }
static inline uint64_t pal_pair_hash(uint64_t key) {
    const pal_u128 product = (pal_u128)(key ^ pal_map_secret.mask) * pal_map_secret.odd;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}
static inline const pal_pair_slot *pal_pair_map_find(const pal_pair_map *m, uint64_t key) {
    if (!m->slots) return NULL;
    for (size_t i = pal_pair_hash(key) & m->mask;; i = (i + 1) & m->mask) {
        const pal_pair_slot *slot = &m->slots[i];
        if (slot->key == key) return slot;
        if (slot->key == UINT64_MAX) return NULL;
    }
}

/* Bytes of many strings, walked one byte at a time from the root, node 0. A node is where strings part or end, with the
 * bytes that lead to it: of n strings there are less than 2 n nodes, however long they are. */
typedef struct pal_trie_node {
    uint32_t value;         /* PAL_NO_ID: no string ends here */
    uint32_t label, length; /* the bytes from its parent to here, in labels */
} pal_trie_node;
typedef struct pal_trie {
    pal_pair_map edges; /* node << 8 | first byte of the child's label -> child */
    pal_bytes labels;
    pal_trie_node *node;
    size_t nodes, capacity;
} pal_trie;
pal_status pal_trie_add(pal_trie *t, const void *data, size_t size, uint32_t value,
                        pal_error *err); /* a later value replaces */
void pal_trie_free(pal_trie *t);
/* A place on the way: so many bytes of the node's label are done. Start from zeroes, in a trie that is not empty. */
typedef struct pal_trie_place {
    uint32_t node, done;
} pal_trie_place;
/* False: no string continues like this. */
static inline bool pal_trie_step(const pal_trie *t, pal_trie_place *at, unsigned char byte) {
    const pal_trie_node *node = &t->node[at->node];
    if (at->done < node->length) return t->labels.data[node->label + at->done++] == byte;
    const pal_pair_slot *slot = pal_pair_map_find(&t->edges, (uint64_t)at->node << 8 | byte);
    if (slot) *at = (pal_trie_place){ .node = slot->a, .done = 1 };
    return slot != NULL;
}
/* Of the string that ends here; PAL_NO_ID: none does. */
static inline uint32_t pal_trie_value(const pal_trie *t, pal_trie_place at) {
    return at.done == t->node[at.node].length ? t->node[at.node].value : PAL_NO_ID;
}
/* Length of the longest string that data starts with (0: none), and its value. */
size_t pal_trie_longest(const pal_trie *t, const unsigned char *data, size_t size, uint32_t *value);

#endif
