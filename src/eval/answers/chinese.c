/* SPDX-License-Identifier: MIT */
#include "eval/answers/chinese.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/map.h"
#include "eval/python_text.h"
#include "text/tokenizer.h"

enum { HAN_FIRST = 0x4E00, HAN_LAST = 0x9FD5, HAN = HAN_LAST - HAN_FIRST + 1 };
enum { BEGIN, MIDDLE, END, SINGLE, STATES }; /* of a character in its word */
static const char letters[] = "BMES";
static const double never = -3.14e100; /* the logarithm of what does not happen, in jieba's tables */

struct pal_chinese {
    pal_trie words; /* of the dictionary -> how often; a prefix of a word ends nowhere */
    double log_total;
    double start[STATES], step[STATES][STATES], emit[STATES][HAN];
};

void pal_chinese_close(pal_chinese *c) {
    if (!c) return;
    pal_trie_free(&c->words);
    pal_free(c);
}

/* Lines "word count kind". */
static pal_status read_words(pal_chinese *c, pal_slice text, const char *path, pal_error *err) {
    uint64_t total = 0;
    size_t line = 1;
    pal_status st = PAL_OK;
    for (size_t at = 0; at < text.size && !st; line++) {
        const unsigned char *s = text.data + at, *end = memchr(s, '\n', text.size - at);
        const size_t size = end ? (size_t)(end - s) : text.size - at;
        const unsigned char *blank = memchr(s, ' ', size);
        uint64_t count = 0;
        size_t digits = 0, i = blank ? (size_t)(blank - s) + 1 : size;
        for (; i < size && isdigit(s[i]) && digits < 9; digits++) count = count * 10 + (uint64_t)(s[i++] - '0');
        if (!blank || blank == s || !digits || (i < size && s[i] != ' ' && s[i] != '\r'))
            return pal_fail(err, PAL_E_FORMAT, "%s: line %zu: expected a word, a blank and a count", path, line);
        if (blank - s > PAL_MATCHED_MAX)
            return pal_fail(err, PAL_E_FORMAT, "%s: line %zu: a word of %td bytes; expected at most %d", path, line,
                            blank - s, PAL_MATCHED_MAX);
        st = pal_trie_add(&c->words, s, (size_t)(blank - s), (uint32_t)count, err);
        total += count;
        at += size + (end != NULL);
    }
    if (!st && !total) st = pal_fail(err, PAL_E_FORMAT, "%s: there is no word in it", path);
    c->log_total = log((double)total);
    return st;
}

static int state_of(pal_slice key) {
    const char *at = key.size == 1 ? memchr(letters, key.data[0], STATES) : NULL;
    return at ? (int)(at - letters) : -1;
}

/* A character, as itself or as \uXXXX; -1: not one of the range. */
static int han_of(pal_slice key) {
    uint32_t code = 0;
    if (key.size == 6 && key.data[0] == '\\' && key.data[1] == 'u') {
        char hex[5] = { 0 };
        memcpy(hex, key.data + 2, 4);
        code = (uint32_t)strtoul(hex, NULL, 16);
    } else if (!key.size || pal_py_character(key.data, key.size, &code) != key.size) return -1;
    return code >= HAN_FIRST && code <= HAN_LAST ? (int)code - HAN_FIRST : -1;
}

static void put(pal_chinese *c, int outer, pal_slice key, double value) {
    const int to = state_of(key), han = han_of(key);
    if (outer < 0 && to >= 0) c->start[to] = value;
    else if (outer >= 0 && to >= 0) c->step[outer][to] = value;
    else if (outer >= 0 && han >= 0) c->emit[outer][han] = value;
}

/* A table of Python: texts in quotes, each with a number after a colon, or with its own table. */
static pal_status read_table(pal_chinese *c, const char *text, const char *path, pal_error *err) {
    int outer = -1;
    size_t numbers = 0;
    const char *at = strchr(text, '{');
    if (at) at++;
    while (at && *(at += strcspn(at, "'}"))) {
        if (*at++ == '}') {
            outer = -1;
            continue;
        }
        const char *end = strchr(at, '\'');
        if (!end) break;
        const pal_slice key = { (const unsigned char *)at, (size_t)(end - at) };
        at = end + 1 + strspn(end + 1, ": \n");
        if (*at == '{') {
            if ((outer = state_of(key)) < 0)
                return pal_fail(err, PAL_E_FORMAT, "%s: expected tables of the states B, M, E and S, found '%.*s'",
                                path, (int)key.size, (const char *)key.data);
            continue;
        }
        char *behind;
        const double value = strtod(at, &behind);
        if (behind == at)
            return pal_fail(err, PAL_E_FORMAT, "%s: expected a number after '%.*s'", path, (int)key.size,
                            (const char *)key.data);
        put(c, outer, key, value);
        numbers++;
        at = behind;
    }
    return numbers ? PAL_OK : pal_fail(err, PAL_E_FORMAT, "%s: expected a table of numbers, found none", path);
}

static pal_status read_tables(pal_chinese *c, const char *directory, pal_error *err) {
    static const char *const names[] = { "dict.txt", "finalseg/prob_start.py", "finalseg/prob_trans.py",
                                         "finalseg/prob_emit.py" };
    pal_status st = PAL_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && !st; i++) {
        char path[4096];
        pal_map map = { 0 };
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        if ((st = pal_map_open(&map, path, err))) break;
        pal_bytes text = { 0 };
        if (i == 0) st = read_words(c, (pal_slice){ map.data, map.size }, path, err);
        else if (!(st = pal_bytes_append(&text, map.data, map.size, err)) &&
                 !(st = pal_bytes_append(&text, "", 1, err)))
            st = read_table(c, (const char *)text.data, path, err);
        pal_bytes_free(&text);
        pal_map_close(&map);
    }
    return st;
}

pal_status pal_chinese_open(pal_chinese **out, const char *directory, pal_error *err) {
    pal_chinese *c;
    *out = NULL;
    pal_status st = pal_alloc_named((void **)&c, 1, sizeof *c, "a Chinese dictionary", err);
    if (st) return st;
    for (int s = 0; s < STATES; s++) {
        c->start[s] = never;
        for (int to = 0; to < STATES; to++) c->step[s][to] = never;
        for (int h = 0; h < HAN; h++) c->emit[s][h] = never;
    }
    if ((st = read_tables(c, directory, err))) {
        pal_chinese_close(c);
        return st;
    }
    *out = c;
    return PAL_OK;
}

/* A text as characters; at[n] is its size. */
typedef struct {
    const unsigned char *data;
    uint32_t *code;
    size_t *at;
    size_t count;
} characters;

static bool is_han(uint32_t c) { return c >= HAN_FIRST && c <= HAN_LAST; }
static bool is_alnum(uint32_t c) { return c < 0x80 && isalnum((int)c); }
static bool in_block(uint32_t c) { return is_han(c) || is_alnum(c) || (c && c < 0x80 && strchr("+#&._%-", (int)c)); }

static pal_status add(pal_strings *words, const characters *t, size_t from, size_t to, pal_error *err) {
    return pal_strings_add(words, t->data + t->at[from], t->at[to] - t->at[from], err);
}

/* How often characters from .. to-1 are a word: *known false where no word begins so. */
static uint32_t frequency(const pal_chinese *c, const characters *t, pal_trie_place *at, size_t from, size_t to,
                          bool *known) {
    *known = true;
    for (size_t i = t->at[from]; i < t->at[to] && *known; i++) *known = pal_trie_step(&c->words, at, t->data[i]);
    const uint32_t count = *known ? pal_trie_value(&c->words, *at) : PAL_NO_ID;
    return count == PAL_NO_ID ? 0 : count;
}

/* The states of characters from .. to-1 by Viterbi's algorithm; of equal ways that over the later letter wins. */
static void find_states(const pal_chinese *c, const characters *t, size_t from, size_t to,
                        unsigned char (*back)[STATES], unsigned char *state) {
    static const int previous[STATES][2] = { { END, SINGLE }, { MIDDLE, BEGIN }, { BEGIN, MIDDLE }, { SINGLE, END } };
    double value[STATES], next[STATES];
    for (int s = 0; s < STATES; s++) value[s] = c->start[s] + c->emit[s][t->code[from] - HAN_FIRST];
    for (size_t i = from + 1; i < to; i++) {
        for (int s = 0; s < STATES; s++) {
            const int p = previous[s][0], q = previous[s][1];
            const double emit = c->emit[s][t->code[i] - HAN_FIRST], one = value[p] + c->step[p][s] + emit,
                         other = value[q] + c->step[q][s] + emit;
            const bool first = one > other || (one == other && letters[p] > letters[q]);
            next[s] = first ? one : other;
            back[i][s] = (unsigned char)(first ? p : q);
        }
        memcpy(value, next, sizeof value);
    }
    int s = value[END] > value[SINGLE] ? END : SINGLE;
    for (size_t i = to; i-- > from;) {
        state[i] = (unsigned char)s;
        if (i > from) s = back[i][s];
    }
}

static pal_status cut_by_states(const characters *t, size_t from, size_t to, const unsigned char *state,
                                pal_strings *words, pal_error *err) {
    size_t begin = from, next = from;
    pal_status st = PAL_OK;
    for (size_t i = from; i < to && !st; i++) {
        if (state[i] == BEGIN) begin = i;
        else if (state[i] == END || state[i] == SINGLE) {
            st = add(words, t, state[i] == END ? begin : i, i + 1, err);
            next = i + 1;
        }
    }
    return st || next == to ? st : add(words, t, next, to, err);
}

/* Letters and digits, with a decimal part and a percent sign: [a-zA-Z0-9]+(\.\d+)?%? */
static size_t number_end(const characters *t, size_t i, size_t to) {
    while (i < to && is_alnum(t->code[i])) i++;
    if (i + 1 < to && t->code[i] == '.' && t->code[i + 1] < 0x80 && isdigit((int)t->code[i + 1]))
        for (i++; i < to && t->code[i] < 0x80 && isdigit((int)t->code[i]);) i++;
    return i < to && t->code[i] == '%' ? i + 1 : i;
}

typedef struct {
    size_t *next;                  /* (count + 1) where the word that begins here ends, on the likeliest way */
    double *value;                 /* (count + 1) of that way */
    unsigned char (*back)[STATES]; /* (count) */
    unsigned char *state;          /* (count) */
} work;

/* Characters that no word of the dictionary joins. */
static pal_status cut_singles(const pal_chinese *c, const characters *t, size_t from, size_t to, const work *w,
                              pal_strings *words, pal_error *err) {
    pal_status st = PAL_OK;
    pal_trie_place place = { 0 };
    bool known;
    if (to - from == 1) return add(words, t, from, to, err);
    if (frequency(c, t, &place, from, to, &known)) {
        for (size_t i = from; i < to && !st; i++) st = add(words, t, i, i + 1, err);
        return st;
    }
    for (size_t i = from, end; i < to && !st; i = end) {
        end = i;
        if (is_han(t->code[i])) {
            while (end < to && is_han(t->code[end])) end++;
            find_states(c, t, i, end, w->back, w->state);
            st = cut_by_states(t, i, end, w->state, words, err);
            continue;
        }
        if (is_alnum(t->code[i])) end = number_end(t, i, to);
        else
            while (end < to && !is_han(t->code[end]) && !is_alnum(t->code[end])) end++;
        st = add(words, t, i, end, err);
    }
    return st;
}

/* A run of Chinese characters, letters and digits. */
static pal_status cut_block(const pal_chinese *c, const characters *t, size_t from, size_t to, const work *w,
                            pal_strings *words, pal_error *err) {
    w->value[to] = 0;
    for (size_t i = to; i-- > from;) {
        pal_trie_place place = { 0 };
        bool known = true, any = false;
        double best = 0;
        for (size_t end = i + 1; end <= to && known; end++) {
            const uint32_t count = frequency(c, t, &place, end - 1, end, &known);
            if (!count) continue;
            const double value = log((double)count) - c->log_total + w->value[end];
            if (!any || value >= best) best = value, w->next[i] = end;
            any = true;
        }
        if (!any) best = log(1) - c->log_total + w->value[i + 1], w->next[i] = i + 1;
        w->value[i] = best;
    }
    pal_status st = PAL_OK;
    size_t single = from; /* the first of those that wait */
    for (size_t i = from; i < to && !st; i = w->next[i]) {
        if (w->next[i] == i + 1) continue;
        if (single < i) st = cut_singles(c, t, single, i, w, words, err);
        if (!st) st = add(words, t, i, w->next[i], err);
        single = w->next[i];
    }
    return st || single == to ? st : cut_singles(c, t, single, to, w, words, err);
}

static pal_status cut(const pal_chinese *c, const characters *t, const work *w, pal_strings *words, pal_error *err) {
    pal_status st = PAL_OK;
    for (size_t i = 0, end; i < t->count && !st; i = end) {
        end = i + 1;
        if (in_block(t->code[i])) {
            while (end < t->count && in_block(t->code[end])) end++;
            st = cut_block(c, t, i, end, w, words, err);
        } else {
            if (t->code[i] == '\r' && end < t->count && t->code[end] == '\n') end++;
            st = add(words, t, i, end, err);
        }
    }
    return st;
}

pal_status pal_chinese_cut(const pal_chinese *c, pal_slice text, pal_strings *words, pal_error *err) {
    characters t = { .data = text.data };
    work w = { 0 };
    const size_t room = text.size + 1;
    pal_status st = pal_alloc_named((void **)&t.code, room, sizeof *t.code, "a Chinese text", err);
    if (!st) st = pal_alloc_named((void **)&t.at, room, sizeof *t.at, "a Chinese text", err);
    if (!st) st = pal_alloc_named((void **)&w.next, room, sizeof *w.next, "a Chinese text", err);
    if (!st) st = pal_alloc_named((void **)&w.value, room, sizeof *w.value, "a Chinese text", err);
    if (!st) st = pal_alloc_named((void **)&w.back, room, sizeof *w.back, "a Chinese text", err);
    if (!st) st = pal_alloc_named((void **)&w.state, room, sizeof *w.state, "a Chinese text", err);
    if (!st) {
        for (size_t i = 0; i < text.size;) {
            t.at[t.count] = i;
            i += pal_py_character(text.data + i, text.size - i, &t.code[t.count++]);
        }
        t.at[t.count] = text.size;
        st = cut(c, &t, &w, words, err);
    }
    pal_free(t.code);
    pal_free(t.at);
    pal_free(w.next);
    pal_free(w.value);
    pal_free(w.back);
    pal_free(w.state);
    return st;
}
