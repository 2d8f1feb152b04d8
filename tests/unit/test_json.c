/* SPDX-License-Identifier: MIT */
/* JSON is built and read whole or not at all: every allocation of jansson fails once; no text with something missing
 * comes out, and no file that is there is taken for a missing one. */
#include "format/json.h"

#include "base/alloc.h"
#include "base/directory.h"
#include "eval/evaluate.h"
#include "eval/records.h"
#include "model/model.h"
#include "palimpsa/tokenizer.h"
#include "plot/runs.h"
#include "plot/runs_inside.h"
#include "support/files.h"
#include "support/models.h"
#include "support/text.h"
#include "train/checkpoint.h"

static long left; /* allocations that succeed */

static void *memory(size_t size) { return left-- == 0 ? NULL : malloc(size); }

static char *make(void) {
    json_t *inner = json_array(), *root = json_object(), *copy, *more = json_object();
    for (int i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "key %d", i);
        pal_json_set(root, key, json_integer(i));
        pal_json_append(inner, pal_json_text(i % 2 ? "text" : "\xff"));
    }
    pal_json_set(root, "list", inner);
    pal_json_setn(root, "name and more", 4, json_pack("{s:f}", "x", 0.5));
    pal_json_set(more, "a", json_true());
    pal_json_update(root, more);
    copy = pal_json_copy(root);
    char *text = pal_json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(root);
    json_decref(copy);
    return text;
}

static void test_whole_or_not(void **state) {
    (void)state;
    char *expected = make(), *text = NULL;
    int refused = 0;
    assert_non_null(expected);
    assert_non_null(strstr(expected, "{\"bytes\":\"ff\"}"));
    json_set_alloc_funcs(memory, free);
    for (long k = 0; !text || left < 0; k++) {
        free(text);
        left = k;
        text = make();
        if (text && strcmp(text, expected) != 0) fail_msg("without allocation %ld: %s", k + 1, text);
        refused += !text;
    }
    json_set_alloc_funcs(malloc, free);
    assert_true(refused > 80);
    free(text);
    free(expected);
}

static void test_says_once(void **state) {
    (void)state;
    json_t *root = json_object();
    assert_false(pal_json_set(root, "lost", NULL));
    assert_null(pal_json_dumps(root, 0));
    char *text = pal_json_dumps(root, 0); /* the caller got the error */
    assert_string_equal(text, "{}");
    free(text);
    pal_json_lose();
    assert_null(pal_json_whole(root)); /* released */
    root = pal_json_whole(json_object());
    assert_non_null(root);
    pal_json_lose();
    pal_json_forget();
    FILE *to = tmpfile();
    assert_true(pal_json_print(root, 0, to));
    pal_json_lose();
    assert_false(pal_json_print(root, 0, to));
    assert_int_equal(ftell(to), 3); /* nothing of the second */
    fclose(to);
    json_decref(root);
}

static void test_parse_tells_why(void **state) {
    (void)state;
    /* Words that grow while they are read, one of them beyond any small reserve. */
    static char text[20000] = "{\"list\":[1,\"text that is long enough\",123456789012345678,1234567890.12345678901,\"";
    memset(text + strlen(text), 'x', 18000);
    strcat(text, "\"]}");
    bool starved = true;
    json_error_t why;
    assert_null(pal_json_parse("{", 1, 0, &why, &starved));
    assert_false(starved);
    assert_int_equal(why.line, 1);
    json_t *value = NULL;
    pal_json_watch();
    for (int wrong = 0; wrong < 2; wrong++) { /* whole, and with a line's end in a string */
        uint64_t k = 0;
        if (wrong) text[9000] = '\n';
        for (starved = true; starved; k++) {
            json_decref(value);
            pal_alloc_fail_once(k + 1);
            memset(&why, 'w', sizeof why);
            value = pal_json_parse(text, strlen(text), 0, &why, &starved);
            assert_true(why.line >= -1 && why.line <= 1);
            assert_true((value != NULL) == (!starved && !wrong));
            pal_alloc_fail_at(k + 1);
            bool always;
            json_t *none = pal_json_parse(text, strlen(text), 0, NULL, &always);
            assert_true(always == starved && (none != NULL) == (!starved && !wrong));
            json_decref(none);
        }
        assert_true(k > 15);
    }
    pal_alloc_fail_at(0);
    json_set_alloc_funcs(malloc, free);
    assert_true(pal_json_short());
    value = json_object();
    assert_non_null(pal_json_whole(value)); /* nothing is remembered */
    json_decref(value);
}

/* What reads JSON that may be missing: text from what it found, or PAL_E_MEMORY. */
typedef pal_status reader(char found[256], pal_error *err);

static pal_model *model;

static pal_status trained_context(char found[256], pal_error *err) {
    int context;
    const pal_status st = pal_eval_trained_context(model, &context, err);
    snprintf(found, 256, "%d", context);
    return st;
}

static pal_status label_of_a_run(char found[256], pal_error *err) {
    pal_runs *runs;
    const pal_status st = pal_runs_open(&runs, &(const char *){ in_folder("run") }, 1, err);
    if (st) return st;
    snprintf(found, 256, "%s, %zu lines skipped", runs->groups[0].label, pal_runs_skipped(runs));
    pal_runs_free(runs);
    return PAL_OK;
}

static pal_status end_of_text(char found[256], pal_error *err) {
    pal_tokenizer *tok;
    const pal_status st = pal_tokenizer_open(&tok, in_folder("tokenizer"), err);
    if (st) return st;
    snprintf(found, 256, "%lld", (long long)pal_tokenizer_eos(tok));
    pal_tokenizer_close(tok);
    return PAL_OK;
}

static pal_status finished(char found[256], pal_error *err) {
    bool is;
    const pal_status st = pal_checkpoint_finished(in_folder("run"), &is, err);
    snprintf(found, 256, "%d", is);
    return st;
}

static pal_status row_of_a_table(char found[256], pal_error *err) {
    pal_records *records;
    json_t *row;
    pal_status st = pal_records_open(&records, in_folder("rows.csv"), err);
    if (st) return st;
    if (!(st = pal_records_read(records, 0, &row, err))) {
        const json_t *list = json_object_get(row, "list");
        snprintf(found, 256, "%zu cells, %zu in the list, %s", json_object_size(row), json_array_size(list),
                 json_string_value(json_object_get(row, "name")));
        json_decref(row);
    }
    pal_records_close(records);
    return st;
}

static void test_no_memory_is_no_missing_file(void **state) {
    (void)state;
    static const struct {
        reader *read;
        const char *expected;
    } readers[] = { { trained_context, "48" },
                    { label_of_a_run, "Palimpsa-D, 0 lines skipped" },
                    { end_of_text, "10" },
                    { finished, "1" },
                    { row_of_a_table, "2 cells, 2 in the list, a" } };
    pal_context *cx = test_context(1, NULL);
    pal_tokenizer *letters = test_letters();
    const char *checkpoint = in_folder("run/checkpoints/step-1");
    model = test_model(&test_kinds[0], PAL_FOR_INFERENCE, cx);
    OK(pal_model_save(model, checkpoint, PAL_F32, err));
    pal_model_close(model);
    OK(pal_model_open(&model, checkpoint, PAL_FOR_INFERENCE, cx, err));
    test_write_text(in_folder("run/config.json"), "{\"task\": \"text\", \"context\": 48, \"model\": \"palimpsa-d\"}");
    test_write_text(in_folder("run/metrics.jsonl"), "{\"step\": 1, \"loss\": 5.5}\n{\"step\": 2, \"loss\": 5}\n");
    test_write_text(in_folder("run/checkpoints/step-1/trainer.json"), "{\"finished\": true}");
    OK(pal_make_directory(in_folder("tokenizer"), err));
    OK(pal_tokenizer_save(letters, in_folder("tokenizer"), err));
    test_write_text(in_folder("tokenizer/tokenizer_config.json"), "{\"eos_token\": \"h\"}");
    test_write_text(in_folder("rows.csv"), "list,name\n\"['x', \"\"y\"\"]\",a\n");
    for (size_t i = 0; i < PAL_COUNT(readers); i++) {
        char found[256] = "";
        pal_error why;
        OK(readers[i].read(found, err));
        assert_string_equal(found, readers[i].expected);
        pal_json_watch();
        uint64_t refused = 0, count = 0;
        for (uint64_t k = 1; k == 1 || count >= k - 1; k++) { /* ours and jansson's */
            const uint64_t before = pal_alloc_count();
            pal_alloc_fail_once(k);
            const pal_status st = readers[i].read(found, &why);
            if (!st && strcmp(found, readers[i].expected) != 0)
                fail_msg("reader %zu without allocation %d found %s", i, (int)k, found);
            count = pal_alloc_count() - before;
            refused += st != PAL_OK;
            pal_json_forget();
        }
        pal_alloc_fail_at(0);
        json_set_alloc_funcs(malloc, free);
        assert_true(refused > 2);
    }
    pal_tokenizer_close(letters);
    pal_model_close(model);
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_whole_or_not), cmocka_unit_test(test_says_once),
                                        cmocka_unit_test(test_parse_tells_why),
                                        cmocka_unit_test(test_no_memory_is_no_missing_file) };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
