/* SPDX-License-Identifier: MIT */
/* Small tokenizer.json files for which the package `tokenizers` (0.23) was asked: what it gave is recorded here. */
#include "support/support.h"
#include "support/text.h"

static pal_tokenizer *tokenizer_of(const char *json) {
    pal_tokenizer *tok;
    pal_error err;
    if (test_read(READER_JSON, (const unsigned char *)json, strlen(json), &tok, &err))
        fail_msg("%s\nrefused: %s", json, err.text);
    return tok;
}

/* The names of a text's ids, with '|' between them. */
static void names_are(const pal_tokenizer *tok, const char *text, const char *expected) {
    pal_ids ids = { 0 };
    pal_bytes names = { 0 };
    test_encode(tok, text, strlen(text), &ids);
    for (size_t i = 0; i < ids.count; i++) {
        const pal_slice name = pal_tokenizer_name(tok, ids.data[i]);
        if (i) assert_int_equal(pal_bytes_append(&names, "|", 1, NULL), PAL_OK);
        assert_int_equal(pal_bytes_append(&names, name.data, name.size, NULL), PAL_OK);
    }
    assert_int_equal(pal_bytes_append(&names, "", 1, NULL), PAL_OK);
    if (strcmp((const char *)names.data, expected) != 0)
        fail_msg("'%s' gives %s, expected %s", text, (const char *)names.data, expected);
    pal_ids_free(&ids);
    pal_bytes_free(&names);
}

#define REPLACE(from, to) "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" from "\"},\"content\":\"" to "\"}"
#define NORMALIZERS(list) "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" list "]}"
#define LETTERS                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2,\"c\":3,\" " \
    "\":4,\"x\":5,\"y\":6,"                                                                          \
    "\"\xC3\xA9\":7},\"merges\":[]}"

/* A normal form that leaves the text alone writes nothing; the step behind it must not write over what it reads. */
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
        pal_tokenizer *tok = tokenizer_of(json);
        names_are(tok, cases[i].text, cases[i].expected);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalisers_follow_one_that_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
