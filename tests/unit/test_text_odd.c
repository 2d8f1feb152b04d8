/* SPDX-License-Identifier: MIT */
/* Tokenizers with odd parts: what their rules do, and what is said of those that are not supported. */
#include "support/text.h"
#include "text/cut.h"

#define SIGN "\xE2\x96\x81"

static pal_status read_json(const char *json, pal_tokenizer **tok, pal_error *err) {
    return test_read(READER_JSON, (const unsigned char *)json, strlen(json), tok, err);
}

#define LLAMA3                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| " \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define QWEN2                                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| " \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define SPLIT_AS(kind, what, more) "{\"type\":\"Split\",\"pattern\":{\"" kind "\":\"" what "\"}," more "}"
#define SPLIT(what)                SPLIT_AS("Regex", what, "\"behavior\":\"Isolated\"")
#define STEPS(list)                "{\"type\":\"Sequence\",\"pretokenizers\":[" list "]}"
#define NORMAL(what)               "{\"type\":\"" what "\"}"
#define DIGITS                     "{\"type\":\"Digits\"}"
#define MERGED                     "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]"
#define UNMERGED                   "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[]"
#define ADDED(content, more)       "{\"id\":3,\"content\":\"" content "\"" more "}"

/* Parts of a text may be encoded one by one where that cannot change an id, and nowhere else. */
static void texts_are_cut_where_that_is_safe(void **state) {
    (void)state;
    static const struct {
        const char *normalizer, *pre, *model, *added;
        pal_cut cut;
    } cases[] = {
        { "null", SPLIT(LLAMA3), MERGED, "", PAL_CUT_LINES },
        { "null", SPLIT(QWEN2), MERGED, "", PAL_CUT_LINES },
        { "null", NORMAL("ByteLevel"), MERGED, "", PAL_CUT_NEVER }, /* a blank in front of every text */
        { "null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", MERGED, "", PAL_CUT_LINES },
        { "null", SPLIT_AS("Regex", LLAMA3, "\"behavior\":\"Removed\""), MERGED, "", PAL_CUT_NEVER },
        { "null", SPLIT_AS("Regex", LLAMA3, "\"behavior\":\"Isolated\",\"invert\":true"), MERGED, "", PAL_CUT_NEVER },
        { "null", SPLIT_AS("String", LLAMA3, "\"behavior\":\"Isolated\""), MERGED, "", PAL_CUT_NEVER },
        { "null", SPLIT("[ab]"), MERGED, "", PAL_CUT_NEVER },
        { "null", STEPS(DIGITS "," SPLIT(LLAMA3)), MERGED, "", PAL_CUT_LETTERS },
        { "null", STEPS(SPLIT(LLAMA3) "," DIGITS), MERGED, "", PAL_CUT_LINES },
        { NORMAL("NFC"), SPLIT(LLAMA3), MERGED, "", PAL_CUT_LINES },
        { NORMAL("NFKC"), SPLIT(LLAMA3), MERGED, "", PAL_CUT_LETTERS },
        { NORMAL("NFKD"), SPLIT(LLAMA3), MERGED, "", PAL_CUT_LETTERS },
        { "{\"type\":\"Prepend\",\"prepend\":\"a\"}", SPLIT(LLAMA3), MERGED, "", PAL_CUT_NEVER },
        { "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"b\"}", SPLIT(LLAMA3), MERGED, "",
          PAL_CUT_NEVER },
        { "null", "null", MERGED, "", PAL_CUT_NEVER },
        { "null", "null", UNMERGED, "", PAL_CUT_CHARACTERS },
        { "null", "null", "\"ignore_merges\":true," UNMERGED, "", PAL_CUT_NEVER },
        { "null", "null", "\"unk_token\":\"a\"," UNMERGED, "", PAL_CUT_CHARACTERS },
        { "null", "null", "\"unk_token\":\"a\",\"fuse_unk\":true," UNMERGED, "", PAL_CUT_NEVER },
        { NORMAL("NFC"), "null", UNMERGED, "", PAL_CUT_NEVER },
        { "null", "null", UNMERGED, ADDED("<s>", ""), PAL_CUT_NEVER },
        { "null", SPLIT(LLAMA3), MERGED, ADDED("<s>", ""), PAL_CUT_LINES },
        { "null", SPLIT(LLAMA3), MERGED, ADDED("<s>", ",\"single_word\":true"), PAL_CUT_NEVER },
        { "null", SPLIT(LLAMA3), MERGED, ADDED("<s>", ",\"lstrip\":true"), PAL_CUT_NEVER },
        { "null", SPLIT(LLAMA3), MERGED, ADDED("<s>", ",\"rstrip\":true"), PAL_CUT_NEVER },
        { "null", SPLIT(LLAMA3), MERGED, ADDED("\xC3\xA9", ""), PAL_CUT_NEVER },
        { "null", SPLIT(LLAMA3), MERGED, ADDED("7<", ""), PAL_CUT_NEVER },
        { "null", SPLIT(LLAMA3), MERGED, ADDED("X<", ""), PAL_CUT_NEVER },
        { "null", SPLIT(LLAMA3), MERGED, ADDED("x<", ""), PAL_CUT_NEVER },
        { "null", SPLIT(LLAMA3), MERGED, ADDED("[x", ""), PAL_CUT_LINES },
        { "null", SPLIT(LLAMA3), MERGED, ADDED("{x", ""), PAL_CUT_LINES },
        { "null", SPLIT(LLAMA3), MERGED, ADDED("<\\n", ""), PAL_CUT_NEVER },
        { "null", SPLIT(LLAMA3), MERGED, ADDED("< x", ""), PAL_CUT_NEVER },
        { "null", SPLIT(LLAMA3), MERGED, ADDED("  <", ""), PAL_CUT_LINES },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        char json[1024];
        snprintf(json, sizeof json,
                 "{\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,\"model\":{\"type\":"
                 "\"BPE\",%s}}",
                 cases[i].added, cases[i].normalizer, cases[i].pre, cases[i].model);
        pal_tokenizer *tok = test_tokenizer_of(json);
        if (pal_tokenizer_cut(tok) != cases[i].cut)
            fail_msg("%s: cut %d, expected %d", json, (int)pal_tokenizer_cut(tok), (int)cases[i].cut);
        pal_tokenizer_close(tok);
    }
}

/* Of SentencePiece: words, unless a rule looks beyond them. */
static void pieces_are_cut_where_that_is_safe(void **state) {
    (void)state;
    pal_tokenizer *tok = test_tiny(TINY_SPM);
    assert_int_equal(pal_tokenizer_cut(tok), PAL_CUT_NEVER); /* it has a user-defined symbol */
    for (size_t id = 0; id < tok->size; id++) tok->flags[id] &= (uint8_t)~PAL_TOKEN_USER;
    assert_int_equal(pal_tokenizer_cut(tok), PAL_CUT_BLANKS);
    tok->spm.dummy_prefix = false;
    assert_int_equal(pal_tokenizer_cut(tok), PAL_CUT_WORDS);
    bool *const rules[] = { &tok->words, &tok->spm.collapse_blanks, &tok->spm.escape_blanks };
    for (size_t i = 0; i < PAL_COUNT(rules); i++) {
        *rules[i] = !*rules[i];
        assert_int_equal(pal_tokenizer_cut(tok), PAL_CUT_NEVER);
        *rules[i] = !*rules[i];
    }
    tok->spm.charsmap.size = 1;
    assert_int_equal(pal_tokenizer_cut(tok), PAL_CUT_NEVER);
    tok->spm.charsmap.size = 0;
    pal_tokenizer_close(tok);
    tok = test_tiny(TINY_UNIGRAM);
    assert_int_equal(pal_tokenizer_cut(tok), PAL_CUT_NEVER);
    pal_tokenizer_close(tok);
}

#define LETTERS                                                                                           \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2,\"x\":3,\"y\":4," \
    "\" \":5,\"" SIGN "\":6,\"1\":7,\"2\":8},\"merges\":[]}"

/* single_word: \w of a regular expression on neither side. */
static void a_single_word_has_no_word_beside_it(void **state) {
    (void)state;
    static const struct {
        const char *beside;
        bool word;
    } cases[] = {
        { "", false },
        { " ", false },
        { "-", false },
        { "a", true },
        { "1", true },
        { "_", true },
        { "\xC3\xA9", true },
        { "\xCC\x81", true },
        { "\xE2\x80\x8C", true },
        { "\xE2\x80\x8D", true },
        { "\xE2\x80\x8B", false },
        { "\xE2\x92\xB6", true } /* U+24B6 */,
        { "\xE2\x93\xA9", true },
        { "\xE2\x93\xAA", false } /* U+24EA */,
        { "\xE2\x92\xB5", false } /* U+24B5 */,
        { "\xF0\x9F\x84\xB0", true } /* U+1F130 */,
        { "\xF0\x9F\x84\xAF", false },
        { "\xF0\x9F\x85\x8A", false },
        { "\xF0\x9F\x85\x90", true } /* U+1F150 */,
        { "\xF0\x9F\x85\xAA", false },
        { "\xF0\x9F\x85\xB0", true },
        { "\xF0\x9F\x86\x8A", false } /* U+1F18A */,
        { "\xFF", false },
    };
    pal_tokenizer *tok = test_tokenizer_of("{\"added_tokens\":[{\"id\":9,\"content\":\"xy\",\"single_word\":true,"
                                           "\"normalized\":false}]," LETTERS "}");
    for (size_t i = 0; i < PAL_COUNT(cases); i++)
        for (int behind = 0; behind < 2; behind++) {
            char text[32];
            pal_ids ids = { 0 };
            bool found = false;
            snprintf(text, sizeof text, behind ? "xy%s" : "%sxy", cases[i].beside);
            test_encode(tok, text, strlen(text), &ids);
            for (size_t k = 0; k < ids.count; k++) found = found || ids.data[k] == 9;
            if (found == cases[i].word) fail_msg("'%s': found %d", text, (int)found);
            pal_ids_free(&ids);
        }
    pal_tokenizer_close(tok);
}

static void added_tokens_take_the_blanks_beside_them(void **state) {
    (void)state;
    pal_tokenizer *tok = test_tokenizer_of(
        "{\"added_tokens\":[{\"id\":9,\"content\":\"xy\",\"lstrip\":true,\"rstrip\":true,"
        "\"normalized\":false},{\"id\":10,\"content\":\"<s>\",\"special\":true}]," LETTERS "}");
    static const char *const cases[][2] = {
        { "a \t xy  b", "a|xy|b" },   { "  xy  ", "xy" },        { "xy  xy", "xy|xy" },
        { "\xFF xy \xFF", "?|xy|?" }, { "a<s> xy", "a|<s>|xy" }, { "a<", "a|?" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) test_names_are(tok, "lstrip and rstrip", cases[i][0], cases[i][1]);
    /* Asked to take special tokens as text, it still finds the others. */
    pal_tokenizer_scratch *s;
    pal_ids ids = { 0 };
    OK(pal_tokenizer_scratch_new(&s, tok, err));
    OK(pal_tokenizer_encode(tok, s, "<s>xy", 5, &(pal_encode_options){ .special_as_text = true }, &ids, err));
    assert_int_equal(ids.count, 4);
    assert_int_equal(ids.data[3], 9);
    pal_tokenizer_scratch_free(s);
    pal_ids_free(&ids);
    pal_tokenizer_close(tok);
}

static void pre_tokenizers_split_and_mark(void **state) {
    (void)state;
#define PIECES                                                                                            \
    "\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"" SIGN   \
    "a\":1,\"" SIGN "b\":2,\"a\":3,\"b\":4,\"" SIGN "\":5,\"a" SIGN "b\":6,\"1\":7,\"2\":8,\"12\":9,\"a " \
    "b\":10,\" a\":11,\"ab\":12,\"" SIGN "a" SIGN "b\":13,\"\xC4\xA0"                                     \
    "a\":14},\"merges\":[]}"
    static const struct {
        const char *pre, *text, *names;
    } cases[] = {
        { "{\"type\":\"Metaspace\"}", "a b", SIGN "a|" SIGN "b" },
        { "{\"type\":\"Metaspace\"}", " a", SIGN "a" },
        { "{\"type\":\"Metaspace\"}", SIGN "a", SIGN "a" },
        { "{\"type\":\"Metaspace\"}", "a  b", SIGN "a|" SIGN "|" SIGN "b" },
        { "{\"type\":\"Metaspace\"}", "a ", SIGN "a|" SIGN },
        { "{\"type\":\"Metaspace\",\"split\":false}", "a b", SIGN "a" SIGN "b" },
        { "{\"type\":\"Metaspace\",\"prepend_scheme\":\"never\"}", "a b", "a|" SIGN "b" },
        { "{\"type\":\"Metaspace\",\"prepend_scheme\":\"first\"}", "a b", SIGN "a|" SIGN "b" },
        { "{\"type\":\"Metaspace\",\"add_prefix_space\":false,\"split\":false}", "a b", "a" SIGN "b" },
        { "{\"type\":\"Metaspace\",\"add_prefix_space\":true}", "a b", SIGN "a|" SIGN "b" },
        { "{\"type\":\"Digits\"}", "a12b", "a|12|b" },
        { "{\"type\":\"Digits\",\"individual_digits\":true}", "a12b", "a|1|2|b" },
        { "{\"type\":\"Digits\",\"individual_digits\":false}", "12", "12" },
        { "{\"type\":\"ByteLevel\",\"use_regex\":false}", "a",
          "\xC4\xA0"
          "a" },
        { "{\"type\":\"ByteLevel\",\"use_regex\":false}", " a",
          "\xC4\xA0"
          "a" },
        { SPLIT("1"),
          "a1\xFF"
          "b",
          "a|1|?|b" },
        { SPLIT_AS("Regex", "1", "\"behavior\":\"MergedWithPrevious\""), "121", "1|2|1" },
        { SPLIT_AS("String", " ", "\"behavior\":\"Removed\""), "a b", "a|b" },
        { SPLIT_AS("String", " ", "\"behavior\":\"Isolated\",\"invert\":false"), "ab", "ab" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        char json[1024];
        snprintf(json, sizeof json, "{\"pre_tokenizer\":%s," PIECES "}", cases[i].pre);
        pal_tokenizer *tok = test_tokenizer_of(json);
        test_names_are(tok, cases[i].pre, cases[i].text, cases[i].names);
        pal_tokenizer_close(tok);
    }
}

/* Without a pre-tokenizer, words come one by one where no token reaches over a sign. */
static void words_without_a_pre_tokenizer(void **state) {
    (void)state;
    pal_tokenizer *tok = test_tokenizer_of("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"" SIGN
                                           "\":2,\"" SIGN "a\":3,\"ab\":4},\"merges\":[\"" SIGN " a\",\"a b\"]}}");
    assert_true(tok->words);
    test_names_are(tok, "words", SIGN SIGN "ab" SIGN "ab" SIGN, SIGN "|" SIGN "a|b|" SIGN "a|b|" SIGN);
    test_names_are(tok, "words", "ab", "ab");
    pal_tokenizer_close(tok);
}

/* Bytes where there are tokens for all of a character's, else the unknown token, one for each or one for a run. */
static void unknown_characters_follow_the_rules(void **state) {
    (void)state;
#define BYTES "\"vocab\":{\"?\":0,\"a\":1,\"<0xC3>\":2,\"<0xA9>\":3},\"merges\":[]"
    static const char *const cases[][3] = {
        { "\"byte_fallback\":true,\"unk_token\":\"?\"," BYTES, "a\xC3\xA9", "a|<0xC3>|<0xA9>" },
        { "\"byte_fallback\":true,\"unk_token\":\"?\"," BYTES, "a\xC3\xBCza", "a|?|?|a" },
        { "\"byte_fallback\":true,\"unk_token\":\"?\",\"fuse_unk\":true," BYTES, "\xC3\xBCzaz", "?|a|?" },
        { "\"byte_fallback\":true," BYTES, "az\xC3\xA9", "a|<0xC3>|<0xA9>" },
        { "\"byte_fallback\":true,\"unk_token\":\"?\"," BYTES, "\xC3", "<0xC3>" },
        { MERGED,
          "azb\xFF"
          "ab",
          "ab|ab" },
        { "\"ignore_merges\":true," MERGED, "ab", "ab" },
        { "\"ignore_merges\":true," MERGED, "aab", "a|ab" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        char json[512];
        snprintf(json, sizeof json, "{\"model\":{\"type\":\"BPE\",%s}}", cases[i][0]);
        pal_tokenizer *tok = test_tokenizer_of(json);
        test_names_are(tok, cases[i][0], cases[i][1], cases[i][2]);
        pal_tokenizer_close(tok);
    }
#undef BYTES
}

#define TWICE(x)              x "," x
#define MANY(x)               TWICE(TWICE(TWICE(TWICE(x)))) "," x
#define CHAIN(x)              "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" x "]}"
#define TO(a, b)              "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" a "\"},\"content\":\"" b "\"}"
#define STRIP(c, start, stop) "{\"type\":\"Strip\",\"content\":" c ",\"start\":" start ",\"stop\":" stop "}"
#define PLAIN(type)           "{\"type\":\"" type "\"}"
#define SEQUENCES(list, x)    /* ten deep */                                                                       \
    "{\"type\":\"Sequence\",\"" list "\":[{\"type\":\"Sequence\",\"" list "\":[{\"type\":\"Sequence\",\"" list     \
    "\":[{\"type\":\"Sequence\",\"" list "\":[{\"type\":\"Sequence\",\"" list "\":[{\"type\":\"Sequence\",\"" list \
    "\":[{\"type\":\"Sequence\",\"" list "\":[{\"type\":\"Sequence\",\"" list "\":[{\"type\":\"Sequence\",\"" list \
    "\":[{\"type\":\"Sequence\",\"" list "\":[" x "]}]}]}]}]}]}]}]}]}]}"
#define PRE(x) "\"pre_tokenizer\":" STEPS(x)
#define TEMPLATE(x)                                                                                                    \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" x "],\"special_tokens\":{\"s\":{\"ids\":[-1]}}" \
    "}"

static void what_is_not_supported_is_named(void **state) {
    (void)state;
    static const struct {
        const char *part, *says;
    } cases[] = {
        { CHAIN(MANY(TO("a", "b"))), "decoder steps" },
        { CHAIN("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"\"}"), "anything but two strings" },
        { CHAIN("{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":5}"), "anything but two strings" },
        { CHAIN(TO("", "b")), "anything but two strings" },
        { CHAIN(PLAIN("Metaspace") "," TO("a", "b")), "Replace after Metaspace" },
        { CHAIN(PLAIN("Fuse") "," STRIP("\" \"", "1", "0") "," TO("a", "b")), "Replace after Fuse and Strip" },
        { CHAIN(PLAIN("Fuse") "," TO("ab", "b")), "several characters after Fuse" },
        { CHAIN(PLAIN("ByteFallback") "," TO("a", "b")), "Replace after bytes" },
        { CHAIN(PLAIN("ByteLevel") "," TO("\xC3\xA9", "b")), "Replace after bytes" },
        { CHAIN(STRIP("7", "1", "0")), "Strip at the end" },
        { CHAIN(STRIP("\"\"", "1", "0")), "Strip at the end" },
        { CHAIN(STRIP("\"a\"", "-1", "0")), "Strip at the end" },
        { CHAIN(STRIP("\"a\"", "4294967296", "0")), "Strip at the end" },
        { CHAIN(STRIP("\"a\"", "1", "1")), "Strip at the end" },
        { CHAIN(PLAIN("Metaspace") "," STRIP("\"a\"", "1", "0")), "after Metaspace or bytes" },
        { CHAIN(PLAIN("ByteFallback") "," STRIP("\"a\"", "1", "0")), "after Metaspace or bytes" },
        { CHAIN(PLAIN("Fuse") "," STRIP("\"a\"", "1", "0")), "anything but blanks" },
        { CHAIN(PLAIN("Fuse") "," STRIP("\"ab\"", "1", "0")), "anything but blanks" },
        { CHAIN("{\"type\":\"Metaspace\",\"replacement\":\"_\"}"), "sign other than U+2581" },
        { CHAIN("{\"type\":\"Metaspace\",\"replacement\":\"___\"}"), "sign other than U+2581" },
        { CHAIN(TO("a", "b") "," PLAIN("Metaspace")), "Metaspace after another decoder" },
        { CHAIN(PLAIN("Fuse") "," PLAIN("Metaspace")), "Metaspace after another decoder" },
        { CHAIN(PLAIN("ByteFallback") "," PLAIN("ByteFallback")), "ByteFallback after" },
        { CHAIN(TO("a", "b") "," PLAIN("ByteLevel")), "ByteLevel after another decoder" },
        { CHAIN(SEQUENCES("decoders", SEQUENCES("decoders", PLAIN("Fuse")))), "deep" },
        { "\"pre_tokenizer\":" SEQUENCES("pretokenizers", SEQUENCES("pretokenizers", DIGITS)), "deep" },
        { PRE(MANY(DIGITS)), "more than 8 pre-tokenizer steps" },
        { PRE(MANY(SPLIT("a"))), "more than 8 pre-tokenizer steps" },
        { PRE(MANY(SPLIT_AS("String", "a", "\"behavior\":\"Isolated\""))), "more than 8 pre-tokenizer steps" },
        { PRE(MANY(PLAIN("Metaspace"))), "more than 8 pre-tokenizer steps" },
        { PRE(TWICE(TWICE(TWICE(DIGITS))) "," PLAIN("ByteLevel")), "more than 8 pre-tokenizer steps" },
        { PRE(TWICE(TWICE(DIGITS)) "," TWICE(DIGITS) "," DIGITS "," PLAIN("ByteLevel")),
          "more than 8 pre-tokenizer steps" },
        { PRE(SPLIT_AS("String", "", "\"behavior\":\"Isolated\"")), "no pattern" },
        { PRE(SPLIT_AS("String", "a", "\"invert\":false")), "no behavior" },
        { PRE("{\"type\":\"Metaspace\",\"replacement\":7}"), "empty replacement" },
        { "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" MANY(NORMAL("NFC")) "]}",
          "more than 8 normalizer steps" },
        { "\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",-1],\"sep\":[\"a\",0]}",
          "not in the vocabulary" },
        { "\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",9],\"sep\":[\"a\",0]}",
          "not in the vocabulary" },
        { "\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"a\",0],\"sep\":[\"a\",\"b\"]}",
          "not in the vocabulary" },
        { "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"Sequence\",\"processors\":[]}]}",
          "nested twice" },
        { "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":\"Unheard\"}]}",
          "Unheard" },
        { TEMPLATE("{\"Sequence\":{}},{\"Sequence\":{}}"), "the text twice" },
        { TEMPLATE("{\"Other\":{}}"), "neither text nor token" },
        { TEMPLATE("{\"SpecialToken\":{\"id\":\"s\"}}"), "not in the vocabulary" },
        { "\"added_tokens\":[{\"id\":-1,\"content\":\"x\"}]", "no id" },
        { "\"added_tokens\":[{\"id\":\"7\",\"content\":\"x\"}]", "no id" },
        { "\"added_tokens\":[{\"id\":1,\"content\":7}]", "no content" },
        { "\"truncation\":{}", "cuts texts at 0 ids" },
        { "\"padding\":{\"strategy\":7}", "pads" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        char json[8192];
        pal_tokenizer *tok;
        pal_error err = { 0 };
        snprintf(json, sizeof json, "{%s,\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
                 cases[i].part);
        if (!read_json(json, &tok, &err)) {
            pal_tokenizer_close(tok);
            fail_msg("accepted: %s", json);
        }
        if (!strstr(err.text, cases[i].says)) fail_msg("%s gives '%s', expected '%s'", json, err.text, cases[i].says);
    }
}

/* Nothing is believed to be small: patterns, files, and what a pattern does with a text. */
static void too_much_is_refused(void **state) {
    (void)state;
    enum { LONG = (4 << 10) + 1 };
    pal_tokenizer *tok = NULL;
    pal_error err = { 0 };
    char *json = malloc(LONG + 256);
    assert_non_null(json);
    int used = snprintf(json, 256,
                        "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"");
    memset(json + used, 'a', LONG);
    used += LONG;
    snprintf(json + used, 128, "\"}}," LETTERS "}");
    assert_int_not_equal(read_json(json, &tok, &err), PAL_OK);
    assert_non_null(strstr(err.text, "its patterns have 4097 bytes"));
    const size_t most = PAL_TOKENIZER_FILE_MAX; /* of which only the size is looked at */
    assert_int_equal(test_read(READER_JSON, (unsigned char *)json, most + 1, &tok, &err), PAL_E_FORMAT);
    assert_int_equal(test_read(READER_SPM, (unsigned char *)json, most + 1, &tok, &err), PAL_E_FORMAT);
    assert_non_null(strstr(err.text, "is refused"));
    free(json);
    tok = test_tokenizer_of("{\"pre_tokenizer\":" SPLIT("(?:a|aa)+c") "," LETTERS "}");
    pal_tokenizer_scratch *s;
    pal_ids ids = { 0 };
    assert_int_equal(pal_tokenizer_scratch_new(&s, tok, &err), PAL_OK);
    static const char text[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaxc";
    assert_int_equal(pal_tokenizer_encode(tok, s, text, sizeof text - 1, NULL, &ids, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "gives up on this text"));
    pal_ids_free(&ids);
    pal_tokenizer_scratch_free(s);
    pal_tokenizer_close(tok);
}

/* A text has an allowance: many places that are each below the engine's own limit are refused, long runs of digits,
 * which patterns in use look through at each place, are not. */
static void a_pattern_may_cost_so_much_for_a_text(void **state) {
    (void)state;
    static const struct {
        const char *json, *block;
        int blocks;
        const char *refused; /* NULL: it is not */
    } cases[] = {
        { "{\"pre_tokenizer\":" SPLIT("(?:a|aa)+c") "," LETTERS "}", "aaaaaaaaaaaaaaaaaaaaaaaax", 1, NULL },
        { "{\"pre_tokenizer\":" SPLIT("(?:a|aa)+c") "," LETTERS "}", "aaaaaaaaaaaaaaaaaaaaaaaax", 40,
          "it takes more than" },
        { "{\"pre_tokenizer\":" STEPS(SPLIT("x") "," SPLIT("(?:a|aa)+c")) "," LETTERS "}", "aaaaaaaaaaaaaaaaaaaaaaaax",
          40, "it takes more than" },
        /* These read on without a step back. */
        { "{\"pre_tokenizer\":" SPLIT("(?:(?=a++)a)++x") "," LETTERS "}", "aaaaaaaaaa", 300, "it takes more than 0." },
        { "{\"pre_tokenizer\":" SPLIT("(?:(?>a+)x|a)++y") "," LETTERS "}", "aaaaaaaaaa", 300, "it takes more than 0." },
        { "{\"pre_tokenizer\":" SPLIT("\\\\d{1,3}(?=(?:\\\\d{3})*\\\\b)") "," LETTERS "}", "1212121212", 500, NULL },
        { "{\"pre_tokenizer\":" SPLIT("b") "," LETTERS "}", "aaaaaaaaaa", 100000, NULL },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_error err = { 0 };
        pal_tokenizer_scratch *s;
        pal_ids ids = { 0 };
        pal_bytes text = { 0 };
        pal_tokenizer *tok = test_tokenizer_of(cases[i].json);
        for (int k = 0; k < cases[i].blocks; k++)
            assert_int_equal(pal_bytes_append(&text, cases[i].block, strlen(cases[i].block), &err), PAL_OK);
        assert_int_equal(pal_tokenizer_scratch_new(&s, tok, &err), PAL_OK);
        for (int turn = 0; turn < 2; turn++) {
            const pal_status st = pal_tokenizer_encode(tok, s, text.data, text.size, NULL, &ids, &err);
            if (st != (cases[i].refused ? PAL_E_ARGUMENT : PAL_OK) ||
                (st && !strstr(err.text, cases[i].refused)))
                fail_msg("case %d: status %d: %s", (int)i, (int)st, err.text);
        }
        pal_bytes_free(&text);
        pal_ids_free(&ids);
        pal_tokenizer_scratch_free(s);
        pal_tokenizer_close(tok);
    }
}

/* Many short texts share what one text may cost next to its bytes. */
static void short_texts_share_an_allowance(void **state) {
    (void)state;
    pal_error err = { 0 };
    pal_tokenizer_scratch *s;
    pal_ids ids = { 0 };
    pal_tokenizer *tok = test_tokenizer_of("{\"pre_tokenizer\":" SPLIT("(?:a|aa)+c") "," LETTERS "}");
    static const char costly[] = "aaaaaaaaaaaaaaaaaaaaaaaax";
    assert_int_equal(pal_tokenizer_scratch_new(&s, tok, &err), PAL_OK);
    int texts = 0;
    while (texts < 1000 && !pal_tokenizer_encode(tok, s, costly, sizeof costly - 1, NULL, &ids, &err)) texts++;
    assert_in_range(texts, 1, 100);
    assert_non_null(strstr(err.text, "gives up on this text"));
    for (int i = 0; i < 100; i++) assert_int_equal(pal_tokenizer_encode(tok, s, "a", 1, NULL, &ids, &err), PAL_OK);
    pal_ids_free(&ids);
    pal_tokenizer_scratch_free(s);
    pal_tokenizer_close(tok);
}

/* Options for a whole pattern stand in front of all. */
static void patterns_may_begin_with_options(void **state) {
    (void)state;
    static const char *const patterns[] = { "(?I)x", "(?i)X", "(?C)(x)", "(?i-m)X", "x(?i)" };
    for (size_t i = 0; i < PAL_COUNT(patterns); i++) {
        pal_error err = { 0 };
        pal_tokenizer_scratch *s;
        pal_ids ids = { 0 };
        char json[512];
        snprintf(json, sizeof json, "{\"pre_tokenizer\":%s%s%s," LETTERS "}",
                 "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"", patterns[i], "\"}}");
        pal_tokenizer *tok = test_tokenizer_of(json);
        assert_int_equal(pal_tokenizer_scratch_new(&s, tok, &err), PAL_OK);
        assert_int_equal(pal_tokenizer_encode(tok, s, "axa", 3, NULL, &ids, &err), PAL_OK);
        pal_ids_free(&ids);
        pal_tokenizer_scratch_free(s);
        pal_tokenizer_close(tok);
    }
}

/* A JSON string or list of `count` parts. */
static void repeat(pal_bytes *json, const char *part, const char *between, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (i) OK(pal_bytes_append(json, between, strlen(between), err));
        OK(pal_bytes_append(json, part, strlen(part), err));
    }
}

/* The parts before and after what is repeated. */
static pal_status read_repeated(const char *front, const char *part, const char *between, size_t count,
                                const char *behind, pal_tokenizer **tok, pal_error *err) {
    pal_bytes json = { 0 };
    repeat(&json, front, "", 1);
    repeat(&json, part, between, count);
    repeat(&json, behind, "", 1);
    const pal_status st = test_read(READER_JSON, json.data, json.size, tok, err);
    pal_bytes_free(&json);
    return st;
}

#define GROWS "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaaaaaaaaaaaaaaaa\"}"

/* A file of a few lines neither makes its own tokens nor a text grow without end. */
static void rules_do_not_multiply(void **state) {
    (void)state;
    static const struct {
        const char *front, *part, *behind;
        size_t count;
        const char *says;
    } files[] = {
        { "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[", GROWS,
          "]},\"added_tokens\":[{\"id\":9,\"content\":\"a!\",\"normalized\":true}]," LETTERS "}", 8,
          "make its tokens more" },
        { "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[", GROWS, "]}," LETTERS "}", 8, "make its tokens more" },
        { "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[", "{\"SpecialToken\":{\"id\":\"s\"}}",
          "],\"special_tokens\":{\"s\":{\"ids\":[0,1,2]}}}," LETTERS "}", 342, "more than 1024 ids" },
        { "{\"post_processor\":{\"type\":\"Sequence\",\"processors\":[",
          "{\"type\":\"BertProcessing\",\"cls\":[\"a\",1],\"sep\":[\"b\",2]}", "]}," LETTERS "}", 1025,
          "more than 1024 ids" },
        { "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[",
          SPLIT("[abxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxya"
                "bxyabxy"
                "abxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyab"
                "xyabxy"
                "abxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyab"
                "xyabxy"
                "abxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyab"
                "xyabxy"
                "abxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyabxyab"
                "xyabxy]"),
          "]}," LETTERS "}", 8, "its patterns have" },
    };
    for (size_t i = 0; i < PAL_COUNT(files); i++) {
        pal_tokenizer *tok;
        pal_error err = { 0 };
        assert_int_equal(read_repeated(files[i].front, files[i].part, ",", 1, files[i].behind, &tok, &err), PAL_OK);
        pal_tokenizer_close(tok);
        if (!read_repeated(files[i].front, files[i].part, ",", files[i].count, files[i].behind, &tok, &err))
            fail_msg("accepted: %s", files[i].part);
        if (!strstr(err.text, files[i].says)) fail_msg("'%s', expected '%s'", err.text, files[i].says);
    }
    static const struct {
        const char *front, *part, *behind;
        size_t most; /* as many are fine */
    } rules[] = {
        { "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[", GROWS, "]}," LETTERS "}", 3 },
        { "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"aa\"},", GROWS,
          "]}," LETTERS "}", 2 },
        { "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[",
          "{\"type\":\"Metaspace\",\"split\":false,\"replacement\":\"              \"}", "]}," LETTERS "}", 3 },
    };
    for (size_t i = 0; i < PAL_COUNT(rules); i++)
        for (size_t more = 0; more < 2; more++) {
            const size_t count = more ? PAL_STEPS_MAX - 1 : rules[i].most;
            pal_tokenizer *tok;
            pal_tokenizer_scratch *s;
            pal_ids ids = { 0 };
            pal_error err = { 0 };
            assert_int_equal(read_repeated(rules[i].front, rules[i].part, ",", count, rules[i].behind, &tok, &err),
                             PAL_OK);
            assert_int_equal(pal_tokenizer_scratch_new(&s, tok, &err), PAL_OK);
            const pal_status st = pal_tokenizer_encode(tok, s, "a a", 3, NULL, &ids, &err);
            if (st != (more ? PAL_E_ARGUMENT : PAL_OK) || (st && !strstr(err.text, "make this text more than 65584")))
                fail_msg("rule %d, %d times: status %d: %s", (int)i, (int)count, (int)st, err.text);
            pal_ids_free(&ids);
            pal_tokenizer_scratch_free(s);
            pal_tokenizer_close(tok);
        }
}

/* Ids may have holes, which have no text to replace anything in. */
static void holes_have_no_text(void **state) {
    (void)state;
    pal_tokenizer *tok = test_tokenizer_of(
        "{" CHAIN(TO("a", "xyz")) ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"ba\":2},\"merges\":[]}}");
    assert_int_equal(pal_tokenizer_text(tok, 1).size, 0);
    const pal_slice text = pal_tokenizer_text(tok, 2);
    assert_int_equal(text.size, 4);
    assert_memory_equal(text.data, "bxyz", 4);
    pal_tokenizer_close(tok);
}

/* What each place of a text costs does not depend on how much text there is: these would take hours. */
static void added_tokens_take_time_for_the_text_alone(void **state) {
    (void)state;
    enum { MANY_BLANKS = 2000000, LONGEST = 1024 };
    static const struct {
        const char *flags;
        size_t ids;
    } cases[] = { { ",\"lstrip\":true,\"rstrip\":true", 1 },
                  { ",\"rstrip\":true", MANY_BLANKS },
                  { ",\"lstrip\":true", MANY_BLANKS } };
    char *blanks = malloc(MANY_BLANKS);
    assert_non_null(blanks);
    memset(blanks, ' ', MANY_BLANKS);
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        char json[1024];
        pal_ids ids = { 0 };
        snprintf(json, sizeof json,
                 "{\"added_tokens\":[{\"id\":5,\"content\":\" \",\"normalized\":false%s}]," LETTERS "}",
                 cases[i].flags);
        pal_tokenizer *tok = test_tokenizer_of(json);
        test_encode(tok, blanks, MANY_BLANKS, &ids);
        assert_int_equal(ids.count, cases[i].ids);
        pal_ids_free(&ids);
        pal_tokenizer_close(tok);
    }
    free(blanks);
    for (size_t more = 0; more < 2; more++) {
        pal_tokenizer *tok;
        pal_error err = { 0 };
        const pal_status st = read_repeated("{\"added_tokens\":[{\"id\":9,\"content\":\"", "a", "", LONGEST + more,
                                            "\"}]," LETTERS "}", &tok, &err);
        assert_int_equal(st, more ? PAL_E_UNSUPPORTED : PAL_OK);
        if (!st) pal_tokenizer_close(tok);
        else assert_non_null(strstr(err.text, "has 1025 bytes; at most 1024 are accepted"));
    }
}

/* A blank that is stripped may be wider than a byte, and a token that strips. */
static void stripped_blanks_may_be_wide(void **state) {
    (void)state;
    pal_tokenizer *tok = test_tokenizer_of(
        "{\"added_tokens\":[{\"id\":9,\"content\":\"xy\",\"rstrip\":true,\"normalized\":false},{\"id\":10,\"content\":"
        "\"\xE3\x80\x80\",\"rstrip\":true,\"normalized\":false}]," LETTERS "}");
    test_names_are(tok, "wide blanks", "xy\xE3\x80\x80 \xE3\x80\x80 a", "xy|\xE3\x80\x80|\xE3\x80\x80|a");
    pal_tokenizer_close(tok);
}

static void templates_put_tokens_around_a_text(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "{\"type\":\"RobertaProcessing\",\"cls\":[\"?\",0],\"sep\":[\"b\",2]}", "?|a|b" },
        { "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":\"BertProcessing\",\"cls\":[\"x\","
          "3],"
          "\"sep\":[\"y\",4]}]}",
          "x|a|y" },
        { "null", "a" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        char json[1024];
        pal_tokenizer_scratch *s;
        pal_ids ids = { 0 };
        snprintf(json, sizeof json, "{\"post_processor\":%s," LETTERS "}", cases[i][0]);
        pal_tokenizer *tok = test_tokenizer_of(json);
        OK(pal_tokenizer_scratch_new(&s, tok, err));
        OK(pal_tokenizer_encode(tok, s, "a", 1, &(pal_encode_options){ .add_special = true }, &ids, err));
        char names[TEST_NAMES];
        test_names(tok, &ids, names);
        assert_string_equal(names, cases[i][1]);
        pal_ids_free(&ids);
        pal_tokenizer_scratch_free(s);
        pal_tokenizer_close(tok);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_cut_where_that_is_safe),
        cmocka_unit_test(pieces_are_cut_where_that_is_safe),
        cmocka_unit_test(a_single_word_has_no_word_beside_it),
        cmocka_unit_test(added_tokens_take_the_blanks_beside_them),
        cmocka_unit_test(pre_tokenizers_split_and_mark),
        cmocka_unit_test(words_without_a_pre_tokenizer),
        cmocka_unit_test(unknown_characters_follow_the_rules),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(a_pattern_may_cost_so_much_for_a_text),
        cmocka_unit_test(short_texts_share_an_allowance),
        cmocka_unit_test(patterns_may_begin_with_options),
        cmocka_unit_test(rules_do_not_multiply),
        cmocka_unit_test(holes_have_no_text),
        cmocka_unit_test(added_tokens_take_time_for_the_text_alone),
        cmocka_unit_test(stripped_blanks_may_be_wide),
        cmocka_unit_test(templates_put_tokens_around_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
