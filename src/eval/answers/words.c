/* SPDX-License-Identifier: MIT */
#include "eval/answers/words.h"

#include <ctype.h>

#include "base/alloc.h"
#include "eval/answers/answers.h"

void pal_word_numbers_free(pal_word_numbers *n) {
    pal_free(n->number);
    pal_free(n->seen);
    *n = (pal_word_numbers){ 0 };
}

pal_status pal_number_words(pal_word_numbers *out, const pal_strings *words, pal_error *err) {
    pal_string_map map = { 0 };
    *out = (pal_word_numbers){ .count = words->count };
    pal_status st = pal_string_map_reserve(&map, words->count + 1, err);
    if (!st) st = pal_alloc_named((void **)&out->number, words->count + 1, sizeof *out->number, "words", err);
    if (!st) st = pal_alloc_named((void **)&out->seen, words->count + 1, sizeof *out->seen, "words", err);
    for (uint32_t i = 0; i < words->count && !st; i++) out->number[i] = pal_string_map_add(&map, words, i);
    pal_string_map_free(&map);
    if (st) pal_word_numbers_free(out);
    return st;
}

pal_status pal_split_words(pal_strings *words, pal_slice text, pal_error *err) {
    pal_status st = PAL_OK;
    while ((text = pal_py_lstrip(text)).size && !st) {
        size_t end = 0, n;
        uint32_t code;
        while (end < text.size && (n = pal_py_character(text.data + end, text.size - end, &code)) &&
               !pal_py_space(code))
            end += n;
        st = pal_strings_add(words, text.data, end, err);
        text.data += end;
        text.size -= end;
    }
    return st;
}

/* \w of Python's patterns: str.isalnum() or an underscore. */
static bool is_word(uint32_t c) {
    const int class = pal_class_of(c);
    return c == '_' || class == PAL_CLASS_LETTER || class == PAL_CLASS_NUMBER;
}

static bool is_article(const unsigned char *s, size_t n) {
    return (n == 1 && s[0] == 'a') || (n == 2 && memcmp(s, "an", 2) == 0) || (n == 3 && memcmp(s, "the", 3) == 0);
}

/* A text without ASCII punctuation; runs of word characters that are articles become a blank. */
static pal_status drop_articles(pal_bytes *out, pal_slice text, pal_error *err) {
    pal_bytes plain = { 0 };
    pal_status st = pal_bytes_reserve(&plain, text.size + 1, err);
    for (size_t i = 0; i < text.size && !st; i++)
        if (text.data[i] >= 0x80 || !ispunct(text.data[i])) plain.data[plain.size++] = text.data[i];
    for (size_t i = 0; i < plain.size && !st;) {
        size_t end = i, n = 0;
        uint32_t code;
        while (end < plain.size && (n = pal_py_character(plain.data + end, plain.size - end, &code)) && is_word(code))
            end += n;
        if (end == i) end += n;
        const bool article = is_article(plain.data + i, end - i);
        st = article ? pal_bytes_append(out, " ", 1, err) : pal_bytes_append(out, plain.data + i, end - i, err);
        i = end;
    }
    pal_bytes_free(&plain);
    return st;
}

static pal_status normal_words(pal_strings *words, pal_slice text, pal_error *err) {
    pal_bytes lower = { 0 }, plain = { 0 };
    pal_status st = pal_py_lower(&lower, text, err);
    if (!st) st = drop_articles(&plain, pal_slice_of(&lower), err);
    if (!st) st = pal_split_words(words, pal_slice_of(&plain), err);
    pal_bytes_free(&lower);
    pal_bytes_free(&plain);
    return st;
}

/* words: `first` of the prediction, then those of the reference. */
static pal_status f1(const pal_strings *words, size_t first, double *score, pal_error *err) {
    pal_word_numbers n;
    int64_t *left = NULL; /* how often a word of the reference can still be met, by its number */
    size_t same = 0;
    *score = 0;
    pal_status st = pal_number_words(&n, words, err);
    if (!st) st = pal_alloc_named((void **)&left, words->count + 1, sizeof *left, "words", err);
    for (size_t i = first; i < words->count && !st; i++) left[n.number[i]]++;
    for (size_t i = 0; i < first && !st; i++)
        if (left[n.number[i]]-- > 0) same++;
    if (!st && same) {
        const double precision = (double)same / (double)first, recall = (double)same / (double)(words->count - first);
        *score = (2 * precision * recall) / (precision + recall);
    }
    pal_word_numbers_free(&n);
    pal_free(left);
    return st;
}

pal_status pal_answer_f1(pal_slice prediction, pal_slice reference, double *score, pal_error *err) {
    pal_strings words = { 0 };
    pal_status st = normal_words(&words, prediction, err);
    const size_t first = words.count;
    if (!st) st = normal_words(&words, reference, err);
    if (!st) st = f1(&words, first, score, err);
    pal_strings_free(&words);
    return st;
}

/* The marks that LongBench deletes; U+300A is not among them, its closing sister U+300B is. */
static bool is_chinese_mark(uint32_t c) {
    static const uint32_t ranges[][2] = { { 0x2013, 0x2014 }, { 0x2018, 0x2019 }, { 0x201B, 0x201F },
                                          { 0x2026, 0x2027 }, { 0x3001, 0x3003 }, { 0x300B, 0x3011 },
                                          { 0x3014, 0x301F }, { 0x3030, 0x3030 }, { 0x303E, 0x303F },
                                          { 0xFE4F, 0xFE4F }, { 0xFF01, 0xFF0D }, { 0xFF0F, 0xFF0F },
                                          { 0xFF1A, 0xFF20 }, { 0xFF3B, 0xFF40 }, { 0xFF5B, 0xFF64 } };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

static pal_status add_chinese(pal_strings *words, const pal_strings *cut, pal_error *err) {
    pal_bytes lower = { 0 }, plain = { 0 };
    pal_status st = PAL_OK;
    for (size_t w = 0; w < cut->count && !st; w++) {
        lower.size = plain.size = 0;
        st = pal_py_lower(&lower, pal_strings_at(cut, w), err);
        for (size_t i = 0; i < lower.size && !st;) {
            uint32_t c;
            const size_t n = pal_py_character(lower.data + i, lower.size - i, &c);
            if (!(c < 0x80 && ispunct((int)c)) && !is_chinese_mark(c) && !pal_py_space(c))
                st = pal_bytes_append(&plain, lower.data + i, n, err);
            i += n;
        }
        if (!st && plain.size) st = pal_strings_add(words, plain.data, plain.size, err);
    }
    pal_bytes_free(&lower);
    pal_bytes_free(&plain);
    return st;
}

pal_status pal_answer_f1_zh(const pal_strings *prediction, const pal_strings *reference, double *score,
                            pal_error *err) {
    pal_strings words = { 0 };
    pal_status st = add_chinese(&words, prediction, err);
    const size_t first = words.count;
    if (!st) st = add_chinese(&words, reference, err);
    if (!st) st = f1(&words, first, score, err);
    pal_strings_free(&words);
    return st;
}
