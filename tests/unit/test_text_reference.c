/* SPDX-License-Identifier: MIT */
/* Small tokenizer.json files for which the package `tokenizers` (0.23) was asked: what it gave is recorded here. */
#include <jansson.h>

#include "support/support.h"
#include "support/text.h"

#define REPLACE(from, to) "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" from "\"},\"content\":\"" to "\"}"
#define NORMALIZERS(list) "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" list "]}"
#define LETTERS                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2,\"c\":3,\" " \
    "\":4,\"x\":5,\"y\":6,"                                                                          \
    "\"\xC3\xA9\":7},\"merges\":[]}"

/* A normal form that leaves the text alone writes nothing; the step after it must not write over what it reads. */
static void normalisers_follow_one_that_changes_nothing(void **state) {
    (void)state;
    static const struct {
        const char *steps, *text, *expected;
    } cases[] = {
        { REPLACE("x", "aa") ",{\"type\":\"NFC\"}," REPLACE("y", "bbb"), "xx a yy", "a|a|a|a| |a| |b|b|b|b|b|b" },
        { REPLACE("x", "aa") ",{\"type\":\"NFC\"}," REPLACE("a", "ab"), "xx", "a|b|a|b|a|b|a|b" },
        { REPLACE("x", "y") ",{\"type\":\"NFD\"},{\"type\":\"NFKC\"},{\"type\":\"Prepend\",\"prepend\":\"b\"}",
          "x\xC3\xA9", "b|y|\xC3\xA9" },
        { "{\"type\":\"Prepend\",\"prepend\":\"a\"},{\"type\":\"NFKD\"},{\"type\":\"NFC\"}," REPLACE("a", "bbbbbbbb"),
          "cac", "b|b|b|b|b|b|b|b|c|b|b|b|b|b|b|b|b|c" },
        { "{\"type\":\"NFC\"}," REPLACE("x", "ab") "," REPLACE("b", "ca"), "xy", "a|c|a|y" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        char json[1024];
        snprintf(json, sizeof json, "{" NORMALIZERS("%s") "," LETTERS "}", cases[i].steps);
        pal_tokenizer *tok = test_tokenizer_of(json);
        test_names_are(tok, "the package", cases[i].text, cases[i].expected);
        /* Long enough that the buffers grow on the way. */
        pal_tokenizer_scratch *s;
        pal_ids ids = { 0 };
        pal_bytes text = { 0 };
        assert_int_equal(pal_tokenizer_scratch_new(&s, tok, NULL), PAL_OK);
        for (int k = 0; k < 500; k++) {
            assert_int_equal(pal_bytes_append(&text, cases[i].text, strlen(cases[i].text), NULL), PAL_OK);
            ids.count = 0;
            assert_int_equal(pal_tokenizer_encode(tok, s, text.data, text.size, NULL, &ids, NULL), PAL_OK);
            for (size_t n = 0; n < ids.count; n++) assert_true(ids.data[n] != 0);
        }
        pal_ids_free(&ids);
        pal_bytes_free(&text);
        pal_tokenizer_scratch_free(s);
        pal_tokenizer_close(tok);
    }
}

/* Every piece of the text as its own id: the vocabulary has all stretches of its characters, taken whole. */
static pal_tokenizer *stretches_of(const char *text, const char *pre_tokenizer) {
    json_t *vocab = json_object();
    const size_t size = strlen(text);
    for (size_t i = 0; i < size; i++)
        for (size_t end = i + 1; end <= size; end++) {
            char *piece = strndup(text + i, end - i);
            json_t *whole = json_string(piece); /* NULL when it is not UTF-8 */
            if (whole && !json_object_get(vocab, piece))
                json_object_set_new(vocab, piece, json_integer((json_int_t)json_object_size(vocab)));
            json_decref(whole);
            free(piece);
        }
    json_t *root = json_pack("{s:o, s:{s:s, s:b, s:o, s:[]}}", "pre_tokenizer", json_loads(pre_tokenizer, 0, NULL),
                             "model", "type", "BPE", "ignore_merges", 1, "vocab", vocab, "merges");
    char *json = json_dumps(root, 0);
    pal_tokenizer *tok = test_tokenizer_of(json);
    free(json);
    json_decref(root);
    return tok;
}

/* Patterns mean what Oniguruma means by them, and matches of no width split. */
static void patterns_split_where_the_package_does(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *behaviour;
        bool invert;
        const char *text, *pieces;
    } cases[] = {
        { "(?=(\\\\d{3})+(?!\\\\d))", "Isolated", false, "1234567", "1|234|567" },
        { "(?=(\\\\d{3})+(?!\\\\d))", "MergedWithPrevious", false, "1234", "1|234" },
        { "(?=(\\\\d{3})+(?!\\\\d))", "MergedWithNext", false, "1234", "1|234" },
        { "(?=(\\\\d{3})+(?!\\\\d))", "Contiguous", false, "1234", "1|234" },
        { "(?=(\\\\d{3})+(?!\\\\d))", "Removed", false, "1234", "1|234" },
        { "(?=(\\\\d{3})+(?!\\\\d))", "Removed", true, "1234", "" },
        { "(?<=[a-z])(?=[A-Z])", "Isolated", false, "aBcDEf", "a|Bc|DEf" },
        { "\\\\b", "Isolated", false, "ab cd", "ab| |cd" },
        { "^", "Isolated", false, "ab\ncd\n", "ab\n|cd\n" },
        { "$", "Isolated", false, "ab\ncd\n", "ab|\ncd|\n" },
        { "a*", "Isolated", false, "baac", "b|aa|c" },
        { "a*", "MergedWithNext", false, "baac", "b|aac" },
        { "a*", "Removed", false, "baac", "b|c" },
        { "", "Isolated", false, "ab\xC3\xA9", "a|b|\xC3\xA9" },
        { "", "MergedWithPrevious", false, "abc", "a|b|c" },
        { "\\\\p{Han}+", "Isolated", false, "\xE6\x97\xA5\xE3\x80\x82\xE6\x9C\xAC",
          "\xE6\x97\xA5|\xE3\x80\x82|\xE6\x9C\xAC" },
        { "\\\\p{Hiragana}+", "Isolated", false, "\xE3\x81\x8B\xE3\x82\x9B\xE3\x83\xBC",
          "\xE3\x81\x8B|\xE3\x82\x9B\xE3\x83\xBC" },
        { "\\\\p{Katakana}+", "Isolated", false, "\xE3\x82\xAB\xE3\x83\xBC\xE3\x83\xBB",
          "\xE3\x82\xAB|\xE3\x83\xBC\xE3\x83\xBB" },
        { "\\\\p{Arabic}+", "Isolated", false, "\xD8\xA8\xD8\x8C\xD8\xA8", "\xD8\xA8|\xD8\x8C|\xD8\xA8" },
        { "\\\\p{Devanagari}+", "Isolated", false, "\xE0\xA4\x85\xE0\xA5\xA4\xE0\xA4\x85",
          "\xE0\xA4\x85|\xE0\xA5\xA4|\xE0\xA4\x85" },
        { "\\\\p{Latin}+", "Isolated", false,
          "a\xCD\xA3"
          "a",
          "a|\xCD\xA3|a" },
        { "\\\\p{Greek}+", "Isolated", false, "\xCE\xB1\xCD\x82\xCE\xB1", "\xCE\xB1|\xCD\x82|\xCE\xB1" },
        { "\\\\w+", "Isolated", false, "a\xC2\xB2\xC2\xBD_-b", "a\xC2\xB2\xC2\xBD_|-|b" },
        { "\\\\b", "Isolated", false,
          "\xC2\xB2"
          "a\xC2\xBD b",
          "\xC2\xB2"
          "a\xC2\xBD| |b" },
        { "(?m)a.b", "Isolated", false, "xa\nbx", "x|a\nb|x" },
        { "a.b", "Isolated", false, "xa\nbx", "xa\nbx" },
        { "a{,2}", "Isolated", false, "baaaa", "b|aa|aa" },
        { "a{2}?", "Isolated", false, "baaa", "b|aa|a" },
        { "a{1,2}+", "Isolated", false, "baaab", "b|aaa|b" },
        { "a{2}+", "Isolated", false, "aaaaab", "aaaa|ab" },
        { "a(?i)b|c", "Isolated", false, "abC aC C aB", "ab|C |aC| C |aB" },
        { "\\\\pL+", "Isolated", false, "ab1pLL", "ab1|pLL" },
        { "(?i)fi", "Isolated", false,
          "a\xEF\xAC\x81"
          "FIb",
          "a|\xEF\xAC\x81|FI|b" },
        { "(?i)ss", "Isolated", false,
          "a\xC3\x9F"
          "bSS",
          "a|\xC3\x9F|b|SS" },
        { "(?i:k)", "Isolated", false, "xKx", "x|K|x" },
        { "[a-z&&[^b-d]]+", "Isolated", false, "abcdef", "a|bcd|ef" },
        { "\\\\h+", "Isolated", false, "agf0", "a|g|f0" },
        { "[[:punct:]]+", "Isolated", false, "a.,b", "a|.,|b" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        char split[512];
        snprintf(split, sizeof split,
                 "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"%s\",\"invert\":%s}",
                 cases[i].pattern, cases[i].behaviour, cases[i].invert ? "true" : "false");
        pal_tokenizer *tok = stretches_of(cases[i].text, split);
        test_names_are(tok, "the package", cases[i].text, cases[i].pieces);
        pal_tokenizer_close(tok);
    }
}

/* The blank of "first" goes in front of what begins the original text, not of the first piece that is left. */
static void metaspace_first_is_the_start_of_the_text(void **state) {
    (void)state;
    static const char steps[] = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
                                "\"String\":\"x\"},\"behavior\":\"Removed\",\"invert\":false},{\"type\":"
                                "\"Metaspace\",\"replacement\":\"y\",\"prepend_scheme\":\"first\",\"split\":false}]}";
    char json[1024];
    snprintf(json, sizeof json, "{\"pre_tokenizer\":%s," LETTERS "}", steps);
    pal_tokenizer *tok = test_tokenizer_of(json);
    test_names_are(tok, "the package", "xa xb", "a|y|b");
    test_names_are(tok, "the package", "a xb", "y|a|y|b");
    pal_tokenizer_close(tok);
}

#define SIGN         "\xE2\x96\x81"
#define CHAIN(steps) "{\"type\":\"Sequence\",\"decoders\":[" steps "]}"
#define TO_BLANK     "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" SIGN "\"},\"content\":\" \"}"
#define BYTES        "{\"type\":\"ByteFallback\"}"
#define FUSE         "{\"type\":\"Fuse\"}"
#define STRIP(n)     "{\"type\":\"Strip\",\"content\":\" \",\"start\":" #n ",\"stop\":0}"
#define META(when)   "{\"type\":\"Metaspace\",\"replacement\":\"" SIGN "\",\"prepend_scheme\":\"" when "\"}"

static void decoders_run_in_their_order(void **state) {
    (void)state;
    static const char vocabulary[] = "{\"decoder\":%s,\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"" SIGN
                                     "\":1,\"" SIGN "a\":2,\"" SIGN SIGN "\":3,\"a" SIGN
                                     "b\":4,\"<0x41>\":5,\"<0xC3>\":6,\"<0xA9>\":7,\" b\":8,\"\xC3\xA9\":9,"
                                     "\"\xC4\xA0\":10,\"<0x20>\":11},\"merges\":[]}}";
    static const struct {
        const char *decoder;
        uint32_t ids[3];
        size_t count;
        const char *text;
    } cases[] = {
        { "null", { 2, 5, 2 }, 3, SIGN "a <0x41> " SIGN "a" },
        { META("always"), { 3, 2, 3 }, 3, " a  " },
        { META("first"), { 4, 4 }, 2, "aba b" },
        { META("never"), { 3, 4 }, 2, "  a b" },
        { META("always"), { 5, 2 }, 2, "<0x41> a" },
        { CHAIN(META("always") "," BYTES "," FUSE), { 5, 2 }, 2, "A a" },
        { CHAIN(TO_BLANK "," BYTES "," FUSE "," STRIP(1)), { 3, 2, 5 }, 3, "  aA" },
        { CHAIN(TO_BLANK "," BYTES "," FUSE "," STRIP(1)), { 11, 2 }, 2, " a" },
        { CHAIN(TO_BLANK "," BYTES "," FUSE "," STRIP(2)), { 1, 2, 2 }, 3, "a a" },
        { CHAIN(TO_BLANK "," STRIP(1)), { 2, 3, 8 }, 3, "a b" },
        { CHAIN(STRIP(1) "," TO_BLANK), { 2, 8 }, 2, " ab" },
        { TO_BLANK, { 5, 2 }, 2, "<0x41> a" },
        { BYTES, { 5, 2 }, 2, "A" SIGN "a" },
        { BYTES, { 6, 7 }, 2, "\xC3\xA9" },
        { "{\"type\":\"ByteLevel\"}", { 10, 0 }, 2, " a" },
        { CHAIN("{\"type\":\"ByteLevel\"}," STRIP(1)), { 10, 10 }, 2, " " },
        { CHAIN(FUSE "," TO_BLANK), { 3, 4 }, 2, "  a b" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        char json[1024];
        pal_bytes text = { 0 }, streamed = { 0 };
        pal_decoder *d;
        snprintf(json, sizeof json, vocabulary, cases[i].decoder);
        pal_tokenizer *tok = test_tokenizer_of(json);
        assert_int_equal(pal_tokenizer_decode(tok, cases[i].ids, cases[i].count, false, &text, NULL), PAL_OK);
        if (text.size != strlen(cases[i].text) || memcmp(text.data, cases[i].text, text.size) != 0)
            fail_msg("%s: '%.*s', expected '%s'", cases[i].decoder, (int)text.size, (char *)text.data, cases[i].text);
        assert_int_equal(pal_decoder_new(&d, tok, false, NULL), PAL_OK);
        for (int turn = 0; turn < 2; turn++) { /* a decoder that has finished starts a new text */
            streamed.size = 0;
            for (size_t k = 0; k < cases[i].count; k++)
                assert_int_equal(pal_decoder_push(d, cases[i].ids[k], &streamed, NULL), PAL_OK);
            assert_int_equal(pal_decoder_finish(d, &streamed, NULL), PAL_OK);
            assert_int_equal(streamed.size, text.size);
            assert_memory_equal(streamed.data, text.data, text.size);
        }
        pal_decoder_free(d);
        pal_bytes_free(&text);
        pal_bytes_free(&streamed);
        pal_tokenizer_close(tok);
    }
}

/* "a", which strips what follows, takes blanks that are tokens themselves. */
static void a_token_whose_text_is_stripped_is_none(void **state) {
    (void)state;
    static const char json[] = "{\"added_tokens\":[{\"id\":1,\"content\":\"a\",\"rstrip\":true,\"normalized\":false},"
                               "{\"id\":8,\"content\":\"  \",\"lstrip\":%s,\"normalized\":false}]," LETTERS "}";
    for (int left = 0; left < 2; left++) {
        char filled[1024];
        snprintf(filled, sizeof filled, json, left ? "true" : "false");
        pal_tokenizer *tok = test_tokenizer_of(filled);
        test_names_are(tok, "the package", "a  b", left ? "a|b" : "a|  |b");
        pal_tokenizer_close(tok);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalisers_follow_one_that_changes_nothing),
        cmocka_unit_test(patterns_split_where_the_package_does),
        cmocka_unit_test(metaspace_first_is_the_start_of_the_text),
        cmocka_unit_test(decoders_run_in_their_order),
        cmocka_unit_test(a_token_whose_text_is_stripped_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
