/* SPDX-License-Identifier: MIT */
/* Reading tokenizer files: the recorded vectors, saving and opening again, and every way of being damaged. */
#include "base/alloc.h"
#include "base/map.h"
#include "support/files.h"
#include "support/text.h"

static void vectors_of(const char *vectors, const char *tokenizer) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    const size_t length = strlen(separator);
    char path[1024];
    pal_map in, out;
    pal_error err;
    pal_tokenizer *tok = test_data_tokenizer(tokenizer);
    pal_ids ids = { 0 };
    snprintf(path, sizeof path, "%s/tokenizers/llama.cpp-vectors/ggml-vocab-%s.gguf.inp", getenv("PALIMPSA_DATA"),
             vectors);
    if (pal_map_open(&in, path, &err)) fail_msg("%s", err.text);
    snprintf(path, sizeof path, "%s/tokenizers/llama.cpp-vectors/ggml-vocab-%s.gguf.out", getenv("PALIMPSA_DATA"),
             vectors);
    if (pal_map_open(&out, path, &err)) fail_msg("%s", err.text);
    const unsigned char *line = out.data;
    int cases = 0;
    for (size_t at = 0; at < in.size; cases++) {
        const unsigned char *end = memmem(in.data + at, in.size - at, separator, length);
        if (!end) break;
        ids.count = 0;
        test_encode(tok, in.data + at, (size_t)(end - in.data) - at, &ids);
        size_t count = 0;
        for (; *line != '\n'; count++) {
            uint32_t id = 0;
            for (line += *line == ' '; *line >= '0' && *line <= '9'; line++) id = id * 10 + (*line - '0');
            if (count >= ids.count || ids.data[count] != id)
                fail_msg("%s, string %d, token %zu: expected %u, found %lld", tokenizer, cases, count, id,
                         count < ids.count ? (long long)ids.data[count] : -1);
        }
        assert_int_equal(ids.count, count);
        line++;
        at = (size_t)(end - in.data) + length;
    }
    assert_int_equal(cases, 46);
    pal_ids_free(&ids);
    pal_map_close(&in);
    pal_map_close(&out);
    pal_tokenizer_close(tok);
}

static void recorded_vectors_are_met(void **state) {
    (void)state;
    if (!getenv("PALIMPSA_DATA")) {
        print_message("skipped: PALIMPSA_DATA is not set\n");
        skip();
    }
    vectors_of("llama-spm", "llama2/tokenizer.model");
    vectors_of("llama-spm", "llama.cpp-vectors/ggml-vocab-llama-spm.gguf");
    vectors_of("gpt-2", "gpt2");
    vectors_of("gpt-2", "gpt2/merges.txt");
    vectors_of("gpt-2", "llama.cpp-vectors/ggml-vocab-gpt-2.gguf");
    vectors_of("mpt", "gpt-neox/tokenizer.json");
    vectors_of("mpt", "llama.cpp-vectors/ggml-vocab-gpt-neox.gguf");
}

static void write_file(const char *directory, const char *name, const void *data, size_t size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    test_write_file(path, data, size);
}

/* Opens `name` in its own directory, saves to another, opens that: the same fingerprint, the same ids. */
static void saves(const char *name, const pal_bytes *file, const char *second_name, const pal_bytes *second) {
    char from[256], to[256];
    pal_error err;
    pal_ids a = { 0 }, b = { 0 };
    const char *text = "hello the<|endoftext|> \xC3\xA9 singing <u>";
    test_directory(from);
    test_directory(to);
    write_file(from, name, file->data, file->size);
    if (second_name) write_file(from, second_name, second->data, second->size);
    pal_tokenizer *tok = test_open(from);
    if (pal_tokenizer_save(tok, to, &err)) fail_msg("%s", err.text);
    pal_tokenizer *again = test_open(to);
    assert_true(pal_tokenizer_fingerprint(tok) == pal_tokenizer_fingerprint(again));
    assert_true(pal_tokenizer_fingerprint(tok) != 0);
    assert_true(pal_tokenizer_eos(tok) == pal_tokenizer_eos(again) && pal_tokenizer_eos(tok) >= 0);
    test_encode(tok, text, strlen(text), &a);
    test_encode(again, text, strlen(text), &b);
    assert_int_equal(a.count, b.count);
    assert_memory_equal(a.data, b.data, a.count * sizeof *a.data);
    pal_ids_free(&a);
    pal_ids_free(&b);
    pal_tokenizer_close(tok);
    pal_tokenizer_close(again);
    test_remove(from);
    test_remove(to);
}

static void a_saved_tokenizer_is_the_same(void **state) {
    (void)state;
    pal_bytes json = { 0 }, vocab = { 0 }, merges = { 0 }, spm = { 0 }, unigram = { 0 }, gguf = { 0 }, llama = { 0 };
    test_tiny_json(&json, "{\"type\":\"NFKC\"}");
    test_tiny_vocab(&vocab, &merges);
    test_tiny_spm(&spm, false);
    test_tiny_spm(&unigram, true);
    test_tiny_gguf(&gguf, false);
    test_tiny_gguf(&llama, true);
    saves("tokenizer.json", &json, NULL, NULL);
    saves("vocab.json", &vocab, "merges.txt", &merges);
    saves("tokenizer.model", &spm, NULL, NULL);
    saves("tokenizer.model", &unigram, NULL, NULL);
    saves("tokenizer.gguf", &gguf, NULL, NULL);
    saves("tokenizer.gguf", &llama, NULL, NULL);
    pal_bytes_free(&json);
    pal_bytes_free(&vocab);
    pal_bytes_free(&merges);
    pal_bytes_free(&spm);
    pal_bytes_free(&unigram);
    pal_bytes_free(&gguf);
    pal_bytes_free(&llama);
}

static void the_fingerprint_sees_what_changes_ids(void **state) {
    (void)state;
    static const char *const changes[][2] = { { "\"l ow\"", "\"lo w\"" },
                                              { "\"special\":true", "\"special\":false" },
                                              { "\"lstrip\":false", "\"lstrip\":true" },
                                              { "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}" },
                                              { "\"add_prefix_space\":false", "\"add_prefix_space\":true" },
                                              { "\"type\":\"BPE\"", "\"type\":\"BPE\",\"ignore_merges\":true" } };
    pal_bytes json = { 0 }, same = { 0 };
    pal_error err;
    pal_tokenizer *tok, *other;
    test_tiny_json(&json, "null");
    assert_int_equal(pal_bytes_append(&same, json.data, json.size, NULL), PAL_OK);
    assert_int_equal(pal_bytes_append(&same, " \n ", 3, NULL), PAL_OK);
    char *text = strndup((char *)json.data, json.size);
    if (pal_tokenizer_from_json(&tok, "tiny", &json, &err)) fail_msg("%s", err.text);
    if (pal_tokenizer_from_json(&other, "tiny", &same, &err)) fail_msg("%s", err.text);
    assert_true(pal_tokenizer_fingerprint(tok) ==
                pal_tokenizer_fingerprint(other)); /* blanks in the file mean nothing */
    pal_tokenizer_close(other);
    for (size_t i = 1; i < PAL_COUNT(changes); i++) {
        const char *at = strstr(text, changes[i][0]);
        pal_bytes changed = { 0 };
        assert_non_null(at);
        assert_int_equal(pal_bytes_append(&changed, text, (size_t)(at - text), NULL), PAL_OK);
        assert_int_equal(pal_bytes_append(&changed, changes[i][1], strlen(changes[i][1]), NULL), PAL_OK);
        at += strlen(changes[i][0]);
        assert_int_equal(pal_bytes_append(&changed, at, strlen(at), NULL), PAL_OK);
        if (pal_tokenizer_from_json(&other, "tiny", &changed, &err)) fail_msg("change %zu: %s", i, err.text);
        assert_true(pal_tokenizer_fingerprint(tok) != pal_tokenizer_fingerprint(other));
        pal_tokenizer_close(other);
        pal_bytes_free(&changed);
    }
    free(text);
    pal_tokenizer_close(tok);
    pal_bytes_free(&json);
    pal_bytes_free(&same);
}

static void tiny_file(int reader, pal_bytes *out) {
    pal_bytes merges = { 0 };
    if (reader == READER_JSON) test_tiny_json(out, "{\"type\":\"NFC\"}");
    if (reader == READER_SPM) test_tiny_spm(out, false);
    if (reader == READER_GGUF) test_tiny_gguf(out, false);
    if (reader == READER_VOCAB) {
        test_tiny_vocab(out, &merges);
        assert_int_equal(pal_bytes_append(out, "", 1, NULL), PAL_OK);
        assert_int_equal(pal_bytes_append(out, merges.data, merges.size, NULL), PAL_OK);
        pal_bytes_free(&merges);
    }
}

/* Reads damaged bytes from a block of their exact size; whatever comes out must be usable. Returns whether it was read.
 */
static bool survives(int reader, const unsigned char *bytes, size_t size, pal_error *err) {
    pal_tokenizer *tok;
    unsigned char *exact = malloc(size ? size : 1);
    pal_ids ids = { 0 };
    pal_bytes text = { 0 };
    if (size) memcpy(exact, bytes, size);
    memset(err, 0, sizeof *err);
    const pal_status st = test_read(reader, exact, size, &tok, err);
    if (st) {
        assert_true(err->text[0] != '\0' && strchr(err->text, '\n') == NULL);
        assert_true(st == PAL_E_FORMAT || st == PAL_E_UNSUPPORTED);
    } else {
        pal_tokenizer_scratch *s;
        assert_int_equal(pal_tokenizer_scratch_new(&s, tok, NULL), PAL_OK);
        if (!pal_tokenizer_encode(tok, s, "hello the \xC3\xA9<|endoftext|>", 25, NULL, &ids, NULL))
            assert_int_equal(pal_tokenizer_decode(tok, ids.data, ids.count, false, &text, NULL), PAL_OK);
        pal_tokenizer_scratch_free(s);
        pal_tokenizer_close(tok);
    }
    pal_ids_free(&ids);
    pal_bytes_free(&text);
    free(exact);
    return st == PAL_OK;
}

static void a_file_cut_at_any_byte_is_refused_or_smaller(void **state) {
    (void)state;
    for (int reader = 0; reader < READERS; reader++) {
        pal_bytes file = { 0 };
        pal_error err;
        tiny_file(reader, &file);
        assert_true(survives(reader, file.data, file.size, &err));
        for (size_t size = 0; size < file.size; size++) {
            const bool whole = survives(reader, file.data, size, &err);
            /* JSON and GGUF know their end; the others may end early at a line or a field. */
            if (reader == READER_JSON || reader == READER_GGUF || size == 0) assert_false(whole);
        }
        pal_bytes_free(&file);
    }
}

static void flipped_bits_never_crash(void **state) {
    (void)state;
    for (int reader = 0; reader < READERS; reader++) {
        pal_bytes file = { 0 };
        pal_error err;
        pal_rng rng = pal_rng_at(9, (uint64_t)reader);
        tiny_file(reader, &file);
        for (int turn = 0; turn < test_cases(1000, 10000); turn++) {
            const uint32_t at = pal_rng_below(&rng, (uint32_t)file.size), bit = pal_rng_below(&rng, 8);
            file.data[at] ^= (unsigned char)(1u << bit);
            survives(reader, file.data, file.size, &err);
            file.data[at] ^= (unsigned char)(1u << bit);
        }
        pal_bytes_free(&file);
    }
}

static void random_bytes_are_refused(void **state) {
    (void)state;
    for (int reader = 0; reader < READERS; reader++) {
        pal_bytes junk = { 0 };
        pal_error err;
        pal_rng rng = pal_rng_at(13, (uint64_t)reader);
        for (int turn = 0; turn < test_cases(300, 5000); turn++) {
            junk.size = 0;
            if (reader == READER_GGUF && turn % 2)
                assert_int_equal(pal_bytes_append(&junk, "GGUF\3\0\0\0", 8, NULL), PAL_OK);
            test_random_bytes(&junk, &rng, 300);
            assert_false(survives(reader, junk.data, junk.size, &err));
        }
        pal_bytes_free(&junk);
    }
}

#define MODEL(body) "{\"model\":{\"type\":\"BPE\"," body "}}"
#define WITH(part)  "{" part ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}"

static void damaged_tokenizer_json_is_named(void **state) {
    (void)state;
    static const struct {
        const char *json, *says;
    } cases[] = {
        { "", "empty" },
        { "{", "JSON" },
        { "[]", "no model" },
        { "{}", "no model" },
        { "{\"model\":7}", "no model" },
        { "\xFF\xFE", "JSON" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\xFF\":0}}}", "JSON" },
        { MODEL("\"vocab\":{},\"merges\":[]"), "empty" },
        { MODEL("\"merges\":[]"), "not an object" },
        { MODEL("\"vocab\":[],\"merges\":[]"), "not an object" },
        { MODEL("\"vocab\":{\"a\":-1}"), "has no id" },
        { MODEL("\"vocab\":{\"a\":\"x\"}"), "has no id" },
        { MODEL("\"vocab\":{\"a\":1.5}"), "has no id" },
        { MODEL("\"vocab\":{\"a\":4000000000}"), "id 4000000000" },
        { MODEL("\"vocab\":{\"a\":9223372036854775807}"), "9223372036854775807" },
        { MODEL("\"vocab\":{\"a\":0,\"b\":0}"), "same id" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[\"a b\"]"), "not in the vocabulary" },
        { MODEL("\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]"), "makes 'ab'" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[\"a\"]"), "expected two tokens" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]"), "expected two tokens" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[\" a\"]"), "empty side" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]"), "neither" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"\"]]"), "empty side" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[7]"), "neither" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":{}"), "not a list" },
        { MODEL("\"vocab\":{\"a\":0},\"unk_token\":\"u\""), "unknown token" },
        { MODEL("\"vocab\":{\"a\":0},\"dropout\":0.1"), "dropout" },
        { MODEL("\"vocab\":{\"a\":0},\"end_of_word_suffix\":\"</w>\""), "end_of_word_suffix" },
        { MODEL("\"vocab\":{\"a\":0},\"continuing_subword_prefix\":\"##\""), "continuing_subword_prefix" },
        { "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", "WordPiece" },
        { "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}}", "Unigram" },
        { WITH("\"added_tokens\":[{\"id\":0,\"content\":\"x\"}]"), "same id" },
        { WITH("\"added_tokens\":[{\"id\":3,\"content\":\"a\"}]"), "same name" },
        { WITH("\"added_tokens\":[{\"content\":\"x\"}]"), "has no id" },
        { WITH("\"added_tokens\":[{\"id\":3}]"), "has no content" },
        { WITH("\"added_tokens\":[{\"id\":3,\"content\":\"\"}]"), "has no content" },
        { WITH("\"added_tokens\":[{\"id\":90000000,\"content\":\"x\"}]"), "id 90000000" },
        { WITH("\"normalizer\":{\"type\":\"Precompiled\"}"), "Precompiled" },
        { WITH("\"normalizer\":{}"), "no type" },
        { WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}"),
          "replaces nothing" },
        { WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"\"}"),
          "regular expression" },
        { WITH("\"normalizer\":{\"type\":\"Prepend\"}"), "not a string" },
        { WITH("\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"), "BertPreTokenizer" },
        { WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}"),
          "cannot be compiled" },
        { WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\\\\\"},\"behavior\":\"Isolated\"}"),
          "end pattern at escape" },
        { WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\\\\R*\"},\"behavior\":\"Isolated\"}"),
          "a pattern has \\R" },
        { WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Sideways\"}"),
          "behavior" },
        { WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{},\"behavior\":\"Isolated\"}"), "no pattern" },
        { WITH("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":"
               "\"Digits\"}]}"),
          "after ByteLevel" },
        { WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\"}"), "empty replacement" },
        { "{\"model\":{\"vocab\":{\"a\":0},\"unk_token\":\"a\"}}", "neither a type nor merges" },
        { WITH("\"truncation\":{\"max_length\":5}"), "at 5 ids" },
        { WITH("\"padding\":{\"strategy\":{\"Fixed\":8}}"), "pads" },
        { WITH("\"padding\":{\"strategy\":\"BatchLongest\",\"pad_to_multiple_of\":8}"), "pads" },
        { WITH("\"added_tokens\":[{\"id\":4,\"content\":\"x\"}]"), "'x' has id 4 where the package would give it 3" },
        { WITH("\"added_tokens\":[{\"id\":4,\"content\":\"y\"},{\"id\":3,\"content\":\"x\"}]"), "'y' has id 4" },
        { WITH("\"added_tokens\":[{\"id\":3,\"content\":\"x\"}],\"normalizer\":{\"type\":\"Replace\","
               "\"pattern\":{\"String\":\"x\"},\"content\":\"\"}"),
          "nothing is left of the added token 'x'" },
        { "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"byte_fallback\":true,\"vocab\":{\"a\":0},"
          "\"merges\":[]}}",
          "ByteLevel with byte_fallback" },
        { WITH("\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
               "\"type\":\"Digits\"},{\"type\":\"Metaspace\",\"prepend_scheme\":\"first\"}]}"),
          "'first' is not supported" },
        { WITH("\"decoder\":{\"type\":\"WordPiece\"}"), "WordPiece" },
        { WITH("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":"
               "\"ByteFallback\"}]}"),
          "ByteFallback after Fuse" },
        { WITH("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":"
               "\"ByteLevel\"}]}"),
          "ByteLevel after another decoder" },
        { WITH("\"decoder\":{\"type\":\"Strip\",\"content\":\"x\",\"start\":9,\"stop\":9}"), "Strip" },
        { WITH("\"post_processor\":{\"type\":\"Unheard\"}"), "Unheard" },
        { WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}],"
               "\"special_tokens\":{}}"),
          "without ids" },
        { WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}],"
               "\"special_tokens\":{\"x\":{\"ids\":[99]}}}"),
          "not in the vocabulary" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_error err;
        if (survives(READER_JSON, (const unsigned char *)cases[i].json, strlen(cases[i].json), &err))
            fail_msg("accepted: %s", cases[i].json);
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s gives '%s', which does not say '%s'", cases[i].json, err.text, cases[i].says);
    }
}

static void deep_nesting_is_refused(void **state) {
    (void)state;
    pal_bytes deep = { 0 };
    pal_error err;
    assert_int_equal(
        pal_bytes_append(&deep, "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":", 52, NULL), PAL_OK);
    for (int i = 0; i < 30; i++)
        assert_int_equal(pal_bytes_append(&deep, "{\"type\":\"Sequence\",\"normalizers\":[", 34, NULL), PAL_OK);
    for (int i = 0; i < 30; i++) assert_int_equal(pal_bytes_append(&deep, "]}", 2, NULL), PAL_OK);
    assert_int_equal(pal_bytes_append(&deep, "}", 1, NULL), PAL_OK);
    assert_false(survives(READER_JSON, deep.data, deep.size, &err));
    assert_non_null(strstr(err.text, "deep"));
    deep.size = 0;
    for (int i = 0; i < 100000; i++) assert_int_equal(pal_bytes_append(&deep, "[", 1, NULL), PAL_OK);
    assert_false(survives(READER_JSON, deep.data, deep.size, &err));
    pal_bytes_free(&deep);
}

/* Overwrites a number in a GGUF file, found by the key before it. */
static void poke(const pal_bytes *file, const char *key, size_t offset, uint64_t value, size_t size) {
    unsigned char *at = memmem(file->data, file->size, key, strlen(key));
    assert_non_null(at);
    memcpy(at + strlen(key) + offset, &value, size);
}

static void damaged_gguf_is_named(void **state) {
    (void)state;
    static const struct {
        const char *key;
        size_t offset;
        uint64_t value;
        size_t size;
        const char *says;
    } cases[] = {
        { "GGUF", 0, 1, 4, "version 1" },
        { "GGUF", 0, 77, 4, "version 77" },
        { "GGUF", 12, UINT64_MAX, 8, "damaged" },
        { "tokenizer.ggml.tokenX", 0, 0, 0, "no list of tokens" },
        { "tokenizer.ggml.tokens", 0, 99, 4, "damaged" },
        { "tokenizer.ggml.tokens", 4, 9, 4, "damaged" },
        { "tokenizer.ggml.tokens", 4, 99, 4, "damaged" },
        { "tokenizer.ggml.tokens", 8, UINT64_MAX, 8, "damaged" },
        { "tokenizer.ggml.tokens", 8, 1ull << 40, 8, "damaged" },
        { "tokenizer.ggml.tokens", 16, UINT64_MAX, 8, "damaged" },
        { "tokenizer.ggml.token_type", 4, 6, 4, "kinds of tokens" },
        { "tokenizer.ggml.eos_token_id", 4, 0xFFFFFF, 4, "16777215" },
        { "tokenizer.ggml.model", 12, 'x', 1, "not supported" },
        { "tokenizer.ggml.pre", 12, 'x', 1, "pre-tokenizer 'xpt-2'" },
        { "tokenizer.ggml.mergeX", 0, 0, 0, "no list of merges" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_bytes file = { 0 };
        pal_error err;
        test_tiny_gguf(&file, false);
        if (cases[i].size == 0) { /* the key is spelled with an X at its end */
            unsigned char *at = memmem(file.data, file.size, cases[i].key, strlen(cases[i].key) - 1);
            assert_non_null(at);
            at[strlen(cases[i].key) - 1] = 'X';
        } else {
            poke(&file, cases[i].key, cases[i].offset, cases[i].value, cases[i].size);
        }
        if (survives(READER_GGUF, file.data, file.size, &err)) fail_msg("case %zu was accepted", i);
        if (!strstr(err.text, cases[i].says))
            fail_msg("case %zu gives '%s', which does not say '%s'", i, err.text, cases[i].says);
        pal_bytes_free(&file);
    }
}

/* An id of eight bytes, as some files have it: all of them count. */
static void a_wide_gguf_id_is_not_cut(void **state) {
    (void)state;
    pal_bytes file = { 0 }, wide = { 0 };
    pal_error why;
    test_tiny_gguf(&file, false);
    static const char key[] = "tokenizer.ggml.eos_token_id";
    const unsigned char *at = memmem(file.data, file.size, key, sizeof key - 1);
    assert_non_null(at);
    const size_t before = (size_t)(at - file.data) + sizeof key - 1;
    for (uint64_t high = 0; high < 2; high++) { /* type 10 is a u64; the id is 0, and 2^32 */
        const uint32_t type = 10;
        const uint64_t id = high << 32;
        wide.size = 0;
        OK(pal_bytes_append(&wide, file.data, before, err));
        OK(pal_bytes_append(&wide, &type, 4, err));
        OK(pal_bytes_append(&wide, &id, 8, err));
        OK(pal_bytes_append(&wide, file.data + before + 8, file.size - before - 8, err));
        if (survives(READER_GGUF, wide.data, wide.size, &why) != (high == 0)) fail_msg("%s", high ? "taken" : why.text);
    }
    assert_non_null(strstr(why.text, "EOS is id 4294967295, which no token has"));
    pal_bytes_free(&file);
    pal_bytes_free(&wide);
}

static void damaged_sentencepiece_is_named(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *says;
    } cases[] = {
        { "\x0A\x05\x0A\x03zzz", 7, "no piece for what is unknown" },
        { "\x0A\x7F\x0A", 3, "cut short" },
        { "\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11, "cut short" },
        { "\x0A\x03\x0A\x7Fz", 5, "piece 0 is damaged" },
        { "\x0A\x07\x0A\x03zzz\x18\x09", 9, "kind 9" },
        { "\x0A\x08\x0A\x01z\x15\x00\x00\xC0\x7F", 10, "not a number" },
        { "\x0A\x02\x18\x02", 4, "piece 0 is empty" },
        { "\x0A\x05\x0A\x01u\x18\x02\x0A\x05\x0A\x01v\x18\x02", 14, "both the unknown" },
        { "\x0A\x05\x0A\x01u\x18\x02\x12\x02\x18\x03", 11, "kind 3" },
        { "\x0A\x05\x0A\x01u\x18\x02\x12\x03\xC0\x01\x01", 12, "suffix" },
        { "\x0A\x05\x0A\x01u\x18\x02\x0A\x03\x0A\x01z\x1A\x05\x12\x03zzz", 19, "character map" },
        { "\x0A\x05\x0A\x01u\x18\x02\x0A\x03\x0A\x01z\x2A\x05\x12\x03zzz", 19, "denormaliser" },
        { "\x0A\x05\x0A\x01u\x18\x02\x0A\x03\x0A\x01z\x12\x03\x98\x02\x01", 17, "<0x00> is missing" },
        { "\x0A\x03\x0A\x01u\x0A\x03\x0A\x01u", 10, "same name" },
        { "\x2A\x02\x12\x7F", 4, "the denormaliser is damaged" },
        { "\x12\x02\x18\xFF", 4, "the trainer's settings are damaged" },
        { "\x1A\x02\x12\x7F", 4, "the normaliser is damaged" },
        { "\x0A\x08\x0A\x01z\x18\xFF\xFF\xFF\x01", 10, "kind 255" },
        { "\x0A\x03\x0A\x01z\x09\x00\x00", 8, "cut short" },
        { "\x0A\x03\x0A\x01z\x07", 6, "cut short" },
        { "\x0F\x00", 2, "not a SentencePiece model" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_error err;
        if (survives(READER_SPM, (const unsigned char *)cases[i].bytes, cases[i].size, &err))
            fail_msg("case %zu was accepted", i);
        if (!strstr(err.text, cases[i].says))
            fail_msg("case %zu gives '%s', which does not say '%s'", i, err.text, cases[i].says);
    }
}

static void opening_names_what_is_wrong(void **state) {
    (void)state;
    pal_tokenizer *tok;
    pal_error err;
    char directory[256], path[1024];
    test_directory(directory);
    assert_int_equal(pal_tokenizer_open(&tok, NULL, &err), PAL_E_ARGUMENT);
    assert_int_equal(pal_tokenizer_open(&tok, "", &err), PAL_E_ARGUMENT);
    assert_int_equal(pal_tokenizer_open(&tok, "/nowhere/at/all", &err), PAL_E_IO);
    assert_int_equal(pal_tokenizer_open(&tok, directory, &err), PAL_E_IO);
    assert_non_null(strstr(err.text, "no tokenizer.json"));
    write_file(directory, "empty.json", "", 0);
    snprintf(path, sizeof path, "%s/empty.json", directory);
    assert_int_equal(pal_tokenizer_open(&tok, path, &err), PAL_E_FORMAT);
    assert_non_null(strstr(err.text, "empty"));
    write_file(directory, "picture.png", "\x89PNG\r\n\x1A\n", 8);
    snprintf(path, sizeof path, "%s/picture.png", directory);
    assert_int_equal(pal_tokenizer_open(&tok, path, &err), PAL_E_FORMAT);
    assert_non_null(strstr(err.text, "neither"));
    write_file(directory, "vocab.json", "{\"a\":0}", 7); /* without merges.txt */
    assert_int_equal(pal_tokenizer_open(&tok, directory, &err), PAL_E_IO);
    assert_non_null(strstr(err.text, "merges.txt"));
    test_remove(directory);
}

static void reading_fails_cleanly_without_memory(void **state) {
    (void)state;
    for (int reader = 0; reader < READERS; reader++) {
        pal_bytes file = { 0 };
        tiny_file(reader, &file);
        for (uint64_t k = 1, step = 1;; k += step) {
            pal_tokenizer *tok = NULL;
            pal_error err = { 0 };
            pal_alloc_fail_at(k + 1); /* the first one is the test's own */
            const pal_status st = test_read(reader, file.data, file.size, &tok, &err);
            pal_alloc_fail_at(0);
            assert_true(st == PAL_OK || st == PAL_E_MEMORY);
            pal_tokenizer_close(tok);
            if (!st) break;
            if (k > 200) step = 17;
        }
        pal_bytes_free(&file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_vectors_are_met),
        cmocka_unit_test(a_saved_tokenizer_is_the_same),
        cmocka_unit_test(the_fingerprint_sees_what_changes_ids),
        cmocka_unit_test(a_file_cut_at_any_byte_is_refused_or_smaller),
        cmocka_unit_test(flipped_bits_never_crash),
        cmocka_unit_test(random_bytes_are_refused),
        cmocka_unit_test(damaged_tokenizer_json_is_named),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(damaged_gguf_is_named),
        cmocka_unit_test(a_wide_gguf_id_is_not_cut),
        cmocka_unit_test(damaged_sentencepiece_is_named),
        cmocka_unit_test(opening_names_what_is_wrong),
        cmocka_unit_test(reading_fails_cleanly_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
