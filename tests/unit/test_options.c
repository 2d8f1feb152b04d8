/* SPDX-License-Identifier: MIT */
/* Options in JSON files: every kind is read and written, and what is wrong is named. */
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <unistd.h>

#include "format/json.h"
#include "format/model_dir.h"
#include "format/options.h"
#include "support/files.h"
#include "text/json_text.h"

typedef struct {
    bool flag, hidden;
    int number;
    int64_t large;
    double real;
    const char *text;
    pal_option_list list;
} values;

enum { OPTIONS = 7 };
static void options_of(values *v, pal_option out[OPTIONS]) {
    const pal_option all[OPTIONS] = { { "flag", PAL_OPTION_FLAG, &v->flag },
                                      { "number-of", PAL_OPTION_INT, &v->number },
                                      { "large", PAL_OPTION_LONG, &v->large },
                                      { "real", PAL_OPTION_FLOAT, &v->real },
                                      { "text", PAL_OPTION_TEXT, &v->text },
                                      { "list", PAL_OPTION_LIST, &v->list },
                                      { "hidden", PAL_OPTION_FLAG, &v->hidden, .transient = true } };
    memcpy(out, all, sizeof all);
}

static pal_status read_text(values *v, const char *json, json_t *kept, pal_error *err) {
    pal_option options[OPTIONS];
    options_of(v, options);
    test_write_text(in_folder("options.json"), json);
    return pal_options_read(options, OPTIONS, in_folder("options.json"), kept, err);
}

static void every_kind_is_read_and_written(void **state) {
    (void)state;
    values v = { .text = "as it was", .large = 7 }, again = { 0 };
    json_t *kept = json_array();
    OK(read_text(&v,
                 "{\"flag\":true,\"number_of\":-3,\"large\":5000000000,\"real\":0.5,\"text\":{\"bytes\":\"61ff\"},"
                 "\"list\":[\"a\",\"b\"]}",
                 kept, err));
    assert_true(v.flag && v.number == -3 && v.large == 5000000000 && v.real == 0.5);
    assert_string_equal(v.text, "a\xff");
    assert_true(v.list.count == 2 && strcmp(v.list.items[1], "b") == 0);
    pal_option options[OPTIONS], others[OPTIONS];
    options_of(&v, options);
    options_of(&again, others);
    json_t *written = pal_options_json(options, OPTIONS);
    assert_int_equal(json_object_size(written), OPTIONS - 1); /* one is transient */
    char *text = json_dumps(written, 0);
    OK(read_text(&again, text, kept, err));
    for (int i = 0; i < OPTIONS; i++) assert_false(pal_option_differs(&options[i], &others[i]));
    assert_int_equal(again.list.count, 2);
    free(text);
    json_decref(written);
    again = v;
    again.flag = false, again.number = 0, again.large = 0, again.real = NAN, again.text = NULL;
    for (int i = 0; i < 5; i++) assert_true(pal_option_differs(&options[i], &others[i]));
    v.text = NULL, v.real = NAN;
    assert_false(pal_option_differs(&options[3], &others[3]));
    assert_false(pal_option_differs(&options[4], &others[4]));
    again.text = "x";
    assert_true(pal_option_differs(&options[4], &others[4]));
    written = pal_options_json(options, OPTIONS); /* what is not set, and what is not a number, is null */
    assert_true(json_is_null(json_object_get(written, "text")) && json_is_null(json_object_get(written, "real")));
    json_decref(written);
    v.text = "stays";
    OK(read_text(&v, "{\"text\":null}", kept, err));
    assert_string_equal(v.text, "stays");
    json_decref(kept);
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "{\"flag\":1}", "'flag' must be true or false" },
        { "{\"number_of\":1.5}", "'number-of' must be a whole number" },
        { "{\"number_of\":2147483648}", "'number-of' must be a whole number" },
        { "{\"number_of\":-2147483649}", "'number-of' must be a whole number" },
        { "{\"large\":\"7\"}", "'large' must be a whole number" },
        { "{\"real\":\"7\"}", "'real' must be a number" },
        { "{\"real\":true}", "'real' must be a number" },
        { "{\"text\":7}", "'text' must be a text" },
        { "{\"text\":{\"bytes\":\"6\"}}", "'text' must be a text" },
        { "{\"text\":{\"bytes\":\"zz\"}}", "'text' must be a text" },
        { "{\"text\":{\"bytes\":\"00\"}}", "'text' must be a text" },
        { "{\"text\":{\"bytes\":7}}", "'text' must be a text" },
        { "{\"text\":{\"bytes\":\"61\",\"more\":1}}", "'text' must be a text" },
        { "{\"list\":\"a\"}", "'list' must be a list of texts" },
        { "{\"list\":[\"a\",7]}", "'list' must be a list of texts" },
        { "{\"other\":1}", "'other' is not an option that a configuration may set" },
        { "{\"hidden\":true}", "'hidden' is not an option that a configuration may set" },
        { "[1]", "expected a JSON object of options" },
        { "{\"flag\":true,\"flag\":true}", "duplicate object key" },
        { "{\"flag\":", "line 1" },
    };
    json_t *kept = json_array();
    pal_error err = { 0 };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        values v = { 0 };
        assert_int_equal(read_text(&v, cases[i][0], kept, &err), PAL_E_FORMAT);
        if (!strstr(err.text, cases[i][1])) fail_msg("%s gives '%s'", cases[i][0], err.text);
    }
    char many[1024] = "{\"list\":[\"a\"";
    for (int i = 0; i < PAL_OPTION_MOST; i++) strcat(many, ",\"a\"");
    strcat(many, "]}");
    values v = { 0 };
    assert_int_equal(read_text(&v, many, kept, &err), PAL_E_FORMAT);
    pal_option options[OPTIONS];
    options_of(&v, options);
    assert_int_equal(pal_options_read(options, OPTIONS, test_folder(), kept, &err), PAL_E_IO);
    assert_non_null(strstr(err.text, "a directory"));
    assert_int_equal(pal_options_read(options, OPTIONS, in_folder("none.json"), kept, &err), PAL_E_IO);
    assert_null(pal_option_find(options, OPTIONS, "flags", 5));
    json_decref(kept);
}

/* A file that is not there is no JSON, and says so; a long one is read whole. */
static void files_of_json_of_any_size(void **state) {
    (void)state;
    json_error_t why;
    bool starved = true;
    assert_null(pal_json_load(in_folder("none.json"), 0, &why, &starved));
    assert_false(starved);
    assert_non_null(strstr(why.text, "No such file"));
    assert_null(pal_json_load(in_folder("none.json"), 0, NULL, NULL));
    json_t *list = json_array();
    for (int i = 0; i < 5000; i++) json_array_append_new(list, json_integer(i));
    assert_int_equal(json_dump_file(list, in_folder("long.json"), 0), 0);
    json_t *again = pal_json_load(in_folder("long.json"), 0, &why, NULL);
    assert_true(json_equal(list, again));
    json_decref(list);
    json_decref(again);
}

/* Objects and lists cost many times their text; those in a text are none. */
static void objects_and_lists_are_limited(void **state) {
    (void)state;
    const size_t most = PAL_JSON_CONTAINERS, size = 3 * most + 64;
    json_error_t why;
    bool starved;
    char *text = malloc(size), *to = text;
    assert_non_null(text);
    to += sprintf(to, "[\"[{\\\"[\"");
    for (size_t i = 1; i < most; i++) to += sprintf(to, ",[]");
    const size_t without_end = (size_t)(to - text);
    to += sprintf(to, "]");
    json_t *list = pal_json_parse(text, (size_t)(to - text), 0, &why, &starved);
    assert_int_equal(json_array_size(list), most);
    json_decref(list);
    to = text + without_end;
    to += sprintf(to, ",{}]");
    assert_null(pal_json_parse(text, (size_t)(to - text), 0, &why, &starved));
    assert_false(starved);
    assert_string_equal(why.text, "more than 1048576 objects and lists");
    free(text);
}

static void words_are_few_enough(void **state) {
    (void)state;
    const size_t most = PAL_JSON_WORDS;
    json_error_t why;
    bool starved;
    char *text = malloc(2 * most + 16), *to = text;
    assert_non_null(text);
    to += sprintf(to, "[\"1, 2\"");
    for (size_t i = 1; i < most; i++) to += sprintf(to, ",7");
    json_t *list = pal_json_parse(text, (size_t)(to - text + sprintf(to, "]")), 0, &why, &starved);
    assert_int_equal(json_array_size(list), most);
    json_decref(list);
    to += sprintf(to, ",7]");
    assert_null(pal_json_parse(text, (size_t)(to - text), 0, &why, &starved));
    assert_false(starved);
    assert_string_equal(why.text, "more than 4194304 names, texts and numbers");
    free(text);
}

/* Python's word for it is not JSON; in a text it is a word like others. */
static void infinity_is_read_as_null(void **state) {
    (void)state;
    json_t *root;
    pal_error why = { 0 };
    test_write_text(in_folder("infinity.json"),
                    "{\"a\":-Infinity,\"b\":\"x\\\"Infinity\",\"c\":[Infinity,1],\"Infinity\":2,\"NaN\":NaN}");
    OK(pal_json_read(&root, in_folder("infinity.json"), err));
    assert_true(json_is_null(json_object_get(root, "a")));
    assert_string_equal(json_string_value(json_object_get(root, "b")), "x\"Infinity");
    assert_true(json_is_null(json_array_get(json_object_get(root, "c"), 0)));
    assert_int_equal(json_integer_value(json_object_get(root, "Infinity")), 2);
    assert_true(json_is_array(json_object_get(root, "NaN"))); /* no number, and refused where one is needed */
    json_decref(root);
    test_write_text(in_folder("infinity.json"), "Infinity Infinity");
    assert_int_equal(pal_json_read(&root, in_folder("infinity.json"), &why), PAL_E_FORMAT);
    test_write_text(in_folder("infinity.json"), "");
    assert_int_equal(pal_json_read(&root, in_folder("infinity.json"), &why), PAL_E_FORMAT);
    assert_int_equal(truncate(in_folder("infinity.json"), (64 << 20) + 1), 0); /* all of it a hole */
    assert_int_equal(pal_json_read(&root, in_folder("infinity.json"), &why), PAL_E_FORMAT);
    assert_non_null(strstr(why.text, "67108865 bytes of JSON, at most 67108864 are read"));
}

/* What a model writes may be no UTF-8: each byte of it becomes one sign. */
static void any_bytes_become_a_text(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *text;
    } cases[] = {
        { "abc", 3, "abc" },
        { NULL, 0, "" },
        { "a\xFF", 2, "a\xEF\xBF\xBD" },
        { "\xC3\xA9\xC3", 3, "\xC3\xA9\xEF\xBF\xBD" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        json_t *text = pal_json_bytes(cases[i].bytes, cases[i].size);
        assert_string_equal(json_string_value(text), cases[i].text);
        json_decref(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_read_and_written), cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(files_of_json_of_any_size),      cmocka_unit_test(objects_and_lists_are_limited),
        cmocka_unit_test(words_are_few_enough),           cmocka_unit_test(infinity_is_read_as_null),
        cmocka_unit_test(any_bytes_become_a_text),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
