/* SPDX-License-Identifier: MIT */
#include "infer/guess.h"

#include <string.h>

enum {
    LOOKED_AT = 1 << 15, /* tokens of the text; a step looks at all of them */
    SHORTEST = 2         /* tokens that must agree; of places where most agree the newest is taken */
};

/* Of a step's time: what each token of a draft takes besides, measured with 130M parameters in Q8_0 (of larger models
 * and other types less); and the gain from which a draft is tried. */
static const double TOKEN_COST = 0.42, LEAST_GAIN = 1.04;
/* How often a guess comes true after so many tokens that agree, as long as little is known, and what that counts for;
 * what is known counts for a little less after each draft, and where none is worth its cost, so that it is tried again
 * some time. */
static const double FIRST_CHANCE[PAL_GUESS_LONGEST + 1] = { 0, 0, .4, .5, .6, .7, .8, .85, .9 };
static const double FIRST_WEIGHT = 2, KEPT = 0.9, KEPT_UNTRIED = 0.98;

pal_status pal_guess_reserve(pal_guesser *g, size_t tokens, pal_error *err) {
    const size_t most = 2 * (size_t)LOOKED_AT - g->text.count;
    return pal_ids_reserve(&g->text, tokens < most ? tokens : most, err);
}

void pal_guess_note(pal_guesser *g, uint32_t id) {
    pal_ids *text = &g->text;
    if (text->count == 2 * (size_t)LOOKED_AT) {
        memmove(text->data, text->data + LOOKED_AT, LOOKED_AT * sizeof *text->data);
        text->count = LOOKED_AT;
    }
    if (text->count < text->capacity) text->data[text->count++] = id;
}

void pal_guess_forget(pal_guesser *g) {
    const pal_ids text = { .data = g->text.data, .capacity = g->text.capacity };
    *g = (pal_guesser){ .text = text };
}

/* How many tokens before `end` are those at the end of the text. */
static int agreeing(const pal_ids *text, size_t end) {
    size_t n = 0;
    while (n < PAL_GUESS_LONGEST && n < end && text->data[end - 1 - n] == text->data[text->count - 1 - n]) n++;
    return (int)n;
}

/* Where the text's last tokens came before, as the place after them; 0: nowhere. */
static size_t find(pal_guesser *g) {
    const pal_ids *text = &g->text;
    const size_t first = text->count > LOOKED_AT ? text->count - LOOKED_AT : 0;
    size_t from = 0;
    g->agreed = SHORTEST - 1;
    for (size_t end = text->count; end > first + 1 && g->agreed < PAL_GUESS_LONGEST; end--) {
        if (text->data[end - 2] != text->data[text->count - 1]) continue;
        const int same = agreeing(text, end - 1);
        if (same > g->agreed) g->agreed = same, from = end - 1;
    }
    return from;
}

/* How many tokens gain most: with the chance p of each, 1 + p + p^2 + ... are written, at the cost of a step and of all
 * tokens of the draft. */
static int worthwhile(const pal_guesser *g, int most) {
    const int n = g->agreed;
    const double p = (g->right[n] + FIRST_WEIGHT * FIRST_CHANCE[n]) / (g->tried[n] + FIRST_WEIGHT);
    double gain = LEAST_GAIN, chance = 1, written = 1;
    int best = 0;
    for (int k = 1; k <= most; k++) {
        written += chance *= p;
        if (written / (1 + TOKEN_COST * k) > gain) gain = written / (1 + TOKEN_COST * k), best = k;
    }
    return best;
}

static void fade(pal_guesser *g, double kept) {
    g->tried[g->agreed] *= kept;
    g->right[g->agreed] *= kept;
}

int pal_guess(pal_guesser *g, int32_t *draft, int most) {
    const pal_ids *text = &g->text;
    const size_t from = most > 0 ? find(g) : 0;
    if (!from) return 0;
    const int count = worthwhile(g, most);
    if (!count) fade(g, KEPT_UNTRIED);
    for (size_t i = 0; i < (size_t)count; i++) draft[i] = (int32_t)text->data[from + i % (text->count - from)];
    return count;
}

void pal_guess_learn(pal_guesser *g, int drafted, int right) {
    fade(g, KEPT);
    g->tried[g->agreed] += right < drafted ? right + 1 : drafted;
    g->right[g->agreed] += right;
}
