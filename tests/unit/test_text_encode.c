/* SPDX-License-Identifier: MIT */
/* What tokenizers promise about text: it comes back, splits are where the pattern says, merges are the reference's. */
#include <jansson.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "base/parallel.h"
#include "support/files.h"
#include "support/text.h"
#include "text/hf_json.h"
#include "text/pattern.h"

static void decode_is(const pal_tokenizer *tok, const char *name, int turn, const pal_ids *ids, const void *text,
                      size_t size) {
    pal_bytes back = { 0 };
    pal_error err;
    if (pal_tokenizer_decode(tok, ids->data, ids->count, false, &back, &err))
        fail_msg("%s, case %d: %s", name, turn, err.text);
    if (back.size != size || (size && memcmp(back.data, text, size) != 0))
        fail_msg("%s, case %d: %zu bytes came back as %zu: '%.*s' became '%.*s'", name, turn, size, back.size,
                 (int)size, (const char *)text, (int)back.size, (const char *)back.data);
    pal_bytes_free(&back);
}

/* Streams the ids one by one: the same bytes, and never a part of a character that the next id completes. */
static void stream_is(const pal_tokenizer *tok, const pal_ids *ids, const void *text, size_t size, bool utf8) {
    pal_decoder *d;
    pal_bytes out = { 0 };
    assert_int_equal(pal_decoder_new(&d, tok, false, NULL), PAL_OK);
    for (size_t i = 0; i < ids->count; i++) {
        assert_int_equal(pal_decoder_push(d, ids->data[i], &out, NULL), PAL_OK);
        for (size_t at = 0; utf8 && at < out.size;) {
            utf8proc_int32_t code;
            const utf8proc_ssize_t length = utf8proc_iterate(out.data + at, (utf8proc_ssize_t)(out.size - at), &code);
            if (length <= 0) fail_msg("a part of a character was released");
            at += (size_t)length;
        }
    }
    assert_int_equal(pal_decoder_finish(d, &out, NULL), PAL_OK);
    assert_int_equal(out.size, size);
    if (size) assert_memory_equal(out.data, text, size);
    pal_decoder_free(d);
    pal_bytes_free(&out);
}

/* NFC of what stands between special tokens, which are cut out first: a mark after one does not join its '>'. */
static void nfc_around_special(const pal_bytes *text, pal_bytes *out) {
    static const char special[] = "<|endoftext|>";
    const size_t length = strlen(special);
    out->size = 0;
    for (size_t at = 0; at < text->size;) {
        const unsigned char *hit = memmem(text->data + at, text->size - at, special, length);
        const size_t end = hit ? (size_t)(hit - text->data) : text->size;
        utf8proc_uint8_t *normal = NULL;
        const utf8proc_ssize_t size = utf8proc_map(text->data + at, (utf8proc_ssize_t)(end - at), &normal,
                                                   UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        assert_true(size >= 0);
        assert_int_equal(pal_bytes_append(out, normal, (size_t)size, NULL), PAL_OK);
        free(normal);
        if (hit) assert_int_equal(pal_bytes_append(out, special, length, NULL), PAL_OK);
        at = end + (hit ? length : 0);
    }
}

/* any: any bytes come back; else valid text, through NFC where the tokenizer has it. */
static void round_trip(const pal_tokenizer *tok, const char *name, bool any, bool nfc, int cases) {
    pal_tokenizer_scratch *s;
    pal_error err;
    pal_ids ids = { 0 };
    pal_bytes text = { 0 }, normal = { 0 };
    pal_rng rng = pal_rng_at(11, 5);
    assert_int_equal(pal_tokenizer_scratch_new(&s, tok, &err), PAL_OK);
    for (int turn = 0; turn < cases; turn++) {
        const size_t most = turn % 50 ? 60 : 2000;
        text.size = ids.count = 0;
        if (any && turn % 2) test_random_bytes(&text, &rng, most);
        else test_random_text(&text, &rng, most);
        if (pal_tokenizer_encode(tok, s, text.data, text.size, NULL, &ids, &err))
            fail_msg("%s, case %d: %s", name, turn, err.text);
        for (size_t i = 0; i < ids.count; i++) assert_true(ids.data[i] < pal_tokenizer_size(tok));
        if (nfc) nfc_around_special(&text, &normal);
        const pal_bytes *expected = nfc ? &normal : &text;
        decode_is(tok, name, turn, &ids, expected->data, expected->size);
        if (turn % 10 == 0) stream_is(tok, &ids, expected->data, expected->size, !any || turn % 2 == 0);
    }
    pal_ids_free(&ids);
    pal_bytes_free(&text);
    pal_bytes_free(&normal);
    pal_tokenizer_scratch_free(s);
}

static void random_strings_come_back(void **state) {
    (void)state;
    for (tiny_kind kind = 0; kind < TINY_KINDS; kind++) {
        const bool spm = kind == TINY_SPM || kind == TINY_UNIGRAM || kind == TINY_GGUF_SPM;
        pal_tokenizer *tok = test_tiny(kind);
        round_trip(tok, tiny_names[kind], !spm && kind != TINY_JSON_NFC, kind == TINY_JSON_NFC,
                   test_cases(2000, 100000));
        pal_tokenizer_close(tok);
    }
}

static void random_strings_come_back_from_real_vocabularies(void **state) {
    (void)state;
    static const struct {
        const char *path;
        bool any, nfc;
    } real[] = { { "gpt-neox", false, true },
                 { "gpt2", true, false },
                 { "llama2", false, false },
                 { "llama.cpp-vectors/ggml-vocab-gpt-2.gguf", true, false },
                 { "llama.cpp-vectors/ggml-vocab-gpt-neox.gguf", false, true },
                 { "llama.cpp-vectors/ggml-vocab-llama-spm.gguf", false, false } };
    if (!getenv("PALIMPSA_DATA")) {
        print_message("skipped: PALIMPSA_DATA is not set\n");
        skip();
    }
    for (size_t i = 0; i < PAL_COUNT(real); i++) {
        pal_tokenizer *tok = test_data_tokenizer(real[i].path);
        round_trip(tok, real[i].path, real[i].any, real[i].nfc, test_cases(500, 100000));
        pal_tokenizer_close(tok);
    }
}

/* The first match at or after `at`; text.size: none. */
static void find(const pal_pattern *pattern, pal_tokenizer_scratch *s, pal_slice text, size_t at, size_t *start,
                 size_t *end) {
    pal_matches m = { .from = at };
    pal_error err;
    bool found;
    pal_pattern_begin(s, text.size);
    if (pal_pattern_next(pattern, s, text, &m, &found, &err)) fail_msg("%s", err.text);
    *start = found ? m.start : text.size;
    *end = found ? m.end : text.size;
}

static void pattern_by_hand_equals_the_engine(void **state) {
    (void)state;
    pal_pattern *pattern;
    pal_tokenizer_scratch s = { 0 };
    pal_error err;
    pal_bytes text = { 0 };
    pal_rng rng = pal_rng_at(3, 3);
    assert_int_equal(pal_pattern_new(&pattern, "GPT-2",
                                     (pal_slice){ (const unsigned char *)pal_gpt2_pattern, strlen(pal_gpt2_pattern) },
                                     &err),
                     PAL_OK);
    for (int turn = 0; turn < test_cases(3000, 100000); turn++) {
        text.size = 0;
        test_random_text(&text, &rng, 80);
        for (size_t at = 0, start, end; at < text.size; at = end) {
            find(pattern, &s, (pal_slice){ text.data, text.size }, at, &start, &end);
            assert_int_equal(start, at); /* the pattern leaves no gap */
            const size_t by_hand = pal_gpt2_next(text.data + at, text.size - at);
            if (by_hand != end - at)
                fail_msg("case %d: at byte %zu the pattern takes %zu bytes, by hand %zu: %.*s", turn, at, end - at,
                         by_hand, (int)text.size, (char *)text.data);
        }
    }
    pal_bytes_free(&text);
    pal_pattern_scratch_free(&s);
    pal_pattern_free(pattern);
}

static void every_character_has_the_class_of_the_pattern(void **state) {
    (void)state;
    pal_pattern *pattern;
    pal_tokenizer_scratch s = { 0 };
    pal_error err;
    assert_int_equal(pal_pattern_new(&pattern, "GPT-2",
                                     (pal_slice){ (const unsigned char *)pal_gpt2_pattern, strlen(pal_gpt2_pattern) },
                                     &err),
                     PAL_OK);
    /* "a", the character twice, "1": where the splits are says letter, number, blank or other. Up to the planes that
     * Unicode 13 filled; unassigned ones are left out, newer tables may know them. */
    for (uint32_t code = 1; code < 0x20000; code++) {
        unsigned char text[16] = "a";
        if (code >= 0xD800 && code < 0xE000) continue;
        if (utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_CN) continue;
        if (code >= 0x870 && code <= 0x89F) continue; /* Unicode 14 and later */
        size_t size = 1 + (size_t)utf8proc_encode_char((utf8proc_int32_t)code, text + 1), start, end;
        size += (size_t)utf8proc_encode_char((utf8proc_int32_t)code, text + size);
        text[size++] = '1';
        find(pattern, &s, (pal_slice){ text, size }, 0, &start, &end);
        const size_t first = end, by_hand = pal_gpt2_next(text, size);
        find(pattern, &s, (pal_slice){ text, size }, first, &start, &end);
        if (by_hand != first || (first < size && pal_gpt2_next(text + first, size - first) != end - first)) {
            /* Oniguruma and utf8proc have the tables of different versions: what only one of them knows is none. */
            pal_pattern *unknown;
            assert_int_equal(
                pal_pattern_new(&unknown, "unassigned", (pal_slice){ (const unsigned char *)"\\p{Cn}", 6 }, &err),
                PAL_OK);
            find(unknown, &s, (pal_slice){ text, size }, 0, &start, &end);
            pal_pattern_free(unknown);
            if (start == size) fail_msg("U+%04X: the pattern and the matcher by hand differ", code);
        }
    }
    pal_pattern_scratch_free(&s);
    pal_pattern_free(pattern);
}

/* Merges read from the file, applied by looking for the lowest rank again and again. */
typedef struct {
    json_t *root, *vocab, *merges;
} reference;

static size_t reference_word(const reference *r, pal_slice word, uint32_t *ids) {
    pal_bytes name = { 0 };
    char *part[512];
    size_t count = 0;
    assert_true(word.size <= 512);
    for (size_t i = 0; i < word.size; i++) {
        name.size = 0;
        assert_int_equal(pal_byte_level_name((pal_slice){ word.data + i, 1 }, &name, NULL), PAL_OK);
        part[count] = strndup((char *)name.data, name.size);
        count++;
    }
    for (;;) {
        size_t best = SIZE_MAX, at = 0;
        for (size_t i = 0; i + 1 < count; i++)
            for (size_t m = 0; m < json_array_size(r->merges) && m < best; m++) {
                const json_t *merge = json_array_get(r->merges, m);
                if (strcmp(json_string_value(json_array_get(merge, 0)), part[i]) == 0 &&
                    strcmp(json_string_value(json_array_get(merge, 1)), part[i + 1]) == 0)
                    best = m, at = i;
            }
        if (best == SIZE_MAX) break;
        char *joined = NULL;
        assert_true(asprintf(&joined, "%s%s", part[at], part[at + 1]) > 0);
        free(part[at]);
        free(part[at + 1]);
        part[at] = joined;
        memmove(part + at + 1, part + at + 2, (count - at - 2) * sizeof *part);
        count--;
    }
    for (size_t i = 0; i < count; i++) {
        ids[i] = (uint32_t)json_integer_value(json_object_get(r->vocab, part[i]));
        free(part[i]);
    }
    pal_bytes_free(&name);
    return count;
}

static void trained_vocabulary_gives_the_ids_of_plain_merging(void **state) {
    (void)state;
    pal_tokenizer *tok = test_tiny(TINY_TRAINED);
    reference r = { .root = json_loadb((char *)tok->files[0].bytes.data, tok->files[0].bytes.size, 0, NULL) };
    pal_rng rng = pal_rng_at(21, 1);
    pal_bytes text = { 0 };
    pal_ids ids = { 0 };
    uint32_t expected[512];
    assert_non_null(r.root);
    r.vocab = json_object_get(json_object_get(r.root, "model"), "vocab");
    r.merges = json_object_get(json_object_get(r.root, "model"), "merges");
    assert_int_equal(pal_tokenizer_size(tok), json_object_size(r.vocab));
    assert_true(json_array_size(r.merges) > 100);
    for (int turn = 0; turn < test_cases(30, 1000); turn++) {
        text.size = ids.count = 0;
        if (turn % 3) test_prose(&text, &rng, 300);
        else test_random_bytes(&text, &rng, 200);
        test_encode(tok, text.data, text.size, &ids);
        size_t done = 0;
        for (size_t at = 0, size; at < text.size; at += size) {
            size = pal_gpt2_next(text.data + at, text.size - at);
            const size_t count = reference_word(&r, (pal_slice){ text.data + at, size }, expected);
            assert_true(done + count <= ids.count);
            assert_memory_equal(ids.data + done, expected, count * sizeof *expected);
            done += count;
        }
        assert_int_equal(done, ids.count);
    }
    /* One long word takes the other way, by the heap. */
    text.size = ids.count = 0;
    for (int i = 0; i < 450; i++)
        assert_int_equal(pal_bytes_append(&text, &"abananmisp"[pal_rng_below(&rng, 10)], 1, NULL), PAL_OK);
    test_encode(tok, text.data, text.size, &ids);
    assert_int_equal(reference_word(&r, (pal_slice){ text.data, text.size }, expected), ids.count);
    assert_memory_equal(ids.data, expected, ids.count * sizeof *expected);
    json_decref(r.root);
    pal_bytes_free(&text);
    pal_ids_free(&ids);
    pal_tokenizer_close(tok);
}

static void training_is_deterministic_and_counts_pairs(void **state) {
    (void)state;
    pal_tokenizer *a = test_tiny(TINY_TRAINED), *b = test_tiny(TINY_TRAINED), *c;
    pal_error err;
    assert_true(pal_tokenizer_fingerprint(a) == pal_tokenizer_fingerprint(b));
    assert_int_equal(a->files[0].bytes.size, b->files[0].bytes.size);
    assert_memory_equal(a->files[0].bytes.data, b->files[0].bytes.data, a->files[0].bytes.size);
    pal_tokenizer_close(a);
    pal_tokenizer_close(b);
    /* "ab" occurs 3 times; then " ab" and "abc" twice each, of which the one with the smaller left id goes first; then
     * no pair occurs twice: two merges, whatever size was asked for. */
    const char *text = "abc abc ab";
    assert_int_equal(
        pal_tokenizer_train_bpe(&c, &(pal_slice){ (const unsigned char *)text, strlen(text) }, 1, 1000, &err), PAL_OK);
    assert_true(pal_tokenizer_find(c, "ab") == 257);
    assert_true(pal_tokenizer_find(c, "\xC4\xA0"
                                      "ab") == 258);
    assert_int_equal(pal_tokenizer_size(c), 259);
    pal_tokenizer_close(c);
    assert_int_equal(pal_tokenizer_train_bpe(&c, &(pal_slice){ NULL, 0 }, 1, 1000, &err), PAL_E_ARGUMENT);
    assert_int_equal(pal_tokenizer_train_bpe(&c, &(pal_slice){ (const unsigned char *)text, 5 }, 1, 100, &err),
                     PAL_E_ARGUMENT);
}

static void characters_are_learned_in_order_and_others_refused(void **state) {
    (void)state;
    pal_tokenizer *tok, *again;
    pal_tokenizer_scratch *s;
    pal_error err;
    pal_ids ids = { 0 };
    const char *text = "hello \xE6\x97\xA5w\n\xC3\xA9";
    const pal_slice slice = { (const unsigned char *)text, strlen(text) };
    assert_int_equal(pal_tokenizer_learn_chars(&tok, &slice, 1, &err), PAL_OK);
    assert_int_equal(pal_tokenizer_size(tok), 9);
    assert_true(pal_tokenizer_eos(tok) == -1);
    test_encode(tok, "\nol", 3, &ids);
    assert_int_equal(ids.count, 3);
    assert_true(ids.data[0] == 0 && ids.data[1] == 5 && ids.data[2] == 4); /* \n blank e h l o w ... by code point */
    ids.count = 0;
    test_encode(tok, text, slice.size, &ids);
    decode_is(tok, "chars", 0, &ids, text, slice.size);
    assert_int_equal(pal_tokenizer_scratch_new(&s, tok, &err), PAL_OK);
    const size_t before = ids.count;
    assert_int_equal(pal_tokenizer_encode(tok, s, "hez", 3, NULL, &ids, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "U+007A at byte 2"));
    assert_int_equal(pal_tokenizer_encode(tok, s, "he\xFF", 3, NULL, &ids, &err), PAL_E_ARGUMENT);
    assert_int_equal(ids.count, before); /* nothing half-done */
    pal_tokenizer_scratch_free(s);

    char directory[256];
    test_directory(directory);
    assert_int_equal(pal_tokenizer_save(tok, directory, &err), PAL_OK);
    again = test_open(directory);
    assert_true(pal_tokenizer_fingerprint(again) == pal_tokenizer_fingerprint(tok));
    test_remove(directory);
    pal_tokenizer_close(again);
    pal_tokenizer_close(tok);
    pal_ids_free(&ids);
    assert_int_equal(pal_tokenizer_learn_chars(&tok, &(pal_slice){ (const unsigned char *)"a\xFF", 2 }, 1, &err),
                     PAL_E_ARGUMENT);
    assert_int_equal(pal_tokenizer_learn_chars(&tok, &(pal_slice){ (const unsigned char *)"a\0b", 3 }, 1, &err),
                     PAL_E_ARGUMENT);
    assert_int_equal(pal_tokenizer_learn_chars(&tok, &(pal_slice){ NULL, 0 }, 1, &err), PAL_E_ARGUMENT);
    assert_int_equal(pal_tokenizer_open(&tok, "chars", &err), PAL_E_ARGUMENT);
}

static void bytes_are_their_own_ids(void **state) {
    (void)state;
    pal_tokenizer *tok = test_open("bytes");
    unsigned char all[256];
    pal_ids ids = { 0 };
    for (int i = 0; i < 256; i++) all[i] = (unsigned char)i;
    assert_int_equal(pal_tokenizer_size(tok), 256);
    assert_string_equal(pal_tokenizer_kind(tok), "bytes");
    assert_true(pal_tokenizer_eos(tok) == -1 && pal_tokenizer_bos(tok) == -1);
    test_encode(tok, all, 256, &ids);
    assert_int_equal(ids.count, 256);
    for (uint32_t i = 0; i < 256; i++) assert_true(ids.data[i] == i);
    pal_ids_free(&ids);
    pal_tokenizer_close(tok);
}

static void special_tokens_are_found_added_and_skipped(void **state) {
    (void)state;
    pal_tokenizer *tok = test_tiny(TINY_JSON);
    pal_tokenizer_scratch *s;
    pal_error err;
    pal_ids ids = { 0 };
    pal_bytes text = { 0 };
    const char *input = "a<|endoftext|>b";
    assert_int_equal(pal_tokenizer_scratch_new(&s, tok, &err), PAL_OK);
    assert_int_equal(pal_tokenizer_encode(tok, s, input, strlen(input), NULL, &ids, &err), PAL_OK);
    assert_true(ids.count == 3 && ids.data[1] == 0 && pal_tokenizer_is_special(tok, 0));
    assert_int_equal(pal_tokenizer_decode(tok, ids.data, ids.count, true, &text, &err), PAL_OK);
    assert_true(text.size == 2 && memcmp(text.data, "ab", 2) == 0);
    ids.count = 0;
    assert_int_equal(pal_tokenizer_encode(tok, s, input, strlen(input),
                                          &(pal_encode_options){ .special_as_text = true }, &ids, &err),
                     PAL_OK);
    assert_true(ids.count > 10);
    decode_is(tok, "special as text", 0, &ids, input, strlen(input));
    ids.count = 0;
    assert_int_equal(pal_tokenizer_encode(tok, s, "a", 1, &(pal_encode_options){ .add_special = true }, &ids, &err),
                     PAL_OK);
    assert_true(ids.count == 2 && ids.data[1] == 0);
    assert_int_equal(pal_tokenizer_decode(tok, (uint32_t[]){ 5000 }, 1, false, &text, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "5000"));
    pal_tokenizer *other = test_open("bytes");
    assert_int_equal(pal_tokenizer_encode(other, s, "a", 1, NULL, &ids, &err), PAL_E_ARGUMENT);
    pal_tokenizer_close(other);
    pal_ids_free(&ids);
    pal_bytes_free(&text);
    pal_tokenizer_scratch_free(s);
    pal_tokenizer_close(tok);
}

static void the_cache_never_confuses_words(void **state) {
    (void)state;
    pal_tokenizer *tok = test_tiny(TINY_JSON);
    pal_tokenizer_scratch *s;
    pal_ids ids = { 0 };
    pal_rng rng = pal_rng_at(17, 17);
    assert_int_equal(pal_tokenizer_scratch_new(&s, tok, NULL), PAL_OK);
    for (int turn = 0; turn < 300000; turn++) { /* far more words than the cache holds, that differ in one place only */
        char word[25] = "thethethethethethethethe";
        const uint32_t place = 8 * pal_rng_below(&rng, 3), size = 17 + pal_rng_below(&rng, 8);
        for (uint32_t i = place; i < place + 8 && i < size; i++) word[i] = (char)('a' + pal_rng_below(&rng, 26));
        ids.count = 0;
        assert_int_equal(pal_tokenizer_encode(tok, s, word, size, NULL, &ids, NULL), PAL_OK);
        decode_is(tok, "cache", turn, &ids, word, size);
    }
    pal_ids_free(&ids);
    pal_tokenizer_scratch_free(s);
    pal_tokenizer_close(tok);
}

/* Known by hand: ranks decide, not length. */
static void merges_go_by_rank(void **state) {
    (void)state;
    static const tiny_kind kinds[] = { TINY_JSON, TINY_JSON_NFC, TINY_GPT2, TINY_GGUF_BPE };
    for (size_t k = 0; k < PAL_COUNT(kinds); k++) {
        pal_tokenizer *tok = test_tiny(kinds[k]);
        pal_ids ids = { 0 };
        test_encode(tok, "hello the  low", 14, &ids);
        static const char *const expected[] = { "hello", "\xC4\xA0the", "\xC4\xA0", "\xC4\xA0", "low" };
        assert_int_equal(ids.count, 5);
        for (size_t i = 0; i < 5; i++) assert_true(pal_tokenizer_find(tok, expected[i]) == (int64_t)ids.data[i]);
        assert_true(pal_tokenizer_eos(tok) == 0 || kinds[k] != TINY_GGUF_BPE);
        pal_ids_free(&ids);
        pal_tokenizer_close(tok);
    }
    /* SentencePiece: the highest score first; "the" from pieces, an unknown character as its bytes, <u> whole. */
    for (int unigram = 0; unigram < 2; unigram++) {
        pal_tokenizer *tok = test_tiny(unigram ? TINY_UNIGRAM : TINY_SPM);
        pal_ids ids = { 0 };
        test_encode(tok, "the<u>thing \xC3\xB1", 14, &ids);
        static const char *const expected[] = { "\xE2\x96\x81the", "<u>",    "t",     "h", "ing",
                                                "\xE2\x96\x81",    "<0xC3>", "<0xB1>" };
        assert_int_equal(ids.count, PAL_COUNT(expected));
        for (size_t i = 0; i < ids.count; i++)
            assert_true(pal_tokenizer_find(tok, expected[i]) == (int64_t)ids.data[i]);
        pal_ids_free(&ids);
        pal_tokenizer_close(tok);
    }
}

/* Control tokens come from what is not said, in any mixture; nothing said, or all of it, is as without marks or as
 * text. The SentencePiece vocabularies have a mark of a chat template that is a user-defined symbol. */
static void what_is_said_makes_no_control_token(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(6, 6);
    for (tiny_kind kind = 0; kind < TINY_KINDS; kind++) {
        pal_tokenizer *tok = test_tiny(kind);
        pal_tokenizer_scratch *s;
        const char *marks[4];
        size_t count = 0;
        OK(pal_tokenizer_scratch_new(&s, tok, err));
        const int64_t user = pal_tokenizer_find(tok, "<u>");
        if (user >= 0) tok->flags[user] |= PAL_TOKEN_CONTROL;
        for (uint32_t id = 0; id < tok->size && count < PAL_COUNT(marks); id++)
            if (tok->flags[id] & PAL_TOKEN_CONTROL && id != tok->unk)
                marks[count++] = strndup((const char *)pal_tokenizer_name(tok, id).data,
                                         pal_tokenizer_name(tok, id).size);
        for (int n = test_cases(200, 20000); n && count; n--) {
            char text[256] = "";
            unsigned char said[256] = { 0 };
            pal_ids expected = { 0 }, ids = { 0 };
            for (uint32_t pieces = pal_rng_below(&rng, 8); pieces; pieces--) {
                const char *piece = marks[pal_rng_below(&rng, (uint32_t)count)];
                const bool by_people = pal_rng_below(&rng, 2);
                const size_t at = strlen(text);
                strcat(strcat(text, piece), pal_rng_below(&rng, 2) ? "the" : " t");
                memset(said + at, by_people, strlen(piece));
                if (!by_people) OK(pal_ids_append(&expected, (uint32_t)pal_tokenizer_find(tok, piece), err));
            }
            const pal_encode_options options = { .said = said };
            OK(pal_tokenizer_encode(tok, s, text, strlen(text), &options, &ids, err));
            size_t found = 0;
            for (size_t i = 0; i < ids.count; i++)
                if (tok->flags[ids.data[i]] & PAL_TOKEN_CONTROL && ids.data[i] != tok->unk) {
                    if (found == expected.count || ids.data[i] != expected.data[found])
                        fail_msg("%s: %s: %s at %zu", tiny_names[kind], text,
                                 (const char *)pal_show(pal_tokenizer_name(tok, ids.data[i])).text, i);
                    found++;
                }
            assert_int_equal(found, expected.count);
            for (int all = 0; all < 2; all++) {
                pal_ids one = { 0 }, two = { 0 };
                memset(said, all, sizeof said);
                OK(pal_tokenizer_encode(tok, s, text, strlen(text), &options, &one, err));
                OK(pal_tokenizer_encode(tok, s, text, strlen(text), &(pal_encode_options){ .special_as_text = all },
                                        &two, err));
                assert_int_equal(one.count, two.count);
                if (one.count) assert_memory_equal(one.data, two.data, one.count * sizeof *one.data);
                pal_ids_free(&one), pal_ids_free(&two);
            }
            pal_ids_free(&ids), pal_ids_free(&expected);
        }
        for (size_t i = 0; i < count; i++) free((void *)(uintptr_t)marks[i]);
        pal_tokenizer_scratch_free(s);
        pal_tokenizer_close(tok);
    }
}

static void a_pretoken_above_16_mib_is_refused(void **state) {
    (void)state;
    const size_t size = PAL_PRETOKEN_MAX + 1;
    char *text = malloc(size);
    pal_error err;
    pal_ids ids = { 0 };
    memset(text, 'x', size);
    static const tiny_kind kinds[] = { TINY_JSON, TINY_SPM, TINY_UNIGRAM };
    for (size_t k = 0; k < PAL_COUNT(kinds); k++) {
        pal_tokenizer *tok = test_tiny(kinds[k]);
        pal_tokenizer_scratch *s;
        assert_int_equal(pal_tokenizer_scratch_new(&s, tok, &err), PAL_OK);
        assert_int_equal(pal_tokenizer_encode(tok, s, text, size, NULL, &ids, &err), PAL_E_ARGUMENT);
        assert_non_null(strstr(err.text, "16777216"));
        assert_int_equal(ids.count, 0);
        pal_tokenizer_scratch_free(s);
        pal_tokenizer_close(tok);
    }
    pal_tokenizer *bytes = test_open("bytes"); /* has no pre-tokens */
    test_encode(bytes, text, size, &ids);
    assert_int_equal(ids.count, size);
    pal_tokenizer_close(bytes);
    pal_ids_free(&ids);
    free(text);
}

static void marks_in_any_number_are_ordered_in_linear_time(void **state) {
    (void)state;
    pal_tokenizer *tok = test_tiny(TINY_JSON_NFC);
    pal_bytes text = { 0 };
    pal_ids ids = { 0 };
    for (int i = 0; i < 400000; i++) /* classes 230 and 220 in turn: a bubble sort would take hours */
        assert_int_equal(pal_bytes_append(&text, i % 2 ? "\xCC\xA3" : "\xCC\x81", 2, NULL), PAL_OK);
    test_encode(tok, text.data, text.size, &ids);
    assert_int_equal(pal_tokenizer_text(tok, ids.data[0]).data[0], 0xCC);
    assert_int_equal(pal_tokenizer_text(tok, ids.data[1]).data[0], 0xA3);
    pal_bytes_free(&text);
    pal_ids_free(&ids);
    pal_tokenizer_close(tok);
}

static void encoding_fails_cleanly_without_memory(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(5, 5);
    pal_bytes text = { 0 };
    test_random_text(&text, &rng, 3000);
    for (tiny_kind kind = 0; kind < TINY_KINDS; kind++) {
        pal_tokenizer *tok = test_tiny(kind);
        for (uint64_t k = 1;; k++) {
            pal_tokenizer_scratch *s = NULL;
            pal_ids ids = { 0 };
            pal_error err;
            pal_alloc_fail_at(k);
            pal_status st = pal_tokenizer_scratch_new(&s, tok, &err);
            if (!st) st = pal_tokenizer_encode(tok, s, text.data, text.size, NULL, &ids, &err);
            pal_alloc_fail_at(0);
            assert_true(st == PAL_OK || st == PAL_E_MEMORY);
            if (st) assert_int_equal(ids.count, 0);
            pal_ids_free(&ids);
            pal_tokenizer_scratch_free(s);
            if (!st) break;
        }
        pal_tokenizer_close(tok);
    }
    pal_bytes_free(&text);
}

typedef struct {
    const pal_tokenizer *tok;
    pal_slice lines[64];
    pal_ids ids[64];
    int failed[64];
} parallel_lines;

static void encode_line(void *arg, size_t index, int thread) {
    parallel_lines *p = arg;
    pal_tokenizer_scratch *s;
    (void)thread;
    p->failed[index] = pal_tokenizer_scratch_new(&s, p->tok, NULL) ||
                       pal_tokenizer_encode(p->tok, s, p->lines[index].data, p->lines[index].size, NULL, &p->ids[index],
                                            NULL);
    pal_tokenizer_scratch_free(s);
}

static void threads_share_a_tokenizer(void **state) {
    (void)state;
    pal_context *cx = test_context(4, NULL);
    pal_bytes text = { 0 };
    pal_rng rng = pal_rng_at(8, 8);
    size_t end[65] = { 0 };
    for (int i = 0; i < 64; i++) {
        test_random_text(&text, &rng, 500);
        end[i + 1] = text.size;
    }
    for (tiny_kind kind = 0; kind < TINY_KINDS; kind++) {
        parallel_lines p = { .tok = test_tiny(kind) };
        pal_tokenizer_scratch *s;
        pal_ids ids = { 0 };
        for (int i = 0; i < 64; i++) p.lines[i] = (pal_slice){ text.data + end[i], end[i + 1] - end[i] };
        pal_parallel_for(cx, 64, encode_line, &p);
        assert_int_equal(pal_tokenizer_scratch_new(&s, p.tok, NULL), PAL_OK);
        for (int i = 0; i < 64; i++) { /* one scratch for all lines: what it remembers changes nothing */
            ids.count = 0;
            assert_int_equal(p.failed[i], 0);
            assert_int_equal(pal_tokenizer_encode(p.tok, s, p.lines[i].data, p.lines[i].size, NULL, &ids, NULL),
                             PAL_OK);
            assert_int_equal(ids.count, p.ids[i].count);
            if (ids.count) assert_memory_equal(ids.data, p.ids[i].data, ids.count * sizeof *ids.data);
            pal_ids_free(&p.ids[i]);
        }
        pal_ids_free(&ids);
        pal_tokenizer_scratch_free(s);
        pal_tokenizer_close((pal_tokenizer *)p.tok);
    }
    pal_bytes_free(&text);
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_strings_come_back),
        cmocka_unit_test(random_strings_come_back_from_real_vocabularies),
        cmocka_unit_test(pattern_by_hand_equals_the_engine),
        cmocka_unit_test(every_character_has_the_class_of_the_pattern),
        cmocka_unit_test(trained_vocabulary_gives_the_ids_of_plain_merging),
        cmocka_unit_test(training_is_deterministic_and_counts_pairs),
        cmocka_unit_test(characters_are_learned_in_order_and_others_refused),
        cmocka_unit_test(bytes_are_their_own_ids),
        cmocka_unit_test(special_tokens_are_found_added_and_skipped),
        cmocka_unit_test(the_cache_never_confuses_words),
        cmocka_unit_test(merges_go_by_rank),
        cmocka_unit_test(what_is_said_makes_no_control_token),
        cmocka_unit_test(a_pretoken_above_16_mib_is_refused),
        cmocka_unit_test(marks_in_any_number_are_ordered_in_linear_time),
        cmocka_unit_test(encoding_fails_cleanly_without_memory),
        cmocka_unit_test(threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
