/* SPDX-License-Identifier: MIT */
/* JSON is built whole or not at all: every allocation of jansson fails once, and no text with something missing comes
 * out. */
#include "format/json.h"
#include "support/support.h"

static long left; /* allocations that succeed */

static void *memory(size_t size) { return left-- == 0 ? NULL : malloc(size); }

static void *watched_memory(size_t size) {
    void *block = memory(size);
    if (!block) pal_json_lose();
    return block;
}

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
    char *text = pal_json_dumps(root, 0); /* whoever asked was told */
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
    static const char text[] = "{\"list\":[1,\"text\"]}";
    bool starved = true;
    json_error_t why;
    assert_null(pal_json_parse("{", 1, 0, &why, &starved));
    assert_false(starved);
    assert_int_equal(why.line, 1);
    json_t *value = NULL;
    json_set_alloc_funcs(watched_memory, free);
    long k = 0;
    for (; !value; k++) {
        left = k;
        value = pal_json_parse(text, sizeof text - 1, 0, NULL, &starved);
        assert_int_equal(starved, !value);
    }
    json_set_alloc_funcs(malloc, free);
    assert_true(k > 5);
    assert_non_null(pal_json_whole(value)); /* nothing is remembered */
    json_decref(value);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_whole_or_not), cmocka_unit_test(test_says_once),
                                        cmocka_unit_test(test_parse_tells_why) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
