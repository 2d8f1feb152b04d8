/* SPDX-License-Identifier: MIT */
#include "data/needle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/random.h"
#include "text/tokenizer.h"

enum { SENTENCE = 160 };

typedef struct {
    size_t begin, size;
    uint32_t tokens;
} piece;

struct pal_haystack {
    pal_slice text;
    const pal_tokenizer *tokenizer;
    pal_tokenizer_scratch *scratch;
    pal_ids ids;
    piece *pieces;
    size_t count;
    uint64_t tokens;
};

static bool ends_piece(pal_slice text, size_t at) {
    return text.data[at] == '\n' || (text.data[at] == ' ' && at && text.data[at - 1] == '.') || at + 1 == text.size;
}

static pal_status count_tokens(pal_haystack *h, const void *text, size_t size, uint32_t *tokens, pal_error *err) {
    h->ids.count = 0;
    const pal_status st = pal_tokenizer_encode(h->tokenizer, h->scratch, text, size, NULL, &h->ids, err);
    *tokens = (uint32_t)h->ids.count;
    return st;
}

pal_status pal_haystack_new(pal_haystack **out, pal_slice text, const pal_tokenizer *tokenizer, pal_error *err) {
    pal_status st;
    void *block;
    size_t count = 0;
    *out = NULL;
    for (size_t i = 0; i < text.size; i++) count += ends_piece(text, i);
    if (!count && text.data) return pal_fail(err, PAL_E_ARGUMENT, "a haystack needs text, found none");
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_haystack), "a haystack", err))) return st;
    pal_haystack *h = block;
    h->text = text;
    h->tokenizer = tokenizer;
    st = pal_alloc_named((void **)&h->pieces, count + !count, sizeof *h->pieces, "a haystack", err);
    if (!st) st = pal_tokenizer_scratch_new(&h->scratch, tokenizer, err);
    for (size_t i = 0, begin = 0; i < text.size && !st; i++) {
        if (!ends_piece(text, i)) continue;
        piece *p = &h->pieces[h->count];
        *p = (piece){ .begin = begin, .size = i + 1 - begin };
        st = count_tokens(h, text.data + begin, p->size, &p->tokens, err);
        h->count += p->tokens > 0; /* one without tokens would fit any number of times */
        h->tokens += p->tokens;
        begin = i + 1;
    }
    if (!st && !h->tokens && text.data) st = pal_fail(err, PAL_E_ARGUMENT, "a haystack needs text, found none");
    if (st) {
        pal_haystack_free(h);
        return st;
    }
    *out = h;
    return PAL_OK;
}

void pal_haystack_free(pal_haystack *h) {
    if (!h) return;
    pal_tokenizer_scratch_free(h->scratch);
    pal_ids_free(&h->ids);
    pal_free(h->pieces);
    pal_free(h);
}

uint64_t pal_haystack_tokens(const pal_haystack *h) { return h->tokens; }

static const char consonants[] = "bdfgklmnprstvz", vowels[] = "aeiou";
enum { CONSONANTS = sizeof consonants - 1, VOWELS = sizeof vowels - 1 };

static void draw_name(char key[PAL_NEEDLE_KEY], pal_rng *rng) {
    for (int k = 0; k < 6; k += 2) {
        key[k] = consonants[pal_rng_below(rng, CONSONANTS)];
        key[k + 1] = vowels[pal_rng_below(rng, VOWELS)];
    }
    key[6] = '\0';
}

/* One of few names, which differ in their first syllable: a small vocabulary has tokens for them. */
static void draw_brief_name(char key[PAL_NEEDLE_KEY], pal_rng *rng) {
    const uint32_t i = pal_rng_below(rng, PAL_NEEDLES);
    key[0] = consonants[i % CONSONANTS];
    key[1] = vowels[i / CONSONANTS];
    key[2] = consonants[(5 * i + 3) % CONSONANTS];
    key[3] = vowels[(2 * i + 1) % VOWELS];
    key[4] = '\0';
}

/* Words that no text has, different from those before. */
static void draw_needles(pal_needle *needles, const pal_needle_options *o, pal_rng *rng) {
    for (int i = 0; i < o->needles; i++) {
        bool taken;
        do {
            (o->brief ? draw_brief_name : draw_name)(needles[i].key, rng);
            taken = false;
            for (int k = 0; k < i; k++) taken |= strcmp(needles[k].key, needles[i].key) == 0;
        } while (taken);
        needles[i].value = o->brief ? 10 + (int)pal_rng_below(rng, 90) : 1000000 + (int)pal_rng_below(rng, 9000000);
    }
}

static int tell(char out[SENTENCE], const pal_needle *n, bool brief) {
    return snprintf(out, SENTENCE, brief ? "%s %d\n" : "The secret number of %s is %d.\n", n->key, n->value);
}
/* last: nothing follows, not even a line break. */
static int ask(char out[SENTENCE], const pal_needle *n, bool brief, bool last) {
    const char *const end = last ? "" : "\n";
    if (brief) return snprintf(out, SENTENCE, "%s %d%s", n->key, n->value, end);
    return snprintf(out, SENTENCE, "What is the secret number of %s? The secret number of %s is %d.%s", n->key, n->key,
                    n->value, end);
}
static size_t behind_answer(bool brief) { return brief ? 2 : 8; } /* two digits, or seven and a full stop */

/* Which needles are asked for, in random order; the first as where there is one question alone. */
static void draw_questions(int which[PAL_NEEDLES], const pal_needle_options *o, pal_rng *rng) {
    for (int i = 0; i < o->needles; i++) which[i] = i;
    for (int i = 0; i < o->questions; i++) {
        const int j = i + (int)pal_rng_below(rng, (uint32_t)(o->needles - i)), other = which[i];
        which[i] = which[j];
        which[j] = other;
    }
}

static int by_place(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

pal_status pal_needle_make(pal_haystack *h, const pal_needle_options *o, uint64_t index, pal_bytes *text,
                           pal_needle *asked, pal_error *err) {
    pal_needle needles[PAL_NEEDLES];
    uint32_t place[PAL_NEEDLES], tokens;
    int which[PAL_NEEDLES];
    char sentence[SENTENCE];
    const size_t before = text->size;
    pal_status st;
    if (o->needles < 1 || o->needles > PAL_NEEDLES)
        return pal_fail(err, PAL_E_ARGUMENT, "%d needles: expected 1 to %d", o->needles, PAL_NEEDLES);
    if (o->questions < 1 || o->questions > o->needles)
        return pal_fail(err, PAL_E_ARGUMENT, "%d questions: expected 1 to the number of needles, %d", o->questions,
                        o->needles);
    pal_rng rng = pal_rng_at(o->seed, index);
    draw_needles(needles, o, &rng);
    draw_questions(which, o, &rng);
    int64_t room = o->tokens;
    for (int i = 0; i < o->needles + o->questions; i++) {
        const int q = i - o->needles;
        const int size = q < 0 ? tell(sentence, &needles[i], o->brief)
                               : ask(sentence, &needles[which[q]], o->brief, q + 1 == o->questions);
        if ((st = count_tokens(h, sentence, (size_t)size, &tokens, err))) return st;
        room -= tokens;
    }
    const size_t first = (size_t)(pal_rng_uniform(&rng) * (double)h->count);
    uint32_t pieces = 0;
    while (h->count && pieces < UINT32_MAX && room >= h->pieces[(first + pieces) % h->count].tokens)
        room -= h->pieces[(first + pieces++) % h->count].tokens;
    if (h->count ? !pieces : room < 0)
        return pal_fail(err, PAL_E_ARGUMENT, "documents of %d tokens: %d needles and %d question%s leave no room%s",
                        o->tokens, o->needles, o->questions, o->questions == 1 ? "" : "s",
                        h->count ? " for a piece of the text" : ", they need more themselves");
    for (int i = 0; i < o->needles; i++) place[i] = pal_rng_below(&rng, pieces + 1);
    qsort(place, (size_t)o->needles, sizeof *place, by_place);
    int next = 0;
    st = PAL_OK;
    for (uint32_t p = 0; p <= pieces && !st; p++) {
        for (; next < o->needles && place[next] == p && !st; next++) {
            needles[next].depth = text->size - before;
            st = pal_bytes_append(text, sentence, (size_t)tell(sentence, &needles[next], o->brief), err);
        }
        if (p == pieces || st) break;
        const piece *straw = &h->pieces[(first + p) % h->count];
        st = pal_bytes_append(text, h->text.data + straw->begin, straw->size, err);
    }
    for (int q = 0; q < o->questions && !st; q++) {
        const bool last = q + 1 == o->questions;
        asked[q] = needles[which[q]];
        st = pal_bytes_append(text, sentence, (size_t)ask(sentence, &asked[q], o->brief, last), err);
        asked[q].answer = text->size - before - behind_answer(o->brief) - !last;
    }
    if (st) text->size = before;
    return st;
}
