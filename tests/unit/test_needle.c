/* SPDX-License-Identifier: MIT */
/* Needles: documents fit, ask for what they say, and are what their seed says. */
#include "support/support.h"

#include "data/needle.h"

static const char prose[] = "It rained. The river rose over its banks. Nobody had seen that before.\nIn the morning it "
                            "was dry again, and the mud "
                            "had the colour of old copper.\n\nChildren found shells in it. Some of them were whole.\n";

static size_t occurrences(const pal_bytes *text, const char *words) {
    size_t n = 0;
    const size_t size = strlen(words);
    for (size_t i = 0; i + size <= text->size; i++) n += memcmp(text->data + i, words, size) == 0;
    return n;
}

static pal_haystack *haystack(pal_tokenizer **tok, const char *text) {
    pal_haystack *h;
    pal_error err;
    if (pal_tokenizer_open(tok, "bytes", &err)) fail_msg("%s", err.text);
    if (pal_haystack_new(&h, (pal_slice){ (const unsigned char *)text, strlen(text) }, *tok, &err))
        fail_msg("%s", err.text);
    return h;
}

static void documents_fit_and_ask_for_what_they_tell(void **state) {
    (void)state;
    pal_tokenizer *tok;
    pal_haystack *h = haystack(&tok, prose);
    size_t early = 0, late = 0;
    assert_int_equal(pal_haystack_tokens(h), strlen(prose));
    for (uint64_t i = 0; i < 200; i++) {
        const pal_needle_options o = {
            .tokens = 700 + (int)i * 5, .needles = 1 + (int)(i % 5), .questions = 1, .seed = 3
        };
        pal_bytes text = { 0 };
        pal_needle asked;
        pal_error err;
        char told[80], question[120];
        if (pal_needle_make(h, &o, i, &text, &asked, &err)) fail_msg("%s", err.text);
        assert_true(text.size <= (size_t)o.tokens &&
                    text.size + 100 > (size_t)o.tokens); /* a byte is a token; the longest piece has fewer than 100 */
        snprintf(told, sizeof told, "The secret number of %s is %07d.", asked.key, asked.value);
        snprintf(question, sizeof question, "What is the secret number of %s? %s", asked.key, told);
        assert_int_equal(occurrences(&text, told), 2);
        assert_int_equal(occurrences(&text, "The secret number of "), (size_t)o.needles + 1);
        assert_memory_equal(text.data + asked.depth, told, strlen(told));
        assert_true(text.size >= strlen(question));
        assert_memory_equal(text.data + text.size - strlen(question), question, strlen(question));
        early += asked.depth < text.size / 4;
        late += asked.depth > text.size / 2;
        pal_bytes_free(&text);
    }
    assert_true(early > 20 && late > 50); /* anywhere */
    pal_haystack_free(h);
    pal_tokenizer_close(tok);
}

static void several_questions_ask_for_different_needles(void **state) {
    (void)state;
    pal_tokenizer *tok;
    pal_haystack *h = haystack(&tok, prose);
    size_t told_early_asked_early = 0;
    for (uint64_t i = 0; i < 100; i++) {
        const pal_needle_options o = { .tokens = 2000, .needles = 8, .questions = 1 + (int)(i % 8), .seed = 5 };
        const pal_needle_options alone = { .tokens = 2000, .needles = 8, .questions = 1, .seed = 5 };
        pal_bytes text = { 0 };
        pal_needle asked[8], one;
        pal_error err;
        if (pal_needle_make(h, &alone, i, &text, &one, &err)) fail_msg("%s", err.text);
        text.size = 0;
        if (pal_needle_make(h, &o, i, &text, asked, &err)) fail_msg("%s", err.text);
        assert_true(text.size <= (size_t)o.tokens);
        assert_int_equal(occurrences(&text, "What is the secret number of "), (size_t)o.questions);
        assert_string_equal(asked[0].key, one.key);
        for (int q = 0; q < o.questions; q++) {
            char told[80], number[16];
            for (int k = 0; k < q; k++) assert_string_not_equal(asked[k].key, asked[q].key);
            snprintf(told, sizeof told, "The secret number of %.7s is %07d.", asked[q].key, asked[q].value);
            snprintf(number, sizeof number, "%07d.", asked[q].value);
            assert_int_equal(occurrences(&text, told), 2);
            assert_memory_equal(text.data + asked[q].depth, told, strlen(told));
            assert_memory_equal(text.data + asked[q].answer, number, strlen(number));
            assert_true(asked[q].answer > asked[q].depth + strlen(told));
            if (q) assert_true(asked[q].answer > asked[q - 1].answer);
            if (q) told_early_asked_early += asked[q].depth > asked[q - 1].depth;
        }
        pal_bytes_free(&text);
    }
    assert_in_range(told_early_asked_early, 100, 240); /* of 340: in any order */
    pal_haystack_free(h);
    pal_tokenizer_close(tok);
}

static void brief_notes_need_no_text(void **state) {
    (void)state;
    pal_tokenizer *tok;
    pal_haystack *h = haystack(&tok, prose), *alone;
    pal_error err;
    if (pal_haystack_new(&alone, (pal_slice){ NULL, 0 }, tok, &err)) fail_msg("%s", err.text);
    for (uint64_t i = 0; i < 64; i++) {
        const int n = 1 + (int)i;
        const pal_needle_options o = { .tokens = 2000, .needles = n, .questions = n, .brief = true, .seed = 5 };
        pal_bytes text = { 0 };
        pal_needle asked[PAL_NEEDLES];
        if (pal_needle_make(i % 2 ? h : alone, &o, i, &text, asked, &err)) fail_msg("%s", err.text);
        assert_true(text.size <= (size_t)o.tokens);
        if (i % 2 == 0) assert_int_equal(text.size, 2 * n * (int)strlen("bafe 53\n") - 1);
        for (int q = 0; q < n; q++) {
            char told[32];
            for (int k = 0; k < q; k++) assert_string_not_equal(asked[k].key, asked[q].key);
            const int size = snprintf(told, sizeof told, "%s %d", asked[q].key, asked[q].value);
            assert_in_range(asked[q].value, 10, 99);
            assert_int_equal(occurrences(&text, told), 2);
            assert_memory_equal(text.data + asked[q].depth, told, (size_t)size);
            assert_memory_equal(text.data + asked[q].answer, told + size - 2, 2);
            assert_true(asked[q].answer > asked[q].depth + (size_t)size);
        }
        pal_bytes_free(&text);
    }
    pal_bytes text = { 0 };
    pal_needle asked[PAL_NEEDLES];
    const pal_needle_options o = { .tokens = 31, .needles = 2, .questions = 2, .brief = true };
    assert_int_equal(pal_needle_make(alone, &o, 0, &text, asked, &err), PAL_OK);
    const pal_needle_options less = { .tokens = 30, .needles = 2, .questions = 2, .brief = true };
    assert_int_equal(pal_needle_make(alone, &less, 0, &text, asked, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "leave no room, they need more"));
    pal_bytes_free(&text);
    pal_haystack_free(alone);
    pal_haystack_free(h);
    pal_tokenizer_close(tok);
}

static void documents_are_functions_of_seed_and_number(void **state) {
    (void)state;
    pal_tokenizer *tok;
    pal_haystack *h = haystack(&tok, prose);
    pal_bytes texts[4] = { { 0 } };
    for (int i = 0; i < 4; i++) {
        const pal_needle_options o = { .tokens = 900, .needles = 3, .questions = 1, .seed = i == 3 ? 8 : 7 };
        pal_needle asked;
        pal_error err;
        if (pal_needle_make(h, &o, i == 2 ? 1 : 0, &texts[i], &asked, &err)) fail_msg("%s", err.text);
    }
    assert_int_equal(texts[0].size, texts[1].size);
    assert_memory_equal(texts[0].data, texts[1].data, texts[0].size);
    for (int i = 2; i < 4; i++)
        assert_true(texts[i].size != texts[0].size || memcmp(texts[i].data, texts[0].data, texts[0].size) != 0);
    for (int i = 0; i < 4; i++) pal_bytes_free(&texts[i]);
    pal_haystack_free(h);
    pal_tokenizer_close(tok);
}

static void needles_refuse_what_has_no_room(void **state) {
    (void)state;
    pal_tokenizer *tok;
    pal_haystack *h = haystack(&tok, prose), *none;
    pal_bytes text = { 0 };
    pal_needle asked;
    pal_error err;
    assert_int_equal(
        pal_needle_make(h, &(pal_needle_options){ .tokens = 60, .needles = 1, .questions = 1 }, 0, &text, &asked, &err),
        PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "leave no room"));
    assert_int_equal(pal_needle_make(h, &(pal_needle_options){ .tokens = 6000, .needles = 0 }, 0, &text, &asked, &err),
                     PAL_E_ARGUMENT);
    assert_int_equal(
        pal_needle_make(h, &(pal_needle_options){ .tokens = 6000, .needles = PAL_NEEDLES + 1 }, 0, &text, &asked, &err),
        PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "expected 1 to 64"));
    for (int questions = 0; questions <= 3; questions += 3) {
        const pal_needle_options o = { .tokens = 6000, .needles = 2, .questions = questions };
        assert_int_equal(pal_needle_make(h, &o, 0, &text, &asked, &err), PAL_E_ARGUMENT);
        assert_non_null(strstr(err.text, "questions: expected 1 to the number of needles, 2"));
    }
    assert_int_equal(text.size, 0);
    assert_int_equal(pal_haystack_new(&none, (pal_slice){ (const unsigned char *)"", 0 }, tok, &err), PAL_E_ARGUMENT);
    assert_null(none);
    pal_haystack_free(h);
    pal_tokenizer_close(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_fit_and_ask_for_what_they_tell),
        cmocka_unit_test(several_questions_ask_for_different_needles),
        cmocka_unit_test(brief_notes_need_no_text),
        cmocka_unit_test(documents_are_functions_of_seed_and_number),
        cmocka_unit_test(needles_refuse_what_has_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
