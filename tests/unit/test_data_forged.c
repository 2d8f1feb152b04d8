/* SPDX-License-Identifier: MIT */
/* Shards and their lists as only a writer that knows the checksums makes them: every number is checked all the same. */
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "data/shards_inside.h"
#include "support/shards.h"
#include "support/text.h"

/* The file with one number changed, and the checksums of what there is. */
static void forge(const char *path, const unsigned char *good, size_t size, size_t at, uint64_t value, size_t bytes) {
    unsigned char *file = malloc(size);
    uint64_t tokens, sum;
    assert_non_null(file);
    memcpy(file, good, size);
    memcpy(&tokens, good + AT_TOKENS, 8);
    memcpy(file + at, &value, bytes);
    const size_t table = HEADER + ((size_t)tokens * 2 + 7) / 8 * 8;
    sum = pal_hash(0, file + table, size - table);
    memcpy(file + AT_TABLE_SUM, &sum, 8);
    sum = pal_hash(0, file, AT_SUM);
    memcpy(file + AT_SUM, &sum, 8);
    test_write_file(path, file, size);
    free(file);
}

static void opening_says(const char *set, const char *what, const char *says) {
    pal_shards *s;
    pal_error err = { 0 };
    if (pal_shards_open(&s, set, &err) == PAL_OK) fail_msg("%s: was taken", what);
    if (!strstr(err.text, says)) fail_msg("%s: '%s' does not say '%s'", what, err.text, says);
}

static void forged_shards_are_refused(void **state) {
    (void)state;
    static const uint64_t lengths[] = { 5, 4, 17, 3, 9 }; /* 26 and 12 tokens: the tables begin at 184 and 152 */
    static const struct {
        int shard;
        size_t at;
        uint64_t value;
        size_t bytes;
        const char *says;
    } cases[] = {
        { 0, AT_VERSION, 3, 4, "version 3 of shards, expected 1 or 2" },
        { 1, AT_VERSION, 2, 4, "version 2 of shards, unlike those before it" },
        { 0, AT_WIDTH, 4, 4, "tokens of 4 bytes, expected 2" },
        { 0, AT_NUMBER, 7, 8, "this is shard 7, expected 0" },
        { 0, AT_DOCUMENTS, 0, 8, "in 0 documents do not fit" },
        { 0, AT_DOCUMENTS, 27, 8, "in 27 documents do not fit" },
        { 0, AT_DOCUMENTS, 26, 8, "in 26 documents do not fit" },
        { 0, AT_TOKENS, 1 << 20, 8, "1048576 tokens" },
        { 0, AT_TOKENS, 32, 8, "the file was cut short or added to" },
        { 0, AT_CONTINUES, 1, 8, "is 1, expected 0" },
        { 1, AT_CONTINUES, 2, 8, "is 2, expected 0 or 1" },
        { 0, 184, 0, 8, "document 0 ends at token 0, expected 1 to 26" },
        { 0, 184, 27, 8, "document 0 ends at token 27" },
        { 0, 208, 5, 8, "document 1 ends at token 5" },
        { 0, 232, 25, 8, "the last document ends at token 25, expected 26" },
        { 1, 16, 7, 8, "made with tokenizer 0000000000000007" },
        { 1, 24, 7, 8, "of 7 ids" },
        { 1, 160, 7, 8, "not the shard that" }, /* its bytes: the table's checksum is a different one */
    };
    pal_shards_close(test_shards("forged", lengths, 5, 3, 0.2));
    char set[TEST_PATH];
    strcpy(set, in_folder("forged"));
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        char path[TEST_PATH], what[32];
        size_t size;
        strcpy(path, in_folder(cases[i].shard ? "forged/00001.shard" : "forged/00000.shard"));
        unsigned char *good = test_read_file(path, &size);
        forge(path, good, size, cases[i].at, cases[i].value, cases[i].bytes);
        snprintf(what, sizeof what, "case %zu", i);
        opening_says(set, what, cases[i].says);
        test_write_file(path, good, size);
        free(good);
    }
    pal_shards_close(test_shards_open(set));
}

/* The list of a set, with a value changed: {"valid": {"token": ...}}. */
static void a_wrong_list_of_shards_is_refused(void **state) {
    (void)state;
    static const uint64_t lengths[] = { 5, 4, 17 };
    static const struct {
        const char *in, *key, *value, *says;
    } cases[] = {
        { NULL, "version", "null", "'version' must be a number" },
        { NULL, "version", "9", "version 9 of shards" },
        { NULL, "tokenizer", "7", "16 hexadecimal digits" },
        { NULL, "tokenizer", "\"12\"", "16 hexadecimal digits" },
        { NULL, "tokenizer", "\"123456789012345x\"", "16 hexadecimal digits" },
        { NULL, "vocabulary", "-1", "'vocabulary' must be a number" },
        { NULL, "vocabulary", "3000000000", "'vocabulary' must be a number" },
        { NULL, "eos", "-2", "'eos' is -2" },
        { NULL, "eos", "256", "'eos' is 256" },
        { NULL, "shards", "[]", "0 shards" },
        { NULL, "shards", "7", "0 shards" },
        { NULL, "shards", "[{}]", "'documents' must be a number" },
        { NULL, "shards", "[{\"documents\":3}]", "'tokens' must be a number" },
        { NULL, "shards", "[{\"documents\":3,\"tokens\":26}]", "16 hexadecimal digits" },
        { NULL, "bytes", "\"many\"", "'bytes' must be a number" },
        { NULL, "words", "1.5", "'words' must be a number" },
        { "valid", "document", "3", "'document' must be a number from 0 to 2" },
        { "valid", "token", "-1", "'token' must be a number" },
        { "valid", "token", "17", "validation begins at token 17 of a document of 17" },
        { "valid", "tokens", "1", "1 tokens of validation, its documents have" },
        { "valid", "tokens", "27", "'tokens' must be a number from 0 to 26" },
        { "valid", "bytes", "27", "'bytes' must be a number from 0 to 26" },
        { "valid", "words", "true", "'words' must be a number" },
    };
    pal_shards_close(test_shards("listed", lengths, 3, 3, 0.3));
    char set[TEST_PATH], path[TEST_PATH];
    strcpy(set, in_folder("listed"));
    strcpy(path, in_folder("listed/shards.json"));
    size_t size;
    unsigned char *good = test_read_file(path, &size);
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        json_t *root = json_loadb((char *)good, size, 0, NULL);
        json_t *in = cases[i].in ? json_object_get(root, cases[i].in) : root;
        assert_true(json_object_get(in, cases[i].key) != NULL);
        json_object_set_new(in, cases[i].key, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        assert_int_equal(json_dump_file(root, path, 0), 0);
        json_decref(root);
        opening_says(set, cases[i].key, cases[i].says);
    }
    test_write_text(path, "[]");
    opening_says(set, "a list", "expected a JSON object");
    unlink(path);
    opening_says(set, "no list", "not a finished directory of shards");
    char *long_path = calloc(5001, 1);
    memset(long_path, 'x', 5000);
    opening_says(long_path, "a long path", "too long");
    free(long_path);
    free(good);
}

static void a_token_beyond_the_vocabulary_is_found(void **state) {
    (void)state;
    static const uint64_t lengths[] = { 8 };
    pal_shards_close(test_shards("beyond", lengths, 1, 1, 0));
    char path[TEST_PATH], index[TEST_PATH], hex[17];
    strcpy(path, in_folder("beyond/00000.shard"));
    strcpy(index, in_folder("beyond/shards.json"));
    size_t size;
    uint64_t sum;
    unsigned char *file = test_read_file(path, &size);
    file[HEADER + 7] = 1; /* token 3 becomes 256 + what it was */
    sum = pal_hash(0, file + HEADER, 16);
    memcpy(file + AT_TOKEN_SUM, &sum, 8);
    sum = pal_hash(0, file, AT_SUM);
    memcpy(file + AT_SUM, &sum, 8);
    test_write_file(path, file, size);
    free(file);
    json_t *root = json_load_file(index, 0, NULL);
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)sum);
    json_object_set_new(json_array_get(json_object_get(root, "shards"), 0), "checksum", json_string(hex));
    assert_int_equal(json_dump_file(root, index, 0), 0);
    json_decref(root);
    pal_shards *s;
    pal_error err = { 0 };
    if (pal_shards_open(&s, in_folder("beyond"), &err)) fail_msg("%s", err.text);
    assert_int_equal(pal_shards_verify(s, &err), PAL_E_FORMAT);
    pal_shards_close(s);
    assert_non_null(strstr(err.text, "token 3 is id 277"));
}

static void tokens_of_four_bytes_are_copied(void **state) {
    (void)state;
    const uint32_t tokens[3] = { 70000, 5, 69999 };
    const pal_document d = { .data = (const unsigned char *)tokens, .width = 4, .tokens = 3 };
    int32_t ids[3];
    assert_true(pal_document_copy(&d, 1, 2, 70000, ids));
    assert_true(ids[0] == 5 && ids[1] == 69999);
    assert_false(pal_document_copy(&d, 0, 3, 70000, ids));
}

/* Prompts with responses, cut for validation amid the only one. */
static void responses_keep_their_place(void **state) {
    (void)state;
    const uint32_t ids[20] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
    pal_tokenizer *tok = test_open("bytes");
    for (int forged = 0; forged < 2; forged++) {
        char set[TEST_PATH], path[TEST_PATH];
        pal_shard_writer *w;
        pal_shard_sums sums;
        strcpy(set, in_folder(forged ? "pairs-forged" : "pairs"));
        mkdir(set, 0777);
        OK(pal_shard_writer_new(&w, set, 0, pal_tokenizer_fingerprint(tok), 256, err));
        pal_shard_writer_response(w, 4);
        OK(pal_shard_writer_tokens(w, ids, 20, err));
        OK(pal_shard_writer_end_document(w, 20, 3, err));
        pal_shard_writer_response(w, 1);
        OK(pal_shard_writer_tokens(w, ids, 2, err));
        OK(pal_shard_writer_end_document(w, 2, 1, err));
        OK(pal_shard_writer_finish(w, &sums, err));
        const pal_shards_summary summary = { .tokenizer = tok, .eos = -1, .count = 1, .shards = &sums };
        OK(pal_shards_finish(set, &summary, err));
        if (forged) {
            size_t size;
            strcpy(path, in_folder("pairs-forged/00000.shard"));
            unsigned char *good = test_read_file(path, &size);
            forge(path, good, size, size - 8, 3, 8);
            opening_says(set, "a response", "the response of document 1 begins at token 3 of 2");
            free(good);
            continue;
        }
        pal_shards *s = test_shards_open(set);
        assert_true(pal_shards_info_of(s)->pairs);
        assert_int_equal(pal_shards_document(s, PAL_SUBSET_ALL, 0).response, 4);
        assert_int_equal(pal_shards_document(s, PAL_SUBSET_ALL, 1).response, 1);
        pal_shards_close(s);
    }
    pal_tokenizer_close(tok);
}

static void what_is_no_shard_is_not_written(void **state) {
    (void)state;
    pal_shard_writer *w;
    pal_shard_sums sums;
    pal_error why = { 0 };
    const uint32_t ids[2] = { 5, 256 };
    mkdir(in_folder("wrong"), 0777);
    assert_int_equal(pal_shard_writer_new(&w, in_folder("wrong"), 1 << 30, 1, 256, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "make them larger"));
    OK(pal_shard_writer_new(&w, in_folder("wrong"), 0, 1, 256, err));
    assert_int_equal(pal_shard_writer_tokens(w, ids, 2, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "id 256 in a vocabulary of 256"));
    assert_int_equal(pal_shard_writer_finish(w, &sums, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "must end with a document"));
    OK(pal_shard_writer_new(&w, in_folder("wrong"), 0, 1, 256, err));
    OK(pal_shard_writer_tokens(w, ids, 1, err));
    OK(pal_shard_writer_end_document(w, 1, 1, err));
    OK(pal_shard_writer_tokens(w, ids, 1, err));
    assert_int_equal(pal_shard_writer_finish(w, &sums, &why), PAL_E_ARGUMENT);
    assert_int_not_equal(access(in_folder("wrong/00000.shard"), F_OK), 0);
    assert_int_not_equal(pal_shard_writer_new(&w, in_folder("nowhere/at/all"), 0, 1, 256, &why), PAL_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forged_shards_are_refused),
        cmocka_unit_test(a_wrong_list_of_shards_is_refused),
        cmocka_unit_test(a_token_beyond_the_vocabulary_is_found),
        cmocka_unit_test(tokens_of_four_bytes_are_copied),
        cmocka_unit_test(responses_keep_their_place),
        cmocka_unit_test(what_is_no_shard_is_not_written),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
