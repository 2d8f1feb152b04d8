/* SPDX-License-Identifier: MIT */
/* Names that pass a value on, and words that come more often than others. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "eval/python_text.h"
#include "eval/ruler/inside.h"

enum { CHAIN = 5, NAME = 5, EXAMPLE_NAME = 3, COMMON = 10, CODED = 6 };
static const char example_value[] = "12345";

/* random.choices of letters from `first` on. */
static void draw_letters(pal_mersenne *random, char first, char *out, int count) {
    for (int i = 0; i < count; i++) out[i] = (char)(first + (int)(pal_mersenne_double(random) * 26));
}

/* numpy.random.randint(10000, 99999) */
static uint32_t draw_numpy(pal_mersenne *numpy) {
    uint32_t x;
    do x = pal_mersenne_u32(numpy) & 0x1FFFF;
    while (x > 89998);
    return x + 10000;
}

static size_t distinct_names(char names[][8], size_t count) {
    size_t distinct = 0;
    for (size_t i = 0; i < count; i++) {
        bool again = false;
        for (size_t k = 0; k < i; k++) again |= strcmp(names[i], names[k]) == 0;
        distinct += !again;
    }
    return distinct;
}

pal_status pal_ruler_demonstrate(pal_ruler_maker *m, pal_error *err) {
    pal_bytes text[2] = { { 0 }, { 0 } };
    int now = 0;
    char new[8] = { 0 }, number[24];
    pal_status st = pal_bytes_append(&text[0], m->example.data, m->example.size, err);
    for (size_t i = 0; i <= m->names.count && !st; i++) {
        char old[8] = { 0 };
        if (i < m->names.count) {
            draw_letters(&m->random, 'A', new, EXAMPLE_NAME);
            memcpy(old, pal_strings_at(&m->names, i).data, EXAMPLE_NAME);
        } else pal_ruler_number(number, draw_numpy(&m->numpy));
        text[1 - now].size = 0;
        st = i < m->names.count ? pal_py_replace(&text[1 - now], pal_slice_of(&text[now]), old, new, err)
                                : pal_py_replace(&text[1 - now], pal_slice_of(&text[now]), example_value, number, err);
        now = 1 - now;
    }
    if (!st) st = pal_bytes_append(&text[now], m->input.data, m->input.size, err);
    m->input.size = 0;
    if (!st) st = pal_bytes_append(&m->input, text[now].data, text[now].size, err);
    for (int i = 0; i < 2; i++) pal_bytes_free(&text[i]);
    return st;
}

pal_status pal_ruler_draw_variables(pal_ruler_maker *m, size_t lines, size_t index, pal_error *err) {
    enum { MOST = 64 };
    char names[MOST][8] = { { 0 } }, number[24];
    uint32_t place[CHAIN];
    const int letters = m->demonstrating ? EXAMPLE_NAME : NAME;
    size_t drawn = 0, next = 0;
    (void)index;
    while (drawn < MOST && distinct_names(names, drawn) < CHAIN) draw_letters(&m->random, 'A', names[drawn++], letters);
    const pal_slice value = m->demonstrating ? pal_slice_text(example_value)
                                             : pal_ruler_number(number, draw_numpy(&m->numpy));
    m->text.size = m->input.size = m->prefix.size = 0;
    pal_ruler_clear(&m->outputs);
    pal_status st = pal_ruler_places(m, lines, CHAIN, place, err);
    for (size_t i = 0; i < lines && !st; i++) {
        if (next < CHAIN && place[next] == i) {
            const pal_fill values[] = { { "name", pal_slice_text(names[next]) },
                                        { "value", value },
                                        { "from", pal_slice_text(names[next ? next - 1 : 0]) },
                                        { NULL } };
            st = pal_strings_add(&m->outputs, names[next], (size_t)letters, err);
            if (!st)
                st = pal_ruler_fill(&m->text, next ? m->templates->variable_copy : m->templates->variable_first, values,
                                    err);
            if (!st) st = pal_bytes_append(&m->text, "\n", 1, err);
            next++;
        }
        if (!st) st = pal_bytes_append(&m->text, m->templates->noise, strlen(m->templates->noise), err);
        if (!st && i + 1 < lines) st = pal_bytes_append(&m->text, "\n", 1, err);
    }
    const pal_fill values[] = {
        { "text", pal_slice_of(&m->text) }, { "value", value }, { "count", pal_slice_text("5") }, { NULL }
    };
    if (!st) st = pal_ruler_fill(&m->input, m->templates->variables, values, err);
    return st ? st : pal_ruler_fill(&m->prefix, m->templates->variables_answer, values, err);
}

static pal_slice listed_word(const pal_ruler_maker *m, char made[24], uint32_t i) {
    const pal_strings *list = &m->sources->all_words;
    return list->count ? pal_strings_at(list, m->order[i]) : pal_ruler_word(made, m->order[i], 3);
}

/* Numbered words: the first ten of `count` come `often`, the others `seldom` times. Appends; answer takes the ten. */
static pal_status list_words(pal_ruler_maker *m, size_t count, size_t often, size_t seldom, pal_strings *answer,
                             pal_error *err) {
    const size_t all = m->sources->all_words.count ? m->sources->all_words.count
                                                   : (size_t)PAL_SYLLABLES * PAL_SYLLABLES * PAL_SYLLABLES;
    uint32_t *drawn = NULL, *order = NULL;
    char made[24], number[32];
    if (count > all) count = all;
    if (count < COMMON) return pal_fail(err, PAL_E_ARGUMENT, "%zu words: cwe needs at least %d", count, COMMON);
    const size_t length = COMMON * often + (count - COMMON) * seldom;
    pal_status st = pal_alloc_named((void **)&drawn, count, sizeof *drawn, "a list of words", err);
    if (!st) st = pal_alloc_named((void **)&order, length, sizeof *order, "a list of words", err);
    if (!st) st = pal_mersenne_sample(&m->random, (uint32_t)all, (uint32_t)count, drawn, err);
    for (size_t i = 0; i < length && !st; i++)
        order[i] = i < COMMON * often ? drawn[i % COMMON] : drawn[COMMON + (i - COMMON * often) % (count - COMMON)];
    if (!st) pal_ruler_shuffle(m, order, length);
    for (size_t i = 0; i < length && !st; i++) {
        const pal_slice word = listed_word(m, made, order[i]);
        const int n = snprintf(number, sizeof number, "%s%zu. ", i ? " " : "", i + 1);
        if (!(st = pal_bytes_append(&m->text, number, (size_t)n, err)))
            st = pal_bytes_append(&m->text, word.data, word.size, err);
    }
    pal_ruler_clear(answer);
    for (size_t i = 0; i < COMMON && !st; i++) {
        const pal_slice word = listed_word(m, made, drawn[i]);
        st = pal_strings_add(answer, word.data, word.size, err);
    }
    pal_free(drawn);
    pal_free(order);
    return st;
}

/* A short list with its answer first, then the list that counts. */
pal_status pal_ruler_draw_common(pal_ruler_maker *m, size_t size, size_t index, pal_error *err) {
    const bool small = m->length < 4096;
    const size_t counts[2] = { small ? 20 : 40, size }, often[2] = { small ? 3 : 10, small ? 6 : 30 },
                 seldom[2] = { small ? 1 : 3, small ? 1 : 3 };
    pal_status st = PAL_OK;
    (void)index;
    m->input.size = m->prefix.size = 0;
    for (int part = 0; part < 2 && !st; part++) {
        m->text.size = 0;
        if ((st = list_words(m, counts[part], often[part], seldom[part], &m->outputs, err))) break;
        const pal_fill values[] = { { "text", pal_slice_of(&m->text) }, { NULL } };
        st = pal_ruler_fill(&m->input, m->templates->common, values, err);
        if (st || part) break;
        st = pal_ruler_fill(&m->input, m->templates->common_answer, values, err);
        for (size_t i = 0; i < m->outputs.count && !st; i++) {
            char number[32];
            const pal_slice word = pal_strings_at(&m->outputs, i);
            const int n = snprintf(number, sizeof number, " %zu. ", i + 1);
            if (!(st = pal_bytes_append(&m->input, number, (size_t)n, err)))
                st = pal_bytes_append(&m->input, word.data, word.size, err);
        }
        if (!st) st = pal_bytes_append(&m->input, "\n", 1, err);
    }
    return st ? st
              : pal_bytes_append(&m->prefix, m->templates->common_answer, strlen(m->templates->common_answer), err);
}

/* Coded words in the order of their ranks. */
typedef struct {
    char (*word)[CODED];
    size_t count;
    uint32_t *rank;
} vocabulary;

static int by_letters(const void *a, const void *b) { return memcmp(a, b, CODED); }

static size_t sort_distinct(vocabulary *v, size_t drawn) {
    qsort(v->word, drawn, CODED, by_letters);
    size_t kept = drawn ? 1 : 0;
    for (size_t i = 1; i < drawn; i++)
        if (memcmp(v->word[i], v->word[kept - 1], CODED) != 0) memmove(v->word[kept++], v->word[i], CODED);
    return kept;
}

/* Draws words until there are `count` distinct ones. */
static pal_status draw_vocabulary(pal_ruler_maker *m, vocabulary *v, size_t count, pal_error *err) {
    pal_status st = pal_alloc_named((void **)&v->word, count + 1, CODED, "coded words", err);
    if (!st) st = pal_alloc_named((void **)&v->rank, count + 1, sizeof *v->rank, "coded words", err);
    if (st) return st;
    for (size_t have = 0; have < count; have = sort_distinct(v, have))
        for (; have < count; have++) draw_letters(&m->random, 'a', v->word[have], CODED);
    v->count = count;
    for (uint32_t i = 0; i < count; i++) v->rank[i] = i;
    pal_ruler_shuffle(m, v->rank, count);
    return PAL_OK;
}

static void free_vocabulary(vocabulary *v) {
    pal_free(v->word);
    pal_free(v->rank);
}

/* The word of rank k comes draws / (k^2 zeta(2)) times; the first rank is dots. */
static pal_status write_coded(pal_ruler_maker *m, const vocabulary *v, size_t draws, pal_error *err) {
    const double zeta = 1.6449340668482264;
    uint32_t *order = NULL;
    size_t length = 0;
    pal_status st = PAL_OK;
    for (int pass = 0; pass < 2 && !st; pass++) {
        if (pass) st = pal_alloc_named((void **)&order, length + 1, sizeof *order, "coded words", err);
        length = 0;
        for (uint32_t k = 0; k < v->count && !st; k++)
            for (size_t times = (size_t)((double)draws * pow(k + 1.0, -2.0) / zeta); times; times--, length++)
                if (pass) order[length] = k;
    }
    if (!st) pal_ruler_shuffle(m, order, length);
    m->text.size = m->input.size = m->prefix.size = 0;
    for (size_t i = 0; i < length && !st; i++) {
        if (i) st = pal_bytes_append(&m->text, " ", 1, err);
        if (!st)
            st = order[i] ? pal_bytes_append(&m->text, v->word[v->rank[order[i]]], CODED, err)
                          : pal_bytes_append(&m->text, "...", 3, err);
    }
    pal_free(order);
    const pal_fill values[] = { { "text", pal_slice_of(&m->text) }, { NULL } };
    if (!st) st = pal_ruler_fill(&m->input, m->templates->frequent, values, err);
    return st ? st : pal_ruler_fill(&m->prefix, m->templates->frequent_answer, values, err);
}

static size_t frequent_room(const pal_ruler_maker *m) { return (size_t)(m->length - m->task->generate); }

/* Draws that just do not fill the length. */
pal_status pal_ruler_size_frequent(pal_ruler_maker *m, pal_error *err) {
    const size_t room = frequent_room(m);
    vocabulary v = { 0 };
    size_t tokens = 0;
    m->step = room / 32;
    m->size = room / CODED - m->step;
    pal_status st = draw_vocabulary(m, &v, room / 50, err);
    while (!st && tokens < room) {
        m->size += m->step;
        if (!(st = write_coded(m, &v, m->size, err))) st = pal_ruler_tokens(m, &tokens, err);
    }
    m->size -= m->step;
    free_vocabulary(&v);
    return st;
}

pal_status pal_ruler_make_frequent(pal_ruler_maker *m, size_t *tokens, pal_error *err) {
    const size_t room = frequent_room(m);
    vocabulary v = { 0 };
    size_t size = m->size;
    pal_status st = draw_vocabulary(m, &v, room / 50, err);
    if (!st && !(st = write_coded(m, &v, size, err))) st = pal_ruler_tokens(m, tokens, err);
    while (!st && *tokens > room) {
        if (size <= m->step)
            st = pal_fail(err, PAL_E_ARGUMENT, "%s: rows of %d tokens have no room for the task", m->task->name,
                          m->length);
        else if (!(st = write_coded(m, &v, size -= m->step, err))) st = pal_ruler_tokens(m, tokens, err);
    }
    *tokens += (size_t)m->task->generate;
    pal_ruler_clear(&m->outputs);
    for (size_t i = 1; i <= 3 && !st; i++) st = pal_strings_add(&m->outputs, v.word[v.rank[i]], CODED, err);
    free_vocabulary(&v);
    return st;
}
