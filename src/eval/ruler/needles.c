/* SPDX-License-Identifier: MIT */
/* Sentences that state a value for a key, in a text, in a line again and again, or among others of their kind. */
#include <inttypes.h>

#include "base/alloc.h"
#include "eval/ruler/inside.h"

enum { MOST = 4, DEPTHS = 40, KEY = 128, SYLLABLES = 4 };

typedef struct {
    char text[KEY];
    size_t size;
} word;

static pal_slice slice_of(const word *w) { return (pal_slice){ (const unsigned char *)w->text, w->size }; }

static void draw_uuid(pal_mersenne *random, word *out) {
    uint32_t w[4];
    for (int i = 0; i < 4; i++) w[i] = pal_mersenne_u32(random);
    out->size = (size_t)snprintf(
        out->text, KEY, "%08" PRIx32 "-%04" PRIx32 "-%04" PRIx32 "-%04" PRIx32 "-%04" PRIx32 "%08" PRIx32, w[3],
        w[2] >> 16, (w[2] & 0x0FFF) | 0x4000, (w[1] >> 16 & 0x3FFF) | 0x8000, w[1] & 0xFFFF, w[0]);
}

/* An adjective and a noun, or a word that no text has. */
static pal_status draw_key(pal_ruler_maker *m, word *out, pal_error *err) {
    const pal_strings *adjectives = &m->sources->adjectives, *nouns = &m->sources->nouns;
    if (m->task->uuid_key) {
        draw_uuid(&m->random, out);
        return PAL_OK;
    }
    if (!adjectives->count) {
        char made[24];
        const pal_slice text = pal_ruler_word(
            made, pal_mersenne_below(&m->random, PAL_SYLLABLES * PAL_SYLLABLES * PAL_SYLLABLES * PAL_SYLLABLES),
            SYLLABLES);
        memcpy(out->text, text.data, out->size = text.size);
        return PAL_OK;
    }
    const uint32_t i = m->sources->pairs[pal_mersenne_below(&m->random, (uint32_t)m->sources->pair_count)];
    const pal_slice a = pal_strings_at(adjectives, i / nouns->count), n = pal_strings_at(nouns, i % nouns->count);
    out->size = a.size + 1 + n.size;
    if (out->size >= KEY)
        return pal_fail(err, PAL_E_FORMAT, "the words '%.*s' and '%.*s' are too long for a key", (int)a.size,
                        (const char *)a.data, (int)n.size, (const char *)n.data);
    memcpy(out->text, a.data, a.size);
    out->text[a.size] = '-';
    memcpy(out->text + a.size + 1, n.data, n.size);
    return PAL_OK;
}

static void draw_value(pal_ruler_maker *m, word *out) {
    if (m->task->uuid_value) draw_uuid(&m->random, out);
    else out->size = (size_t)snprintf(out->text, KEY, "%" PRIu32, 1000000 + pal_mersenne_below(&m->random, 9000000));
}

static const char *type_of(const pal_ruler_maker *m) { return m->task->uuid_value ? "uuid" : "number"; }

static pal_status tell(pal_ruler_maker *m, pal_bytes *out, const word *key, const word *value, pal_error *err) {
    return pal_ruler_fill(
        out, m->templates->needle,
        (const pal_fill[]){
            { "type", pal_slice_text(type_of(m)) }, { "key", slice_of(key) }, { "value", slice_of(value) }, { NULL } },
        err);
}

typedef struct {
    word keys[MOST], values[MOST]; /* values of a key stand together */
    uint32_t order[MOST];          /* of the needles */
    int count;
} needles;

static pal_status add_needle(pal_ruler_maker *m, const needles *n, int i, pal_error *err) {
    const uint32_t which = n->order[i];
    return tell(m, &m->text, &n->keys[(int)which / m->task->values], &n->values[which], err);
}

/* Lines of noise or of other needles, ours before lines drawn at random. */
static pal_status fill_lines(pal_ruler_maker *m, const needles *n, size_t lines, pal_error *err) {
    uint32_t place[MOST];
    size_t *end = NULL; /* of each line in m->line */
    const bool distract = m->task->haystack == PAL_RULER_NEEDLES;
    pal_status st = PAL_OK;
    m->line.size = 0;
    if (distract) st = pal_alloc_named((void **)&end, lines + 1, sizeof *end, "lines of a haystack", err);
    for (size_t i = 0; i < lines && distract && !st; i++) {
        word key, value;
        if ((st = draw_key(m, &key, err))) break;
        draw_value(m, &value);
        st = tell(m, &m->line, &key, &value, err);
        end[i + 1] = m->line.size;
    }
    if (!st) st = pal_ruler_places(m, lines, n->count, place, err);
    for (size_t i = 0, next = 0; i < lines && !st; i++) {
        if (next < (size_t)n->count && place[next] == i) { /* the first needle goes to the last place */
            st = add_needle(m, n, n->count - 1 - (int)next++, err);
            if (!st) st = pal_bytes_append(&m->text, "\n", 1, err);
        }
        const char *noise = m->templates->noise;
        if (!st)
            st = distract ? pal_bytes_append(&m->text, m->line.data + end[i], end[i + 1] - end[i], err)
                          : pal_bytes_append(&m->text, noise, strlen(noise), err);
        if (!st && i + 1 < lines) st = pal_bytes_append(&m->text, "\n", 1, err);
    }
    pal_free(end);
    return st;
}

/* Sentences of the first `words` words; the text begins again after its end. */
static size_t sentences_of(const pal_ruler_sources *s, size_t words) {
    const size_t rest = words % s->words, end = rest ? s->word_end[rest - 1] : 0;
    size_t low = 0, high = s->sentences; /* sentences that begin before the end */
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (s->sentence[middle][0] < end) low = middle + 1;
        else high = middle;
    }
    return words / s->words * s->sentences + low;
}

static pal_status fill_essay(pal_ruler_maker *m, const needles *n, size_t words, pal_error *err) {
    const pal_ruler_sources *s = m->sources;
    const size_t count = sentences_of(s, words), rest = words % s->words,
                 last_end = rest ? s->word_end[rest - 1] : s->text.size;
    uint32_t place[MOST];
    size_t next = 0;
    pal_status st = pal_ruler_places(m, DEPTHS, n->count, place, err);
    for (int i = 0; i < n->count; i++) {
        const uint32_t depth = (2 * 100 * place[i] + DEPTHS - 1) / (2 * (DEPTHS - 1)); /* rounded; no half occurs */
        place[i] = (uint32_t)((double)count * (depth / 100.0));
    }
    for (int i = 0; i <= n->count && !st; i++) {
        const size_t until = i < n->count ? place[i] : count;
        if (i) st = pal_bytes_append(&m->text, " ", 1, err);
        for (bool first = true; next < until && !st; next++, first = false) {
            const size_t *cut = s->sentence[next % s->sentences],
                         end = next + 1 == count && cut[1] > last_end ? last_end : cut[1];
            if (!first) st = pal_bytes_append(&m->text, " ", 1, err);
            if (!st) st = pal_bytes_append(&m->text, s->text.data + cut[0], end - cut[0], err);
        }
        if (i == n->count || st) break;
        st = pal_bytes_append(&m->text, " ", 1, err);
        if (!st) st = add_needle(m, n, i, err);
    }
    return st;
}

/* "a", or "a, b, and c" */
static pal_status list_keys(pal_bytes *out, const needles *n, const uint32_t *asked, int count, pal_error *err) {
    pal_status st = PAL_OK;
    out->size = 0;
    for (int i = 0; i < count && !st; i++) {
        const char *before = !i ? "" : i + 1 < count ? ", " : ", and ";
        st = pal_bytes_append(out, before, strlen(before), err);
        if (!st) st = pal_bytes_append(out, n->keys[asked[i]].text, n->keys[asked[i]].size, err);
    }
    return st;
}

pal_status pal_ruler_draw_needles(pal_ruler_maker *m, size_t size, size_t index, pal_error *err) {
    const pal_ruler_task *t = m->task;
    needles n = { .count = t->keys * t->values };
    uint32_t asked[MOST] = { 0 };
    pal_status st = PAL_OK;
    (void)index;
    for (int k = 0; k < t->keys && !st; k++) {
        st = draw_key(m, &n.keys[k], err);
        for (int v = 0; v < t->values; v++) draw_value(m, &n.values[k * t->values + v]);
    }
    for (int i = 0; i < n.count; i++) n.order[i] = (uint32_t)i;
    pal_ruler_shuffle(m, n.order, (size_t)n.count);
    m->text.size = m->input.size = m->prefix.size = 0;
    pal_ruler_clear(&m->outputs);
    if (!st) st = t->haystack == PAL_RULER_ESSAY ? fill_essay(m, &n, size, err) : fill_lines(m, &n, size, err);
    if (!st) st = pal_mersenne_sample(&m->random, (uint32_t)t->keys, (uint32_t)t->asked, asked, err);
    if (!st) st = list_keys(&m->line, &n, asked, t->asked, err);
    for (int i = 0; i < t->asked * t->values && !st; i++) {
        const word *value = &n.values[(int)asked[i / t->values] * t->values + i % t->values];
        st = pal_strings_add(&m->outputs, value->text, value->size, err);
    }
    const bool one = t->asked * t->values == 1;
    const pal_fill values[] = { { "type", pal_slice_text(type_of(m)) },
                                { "text", pal_slice_of(&m->text) },
                                { "query", pal_slice_of(&m->line) },
                                { NULL } };
    if (!st) st = pal_ruler_fill(&m->input, one ? m->templates->one : m->templates->many, values, err);
    if (!st) st = pal_ruler_fill(&m->prefix, one ? m->templates->one_answer : m->templates->many_answer, values, err);
    return st;
}
