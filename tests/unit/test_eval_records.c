/* SPDX-License-Identifier: MIT */
/* The rows of data sets: JSON lines and tables as people export them, and what is wrong with some. */
#include "eval/records.h"
#include "format/json.h"
#include "support/files.h"
#include "support/support.h"
#include "text/strings.h"

static const char *path;

static pal_status open_text(pal_records **r, const char *name, const char *text, size_t size, pal_error *err) {
    path = in_folder(name);
    test_write_file(path, text, size);
    return pal_records_open(r, path, err);
}

static pal_records *records(const char *name, const char *text) {
    pal_records *r;
    OK(open_text(&r, name, text, strlen(text), err));
    return r;
}

static json_t *row(const pal_records *r, size_t i) {
    json_t *value;
    OK(pal_records_read(r, i, &value, err));
    return value;
}

static void has(const pal_records *r, size_t i, const char *expected) {
    json_t *found = row(r, i), *wanted = json_loads(expected, 0, NULL);
    char *text = json_dumps(found, 0);
    assert_non_null(wanted);
    if (!json_equal(found, wanted)) fail_msg("row %zu is %s, expected %s", i, text, expected);
    free(text);
    json_decref(found);
    json_decref(wanted);
}

static void says(const char *name, const char *text, size_t size, const char *sentence) {
    pal_records *r = NULL;
    pal_error err = { 0 };
    json_t *value = NULL;
    char expected[600];
    pal_status st = open_text(&r, name, text, size, &err);
    for (size_t i = 0; !st && i < pal_records_count(r); i++) {
        st = pal_records_read(r, i, &value, &err);
        if (!st) json_decref(value);
    }
    assert_int_equal(st, PAL_E_FORMAT);
    snprintf(expected, sizeof expected, "%s: %s", path, sentence);
    if (strncmp(err.text, expected, strlen(expected)) != 0) fail_msg("'%s', expected '%s'", err.text, expected);
    pal_records_close(r);
}

static void json_lines_are_objects(void **state) {
    (void)state;
    char place[400], expected[400];
    pal_records *r = records("a.jsonl", "\xEF\xBB\xBF{\"a\": 1}\r\n\n  \n{\"a\": \"x\\u0000y\", \"b\": [true]}");
    assert_int_equal(pal_records_count(r), 2);
    has(r, 0, "{\"a\": 1}");
    json_t *second = row(r, 1);
    assert_int_equal(json_string_length(json_object_get(second, "a")), 3);
    json_decref(second);
    pal_records_place(r, 1, place, sizeof place);
    snprintf(expected, sizeof expected, "%s: line 4", path);
    assert_string_equal(place, expected);
    pal_records_close(r);
    r = records("empty.jsonl", "");
    assert_int_equal(pal_records_count(r), 0);
    pal_records_close(r);
}

static void tables_are_read_as_python_writes_them(void **state) {
    (void)state;
    pal_records *r = records(
        "a.csv", "\xEF\xBB\xBF"
                 "q,choices,\"an \"\"odd\"\" name\"\r\n"
                 "plain,\"['one', \"\"two's\"\"]\",\r\n"
                 "\"a, \"\"b\"\"\nand c\",\"{'text': array(['x\\xa0\\u20ac', 'y\\'s'], dtype=object)}\",\"\"\r\n"
                 "\n"
                 "\"[not a list\",\"[\"\"json\"\", {\"\"k\"\": null}]\",['a'] or not\n"
                 "short\n"
                 ",\"['a' 'b'\n 'c']\",last\n"
                 "5\" wide,6,\"\"\"7\"\"\"\n"
                 "end");
    assert_int_equal(pal_records_count(r), 7);
    has(r, 0, "{\"q\": \"plain\", \"choices\": [\"one\", \"two's\"], \"an \\\"odd\\\" name\": \"\"}");
    has(r, 1,
        "{\"q\": \"a, \\\"b\\\"\\nand c\", \"choices\": {\"text\": [\"x\\u00a0\\u20ac\", \"y's\"]}, "
        "\"an \\\"odd\\\" name\": \"\"}");
    has(r, 2,
        "{\"q\": \"[not a list\", \"choices\": [\"json\", {\"k\": null}], \"an \\\"odd\\\" name\": \"['a'] or not\"}");
    has(r, 3, "{\"q\": \"short\"}"); /* a test that needs the others says so */
    has(r, 4, "{\"q\": \"\", \"choices\": [\"a\", \"b\", \"c\"], \"an \\\"odd\\\" name\": \"last\"}");
    has(r, 5, "{\"q\": \"5\\\" wide\", \"choices\": \"6\", \"an \\\"odd\\\" name\": \"\\\"7\\\"\"}");
    has(r, 6, "{\"q\": \"end\"}");
    char place[400], expected[400];
    pal_records_place(r, 2, place, sizeof place);
    snprintf(expected, sizeof expected, "%s: line 6", path);
    assert_string_equal(place, expected);
    pal_records_close(r);
}

static void what_is_wrong_is_named_with_its_line(void **state) {
    (void)state;
#define SAYS(name, text, sentence) says(name, text, sizeof text - 1, sentence)
    SAYS("a.jsonl", "{\"a\": 1}\n\n{\"a\": }\n", "line 3: not JSON: ");
    SAYS("a.jsonl", "[1]\n", "line 1: expected an object with fields");
    SAYS("a.jsonl", "{\"a\": 1, \"a\": 2}\n", "line 1: not JSON: duplicate");
    SAYS("a.jsonl", "{\"a\": \"\xff\"}\n", "line 1: not JSON: ");
    SAYS("a.csv", "", "an empty file, expected a line with names");
    SAYS("a.csv", "a,b\n1,2\n1,2,3\n", "line 3: more cells than the first line names");
    SAYS("a.csv", "a,b\n\"1,2\n3,4\n", "line 2: the quotes of a cell are not closed");
    SAYS("a.csv", "a,b\n\"1\"x,2\n", "line 2: text after the closing quote of a cell");
    SAYS("a.csv", "a,b\n1,\xff\n", "line 2: a cell is not UTF-8");
    SAYS("a.csv", "a,\xff\n1,2\n", "line 1: a cell is not UTF-8");
    SAYS("a.csv", "\na,b,a\n1,2,3\n", "line 2: two columns are named 'a'");
#undef SAYS
    pal_bytes many = { 0 }; /* Python's lists, as JSON's, take far more memory than their text */
    OK(pal_bytes_append(&many, "a\n\"['',", 7, err));
    for (size_t i = 0; i <= PAL_JSON_CONTAINERS; i++) OK(pal_bytes_append(&many, "[],", 3, err));
    OK(pal_bytes_append(&many, "]\"\n", 3, err));
    says("a.csv", (const char *)many.data, many.size, "line 2: a cell holds too many lists, objects or texts");
    pal_bytes_free(&many);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_lines_are_objects),
        cmocka_unit_test(tables_are_read_as_python_writes_them),
        cmocka_unit_test(what_is_wrong_is_named_with_its_line),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
