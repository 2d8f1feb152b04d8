/* SPDX-License-Identifier: MIT */
/* Text by blocks: words counted, and blocks that encode as the whole, however small they are. */
#include <unistd.h>

#include "data/text.h"
#include "support/files.h"
#include "support/text.h"
#include "text/cut.h"

static void words_are_counted_as_python_splits(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t words;
    } cases[] = {
        /* len(re.split(r'\s+', text)) */
        { "", 1 },
        { "a", 1 },
        { " a", 2 },
        { " a \n", 3 },
        { "a b\t\tc", 3 },
        { "a\xC2\xA0"
          "b\xE3\x80\x80"
          "c",
          3 },
        { "a\x1c"
          "b",
          2 },
        { "a\xE2\x80\x8B"
          "b",
          1 },
        { "\xff \xff", 2 },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++)
        for (size_t cut = 0; cut <= strlen(cases[i].text); cut++) {
            const unsigned char *t = (const unsigned char *)cases[i].text;
            bool blank = false;
            assert_int_equal(pal_text_words((pal_slice){ t, strlen(cases[i].text) }), cases[i].words);
            if (cut < strlen(cases[i].text) && (t[cut] & 0xC0) == 0x80)
                continue; /* blocks are cut between characters */
            const uint64_t runs = pal_text_blanks((pal_slice){ t, cut }, &blank) +
                                  pal_text_blanks((pal_slice){ t + cut, strlen(cases[i].text) - cut }, &blank);
            assert_int_equal(runs + 1, cases[i].words);
        }
}

/* Blocks of a text, however small, put together give the text; encoded one by one, the ids of the whole. */
static void encode_in_blocks(const pal_tokenizer *tok, pal_tokenizer_scratch *scratch, const char *path, size_t target,
                             pal_ids *ids) {
    const pal_cut cut = pal_tokenizer_cut(tok);
    pal_text_block block = { 0 };
    pal_text *text;
    pal_error err;
    bool found;
    if (pal_text_open(&text, path, pal_text_unit_of(cut), target, (size_t)1 << 20, NULL, &err))
        fail_msg("%s", err.text);
    for (;;) {
        if (pal_text_read(text, &block, &found, &err)) fail_msg("%s", err.text);
        if (!found) break;
        const size_t skip = cut == PAL_CUT_BLANKS && block.start.inside;
        if (pal_tokenizer_encode(tok, scratch, block.bytes.data + skip, block.bytes.size - skip, NULL, ids, &err))
            fail_msg("%s", err.text);
    }
    pal_bytes_free(&block.bytes);
    pal_text_close(text);
}

static void check_cuts(const pal_tokenizer *tok, const char *name, int cases) {
    pal_rng rng = pal_rng_at(11, 5);
    static const char *const pieces[] = { " ",
                                          " ",
                                          "  ",
                                          "   ",
                                          "\n",
                                          "\n\n",
                                          " \n",
                                          "\t",
                                          "a",
                                          "the",
                                          "The",
                                          "'s",
                                          "'re",
                                          "12",
                                          "3456",
                                          ".",
                                          "...",
                                          "!",
                                          "\r\n",
                                          "\xC3\xA9",
                                          "e\xCC\x81",
                                          " x",
                                          "<u>",
                                          "\xC2\xA0",
                                          "\xE2\x96\x81",
                                          "\xF0\x9F\x98\x80",
                                          "hello",
                                          " = ",
                                          "<|endoftext|>",
                                          "\xE5\xAD\x97",
                                          "\xEA\xB0\x80",
                                          "\xE3\x80\x82",
                                          "\xE3\x80\x80",
                                          "\n\xE5\xAD\x97",
                                          "\xE3\x80\x82\n",
                                          "\xCC\x88",
                                          "\xC2\xA8",
                                          "\xE2\x80\xA8",
                                          "\xC2\x85",
                                          "\xE1\x84\x80\xE1\x85\xA1",
                                          "a\nb",
                                          "\nx",
                                          "\xFF",
                                          "\xE5\xAD" };
    pal_tokenizer_scratch *scratch; /* one for all: its cache is large, and costs more than a case to make */
    pal_error err;
    if (pal_tokenizer_scratch_new(&scratch, tok, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < cases; i++) {
        pal_bytes text = { 0 };
        pal_ids whole = { 0 }, parts = { 0 };
        for (uint32_t k = 1 + pal_rng_below(&rng, 120); k; k--) {
            const char *piece = pieces[pal_rng_below(&rng, PAL_COUNT(pieces))];
            pal_bytes_append(&text, piece, strlen(piece), &err);
        }
        test_write_file(in_folder("cuts"), text.data, text.size);
        if (pal_tokenizer_encode(tok, scratch, text.data, text.size, NULL, &whole, &err)) fail_msg("%s", err.text);
        encode_in_blocks(tok, scratch, in_folder("cuts"), 8 + pal_rng_below(&rng, 40), &parts);
        if (whole.count != parts.count || (whole.count && memcmp(whole.data, parts.data, whole.count * 4) != 0))
            fail_msg("%s: case %d, cut into blocks, has other ids: '%.*s'", name, i, (int)text.size, text.data);
        pal_bytes_free(&text), pal_ids_free(&whole), pal_ids_free(&parts);
    }
    pal_tokenizer_scratch_free(scratch);
}

static void text_in_blocks_encodes_as_the_whole(void **state) {
    (void)state;
    int cuttable = 0;
    for (int kind = 0; kind < TINY_KINDS; kind++) {
        pal_tokenizer *tok = test_tiny((tiny_kind)kind);
        cuttable += pal_tokenizer_cut(tok) != PAL_CUT_NEVER;
        check_cuts(tok, tiny_names[kind], test_cases(150, 5000));
        pal_tokenizer_close(tok);
    }
    assert_true(cuttable >= 4);
    /* Digits split off first, and characters that become a blank and a mark: white space ends in front of both. */
    static const char *const early[] = {
        ("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},"
         "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]}"),
        "\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
        "\"normalizer\":{\"type\":\"NFKD\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
    };
    for (size_t i = 0; i < PAL_COUNT(early); i++) {
        char json[1024];
        pal_tokenizer *tok;
        pal_error err;
        snprintf(json, sizeof json,
                 "{%s,\"model\":{\"type\":\"BPE\",\"vocab\":{\"x\":0,\"\xC4\x8A\":1,\"\xC4\xA0\":2,\"1\":3,"
                 "\"\xC4\x89\":4,\"\xC4\x8A\xC4\xA0\":5,\"\xC4\x89\xC4\xA0\":6,\"\xC3\x8C\":7,\"\xC4\xAA\":8,"
                 "\"a\":9,\"2\":10},\"merges\":[\"\xC4\x8A \xC4\xA0\",\"\xC4\x89 \xC4\xA0\"]}}",
                 early[i]);
        if (test_read(READER_JSON, (const unsigned char *)json, strlen(json), &tok, &err)) fail_msg("%s", err.text);
        assert_int_equal(pal_tokenizer_cut(tok), PAL_CUT_LETTERS);
        check_cuts(tok, early[i], test_cases(1000, 10000));
        pal_tokenizer_close(tok);
    }
    static const char *const real[] = { "gpt-neox/tokenizer.json", "gpt2/vocab.json", "llama2/tokenizer.model" };
    for (size_t i = 0; i < PAL_COUNT(real); i++) {
        pal_tokenizer *tok = test_data_tokenizer(real[i]);
        if (!tok) break;
        assert_int_not_equal(pal_tokenizer_cut(tok), PAL_CUT_NEVER);
        check_cuts(tok, real[i], test_cases(150, 5000));
        pal_tokenizer_close(tok);
    }
}

static void opening_says(const char *path, const pal_text_place *from, const char *says) {
    pal_text *t;
    pal_error err = { 0 };
    if (pal_text_open(&t, path, PAL_TEXT_LINES, 4, 64, from, &err) == PAL_OK) fail_msg("%s was opened", path);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say '%s'", err.text, says);
}

static void texts_that_cannot_be_read_are_named(void **state) {
    (void)state;
    test_write_text(in_folder("short"), "abc\n");
    opening_says(in_folder("none"), NULL, "cannot open");
    opening_says(test_folder(), NULL, "a directory, expected a text");
    opening_says(in_folder("short"), &(pal_text_place){ .offset = 5 }, "but 5 had been read before");
    static const struct {
        pal_text_unit unit;
        const char *says;
    } cases[] = { { PAL_TEXT_LINES, "line 1 is longer than 8 bytes" },
                  { PAL_TEXT_WHOLE, "longer than 8 bytes, the most that can be taken as one document" },
                  { PAL_TEXT_WORDS, "no place to cut it" } };
    test_write_text(in_folder("long"), "abcdefghijklmnopqrstuvwxyz");
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_text *t;
        pal_text_block b = { 0 };
        bool found;
        pal_error why = { 0 };
        OK(pal_text_open(&t, in_folder("long"), cases[i].unit, 4, 8, NULL, err));
        assert_int_equal(pal_text_read(t, &b, &found, &why), PAL_E_FORMAT);
        if (!strstr(why.text, cases[i].says)) fail_msg("'%s' does not say '%s'", why.text, cases[i].says);
        pal_bytes_free(&b.bytes);
        pal_text_close(t);
    }
    assert_string_equal(pal_text_field("a.ndjson", NULL), "text");
    assert_null(pal_text_field("a.txt", NULL));
}

/* What was read before is read once more, and passed over. */
static void standard_input_goes_on_from_a_place(void **state) {
    (void)state;
    const int kept = dup(STDIN_FILENO);
    for (uint64_t offset = 0; offset <= 12; offset += 6) {
        int ends[2];
        pal_text *t;
        pal_text_block b = { 0 };
        pal_error why = { 0 };
        bool found;
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(write(ends[1], "first\nlast\n", 11), 11);
        close(ends[1]);
        assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
        close(ends[0]);
        const pal_status st = pal_text_open(&t, "-", PAL_TEXT_LINES, 4, 64, &(pal_text_place){ .offset = offset },
                                            &why);
        if (offset == 12) {
            assert_int_equal(st, PAL_E_FORMAT);
            assert_non_null(strstr(why.text, "standard input: it ended before the place"));
            continue;
        }
        assert_int_equal(st, PAL_OK);
        OK(pal_text_read(t, &b, &found, err));
        const char *const line = offset ? "last\n" : "first\n";
        assert_true(found);
        assert_int_equal(b.bytes.size, strlen(line));
        assert_memory_equal(b.bytes.data, line, strlen(line));
        pal_bytes_free(&b.bytes);
        pal_text_close(t);
    }
    dup2(kept, STDIN_FILENO);
    close(kept);
}

static void lines_of_json_are_read_or_named(void **state) {
    (void)state;
    static const struct {
        const char *field, *json, *text, *says;
    } cases[] = {
        { "text", "{\"text\":\"a\"}", "a", NULL },
        { "text", " \t\r\n", NULL, NULL },
        { "text", "\xEF\xBB\xBF{\"text\":\"a\"}", "a", NULL },
        { "text", "{\"n\":123456789012345678901234567890,\"text\":\"a\"}", "a", NULL },
        { "p+r", "{\"p\":\"a\",\"r\":\"b\"}", "a" PAL_RESPONSE "b", NULL },
        { "text", "[1]", NULL, "found no object" },
        { "text", "{\"text\":7}", NULL, "found something else under that name" },
        { "text", "{\"other\":\"a\"}", NULL, "found no such field" },
        { "text", "{\"text\":", NULL, "line 1:" },
        { "p+r", "{\"p\":\"a\"}", NULL, "two strings 'p+r'" },
        { "p+r", "{\"p\":7,\"r\":\"b\"}", NULL, "two strings 'p+r'" },
        { "p+r", "{\"r\":\"b\"}", NULL, "two strings 'p+r'" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        void *owner;
        pal_slice text;
        pal_error err = { 0 };
        const pal_slice json = { (const unsigned char *)cases[i].json, strlen(cases[i].json) };
        const pal_status st = pal_text_parse(i % 2 ? "-" : "lines", cases[i].field, 1, json, &owner, &text, &err);
        if (cases[i].says ? !st || !strstr(err.text, cases[i].says)
                          : st || (cases[i].text ? strncmp((const char *)text.data, cases[i].text, text.size + 1) != 0
                                                 : text.data != NULL))
            fail_msg("%s: %s", cases[i].json, st ? err.text : "was read");
        if (!st && strchr(cases[i].field, '+'))
            assert_int_equal(pal_text_response(owner), strlen("a" PAL_RESPONSE) - 1);
        pal_text_release(owner);
    }
    char field[300]; /* names of any length are names that no line has */
    memset(field, 'x', sizeof field);
    field[280] = '+', field[299] = 0;
    void *owner;
    pal_slice text;
    assert_int_equal(
        pal_text_parse("lines", field, 1, (pal_slice){ (const unsigned char *)"{}", 2 }, &owner, &text, NULL),
        PAL_E_FORMAT);
}

/* Asked again there is still nothing left, and the place is the end. */
static void documents_end_once_and_for_all(void **state) {
    (void)state;
    test_write_text(in_folder("two.jsonl"), "{\"text\":\"first\"}\n{\"text\":\"last\"}\n");
    test_write_text(in_folder("plain"), "a text");
    for (int plain = 0; plain < 2; plain++) {
        pal_documents *d;
        pal_slice text;
        bool found = true;
        OK(pal_documents_open(&d, in_folder(plain ? "plain" : "two.jsonl"), plain ? NULL : "text", PAL_DOCUMENT_MAX,
                              err));
        for (int i = plain; i < 2; i++) OK(pal_documents_next(d, &text, &found, err));
        assert_true(found);
        for (int i = 0; i < 3; i++) {
            OK(pal_documents_next(d, &text, &found, err));
            assert_false(found);
            assert_int_equal(pal_documents_place(d).offset, plain ? 6 : 33);
            assert_int_equal(pal_documents_place(d).line, plain ? 0 : 2);
        }
        pal_documents_close(d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_counted_as_python_splits),  cmocka_unit_test(text_in_blocks_encodes_as_the_whole),
        cmocka_unit_test(texts_that_cannot_be_read_are_named), cmocka_unit_test(standard_input_goes_on_from_a_place),
        cmocka_unit_test(lines_of_json_are_read_or_named),     cmocka_unit_test(documents_end_once_and_for_all),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
