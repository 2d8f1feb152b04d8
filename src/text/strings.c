/* SPDX-License-Identifier: MIT */
#include "text/strings.h"

#include <pthread.h>
#include <unistd.h>

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

pal_status pal_growth_take(pal_growth *g, size_t before, size_t after, pal_error *err) {
    if (after <= before) return PAL_OK;
    if (after - before <= g->left) {
        g->left -= after - before;
        return PAL_OK;
    }
    if (!g->file)
        return pal_fail(err, PAL_E_ARGUMENT, "the tokenizer's rules make this text more than %zu bytes longer",
                        g->allowed);
    return pal_fail(err, PAL_E_FORMAT, "%s: its rules make its tokens more than %zu bytes longer", g->file, g->allowed);
}

pal_status pal_replace(pal_slice text, pal_slice from, pal_slice to, pal_growth *g, pal_bytes *out, pal_error *err) {
    pal_status st;
    for (size_t done = 0; done < text.size;) {
        const unsigned char *hit = memmem(text.data + done, text.size - done, from.data, from.size);
        const size_t until = hit ? (size_t)(hit - text.data) : text.size;
        if ((st = pal_bytes_append(out, text.data + done, until - done, err))) return st;
        if (!hit) break;
        if ((st = pal_growth_take(g, from.size, to.size, err))) return st;
        if ((st = pal_bytes_append(out, to.data, to.size, err))) return st;
        done = until + from.size;
    }
    return PAL_OK;
}

/* Eight bytes at a time through one multiply. It finds accidents: equal hashes can be computed. */
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

pal_map_secrets pal_map_secret;
static bool secrets_drawn;

enum { FIELD = 61 }; /* numbers modulo the prime 2^61 - 1 */
static const uint64_t prime = ((uint64_t)1 << FIELD) - 1;

static void draw_secrets(void) {
    uint64_t drawn[3];
    if (getentropy(drawn, sizeof drawn) != 0) return;
    pal_map_secret = (pal_map_secrets){ .factor = 2 + drawn[0] % (prime - 2), .mask = drawn[1], .odd = drawn[2] | 1 };
    secrets_drawn = true;
}

static pal_status ready_secrets(pal_error *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, draw_secrets);
    return secrets_drawn ? PAL_OK : pal_fail(err, PAL_E_IO, "the system gives no random numbers, which tables need");
}

/* The bytes, seven at a time, as a polynomial at the secret factor: whatever strings there are, two of them meet for
 * few factors only. The first number encodes the length. */
static uint64_t string_hash(const void *data, size_t size) {
    const unsigned char *p = data;
    const uint64_t factor = pal_map_secret.factor;
    uint64_t h = (uint64_t)((size & 15) + 1) << 56, word;
    for (bool last = false; !last;) {
        if ((last = size < 8)) {
            word = 0;
            for (size_t i = 0; i < size; i++) word |= (uint64_t)p[i] << (8 * i);
        } else {
            memcpy(&word, p, 8);
            word &= ((uint64_t)1 << 56) - 1;
            p += 7;
            size -= 7;
        }
        const pal_u128 product = (pal_u128)(h + word) * factor;
        h = (uint64_t)(product & prime) + (uint64_t)(product >> FIELD);
        h = (h & prime) + (h >> FIELD);
    }
    return pal_hash_u64(h ^ pal_map_secret.mask);
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
    if ((st = ready_secrets(err))) return st;
    /* Maps are filled once, after reserving; growing a filled one would need the strings. */
    if ((st = pal_alloc_named(&block, size, sizeof *m->slots, "a vocabulary", err))) return st;
    pal_free(m->slots);
    *m = (pal_string_map){ .slots = block, .mask = size - 1 };
    return PAL_OK;
}

static uint64_t *string_slot(const pal_string_map *m, const pal_strings *s, const void *data, size_t size,
                             uint64_t *tag) {
    const uint64_t hash = string_hash(data, size);
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
    if ((st = ready_secrets(err))) return st;
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
    for (size_t i = pal_pair_hash(key) & m->mask;; i = (i + 1) & m->mask) {
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

/* Room for one more string of so many bytes: its end, and where it parts from another. */
static pal_status trie_reserve(pal_trie *t, size_t size, pal_error *err) {
    void *block = t->node;
    pal_status st;
    if (t->labels.size + size > UINT32_MAX)
        return pal_fail(err, PAL_E_FORMAT, "a vocabulary with more than 4 GiB of text");
    if ((st = pal_bytes_reserve(&t->labels, size, err))) return st;
    if ((st = pal_pair_map_reserve(&t->edges, t->edges.count + 2, err))) return st;
    st = pal_grow(&block, &t->capacity, t->nodes, t->nodes + 3, sizeof *t->node, err);
    t->node = block;
    return st;
}

static uint32_t trie_node(pal_trie *t, size_t label, size_t length) {
    t->node[t->nodes] = (pal_trie_node){ .value = PAL_NO_ID, .label = (uint32_t)label, .length = (uint32_t)length };
    return (uint32_t)t->nodes++;
}

/* The place becomes a node: what is left of its label leads to the node it was in. */
static uint32_t trie_part(pal_trie *t, uint32_t parent, uint32_t child, uint32_t done) {
    pal_trie_node *below = &t->node[child];
    const unsigned char *label = t->labels.data + below->label;
    const uint32_t middle = trie_node(t, below->label, done);
    pal_pair_map_put(&t->edges, (uint64_t)parent << 8 | label[0])->a = middle;
    pal_pair_map_put(&t->edges, (uint64_t)middle << 8 | label[done])->a = child;
    below->label += done;
    below->length -= done;
    return middle;
}

pal_status pal_trie_add(pal_trie *t, const void *data, size_t size, uint32_t value, pal_error *err) {
    const unsigned char *bytes = data;
    pal_status st;
    uint32_t node = 0;
    if ((st = trie_reserve(t, size, err))) return st;
    if (t->nodes == 0) trie_node(t, 0, 0);
    for (size_t i = 0; i < size;) {
        pal_pair_slot *edge = pal_pair_map_put(&t->edges, (uint64_t)node << 8 | bytes[i]);
        if (edge->a == PAL_NO_ID) { /* no string continues like this: all the rest leads to a new node */
            node = edge->a = trie_node(t, t->labels.size, size - i);
            memcpy(t->labels.data + t->labels.size, bytes + i, size - i);
            t->labels.size += size - i;
            break;
        }
        const uint32_t child = edge->a, length = t->node[child].length;
        const unsigned char *label = t->labels.data + t->node[child].label;
        uint32_t same = 1;
        while (same < length && i + same < size && label[same] == bytes[i + same]) same++;
        node = same < length ? trie_part(t, node, child, same) : child;
        i += same;
    }
    t->node[node].value = value;
    return PAL_OK;
}

size_t pal_trie_longest(const pal_trie *t, const unsigned char *data, size_t size, uint32_t *value) {
    size_t longest = 0;
    pal_trie_place at = { 0 };
    for (size_t i = 0; i < size && t->nodes && pal_trie_step(t, &at, data[i]); i++) {
        const uint32_t here = pal_trie_value(t, at);
        if (here == PAL_NO_ID) continue;
        longest = i + 1;
        *value = here;
    }
    return longest;
}

void pal_trie_free(pal_trie *t) {
    pal_pair_map_free(&t->edges);
    pal_bytes_free(&t->labels);
    pal_free(t->node);
    *t = (pal_trie){ 0 };
}
