/* SPDX-License-Identifier: MIT */
/* Byte-pair merges. A word is a list of symbols; the pair of lowest rank is merged, the leftmost of equals first, until
 * no pair is left. Short words scan for the lowest rank, long ones keep a heap whose stale entries are recognised by
 * the rank that the pair has now. Words that occur again come from a small cache. */
#include "base/alloc.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

enum { SHORT_WORD = 40 };

static size_t cache_set(const uint64_t key[3], size_t size) {
    uint64_t h = (key[0] ^ size) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 32) ^ key[1]) * 0xff51afd7ed558ccdu;
    h = (h ^ (h >> 32) ^ key[2]) * 0xbf58476d1ce4e5b9u;
    return (size_t)(h >> 40) & (CACHE_SETS - 1);
}

static bool cache_hit(const pal_cache_entry *e, const uint64_t key[3], size_t size) {
    return e->key[0] == key[0] && e->key[1] == key[1] && e->key[2] == key[2] && e->size == size;
}

const pal_cache_entry *pal_cache_find(pal_tokenizer_scratch *s, const uint64_t key[3], size_t size) {
    pal_cache_entry *set = s->cache + 2 * cache_set(key, size);
    if (cache_hit(&set[0], key, size)) return &set[0];
    if (!cache_hit(&set[1], key, size)) return NULL;
    const pal_cache_entry used = set[1];
    set[1] = set[0];
    set[0] = used;
    return &set[0];
}

void pal_cache_store(pal_tokenizer_scratch *s, const uint64_t key[3], size_t size, const uint32_t *ids, size_t count) {
    if (count > CACHE_IDS) return;
    pal_cache_entry *set = s->cache + 2 * cache_set(key, size);
    set[1] = set[0];
    set[0] = (pal_cache_entry){ .key = { key[0], key[1], key[2] }, .size = (uint8_t)size, .count = (uint8_t)count };
    for (size_t i = 0; i < count; i++) set[0].ids[i] = ids[i];
}

pal_status pal_symbols_reserve(pal_tokenizer_scratch *s, size_t count, pal_error *err) {
    void *block = s->symbols;
    const pal_status st = pal_grow(&block, &s->symbols_capacity, 0, count, sizeof *s->symbols, err);
    s->symbols = block;
    return st;
}

/* A binary heap of rank << 32 | position, smallest first. */
static pal_status heap_push(pal_tokenizer_scratch *s, uint64_t entry, pal_error *err) {
    void *block = s->heap;
    const pal_status st = pal_grow(&block, &s->heap_capacity, s->heap_count, s->heap_count + 1, sizeof *s->heap, err);
    s->heap = block;
    if (st) return st;
    size_t i = s->heap_count++;
    for (; i > 0 && s->heap[(i - 1) / 2] > entry; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = entry;
    return PAL_OK;
}

static uint64_t heap_pop(pal_tokenizer_scratch *s) {
    const uint64_t top = s->heap[0], last = s->heap[--s->heap_count];
    size_t i = 0;
    for (size_t child = 1; child < s->heap_count; child = 2 * i + 1) {
        if (child + 1 < s->heap_count && s->heap[child + 1] < s->heap[child]) child++;
        if (s->heap[child] >= last) break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

/* Looks at the pair (left, next) again and queues it. */
static pal_status requeue(pal_tokenizer_scratch *s, uint32_t left, pal_pair_fn *pair, const void *arg, pal_error *err) {
    pal_symbol *sym = s->symbols;
    sym[left].rank = sym[left].next == PAL_NO_ID ? PAL_NO_ID : pair(arg, sym, left, sym[left].next, NULL);
    return sym[left].rank == PAL_NO_ID ? PAL_OK : heap_push(s, (uint64_t)sym[left].rank << 32 | left, err);
}

pal_status pal_merge(pal_tokenizer_scratch *s, size_t count, pal_pair_fn *pair, const void *arg, pal_error *err) {
    pal_symbol *sym = s->symbols;
    pal_status st;
    s->heap_count = 0;
    for (size_t i = 0; i < count; i++)
        if ((st = requeue(s, (uint32_t)i, pair, arg, err))) return st;
    while (s->heap_count) {
        const uint64_t top = heap_pop(s);
        const uint32_t left = (uint32_t)top;
        if (sym[left].rank != top >> 32) continue; /* the pair has changed, or the symbol is gone */
        const uint32_t right = sym[left].next, beyond = sym[right].next;
        uint32_t value = 0;
        pair(arg, sym, left, right, &value);
        sym[left].value = value;
        sym[left].next = beyond;
        sym[right].rank = PAL_NO_ID;
        if (beyond != PAL_NO_ID) sym[beyond].prev = left;
        if (sym[left].prev != PAL_NO_ID && (st = requeue(s, sym[left].prev, pair, arg, err))) return st;
        if ((st = requeue(s, left, pair, arg, err))) return st;
    }
    return PAL_OK;
}

static uint32_t merge_pair(const void *arg, const pal_symbol *symbols, uint32_t left, uint32_t right, uint32_t *value) {
    const pal_tokenizer *tok = arg;
    const pal_pair_slot *slot = pal_pair_map_find(&tok->merges,
                                                  pal_pair_key(symbols[left].value, symbols[right].value));
    if (!slot) return PAL_NO_ID;
    if (value) *value = slot->b;
    return slot->a;
}

static size_t merge_short(const pal_tokenizer *tok, uint32_t *ids, size_t count) {
    uint32_t rank[SHORT_WORD], made[SHORT_WORD];
    for (size_t i = 0; i + 1 < count; i++) {
        const pal_pair_slot *slot = pal_pair_map_find(&tok->merges, pal_pair_key(ids[i], ids[i + 1]));
        rank[i] = slot ? slot->a : PAL_NO_ID;
        made[i] = slot ? slot->b : 0;
    }
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == PAL_NO_ID) break;
        ids[best] = made[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            ids[i] = ids[i + 1];
            rank[i - 1] = rank[i];
            made[i - 1] = made[i];
        }
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < count; i++) {
            const pal_pair_slot *slot = pal_pair_map_find(&tok->merges, pal_pair_key(ids[i], ids[i + 1]));
            rank[i] = slot ? slot->a : PAL_NO_ID;
            made[i] = slot ? slot->b : 0;
        }
    }
    return count;
}

static pal_status refuse_character(const unsigned char *at, size_t size, size_t offset, pal_error *err) {
    uint32_t code;
    if (pal_utf8_read(at, size, &code))
        return pal_fail(err, PAL_E_ARGUMENT, "the character U+%04X at byte %zu is not in the vocabulary", code, offset);
    return pal_fail(err, PAL_E_ARGUMENT, "byte %zu (0x%02X) is not UTF-8, which this vocabulary of characters needs",
                    offset, at[0]);
}

/* The symbols of a word, as the package starts: known characters as they are, others as bytes, as the unknown token, or
 * not at all. A pending unknown is written before the next known character, and joined by the next unknown if fused. */
static pal_status first_symbols(const pal_tokenizer *tok, const unsigned char *word, size_t size, size_t offset,
                                pal_ids *ids, pal_error *err) {
    pal_status st;
    bool pending = false;
    if ((st = pal_ids_reserve(ids, size + 1, err))) return st; /* no symbol is shorter than a byte */
    uint32_t *out = ids->data + ids->count;
    for (size_t i = 0; i < size;) {
        uint32_t code, id;
        size_t length = 1;
        if (tok->byte_level || word[i] < 0x80) {
            id = tok->byte_id[word[i]];
        } else {
            length = pal_utf8_read(word + i, size - i, &code);
            id = length ? pal_string_map_find(&tok->by_key, &tok->names, word + i, length) : PAL_NO_ID;
            if (!length) length = 1;
        }
        if (id != PAL_NO_ID) {
            if (pending) *out++ = tok->unk;
            pending = false;
            *out++ = id;
        } else if (tok->strict) {
            return refuse_character(word + i, size - i, offset + i, err);
        } else {
            bool whole = tok->byte_fallback;
            for (size_t k = 0; k < length; k++) whole = whole && tok->fallback_id[word[i + k]] != PAL_NO_ID;
            if (whole) {
                for (size_t k = 0; k < length; k++) *out++ = tok->fallback_id[word[i + k]];
            } else if (tok->unk != PAL_NO_ID) {
                if (pending && !tok->fuse_unk) *out++ = tok->unk;
                pending = true;
            }
        }
        i += length;
    }
    if (pending) *out++ = tok->unk;
    ids->count = (size_t)(out - ids->data);
    return PAL_OK;
}

pal_status pal_bpe_plain(const pal_tokenizer *tok, pal_slice text, pal_ids *ids, pal_error *err) {
    return first_symbols(tok, text.data, text.size, 0, ids, err);
}

/* symbols -> s->word, merged */
static pal_status merge_long(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_error *err) {
    pal_status st;
    const size_t count = s->word.count;
    if ((st = pal_symbols_reserve(s, count, err))) return st;
    for (size_t i = 0; i < count; i++)
        s->symbols[i] = (pal_symbol){ .value = s->word.data[i],
                                      .prev = i ? (uint32_t)i - 1 : PAL_NO_ID,
                                      .next = i + 1 < count ? (uint32_t)i + 1 : PAL_NO_ID };
    if ((st = pal_merge(s, count, merge_pair, tok, err))) return st;
    s->word.count = 0;
    for (uint32_t i = 0; i != PAL_NO_ID; i = s->symbols[i].next) s->word.data[s->word.count++] = s->symbols[i].value;
    return PAL_OK;
}

static pal_status encode_word(const pal_tokenizer *tok, pal_tokenizer_scratch *s, const unsigned char *word,
                              size_t size, pal_error *err) {
    pal_status st;
    s->word.count = 0;
    if (tok->ignore_merges) {
        const uint32_t id = pal_string_map_find(&tok->by_key, tok->byte_level ? &tok->keys : &tok->names, word, size);
        if (id != PAL_NO_ID) return pal_ids_append(&s->word, id, err);
    }
    if ((st = first_symbols(tok, word, size, 0, &s->word, err))) return st;
    if (s->word.count <= SHORT_WORD) s->word.count = merge_short(tok, s->word.data, s->word.count);
    else if ((st = merge_long(tok, s, err))) return st;
    return PAL_OK;
}

pal_status pal_bpe_word(const pal_tokenizer *tok, pal_tokenizer_scratch *s, const unsigned char *word, size_t size,
                        pal_ids *ids, pal_error *err) {
    pal_status st;
    uint64_t key[3];
    const bool keep = pal_cache_key(key, word, size);
    if (keep) {
        const pal_cache_entry *e = pal_cache_find(s, key, size);
        if (e) {
            if (ids->count + CACHE_IDS > ids->capacity && (st = pal_ids_reserve(ids, CACHE_IDS, err))) return st;
            for (size_t i = 0; i < e->count; i++) ids->data[ids->count + i] = e->ids[i];
            ids->count += e->count;
            return PAL_OK;
        }
    }
    if (size > PAL_PRETOKEN_MAX)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "a stretch of %zu bytes without a place to split it; at most %zu are accepted", size,
                        PAL_PRETOKEN_MAX);
    if ((st = encode_word(tok, s, word, size, err))) return st;
    if (keep) pal_cache_store(s, key, size, s->word.data, s->word.count);
    if ((st = pal_ids_reserve(ids, s->word.count, err))) return st;
    if (s->word.count) memcpy(ids->data + ids->count, s->word.data, s->word.count * sizeof *ids->data);
    ids->count += s->word.count;
    return PAL_OK;
}
