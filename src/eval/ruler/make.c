/* SPDX-License-Identifier: MIT */
/* The size of a haystack by RULER's search, rows of that size, and how a row is written. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "eval/ruler/inside.h"

typedef struct {
    pal_ruler_draw_fn *draw;
    size_t step, probe; /* a first row of this size says how many tokens a unit has */
    int factor;         /* the search goes up to so many times what that promises */
} plan;

static plan plan_of(const pal_ruler_maker *m) {
    const size_t lines = m->length < 4096 ? 5 : 25, step = m->demonstrating ? 5 : 10;
    switch (m->task->haystack) {
    case PAL_RULER_ESSAY: return (plan){ pal_ruler_draw_needles, 500, 500, 3 };
    case PAL_RULER_NOISE:
    case PAL_RULER_NEEDLES: return (plan){ pal_ruler_draw_needles, lines, lines, 3 };
    case PAL_RULER_VARIABLES: return (plan){ pal_ruler_draw_variables, step, step, 3 };
    case PAL_RULER_COMMON: return (plan){ pal_ruler_draw_common, 10, 4096, 2 };
    default: return (plan){ pal_ruler_draw_questions, 10, 10, 3 };
    }
}

void pal_ruler_clear(pal_strings *s) { s->count = s->bytes.size = 0; }

pal_slice pal_ruler_number(char out[24], uint64_t number) {
    return (pal_slice){ (const unsigned char *)out, (size_t)snprintf(out, 24, "%" PRIu64, number) };
}

pal_slice pal_ruler_word(char out[24], uint32_t i, int syllables) {
    static const char consonants[] = "bdfgklmnprstvz", vowels[] = "aeiou";
    for (int k = 0; k < syllables; k++, i /= PAL_SYLLABLES) {
        out[2 * k] = consonants[i % PAL_SYLLABLES / 5];
        out[2 * k + 1] = vowels[i % 5];
    }
    return (pal_slice){ (const unsigned char *)out, 2 * (size_t)syllables };
}

void pal_ruler_shuffle(const pal_ruler_maker *m, uint32_t *order, size_t count) {
    pal_mersenne fresh;
    pal_mersenne_seed(&fresh, m->seed);
    pal_mersenne_shuffle(&fresh, order, count);
}

static int by_place(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

pal_status pal_ruler_places(pal_ruler_maker *m, size_t n, int k, uint32_t *places, pal_error *err) {
    const pal_status st = pal_mersenne_sample(&m->random, (uint32_t)n, (uint32_t)k, places, err);
    if (!st) qsort(places, (size_t)k, sizeof *places, by_place);
    return st;
}

pal_status pal_ruler_tokens(pal_ruler_maker *m, size_t *tokens, pal_error *err) {
    m->both.size = m->ids.count = 0;
    pal_status st = pal_bytes_append(&m->both, m->input.data, m->input.size, err);
    if (!st) st = pal_bytes_append(&m->both, m->prefix.data, m->prefix.size, err);
    if (!st) st = pal_tokenizer_encode(m->tokenizer, m->scratch, m->both.data, m->both.size, NULL, &m->ids, err);
    *tokens = m->ids.count;
    return st;
}

static pal_status no_room(const pal_ruler_maker *m, pal_error *err) {
    return pal_fail(err, PAL_E_ARGUMENT, "%s: rows of %d tokens have no room for the task", m->task->name, m->length);
}

/* Tokens to be written; a demonstration does not leave room for them. */
static size_t to_write(const pal_ruler_maker *m) { return m->demonstrating ? 0 : (size_t)m->task->generate; }

/* The largest size from low to high that fits, found with rows of sizes in between; each of them draws random numbers.
 */
static pal_status search(pal_ruler_maker *m, size_t low, size_t high, pal_error *err) {
    const size_t reserved = to_write(m) + m->example_size;
    while (low <= high) {
        const size_t middle = (low + high) / 2;
        size_t tokens;
        pal_status st = plan_of(m).draw(m, middle, 0, err);
        if (!st) st = pal_ruler_tokens(m, &tokens, err);
        if (st) return st;
        if (tokens + reserved <= (size_t)m->length) m->size = middle, low = middle + 1;
        else high = middle - 1;
    }
    return PAL_OK;
}

/* Below one step RULER finds nothing; short rows, or tokens as short as bytes, need smaller sizes. */
static pal_status find_size(pal_ruler_maker *m, pal_error *err) {
    enum { FEWEST = 5 };
    const plan p = plan_of(m);
    size_t tokens;
    pal_status st = p.draw(m, p.probe, 0, err);
    if (!st) st = pal_ruler_tokens(m, &tokens, err);
    if (st) return st;
    const size_t high = (size_t)((double)m->length / ((double)tokens / (double)p.probe) * p.factor);
    m->step = p.step;
    m->size = 0;
    if ((st = search(m, p.step, high < 2 * p.step ? 2 * p.step : high, err)) || m->size) return st;
    m->step = p.step < 10 ? 1 : p.step / 10;
    if (m->task->haystack != PAL_RULER_COMMON) st = search(m, FEWEST, p.step, err);
    return st || m->size ? st : no_room(m, err);
}

/* A row that fits: one that does not is drawn again, a step smaller. */
static pal_status draw_fitting(pal_ruler_maker *m, size_t index, size_t *tokens, pal_error *err) {
    const plan p = plan_of(m);
    for (size_t size = m->size;; size -= m->step) {
        pal_status st = p.draw(m, size, index, err);
        if (!st && m->example_size) st = pal_ruler_demonstrate(m, err);
        if (!st) st = pal_ruler_tokens(m, tokens, err);
        *tokens += to_write(m);
        if (st || *tokens <= (size_t)m->length) return st;
        if (size <= m->step) return no_room(m, err);
    }
}

/* Variables: a row of at most 500 tokens, if that can be, with its answer; it is shown before every other. */
static pal_status make_example(pal_ruler_maker *m, pal_error *err) {
    enum { EXAMPLE = 500 };
    const int length = m->length;
    size_t tokens;
    m->demonstrating = true;
    m->length = EXAMPLE;
    pal_status st = find_size(m, err);
    if (st == PAL_E_ARGUMENT && length / 3 > EXAMPLE) { /* tokens as short as bytes */
        m->length = length / 3;
        st = find_size(m, err);
    }
    if (!st) st = draw_fitting(m, 0, &tokens, err);
    if (!st) st = pal_bytes_append(&m->example, m->input.data, m->input.size, err);
    if (!st) st = pal_bytes_append(&m->example, m->prefix.data, m->prefix.size, err);
    for (size_t i = 0; i < m->outputs.count && !st; i++) {
        const pal_slice name = pal_strings_at(&m->outputs, i);
        if (!(st = pal_bytes_append(&m->example, " ", 1, err)) &&
            !(st = pal_bytes_append(&m->example, name.data, name.size, err)))
            st = pal_strings_add(&m->names, name.data, name.size, err);
    }
    if (!st) st = pal_bytes_append(&m->example, "\n\n", 2, err);
    m->ids.count = 0;
    if (!st) st = pal_tokenizer_encode(m->tokenizer, m->scratch, m->example.data, m->example.size, NULL, &m->ids, err);
    m->example_size = m->ids.count;
    m->demonstrating = false;
    m->length = length;
    return st == PAL_E_ARGUMENT ? no_room(m, err) : st;
}

static size_t word_count(const pal_ruler_sources *s) {
    return s->all_words.count ? s->all_words.count : (size_t)PAL_SYLLABLES * PAL_SYLLABLES * PAL_SYLLABLES;
}

static pal_status begin(pal_ruler_maker *m, pal_error *err) {
    pal_status st = pal_tokenizer_scratch_new(&m->scratch, m->tokenizer, err);
    if (st) return st;
    pal_mersenne_seed(&m->random, m->seed);
    pal_mersenne_seed_plain(&m->numpy, m->seed);
    if (m->task->haystack == PAL_RULER_FREQUENT) return pal_ruler_size_frequent(m, err);
    if (m->task->haystack == PAL_RULER_VARIABLES && (st = make_example(m, err))) return st;
    if (m->task->haystack == PAL_RULER_COMMON) {
        const size_t count = word_count(m->sources);
        if ((st = pal_alloc_named((void **)&m->order, count, sizeof *m->order, "a list of words", err))) return st;
        for (uint32_t i = 0; i < count; i++) m->order[i] = i;
        pal_ruler_shuffle(m, m->order, count);
    }
    return find_size(m, err);
}

pal_status pal_ruler_maker_new(pal_ruler_maker **out, const pal_ruler_task *task, const pal_ruler_templates *templates,
                               const pal_ruler_sources *sources, const pal_tokenizer *tokenizer, int length,
                               uint32_t seed, pal_error *err) {
    const char *lacks = pal_ruler_lacks(sources, task);
    pal_ruler_maker *m;
    *out = NULL;
    if (lacks) return pal_fail(err, PAL_E_ARGUMENT, "%s: the task needs %s", task->name, lacks);
    if (length < PAL_RULER_SHORTEST || length > PAL_RULER_LONGEST)
        return pal_fail(err, PAL_E_ARGUMENT, "rows of %d tokens: expected %d to %d", length, PAL_RULER_SHORTEST,
                        PAL_RULER_LONGEST);
    pal_status st = pal_alloc_named((void **)&m, 1, sizeof *m, "a task of RULER", err);
    if (st) return st;
    m->task = task;
    m->templates = templates;
    m->sources = sources;
    m->tokenizer = tokenizer;
    m->length = length;
    m->seed = seed;
    if ((st = begin(m, err))) {
        pal_ruler_maker_free(m);
        return st;
    }
    *out = m;
    return PAL_OK;
}

void pal_ruler_maker_free(pal_ruler_maker *m) {
    if (!m) return;
    pal_tokenizer_scratch_free(m->scratch);
    pal_ids_free(&m->ids);
    pal_free(m->order);
    pal_bytes *const texts[] = { &m->example, &m->text, &m->input, &m->prefix, &m->both, &m->line };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) pal_bytes_free(texts[i]);
    pal_strings_free(&m->names);
    pal_strings_free(&m->outputs);
    pal_free(m);
}

/* Where the first answer stands: in characters, and in tokens before it. */
static pal_status find_answer(pal_ruler_maker *m, pal_ruler_sample *sample, pal_error *err) {
    const pal_slice answer = pal_strings_at(&m->outputs, 0);
    const unsigned char *at = memmem(m->input.data, m->input.size, answer.data, answer.size);
    const size_t before = at ? (size_t)(at - m->input.data) : 0;
    m->ids.count = 0;
    const pal_status st = pal_tokenizer_encode(m->tokenizer, m->scratch, m->input.data, before, NULL, &m->ids, err);
    sample->index = pal_py_length((pal_slice){ m->input.data, before });
    sample->answer_position = m->ids.count;
    sample->has_position = true;
    return st;
}

pal_status pal_ruler_make(pal_ruler_maker *m, pal_ruler_sample *sample, pal_error *err) {
    const pal_ruler_haystack kind = m->task->haystack;
    *sample = (pal_ruler_sample){ .index = m->made, .outputs = &m->outputs };
    pal_status st = kind == PAL_RULER_FREQUENT ? pal_ruler_make_frequent(m, &sample->tokens, err)
                                               : draw_fitting(m, m->made, &sample->tokens, err);
    if (!st && kind <= PAL_RULER_NEEDLES) st = find_answer(m, sample, err);
    sample->input = pal_slice_of(&m->input);
    sample->prefix = pal_slice_of(&m->prefix);
    m->made++;
    return st;
}

/* A text in quotes, as Python writes it: what is not ASCII as \uXXXX, beyond the first plane as two of them. */
static pal_status write_text(pal_bytes *out, pal_slice text, pal_error *err) {
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    pal_status st = pal_bytes_append(out, "\"", 1, err);
    for (size_t i = 0; i < text.size && !st;) {
        uint32_t code;
        char escape[16];
        i += pal_py_character(text.data + i, text.size - i, &code);
        const char *special = code && code < 0x80 ? strchr(plain, (int)code) : NULL;
        int n = 1;
        if (special) n = snprintf(escape, sizeof escape, "\\%c", letters[special - plain]);
        else if (code >= 0x20 && code < 0x7F) escape[0] = (char)code;
        else if (code < 0x10000) n = snprintf(escape, sizeof escape, "\\u%04" PRIx32, code);
        else
            n = snprintf(escape, sizeof escape, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xD800 + ((code - 0x10000) >> 10),
                         0xDC00 + ((code - 0x10000) & 0x3FF));
        st = pal_bytes_append(out, escape, (size_t)n, err);
    }
    return st ? st : pal_bytes_append(out, "\"", 1, err);
}

static pal_status write_number(pal_bytes *out, const char *name, size_t value, pal_error *err) {
    char text[80];
    return pal_bytes_append(out, text, (size_t)snprintf(text, sizeof text, "\"%s\": %zu", name, value), err);
}

static pal_status write_plain(pal_bytes *out, const char *text, pal_error *err) {
    return pal_bytes_append(out, text, strlen(text), err);
}

pal_status pal_ruler_write(const pal_ruler_sample *s, pal_bytes *line, pal_error *err) {
    pal_status st = write_plain(line, "{", err);
    if (!st) st = write_number(line, "index", s->index, err);
    if (!st) st = write_plain(line, ", \"input\": ", err);
    if (!st) st = write_text(line, s->input, err);
    if (!st) st = write_plain(line, ", \"outputs\": [", err);
    for (size_t i = 0; i < s->outputs->count && !st; i++) {
        if (i) st = write_plain(line, ", ", err);
        if (!st) st = write_text(line, pal_strings_at(s->outputs, i), err);
    }
    if (!st) st = write_plain(line, "], ", err);
    if (!st) st = write_number(line, "length", s->tokens, err);
    if (!st) st = write_plain(line, ", ", err);
    if (!st) st = write_number(line, "length_w_model_temp", s->tokens, err);
    if (!st) st = write_plain(line, ", \"answer_prefix\": ", err);
    if (!st) st = write_text(line, s->prefix, err);
    if (!st && s->has_position) st = write_plain(line, ", ", err);
    if (!st && s->has_position) st = write_number(line, "token_position_answer", s->answer_position, err);
    return st ? st : write_plain(line, "}\n", err);
}
