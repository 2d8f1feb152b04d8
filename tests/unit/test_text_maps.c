/* SPDX-License-Identifier: MIT */
/* Maps whose keys come from files: no file can choose keys that lie in one place, and what is read does not depend on
 * where they lie. */
#include "support/text.h"
#include "text/gguf_export.h"

/* The most slots without an empty one between them. */
static size_t longest_run(const void *slots, size_t size, size_t count, const void *empty, size_t compared) {
    size_t run = 0, longest = 0;
    for (size_t i = 0; i < count; i++) {
        run = memcmp((const char *)slots + i * size, empty, compared) == 0 ? 0 : run + 1;
        if (run > longest) longest = run;
    }
    return longest;
}

enum { KEYS = 20000, LONGEST_RUN = 500 }; /* of keys that lie at random, the longest has some dozen */

/* One step of pal_hash_bytes, and the number that a step ending with `hash` began with. */
static uint64_t step(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    return hash ^ hash >> 32;
}
static uint64_t step_back(uint64_t hash) {
    uint64_t inverse = 1;
    for (int i = 0; i < 6; i++) inverse *= 2 - 0xff51afd7ed558ccdu * inverse;
    return (hash ^ hash >> 32) * inverse;
}

/* Of the hash without a secret, strings that are all equal can be computed. */
static void strings_do_not_meet(void **state) {
    (void)state;
    pal_strings strings = { 0 };
    pal_string_map map = { 0 };
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t words[2] = { i * 0x9e3779b97f4a7c15u, 0 };
        words[1] = step_back(0x1234567890abcdef) ^ step(16 * 0x9e3779b97f4a7c15u, words[0]);
        OK(pal_strings_add(&strings, words, sizeof words, err));
    }
    const pal_slice first = pal_strings_at(&strings, 0), last = pal_strings_at(&strings, KEYS - 1);
    assert_true(pal_hash_bytes(first.data, first.size) == pal_hash_bytes(last.data, last.size));
    OK(pal_string_map_reserve(&map, KEYS, err));
    for (uint32_t i = 0; i < KEYS; i++) assert_int_equal(pal_string_map_add(&map, &strings, i), i);
    const uint64_t empty = 0;
    const size_t run = longest_run(map.slots, sizeof *map.slots, map.mask + 1, &empty, sizeof empty);
    if (run > LONGEST_RUN) fail_msg("%zu strings side by side", run);
    pal_string_map_free(&map);
    pal_strings_free(&strings);
}

/* Pairs can be chosen such that without a secret they all lie in a small part of the table. */
static void pairs_do_not_meet(void **state) {
    (void)state;
    pal_pair_map map = { 0 };
    for (uint64_t key = 0; map.count < KEYS; key++) {
        if ((pal_hash_u64(key) & 0xFFFF) >= 0x800) continue;
        OK(pal_pair_map_reserve(&map, map.count + 1, err));
        pal_pair_map_put(&map, key)->a = (uint32_t)key;
    }
    assert_int_equal(map.mask, 0xFFFF);
    const uint64_t empty = UINT64_MAX;
    const size_t run = longest_run(map.slots, sizeof *map.slots, map.mask + 1, &empty, sizeof empty);
    if (run > LONGEST_RUN) fail_msg("%zu pairs side by side", run);
    pal_pair_map_free(&map);
}

/* A trie against the list of its strings, of few letters and all lengths, some of them prefixes of others. */
static void tries_find_the_longest_string(void **state) {
    (void)state;
    enum { ROUNDS = 40, STRINGS = 300, TEXT = 2000, MOST = 40 };
    pal_rng rng = pal_rng_at(11, 0);
    for (int round = 0; round < ROUNDS; round++) {
        pal_trie trie = { 0 };
        pal_strings strings = { 0 };
        unsigned char text[TEXT];
        uint32_t value = 0;
        assert_int_equal(pal_trie_longest(&trie, text, 0, &value), 0);
        for (size_t i = 0; i < TEXT; i++) text[i] = (unsigned char)pal_rng_below(&rng, round % 2 ? 2 : 256);
        for (uint32_t i = 0; i < STRINGS; i++) { /* parts of the text, the last byte sometimes another */
            unsigned char bytes[MOST];
            const size_t size = 1 + pal_rng_below(&rng, i % 2 ? 4 : MOST);
            memcpy(bytes, text + pal_rng_below(&rng, TEXT - MOST), size);
            if (i % 3 == 0) bytes[size - 1] ^= 1;
            OK(pal_strings_add(&strings, bytes, size, err));
            OK(pal_trie_add(&trie, bytes, size, i, err));
        }
        assert_true(trie.nodes <= 2 * STRINGS);
        for (size_t at = 0; at < TEXT; at++) {
            size_t longest = 0;
            uint32_t last = 0;
            for (uint32_t i = 0; i < STRINGS; i++) {
                const pal_slice s = pal_strings_at(&strings, i);
                if (s.size < longest || s.size > TEXT - at || memcmp(s.data, text + at, s.size) != 0) continue;
                longest = s.size;
                last = i;
            }
            assert_int_equal(pal_trie_longest(&trie, text + at, TEXT - at, &value), longest);
            if (longest) assert_int_equal(value, last);
        }
        pal_trie_free(&trie);
        pal_strings_free(&strings);
    }
}

/* Long strings take little more than their bytes. */
static void tries_are_small(void **state) {
    (void)state;
    enum { STRINGS = 1000, SIZE = 1000 };
    pal_rng rng = pal_rng_at(12, 0);
    pal_trie trie = { 0 };
    for (uint32_t i = 0; i < STRINGS; i++) {
        unsigned char bytes[SIZE];
        for (size_t k = 0; k < SIZE; k++) bytes[k] = (unsigned char)pal_rng_u32(&rng);
        OK(pal_trie_add(&trie, bytes, SIZE, i, err));
    }
    const size_t taken = (trie.edges.mask + 1) * sizeof *trie.edges.slots + trie.labels.capacity +
                         trie.capacity * sizeof *trie.node;
    if (taken > 3 * STRINGS * SIZE) fail_msg("%zu bytes for %d", taken, STRINGS * SIZE);
    pal_trie_free(&trie);
}

/* Every string is found, whatever its length and wherever zeros are. */
static void strings_of_all_lengths_are_found(void **state) {
    (void)state;
    enum { LENGTHS = 40 };
    pal_strings strings = { 0 };
    pal_string_map map = { 0 };
    unsigned char bytes[LENGTHS];
    for (size_t fill = 0; fill < 2; fill++)
        for (size_t size = fill; size < LENGTHS; size++) {
            memset(bytes, (int)fill, sizeof bytes);
            OK(pal_strings_add(&strings, bytes, size, err));
            for (size_t i = 0; fill && i + 1 < size; i++) { /* one byte is another */
                bytes[i] = 9;
                OK(pal_strings_add(&strings, bytes, size, err));
                bytes[i] = 1;
            }
        }
    OK(pal_string_map_reserve(&map, strings.count, err));
    for (uint32_t i = 0; i < strings.count; i++) assert_int_equal(pal_string_map_add(&map, &strings, i), i);
    for (uint32_t i = 0; i < strings.count; i++) {
        const pal_slice string = pal_strings_at(&strings, i);
        assert_int_equal(pal_string_map_find(&map, &strings, string.data, string.size), i);
    }
    memset(bytes, 2, sizeof bytes);
    for (size_t size = 1; size < LENGTHS; size++)
        assert_int_equal(pal_string_map_find(&map, &strings, bytes, size), PAL_NO_ID);
    pal_string_map_free(&map);
    pal_strings_free(&strings);
}

/* Ids, fingerprints and what is written are the same with other secrets. */
static void results_do_not_depend_on_the_secrets(void **state) {
    (void)state;
    const pal_map_secrets drawn = pal_map_secret;
    assert_true(drawn.factor >= 2 && (drawn.odd & 1)); /* the tests before have made maps */
    pal_rng rng = pal_rng_at(7, 0);
    pal_bytes text = { 0 };
    test_prose(&text, &rng, 20000);
    for (int kind = 0; kind < TINY_KINDS; kind++) {
        uint64_t fingerprint[2];
        pal_ids ids[2] = { 0 };
        pal_bytes written[2] = { 0 }; /* as GGUF, where that can be, and as it came or was learned */
        for (int i = 0; i < 2; i++) {
            size_t count = 0;
            pal_error err;
            pal_map_secret = i ? (pal_map_secrets){ .factor = 3, .mask = 5, .odd = 0x123456789abcdef1 } : drawn;
            pal_tokenizer *tok = test_tiny((tiny_kind)kind);
            if (pal_gguf_export(tok, tok->size, &written[i], &count, &err)) written[i].size = 0;
            assert_int_equal(pal_bytes_append(&written[i], tok->files[0].bytes.data, tok->files[0].bytes.size, &err),
                             PAL_OK);
            test_encode(tok, text.data, text.size, &ids[i]);
            fingerprint[i] = pal_tokenizer_fingerprint(tok);
            pal_tokenizer_close(tok);
        }
        assert_true(fingerprint[0] == fingerprint[1]);
        assert_int_equal(ids[0].count, ids[1].count);
        assert_memory_equal(ids[0].data, ids[1].data, ids[0].count * sizeof *ids[0].data);
        assert_int_equal(written[0].size, written[1].size);
        if (written[0].size) assert_memory_equal(written[0].data, written[1].data, written[0].size);
        for (int i = 0; i < 2; i++) {
            pal_ids_free(&ids[i]);
            pal_bytes_free(&written[i]);
        }
    }
    pal_map_secret = drawn;
    pal_bytes_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_do_not_meet),
        cmocka_unit_test(pairs_do_not_meet),
        cmocka_unit_test(tries_find_the_longest_string),
        cmocka_unit_test(tries_are_small),
        cmocka_unit_test(strings_of_all_lengths_are_found),
        cmocka_unit_test(results_do_not_depend_on_the_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
