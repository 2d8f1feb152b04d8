/* SPDX-License-Identifier: MIT */
#include "eval/answers.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

/* One question: bytes of the text. */
typedef struct {
    size_t told, answer, end;
} asked;

static bool place(const json_t *question, const char *name, size_t *out) {
    const json_t *value = json_object_get(question, name);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (size_t)json_integer_value(value);
    return true;
}

static pal_status read_question(asked *out, const json_t *question, size_t index, pal_slice text, pal_error *err) {
    const json_t *number = json_object_get(question, "number");
    char digits[24];
    if (!json_is_integer(number) || !place(question, "told", &out->told) || !place(question, "answer", &out->answer))
        return pal_fail(err, PAL_E_FORMAT,
                        "question %zu: expected whole numbers as 'number', 'told' and 'answer' ('palimpsa needle' "
                        "writes them)",
                        index + 1);
    const size_t size = (size_t)snprintf(digits, sizeof digits, "%lld", (long long)json_integer_value(number));
    if (out->told >= out->answer || out->answer > text.size || size > text.size - out->answer ||
        memcmp(text.data + out->answer, digits, size) != 0)
        return pal_fail(
            err, PAL_E_FORMAT,
            "question %zu: stated at byte %zu, answered at %zu: the text of %zu bytes does not say %s there", index + 1,
            out->told, out->answer, text.size, digits);
    out->end = out->answer + size;
    return PAL_OK;
}

/* The token that holds a byte: the first that ends after it. */
static size_t holder(const size_t *end, size_t count, size_t byte) {
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (end[middle] > byte) high = middle;
        else low = middle + 1;
    }
    return low;
}

/* Each question of the list; end[i] is the byte after token i. */
static pal_status mark(pal_answers *out, uint32_t *distance, const json_t *questions, pal_slice text, const size_t *end,
                       size_t count, pal_error *err) {
    const json_t *question;
    size_t index;
    json_array_foreach(questions, index, question) {
        asked q = { 0 };
        const pal_status st = read_question(&q, question, index, text, err);
        if (st) return st;
        const size_t told = holder(end, count, q.told), first = holder(end, count, q.answer);
        const size_t tokens = first > told ? first - told : 1;
        for (size_t at = first; at == first || end[at - 1] < q.end; at++) {
            if (distance[at])
                return pal_fail(err, PAL_E_FORMAT, "question %zu: its answer at byte %zu answers another question, too",
                                index + 1, q.answer);
            distance[at] = (uint32_t)tokens;
        }
        out->count++;
        out->bytes += q.end - q.answer;
    }
    return PAL_OK;
}

pal_status pal_answers_find(pal_answers *out, uint32_t *distance, const json_t *row, pal_slice text,
                            const pal_tokenizer *tok, const uint32_t *ids, size_t count, pal_error *err) {
    const json_t *questions = json_object_get(row, "questions");
    size_t spelled = 0, *end;
    *out = (pal_answers){ 0 };
    pal_status st = pal_alloc_named((void **)&end, count + 1, sizeof *end, "the tokens of a text", err);
    if (st) return st;
    for (size_t i = 0; i < count; i++) end[i] = spelled += pal_tokenizer_text(tok, ids[i]).size;
    if (spelled != text.size)
        st = pal_fail(err, PAL_E_UNSUPPORTED,
                      "its tokens spell %zu bytes, its text has %zu: answers are found only with a tokenizer that "
                      "keeps every byte",
                      spelled, text.size);
    else if (!json_array_size(questions))
        st = pal_fail(err, PAL_E_FORMAT, "no 'questions': expected a document of 'palimpsa needle'");
    memset(distance, 0, count * sizeof *distance);
    if (!st) st = mark(out, distance, questions, text, end, count, err);
    pal_free(end);
    return st;
}
