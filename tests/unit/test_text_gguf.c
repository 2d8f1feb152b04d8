/* SPDX-License-Identifier: MIT */
/* Names of pre-tokenizers in GGUF files, against ids that the package `tokenizers` gave (tests/interop/
 * tokenizers_gguf.py --record): written under the right name, read back with the same ids. */
#include "format/gguf_values.h"
#include "support/text.h"
#include "text/gguf_export.h"
#include "text/gguf_pre.h"
#include "text/hf_json.h"

static void put(pal_bytes *out, const void *data, size_t size) { OK(pal_bytes_append(out, data, size, err)); }

static pal_slice slice_of(const char *text) { return (pal_slice){ (const unsigned char *)text, strlen(text) }; }

/* The recorded vocabulary with the rules of that name, as its tokenizer.json would make it. */
static pal_tokenizer *with_rules(const pal_gguf_pre *rules) {
    pal_tokenizer *tok;
    OK(pal_tokenizer_open(&tok, PAL_TEST_GOLDEN "/tokenizers/tokenizer.json", err));
    assert_int_equal(tok->split_count, 1);
    tok->split_count = 0;
    OK(pal_split_pattern_add(tok, "test", slice_of(rules->pattern), PAL_ISOLATED, false, err));
    if (rules->nfc) tok->normal[tok->normal_count++].kind = PAL_NFC;
    tok->ignore_merges = rules->whole;
    return tok;
}

/* The file's bytes, and the name of the pre-tokenizer in it. */
static void write(pal_bytes *file, const pal_tokenizer *tok, char *name, size_t room) {
    pal_bytes pairs = { 0 };
    size_t count = 0;
    OK(pal_gguf_export(tok, tok->size, &pairs, &count, err));
    put(file, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 16);
    put(file, &(uint64_t){ count }, 8);
    put(file, pairs.data, pairs.size);
    pal_bytes_free(&pairs);
    pal_gguf_reader r = { file->data, file->size, 24, false };
    for (size_t i = 0; i < count; i++) {
        const pal_slice key = pal_gguf_string(&r);
        const pal_gguf_value v = pal_gguf_read(&r);
        if (pal_gguf_is(key, "tokenizer.ggml.pre")) snprintf(name, room, "%.*s", (int)v.text.size, v.text.data);
    }
    assert_false(r.bad);
}

static void same_ids(const pal_tokenizer *tok, const json_t *texts, const json_t *expected, const char *what) {
    pal_tokenizer_scratch *scratch;
    pal_ids ids = { 0 };
    OK(pal_tokenizer_scratch_new(&scratch, tok, err));
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const pal_slice text = pal_json_slice(json_array_get(texts, i));
        const json_t *list = json_array_get(expected, i);
        ids.count = 0;
        OK(pal_tokenizer_encode(tok, scratch, text.data, text.size, NULL, &ids, err));
        bool same = ids.count == json_array_size(list);
        for (size_t k = 0; same && k < ids.count; k++)
            same = json_integer_value(json_array_get(list, k)) == ids.data[k];
        if (!same) fail_msg("%s: text %zu has other ids", what, i);
    }
    pal_ids_free(&ids);
    pal_tokenizer_scratch_free(scratch);
}

static void names_of_rules_give_the_ids_of_the_package(void **state) {
    (void)state;
    json_t *root;
    root = json_load_file(PAL_TEST_GOLDEN "/tokenizers/ids.json", 0, NULL);
    assert_non_null(root);
    const json_t *texts = json_object_get(root, "texts");
    const char *name;
    json_t *expected;
    assert_true(json_array_size(texts) > 5);
    json_object_foreach(json_object_get(root, "names"), name, expected) {
        const pal_gguf_pre *rules = pal_gguf_pre_find(slice_of(name));
        if (!rules) fail_msg("%s is not known", name);
        pal_tokenizer *tok = with_rules(rules), *again;
        pal_bytes file = { 0 };
        char written[32] = "";
        same_ids(tok, texts, expected, name);
        write(&file, tok, written, sizeof written);
        const pal_gguf_pre *same = pal_gguf_pre_find(slice_of(written));
        if (!same || same->pattern != rules->pattern || same->nfc != rules->nfc || same->whole != rules->whole)
            fail_msg("%s is written as '%s'", name, written);
        OK(test_read(READER_GGUF, file.data, file.size, &again, err));
        same_ids(again, texts, expected, name);
        assert_int_equal(again->prefix.count, 0); /* the file says that BOS is not added */
        pal_tokenizer_close(tok);
        pal_tokenizer_close(again);
        pal_bytes_free(&file);
    }
    json_decref(root);
}

/* Xenova's and other conversions of tiktoken's files keep the matches and drop the rest, which is nothing. */
static void kept_matches_are_the_same_as_isolated_ones(void **state) {
    (void)state;
    pal_tokenizer *tok = with_rules(pal_gguf_pre_find(slice_of("dbrx")));
    tok->split[0].behaviour = PAL_REMOVED;
    assert_null(pal_gguf_pre_of(tok));
    tok->split[0].invert = true;
    assert_string_equal(pal_gguf_pre_of(tok)->name, "dbrx");
    tok->split[0].behaviour = PAL_ISOLATED, tok->split[0].invert = false;
    tok->normal[tok->normal_count++].kind = PAL_NFC;
    assert_null(pal_gguf_pre_of(tok)); /* Llama 3's pattern with NFC has no name */
    pal_tokenizer_close(tok);
}

/* Qwen's added tokens are found before NFC, MPT's after it, and the name says which. */
static void added_tokens_are_looked_for_where_the_name_says(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool raw;
    } cases[] = { { "mpt", false }, { "qwen2", true }, { "qwen35", true } };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_tokenizer *tok = with_rules(pal_gguf_pre_find(slice_of(cases[i].name))), *again;
        pal_bytes out = { 0 }, file = { 0 };
        pal_error error = { 0 };
        size_t count = 0;
        char written[32];
        assert_int_equal(tok->added_count, 1);
        tok->added[0].special = false, tok->added[0].normalized = !cases[i].raw;
        tok->flags[tok->added[0].id] &= (uint8_t) ~(PAL_TOKEN_SPECIAL | PAL_TOKEN_IN_MODEL);
        tok->bos = tok->eos = -1;
        write(&file, tok, written, sizeof written);
        assert_string_equal(written, cases[i].name);
        OK(test_read(READER_GGUF, file.data, file.size, &again, err));
        assert_int_equal(again->added[0].normalized, !cases[i].raw);
        pal_tokenizer_close(again);
        pal_bytes_free(&file);
        tok->added[0].normalized = cases[i].raw;
        assert_int_not_equal(pal_gguf_export(tok, tok->size, &out, &count, &error), PAL_OK);
        assert_non_null(strstr(error.text, cases[i].name));
        pal_bytes_free(&out);
        pal_tokenizer_close(tok);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_rules_give_the_ids_of_the_package),
        cmocka_unit_test(kept_matches_are_the_same_as_isolated_ones),
        cmocka_unit_test(added_tokens_are_looked_for_where_the_name_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
