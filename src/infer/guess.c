/* SPDX-License-Identifier: MIT */
#include "infer/guess.h"

#include <string.h>

enum {
    LOOKED_AT = 1 << 15, /* tokens of the text; a step looks at all of them */
    LONGEST = 8,  /* tokens that are compared; the place where most of them agree is taken, the newest of equals */
    SHORTEST = 2, /* that must agree */
    FIRST_DRAFT = 3,
    LONGEST_PAUSE = 64 /* so that guesses in vain take next to nothing */
};

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
    g->text.count = 0;
    g->length = FIRST_DRAFT;
    g->pause = g->waited = 0;
}

/* How many tokens before `end` are those at the end of the text. */
static size_t agreeing(const pal_ids *text, size_t end) {
    size_t n = 0;
    while (n < LONGEST && n < end && text->data[end - 1 - n] == text->data[text->count - 1 - n]) n++;
    return n;
}

int pal_guess(pal_guesser *g, int32_t *draft, int most) {
    const pal_ids *text = &g->text;
    const size_t first = text->count > LOOKED_AT ? text->count - LOOKED_AT : 0;
    size_t best = SHORTEST - 1, from = 0;
    int n = 0;
    if (g->waited < g->pause) {
        g->waited++;
        return 0;
    }
    if (g->length < most) most = g->length;
    if (most < 1 || !text->count) return 0;
    const uint32_t last = text->data[text->count - 1];
    for (size_t end = text->count - 1; end > first && best < LONGEST; end--) {
        if (text->data[end - 1] != last) continue;
        const size_t same = agreeing(text, end);
        if (same > best) best = same, from = end;
    }
    for (; from && n < most; n++) draft[n] = (int32_t)text->data[from + (size_t)n % (text->count - from)];
    return n;
}

void pal_guess_learn(pal_guesser *g, int drafted, int right) {
    g->waited = 0;
    if (right) g->pause = 0;
    else g->pause = g->pause ? 2 * g->pause : 2;
    if (g->pause > LONGEST_PAUSE) g->pause = LONGEST_PAUSE;
    if (right == drafted) g->length = 2 * drafted + 1;
    else g->length = right ? right + 1 : 1;
}
