/* SPDX-License-Identifier: MIT */
#include "text/strings.h"

#include "base/alloc.h"

pal_status pal_grow(void **block, size_t *capacity, size_t used, size_t need, size_t size, pal_error *err) {
    if (need <= *capacity) return PAL_OK;
    size_t room = *capacity < 8 ? 16 : *capacity * 2;
    if (room < need) room = need;
    void *larger;
    pal_status st;
    if ((st = pal_alloc_named(&larger, room, size, "a text buffer", err))) return st;
    if (used) memcpy(larger, *block, used * size);
    pal_free(*block);
    *block = larger;
    *capacity = room;
    return PAL_OK;
}

pal_status pal_bytes_reserve(pal_bytes *bytes, size_t more, pal_error *err) {
    void *block = bytes->data;
    const pal_status st = pal_grow(&block, &bytes->capacity, bytes->size, bytes->size + more, 1, err);
    bytes->data = block;
    return st;
}

pal_status pal_bytes_append(pal_bytes *bytes, const void *data, size_t size, pal_error *err) {
    pal_status st;
    if ((st = pal_bytes_reserve(bytes, size, err))) return st;
    if (size) memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    return PAL_OK;
}

pal_status pal_ids_reserve(pal_ids *ids, size_t more, pal_error *err) {
    void *block = ids->data;
    const pal_status st = pal_grow(&block, &ids->capacity, ids->count, ids->count + more, sizeof *ids->data, err);
    ids->data = block;
    return st;
}

pal_status pal_ids_append(pal_ids *ids, uint32_t id, pal_error *err) {
    pal_status st;
    if (ids->count == ids->capacity && (st = pal_ids_reserve(ids, 1, err))) return st;
    ids->data[ids->count++] = id;
    return PAL_OK;
}

void pal_bytes_free(pal_bytes *bytes) {
    pal_free(bytes->data);
    *bytes = (pal_bytes){ 0 };
}

void pal_ids_free(pal_ids *ids) {
    pal_free(ids->data);
    *ids = (pal_ids){ 0 };
}

/* Eight bytes at a time through one multiply; good enough for tables, and no table here is reachable by an attacker who
 * gains anything from collisions beyond the slowness of his own file. */
uint64_t pal_hash_bytes(const void *data, size_t size) {
    const unsigned char *p = data;
    uint64_t h = size * 0x9e3779b97f4a7c15u, word;
    for (; size >= 8; size -= 8, p += 8) {
        memcpy(&word, p, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    word = 0;
    for (size_t i = 0; i < size; i++) word |= (uint64_t)p[i] << (8 * i);
    return pal_hash_u64(h ^ word);
}

pal_status pal_strings_add(pal_strings *s, const void *data, size_t size, pal_error *err) {
    pal_status st;
    void *block = s->start;
    if (s->bytes.size + size > UINT32_MAX)
        return pal_fail(err, PAL_E_FORMAT, "a vocabulary with more than 4 GiB of text");
    st = pal_grow(&block, &s->capacity, s->count ? s->count + 1 : 0, s->count + 2, sizeof *s->start, err);
    s->start = block;
    if (!st) st = pal_bytes_reserve(&s->bytes, size + 1, err); /* where all are empty, too, there is a block */
    if (st || (st = pal_bytes_append(&s->bytes, data, size, err))) return st;
    s->start[++s->count] = (uint32_t)s->bytes.size;
    return PAL_OK;
}

void pal_strings_free(pal_strings *s) {
    pal_bytes_free(&s->bytes);
    pal_free(s->start);
    *s = (pal_strings){ 0 };
}

static size_t table_size(size_t count) {
    size_t size = 16;
    while (size < count * 2) size *= 2;
    return size;
}

pal_status pal_string_map_reserve(pal_string_map *m, size_t count, pal_error *err) {
    void *block;
    pal_status st;
    const size_t size = table_size(count);
    if (m->slots && size <= m->mask + 1) return PAL_OK;
    /* Maps are filled once, after reserving; growing a filled one would need the strings. */
    if ((st = pal_alloc_named(&block, size, sizeof *m->slots, "a vocabulary", err))) return st;
    pal_free(m->slots);
    *m = (pal_string_map){ .slots = block, .mask = size - 1 };
    return PAL_OK;
}

static uint64_t *string_slot(const pal_string_map *m, const pal_strings *s, const void *data, size_t size,
                             uint64_t *tag) {
    const uint64_t hash = pal_hash_bytes(data, size);
    *tag = hash & ~(uint64_t)UINT32_MAX;
    for (size_t i = hash & m->mask;; i = (i + 1) & m->mask) {
        uint64_t *slot = &m->slots[i];
        if (*slot == 0) return slot;
        if ((*slot & ~(uint64_t)UINT32_MAX) != *tag) continue;
        const pal_slice other = pal_strings_at(s, (uint32_t)*slot - 1);
        if (other.size == size && (size == 0 || memcmp(other.data, data, size) == 0)) return slot;
    }
}

uint32_t pal_string_map_add(pal_string_map *m, const pal_strings *s, uint32_t index) {
    const pal_slice string = pal_strings_at(s, index);
    uint64_t tag, *slot = string_slot(m, s, string.data, string.size, &tag);
    if (*slot == 0) {
        *slot = tag | (index + 1);
        m->count++;
    }
    return (uint32_t)*slot - 1;
}

uint32_t pal_string_map_find(const pal_string_map *m, const pal_strings *s, const void *data, size_t size) {
    uint64_t tag;
    if (!m->slots) return PAL_NO_ID;
    return (uint32_t)*string_slot(m, s, data, size, &tag) - 1;
}

void pal_string_map_free(pal_string_map *m) {
    pal_free(m->slots);
    *m = (pal_string_map){ 0 };
}

pal_status pal_pair_map_reserve(pal_pair_map *m, size_t count, pal_error *err) {
    void *block;
    pal_status st;
    const size_t size = table_size(count);
    if (m->slots && size <= m->mask + 1) return PAL_OK;
    if ((st = pal_alloc_named(&block, size, sizeof *m->slots, "a table of pairs", err))) return st;
    pal_pair_map larger = { .slots = block, .mask = size - 1 };
    for (size_t i = 0; i < size; i++) larger.slots[i].key = UINT64_MAX;
    for (size_t i = 0; m->slots && i <= m->mask; i++)
        if (m->slots[i].key != UINT64_MAX) *pal_pair_map_put(&larger, m->slots[i].key) = m->slots[i];
    pal_free(m->slots);
    *m = larger;
    return PAL_OK;
}

pal_pair_slot *pal_pair_map_put(pal_pair_map *m, uint64_t key) {
    for (size_t i = pal_hash_u64(key) & m->mask;; i = (i + 1) & m->mask) {
        pal_pair_slot *slot = &m->slots[i];
        if (slot->key == key) return slot;
        if (slot->key != UINT64_MAX) continue;
        *slot = (pal_pair_slot){ .key = key, .a = PAL_NO_ID };
        m->count++;
        return slot;
    }
}

void pal_pair_map_free(pal_pair_map *m) {
    pal_free(m->slots);
    *m = (pal_pair_map){ 0 };
}

static pal_status trie_node(pal_trie *t, pal_error *err) {
    void *block = t->value;
    const pal_status st = pal_grow(&block, &t->capacity, t->nodes, t->nodes + 1, sizeof *t->value, err);
    t->value = block;
    if (!st) t->value[t->nodes++] = PAL_NO_ID;
    return st;
}

pal_status pal_trie_add(pal_trie *t, const void *data, size_t size, uint32_t value, pal_error *err) {
    const unsigned char *bytes = data;
    pal_status st;
    uint32_t node = 0;
    if (t->nodes == 0 && (st = trie_node(t, err))) return st;
    for (size_t i = 0; i < size; i++) {
        if ((st = pal_pair_map_reserve(&t->edges, t->edges.count + 1, err))) return st;
        pal_pair_slot *edge = pal_pair_map_put(&t->edges, (uint64_t)node << 8 | bytes[i]);
        if (edge->a == PAL_NO_ID) {
            if ((st = trie_node(t, err))) return st;
            edge->a = (uint32_t)(t->nodes - 1);
        }
        node = edge->a;
    }
    t->value[node] = value;
    return PAL_OK;
}

size_t pal_trie_longest(const pal_trie *t, const unsigned char *data, size_t size, uint32_t *value) {
    size_t longest = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        node = pal_trie_step(t, node, data[i]);
        if (node == PAL_NO_ID) break;
        if (t->value[node] == PAL_NO_ID) continue;
        longest = i + 1;
        *value = t->value[node];
    }
    return longest;
}

void pal_trie_free(pal_trie *t) {
    pal_pair_map_free(&t->edges);
    pal_free(t->value);
    *t = (pal_trie){ 0 };
}
