/* SPDX-License-Identifier: MIT */
/* Answers that are a name from a list, or a number. */
#include "base/alloc.h"
#include "eval/answers/answers.h"

static pal_slice text_of(const json_t *value) {
    return (pal_slice){ (const unsigned char *)json_string_value(value), json_string_length(value) };
}

static bool same(pal_slice a, pal_slice b) { return a.size == b.size && (!a.size || !memcmp(a.data, b.data, a.size)); }

pal_status pal_answer_class(pal_slice prediction, pal_slice reference, const json_t *classes, double *score,
                            pal_error *err) {
    const size_t most = json_array_size(classes);
    pal_slice *named;
    size_t count = 0;
    *score = 0;
    if (!json_is_array(classes)) return pal_fail(err, PAL_E_FORMAT, "expected a list of classes");
    pal_status st = pal_alloc_named((void **)&named, most + 1, sizeof *named, "the names of classes", err);
    if (st) return st;
    for (size_t i = 0; i < most && !st; i++) {
        if (!json_is_string(json_array_get(classes, i)))
            st = pal_fail(err, PAL_E_FORMAT, "class %zu is not a text", i + 1);
        else if (pal_py_contains(prediction, text_of(json_array_get(classes, i))))
            named[count++] = text_of(json_array_get(classes, i));
    }
    /* Python's loop over a list that shrinks: what follows a deleted name is passed over, and of equal names the first
     * one goes. */
    for (size_t i = 0; i < count && !st; i++) {
        if (!pal_py_contains(reference, named[i]) || same(reference, named[i])) continue;
        size_t gone = 0;
        while (!same(named[gone], named[i])) gone++;
        memmove(named + gone, named + gone + 1, (--count - gone) * sizeof *named);
    }
    for (size_t i = 0; i < count && !st; i++)
        if (same(reference, named[i])) *score = 1.0 / (double)count;
    pal_free(named);
    return st;
}

static bool is_digit(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND; }

/* The next run of decimal digits of any script in *text, which then starts after it; empty: there is none. */
static pal_slice next_number(pal_slice *text) {
    pal_slice number = { NULL, 0 };
    while (text->size) {
        uint32_t code;
        const size_t n = pal_py_character(text->data, text->size, &code);
        if (is_digit(code)) {
            if (!number.data) number.data = text->data;
            number.size += n;
        } else if (number.data) break;
        text->data += n;
        text->size -= n;
    }
    return number;
}

pal_status pal_answer_count(pal_slice prediction, pal_slice reference, double *score, pal_error *err) {
    size_t right = 0, numbers = 0;
    (void)err;
    for (pal_slice n; (n = next_number(&prediction)).size; numbers++) right += same(n, reference);
    *score = numbers ? (double)right / (double)numbers : 0;
    return PAL_OK;
}

pal_status pal_answer_place(pal_slice prediction, pal_slice reference, const char *word, double *score,
                            pal_error *err) {
    const size_t size = strlen(word);
    for (size_t at = 0; at + size < reference.size; at++) {
        uint32_t code;
        pal_slice rest = { reference.data + at + size, reference.size - at - size };
        if (memcmp(reference.data + at, word, size) != 0) continue;
        pal_py_character(rest.data, rest.size, &code);
        if (is_digit(code)) return pal_answer_count(prediction, next_number(&rest), score, err);
    }
    return pal_fail(err, PAL_E_FORMAT, "the answer '%.*s' has no number after '%s'", (int)reference.size,
                    (const char *)reference.data, word);
}

pal_slice pal_answer_first_line(pal_slice p) {
    while (p.size && p.data[0] == '\n') p.data++, p.size--;
    const unsigned char *end = p.size ? memchr(p.data, '\n', p.size) : NULL;
    if (end) p.size = (size_t)(end - p.data);
    return p;
}
