/* SPDX-License-Identifier: MIT */
#include "eval/answers.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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
        return pal_fail(err, PAL_E_FORMAT,
                        "question %zu: told at byte %zu, answered at %zu: the text of %zu bytes does not say %s there",
                        index + 1, out->told, out->answer, text.size, digits);
    out->end = out->answer + size;
    return PAL_OK;
}

/* The token that holds a byte, from token *at on, which begins at byte *start. */
static void seek(size_t byte, const pal_tokenizer *tok, const uint32_t *ids, size_t *at, size_t *start) {
    for (size_t size; byte >= *start + (size = pal_tokenizer_text(tok, ids[*at]).size); ++*at) *start += size;
}

pal_status pal_answers_find(pal_answers *out, uint32_t *distance, const json_t *row, pal_slice text,
                            const pal_tokenizer *tok, const uint32_t *ids, size_t count, pal_error *err) {
    const json_t *questions = json_object_get(row, "questions"), *question;
    size_t spelled = 0, index;
    *out = (pal_answers){ 0 };
    for (size_t i = 0; i < count; i++) spelled += pal_tokenizer_text(tok, ids[i]).size;
    if (spelled != text.size)
        return pal_fail(err, PAL_E_UNSUPPORTED,
                        "its tokens spell %zu bytes, its text has %zu: answers are found only with a tokenizer that "
                        "keeps every byte",
                        spelled, text.size);
    if (!json_array_size(questions))
        return pal_fail(err, PAL_E_FORMAT, "no 'questions': expected a document of 'palimpsa needle'");
    memset(distance, 0, count * sizeof *distance);
    json_array_foreach(questions, index, question) {
        asked q = { 0 };
        const pal_status st = read_question(&q, question, index, text, err);
        if (st) return st;
        size_t at = 0, start = 0;
        seek(q.told, tok, ids, &at, &start);
        const size_t told = at;
        seek(q.answer, tok, ids, &at, &start);
        const size_t tokens = at > told ? at - told : 1;
        for (; start < q.end; at++) {
            if (distance[at])
                return pal_fail(err, PAL_E_FORMAT, "question %zu: its answer at byte %zu answers another question, too",
                                index + 1, q.answer);
            distance[at] = (uint32_t)tokens;
            start += pal_tokenizer_text(tok, ids[at]).size;
        }
        out->count++;
        out->bytes += q.end - q.answer;
    }
    return PAL_OK;
}
