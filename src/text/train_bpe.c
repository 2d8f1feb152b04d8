/* SPDX-License-Identifier: MIT */
/* Learning byte-level BPE. Distinct words are counted once; then the most frequent pair is merged, again and again. A
 * pair knows the words it was seen in, so that a merge touches only those, and a heap keeps pairs by count: an entry
 * whose count is no longer true is put back with the true one. Counts are exact and ties are broken by ids, so the
 * result depends on nothing but the text. */
#include <jansson.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "format/json.h"
#include "text/tokenizer.h"

#define END_OF_TEXT "<|endoftext|>"
enum { SIZE_MIN = 257, SIZE_MAX_IDS = 1 << 20, FIRST_BYTE = 1, NO_MORE = UINT32_MAX };

typedef struct {
    uint64_t count; /* of its occurrences in the texts */
    uint32_t left, right;
    uint32_t places; /* first of a chain of places; NO_MORE ends */
} pair_count;

typedef struct {
    uint32_t word, next;
} place;

typedef struct {
    uint64_t count;
    uint32_t left, right, index;
} heap_entry;

typedef struct {
    pal_strings words; /* distinct */
    pal_string_map map;
    uint64_t *counts; /* by word */
    size_t counts_capacity;

    uint32_t *symbols; /* all words one after the other */
    uint32_t *start;   /* by word; its length is in length[] */
    uint32_t *length;

    pal_pair_map pairs; /* pair -> index (a) */
    pair_count *pair;
    size_t pair_count_, pair_capacity;
    place *place;
    size_t place_count, place_capacity;
    heap_entry *heap;
    size_t heap_count, heap_capacity;

    pal_strings texts;      /* by id: the bytes of a token */
    uint32_t *left, *right; /* by id: what it was merged from */
    pal_error *err;
} trainer;

static pal_status add_word(trainer *t, const unsigned char *word, size_t size) {
    pal_status st;
    if (size > PAL_PRETOKEN_MAX)
        return pal_fail(t->err, PAL_E_ARGUMENT,
                        "a stretch of %zu bytes without a place to split it; at most %zu are accepted", size,
                        PAL_PRETOKEN_MAX);
    uint32_t index = pal_string_map_find(&t->map, &t->words, word, size);
    if (index == PAL_NO_ID) {
        void *block = t->counts;
        if ((st = pal_strings_add(&t->words, word, size, t->err))) return st;
        st = pal_grow(&block, &t->counts_capacity, t->words.count - 1, t->words.count, sizeof *t->counts, t->err);
        t->counts = block;
        if (st) return st;
        if (!t->map.slots || t->words.count * 2 > t->map.mask) { /* a larger map is filled anew */
            if ((st = pal_string_map_reserve(&t->map, t->words.count * 2, t->err))) return st;
            for (uint32_t i = 0; i + 1 < t->words.count; i++) pal_string_map_add(&t->map, &t->words, i);
        }
        index = pal_string_map_add(&t->map, &t->words, (uint32_t)t->words.count - 1);
        t->counts[index] = 0;
    }
    t->counts[index]++;
    return PAL_OK;
}

static pal_status count_words(trainer *t, const pal_slice *texts, size_t count) {
    pal_status st = PAL_OK;
    for (size_t i = 0; i < count; i++)
        for (size_t at = 0, size; at < texts[i].size && !st; at += size) {
            size = pal_gpt2_next(texts[i].data + at, texts[i].size - at);
            st = add_word(t, texts[i].data + at, size);
        }
    return st;
}

/* Highest count first; among equals the smaller left id, then the smaller right one. */
static bool goes_before(const heap_entry *a, const heap_entry *b) {
    if (a->count != b->count) return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static pal_status heap_push(trainer *t, uint32_t index) {
    const heap_entry e = { t->pair[index].count, t->pair[index].left, t->pair[index].right, index };
    void *block = t->heap;
    const pal_status st = pal_grow(&block, &t->heap_capacity, t->heap_count, t->heap_count + 1, sizeof *t->heap,
                                   t->err);
    t->heap = block;
    if (st) return st;
    size_t i = t->heap_count++;
    for (; i > 0 && goes_before(&e, &t->heap[(i - 1) / 2]); i = (i - 1) / 2) t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = e;
    return PAL_OK;
}

static heap_entry heap_pop(trainer *t) {
    const heap_entry top = t->heap[0], last = t->heap[--t->heap_count];
    size_t i = 0;
    for (size_t child = 1; child < t->heap_count; child = 2 * i + 1) {
        if (child + 1 < t->heap_count && goes_before(&t->heap[child + 1], &t->heap[child])) child++;
        if (!goes_before(&t->heap[child], &last)) break;
        t->heap[i] = t->heap[child];
        i = child;
    }
    t->heap[i] = last;
    return top;
}

/* One more occurrence of a pair in a word that occurs `count` times. Returns through *index the pair. */
static pal_status add_pair(trainer *t, uint32_t left, uint32_t right, uint32_t word, uint64_t count, uint32_t *index) {
    pal_status st;
    if ((st = pal_pair_map_reserve(&t->pairs, t->pairs.count + 1, t->err))) return st;
    pal_pair_slot *slot = pal_pair_map_put(&t->pairs, pal_pair_key(left, right));
    if (slot->a == PAL_NO_ID) {
        void *block = t->pair;
        st = pal_grow(&block, &t->pair_capacity, t->pair_count_, t->pair_count_ + 1, sizeof *t->pair, t->err);
        t->pair = block;
        if (st) return st;
        slot->a = (uint32_t)t->pair_count_;
        t->pair[t->pair_count_++] = (pair_count){ .left = left, .right = right, .places = NO_MORE };
    }
    *index = slot->a;
    pair_count *p = &t->pair[slot->a];
    p->count += count;
    if (p->places != NO_MORE && t->place[p->places].word == word) return PAL_OK; /* already in the chain */
    void *block = t->place;
    st = pal_grow(&block, &t->place_capacity, t->place_count, t->place_count + 1, sizeof *t->place, t->err);
    t->place = block;
    if (st) return st;
    t->place[t->place_count] = (place){ .word = word, .next = p->places };
    p->places = (uint32_t)t->place_count++;
    return PAL_OK;
}

static pal_status start_symbols(trainer *t, const uint32_t id_of_byte[256]) {
    pal_status st;
    void *block;
    const size_t words = t->words.count;
    if ((st = pal_alloc_named(&block, t->words.bytes.size, sizeof *t->symbols, "the text's words", t->err))) return st;
    t->symbols = block;
    if ((st = pal_alloc_named(&block, words, sizeof *t->start, "the text's words", t->err))) return st;
    t->start = block;
    if ((st = pal_alloc_named(&block, words, sizeof *t->length, "the text's words", t->err))) return st;
    t->length = block;
    for (size_t i = 0; i < t->words.bytes.size; i++) t->symbols[i] = id_of_byte[t->words.bytes.data[i]];
    for (uint32_t w = 0; w < words; w++) {
        t->start[w] = t->words.start[w];
        t->length[w] = t->words.start[w + 1] - t->words.start[w];
        const uint32_t *s = t->symbols + t->start[w];
        uint32_t index;
        for (uint32_t i = 0; i + 1 < t->length[w]; i++)
            if ((st = add_pair(t, s[i], s[i + 1], w, t->counts[w], &index))) return st;
    }
    for (uint32_t i = 0; i < t->pair_count_; i++)
        if ((st = heap_push(t, i))) return st;
    return PAL_OK;
}

static void drop_pair(trainer *t, uint32_t left, uint32_t right, uint64_t count) {
    const pal_pair_slot *slot = pal_pair_map_find(&t->pairs, pal_pair_key(left, right));
    if (slot) t->pair[slot->a].count -= count;
}

/* Replaces the pair by id in one word: pairs with the old neighbours go, those with the new ones come. */
static pal_status merge_word(trainer *t, uint32_t word, uint32_t left, uint32_t right, uint32_t id) {
    uint32_t *s = t->symbols + t->start[word], n = t->length[word], out = 0, index;
    const uint64_t count = t->counts[word];
    pal_status st;
    for (uint32_t i = 0; i < n; i++) {
        if (i + 1 == n || s[i] != left || s[i + 1] != right) {
            s[out++] = s[i];
            continue;
        }
        if (out) {
            drop_pair(t, s[out - 1], left, count);
            if ((st = add_pair(t, s[out - 1], id, word, count, &index))) return st;
        }
        drop_pair(t, left, right, count);
        if (i + 2 < n) {
            drop_pair(t, right, s[i + 2], count);
            if ((st = add_pair(t, id, s[i + 2], word, count, &index))) return st;
        }
        s[out++] = id;
        i++;
    }
    t->length[word] = out;
    return PAL_OK;
}

static pal_status merge_all(trainer *t, size_t size) {
    pal_status st;
    pal_bytes joined = { 0 };
    while (t->texts.count < size && t->heap_count) {
        const heap_entry top = heap_pop(t);
        const uint64_t count = t->pair[top.index].count;
        if (top.count != count) { /* it has become rarer since */
            if (count >= 2 && (st = heap_push(t, top.index))) goto done;
            continue;
        }
        if (count < 2) break;
        const uint32_t id = (uint32_t)t->texts.count;
        const pal_slice left = pal_strings_at(&t->texts, top.left), right = pal_strings_at(&t->texts, top.right);
        joined.size = 0;
        if ((st = pal_bytes_append(&joined, left.data, left.size, t->err))) goto done;
        if ((st = pal_bytes_append(&joined, right.data, right.size, t->err))) goto done;
        if ((st = pal_strings_add(&t->texts, joined.data, joined.size, t->err))) goto done;
        t->left[id] = top.left;
        t->right[id] = top.right;
        const size_t before = t->pair_count_;
        for (uint32_t p = t->pair[top.index].places; p != NO_MORE; p = t->place[p].next)
            if ((st = merge_word(t, t->place[p].word, top.left, top.right, id))) goto done;
        for (size_t i = before; i < t->pair_count_; i++)
            if (t->pair[i].count && (st = heap_push(t, (uint32_t)i))) goto done;
    }
    st = PAL_OK;
done:
    pal_bytes_free(&joined);
    return st;
}

static pal_status to_json(const trainer *t, pal_bytes *out) {
    json_t *vocab = json_object(), *merges = json_array();
    pal_bytes name = { 0 }, right = { 0 };
    pal_status st = PAL_OK;
    pal_json_set(vocab, END_OF_TEXT, json_integer(0));
    for (uint32_t id = FIRST_BYTE; id < t->texts.count && !st; id++) {
        name.size = 0;
        if ((st = pal_byte_level_name(pal_strings_at(&t->texts, id), &name, t->err))) break;
        pal_json_setn(vocab, (const char *)name.data, name.size, json_integer(id));
        if (id < FIRST_BYTE + 256) continue;
        name.size = right.size = 0;
        if ((st = pal_byte_level_name(pal_strings_at(&t->texts, t->left[id]), &name, t->err))) break;
        if ((st = pal_byte_level_name(pal_strings_at(&t->texts, t->right[id]), &right, t->err))) break;
        pal_json_append(
            merges, json_pack("[s%, s%]", (const char *)name.data, name.size, (const char *)right.data, right.size));
    }
    json_t *root = json_pack("{s:s, s:n, s:n, s:[{s:i, s:s, s:b, s:b, s:b, s:b, s:b}], s:n, s:{s:s, s:b, s:b, s:b}, "
                             "s:n, s:{s:s, s:b, s:b, s:b},"
                             " s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}}",
                             "version", "1.0", "truncation", "padding", "added_tokens", "id", 0, "content", END_OF_TEXT,
                             "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1, "normalizer",
                             "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                             "use_regex", 1, "post_processor", "decoder", "type", "ByteLevel", "add_prefix_space", 0,
                             "trim_offsets", 1, "use_regex", 1, "model", "type", "BPE", "dropout", "unk_token",
                             "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                             "ignore_merges", 0, "vocab", vocab, "merges", merges);
    char *text = root && !st ? pal_json_dumps(root, JSON_INDENT(1)) : NULL;
    if (!st && !text) st = pal_fail(t->err, PAL_E_MEMORY, "out of memory while writing a vocabulary");
    if (!st) st = pal_bytes_append(out, text, strlen(text), t->err);
    free(text);
    json_decref(root);
    pal_bytes_free(&name);
    pal_bytes_free(&right);
    return st;
}

/* Ids of bytes by the code points of their names, as others number them. */
static pal_status start_alphabet(trainer *t, size_t size, uint32_t id_of_byte[256]) {
    uint32_t code_of[256];
    pal_status st;
    void *block;
    pal_byte_alphabet(code_of);
    if ((st = pal_alloc_named(&block, size, sizeof *t->left, "a vocabulary", t->err))) return st;
    t->left = block;
    if ((st = pal_alloc_named(&block, size, sizeof *t->right, "a vocabulary", t->err))) return st;
    t->right = block;
    if ((st = pal_strings_add(&t->texts, END_OF_TEXT, strlen(END_OF_TEXT), t->err))) return st;
    for (uint32_t code = 0; code < 0x200; code++)
        for (unsigned b = 0; b < 256; b++) {
            if (code_of[b] != code) continue;
            id_of_byte[b] = (uint32_t)t->texts.count;
            if ((st = pal_strings_add(&t->texts, (unsigned char[1]){ (unsigned char)b }, 1, t->err))) return st;
        }
    return PAL_OK;
}

pal_status pal_tokenizer_train_bpe(pal_tokenizer **out, const pal_slice *texts, size_t count, size_t size,
                                   pal_error *err) {
    trainer t = { .err = err };
    uint32_t id_of_byte[256];
    pal_bytes json = { 0 };
    pal_status st;
    *out = NULL;
    if (size < SIZE_MIN || size > SIZE_MAX_IDS)
        return pal_fail(err, PAL_E_ARGUMENT, "a BPE vocabulary of %zu ids; expected %d (bytes and <|endoftext|>) to %d",
                        size, SIZE_MIN, SIZE_MAX_IDS);
    if ((st = start_alphabet(&t, size, id_of_byte))) goto done;
    if ((st = count_words(&t, texts, count))) goto done;
    if (t.words.count == 0) {
        st = pal_fail(err, PAL_E_ARGUMENT, "there is nothing to learn from: the text is empty");
        goto done;
    }
    if ((st = start_symbols(&t, id_of_byte))) goto done;
    if ((st = merge_all(&t, size))) goto done;
    if ((st = to_json(&t, &json))) goto done;
    st = pal_tokenizer_from_json(out, "the learned vocabulary", &json, err);
done:
    pal_bytes_free(&json);
    pal_strings_free(&t.words);
    pal_string_map_free(&t.map);
    pal_strings_free(&t.texts);
    pal_pair_map_free(&t.pairs);
    pal_free(t.counts);
    pal_free(t.symbols);
    pal_free(t.start);
    pal_free(t.length);
    pal_free(t.pair);
    pal_free(t.place);
    pal_free(t.heap);
    pal_free(t.left);
    pal_free(t.right);
    return st;
}
