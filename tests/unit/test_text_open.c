/* SPDX-License-Identifier: MIT */
/* Tokenizers by name: what says their kind, what stands next to them, and where they may lie. */
#include <sys/stat.h>
#include <unistd.h>

#include "support/files.h"
#include "support/text.h"

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"<s>\":2,\"</s>\":3},\"merges\":[]}"
#define ADDED                                                                                      \
    "\"added_tokens\":[{\"id\":2,\"content\":\"<s>\",\"special\":true},{\"id\":3,\"content\":\"</" \
    "s>\",\"special\":%s}],"

static void write_json(const char *path, bool special) {
    char json[512];
    snprintf(json, sizeof json, "{" ADDED MODEL "}", special ? "true" : "false");
    test_write_text(path, json);
}

/* tokenizer_config.json says where texts begin and end; else special tokens of usual names do. */
static void ends_are_found(void **state) {
    (void)state;
    static const struct {
        const char *config; /* NULL: none */
        bool special;
        int64_t bos, eos;
    } cases[] = {
        { NULL, true, 2, 3 },
        { NULL, false, 2, -1 },
        { "{\"eos_token\":\"a\",\"bos_token\":{\"content\":\"b\"}}", true, 1, 0 },
        { "{\"eos_token\":{\"content\":\"a\"},\"bos_token\":null}", true, -1, 0 },
        { "{\"eos_token\":null}", true, 2, -1 },
        { "{\"eos_token\":\"unheard\",\"bos_token\":7}", true, 2, -1 }, /* never another than the one that is named */
    };
    assert_int_equal(mkdir(in_folder("ends"), 0777), 0);
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        write_json(in_folder("ends/tokenizer.json"), cases[i].special);
        unlink(in_folder("ends/tokenizer_config.json"));
        if (cases[i].config) test_write_text(in_folder("ends/tokenizer_config.json"), cases[i].config);
        pal_tokenizer *tok = test_open(in_folder("ends"));
        if (pal_tokenizer_bos(tok) != cases[i].bos || pal_tokenizer_eos(tok) != cases[i].eos)
            fail_msg("case %zu: %d and %d", i, (int)pal_tokenizer_bos(tok), (int)pal_tokenizer_eos(tok));
        pal_tokenizer_close(tok);
    }
    static const char *const damaged[] = { "not json",
                                           "",
                                           "[]",
                                           "{\"chat_template\":7}",
                                           "{\"chat_template\":[{}]}",
                                           "{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}" };
    for (size_t i = 0; i < PAL_COUNT(damaged); i++) {
        pal_tokenizer *tok;
        pal_error err;
        test_write_text(in_folder("ends/tokenizer_config.json"), damaged[i]);
        assert_int_equal(pal_tokenizer_open(&tok, in_folder("ends"), &err), PAL_E_FORMAT);
        assert_non_null(strstr(err.text, "ends/tokenizer_config.json: "));
    }
}

static void the_content_tells_the_kind(void **state) {
    (void)state;
    static const struct {
        const char *name, *content, *says;
    } cases[] = {
        { "blank.json", " \n\r\t", "neither a tokenizer.json" },
        { "list.json", " [1]", "neither a tokenizer.json" },
        { "gguf", "GGU", "neither a tokenizer.json" },
        { "broken.json", "\t{", "not valid JSON" },
        { "model", "\n\x7F", "not a SentencePiece model" },
        { "vocab.json", "{", "not valid JSON" },
        { "other-merges.txt", "a b", "cannot open" },
    };
    test_write_text(in_folder("merges.txt"), "#version: 1\r\na b\r\n\n");
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_tokenizer *tok;
        pal_error err = { 0 };
        test_write_text(in_folder(cases[i].name), cases[i].content);
        if (i + 1 == PAL_COUNT(cases)) unlink(in_folder("vocab.json"));
        if (!pal_tokenizer_open(&tok, in_folder(cases[i].name), &err)) fail_msg("%s was opened", cases[i].name);
        if (!strstr(err.text, cases[i].says)) fail_msg("%s: %s", cases[i].name, err.text);
    }
    test_write_text(in_folder("vocab.json"), "{\"a\":0,\"b\":1,\"ab\":2}");
    pal_tokenizer *tok = test_open(in_folder("vocab.json")), *again = test_open(in_folder("merges.txt"));
    assert_true(pal_tokenizer_fingerprint(tok) == pal_tokenizer_fingerprint(again));
    assert_int_equal(pal_tokenizer_find(tok, "ab"), 2);
    pal_tokenizer_close(tok);
    pal_tokenizer_close(again);
    char back[TEST_PATH];
    assert_non_null(getcwd(back, sizeof back));
    assert_int_equal(chdir(test_folder()), 0); /* a name without a directory */
    tok = test_open("vocab.json");
    pal_tokenizer_close(tok);
    assert_int_equal(chdir(back), 0);
}

/* In a run, the newest checkpoint's. */
static void a_run_has_the_tokenizer_of_its_newest_checkpoint(void **state) {
    (void)state;
    static const char *const folders[] = { "run", "run/checkpoints", "run/checkpoints/step-1",
                                           "run/checkpoints/step-2" };
    for (size_t i = 0; i < PAL_COUNT(folders); i++) assert_int_equal(mkdir(in_folder(folders[i]), 0777), 0);
    pal_tokenizer *tok;
    pal_error err = { 0 };
    assert_int_equal(pal_tokenizer_open(&tok, in_folder("run"), &err), PAL_E_IO);
    test_write_text(in_folder("run/checkpoints/step-2/model.safetensors"), "");
    assert_int_equal(pal_tokenizer_open(&tok, in_folder("run"), &err), PAL_E_IO);
    assert_non_null(strstr(err.text, "step-2: no tokenizer.json"));
    write_json(in_folder("run/checkpoints/step-2/tokenizer.json"), true);
    tok = test_open(in_folder("run"));
    assert_int_equal(pal_tokenizer_size(tok), 4);
    /* Ids that are none have no text and no name. */
    assert_int_equal(pal_tokenizer_text(tok, 4).size, 0);
    assert_int_equal(pal_tokenizer_name(tok, 99).size, 0);
    assert_false(pal_tokenizer_is_special(tok, 4));
    pal_bytes text = { 0 };
    assert_int_equal(pal_tokenizer_decode(tok, &(uint32_t){ 4 }, 1, false, &text, &err), PAL_E_ARGUMENT);
    pal_tokenizer_scratch *s;
    pal_ids ids = { 0 };
    assert_int_equal(pal_tokenizer_scratch_new(&s, tok, &err), PAL_OK);
    assert_int_equal(pal_tokenizer_encode(tok, s, NULL, 3, NULL, &ids, &err), PAL_E_ARGUMENT);
    assert_int_equal(pal_tokenizer_encode(tok, s, NULL, 0, NULL, &ids, &err), PAL_OK);
    pal_tokenizer_scratch_free(s);
    pal_bytes_free(&text);
    pal_tokenizer_close(tok);
}

/* For models without a tokenizer: numbers and blanks. */
static void numbers_are_their_own_ids(void **state) {
    (void)state;
    pal_tokenizer *tok;
    pal_ids ids = { 0 };
    OK(pal_tokenizer_ids(&tok, 30, err));
    assert_string_equal(pal_tokenizer_kind(tok), "ids");
    test_encode(tok, "7 29 0", 6, &ids);
    assert_true(ids.count >= 3 && ids.data[0] == 7);
    pal_ids_free(&ids);
    pal_tokenizer_close(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_are_found),
        cmocka_unit_test(the_content_tells_the_kind),
        cmocka_unit_test(a_run_has_the_tokenizer_of_its_newest_checkpoint),
        cmocka_unit_test(numbers_are_their_own_ids),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
