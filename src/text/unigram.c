/* SPDX-License-Identifier: MIT */
/* Unigram: the segmentation with the highest sum of scores, found from left to right. Sums are
 * rounded to float at every position and run through the whole text, as in the original, because that decides
 * near-ties. */
#include "base/alloc.h"
#include "text/tokenizer.h"

/* Sums lower than this start again from zero, all together: the original keeps its floats precise this way. */
#define REBASE (-100000.0f)

typedef struct {
    float score;    /* of the best way to here */
    uint32_t start; /* of its last piece; PAL_NO_ID: no way yet */
    uint32_t id;
} ending;

static void offer(ending *at, float score, uint32_t start, uint32_t id) {
    if (at->start != PAL_NO_ID && !(score > at->score)) return;
    *at = (ending){ .score = score, .start = start, .id = id };
}

static size_t char_length(unsigned char lead) { return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

pal_status pal_unigram_encode(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_slice text, bool special_as_text,
                              pal_ids *ids, pal_error *err) {
    const int left_out = PAL_TOKEN_UNUSED | (special_as_text ? PAL_TOKEN_CONTROL : 0);
    const float unknown = tok->min_score - 10.0f; /* the original's penalty */
    const size_t first = ids->count;
    pal_status st;
    if (text.size > PAL_PRETOKEN_MAX)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "a text of %zu bytes, which unigram takes as a whole; at most %zu are accepted", text.size,
                        PAL_PRETOKEN_MAX);
    void *block = s->best;
    st = pal_grow(&block, &s->best_capacity, 0, text.size + 1, sizeof(ending), err);
    s->best = block;
    if (st) return st;
    ending *best = block;
    for (size_t i = 0; i <= text.size; i++) best[i] = (ending){ .start = PAL_NO_ID };

    size_t reach = 0; /* the last position that a way was offered to */
    for (size_t start = 0, step; start < text.size; start += step) {
        if (best[start].score < REBASE) {
            const float base = best[start].score;
            for (size_t i = start; i <= reach; i++)
                if (best[i].start != PAL_NO_ID) best[i].score -= base;
        }
        const float here = best[start].score;
        bool single = false;
        step = char_length(text.data[start]);
        if (step > text.size - start) step = text.size - start;
        pal_trie_place at = { 0 };
        for (size_t end = start; end < text.size;) {
            if (!pal_trie_step(&tok->pieces, &at, text.data[end++])) break;
            const uint32_t id = pal_trie_value(&tok->pieces, at);
            if (id == PAL_NO_ID || (tok->flags[id] & left_out)) continue;
            const size_t length = end - start;
            /* A user-defined symbol gets a bonus that makes it win. */
            const float score = tok->flags[id] & PAL_TOKEN_USER
                                    ? (float)((double)((float)length * tok->max_score) - 0.1)
                                    : tok->scores[id];
            offer(&best[end], score + here, (uint32_t)start, id);
            if (end > reach) reach = end;
            if (length == step) single = true;
        }
        if (!single) offer(&best[start + step], unknown + here, (uint32_t)start, tok->unk);
        if (start + step > reach) reach = start + step;
    }

    /* Backwards along the best way, then forwards into ids: the starts are kept in the list itself. */
    uint32_t next = PAL_NO_ID;
    for (uint32_t end = (uint32_t)text.size; end > 0;) {
        const uint32_t start = best[end].start;
        best[end].start = next;
        next = end;
        end = start;
    }
    for (uint32_t start = 0, end = next; end != PAL_NO_ID; start = end, end = best[end].start)
        if ((st = pal_spm_emit(tok, (pal_slice){ text.data + start, end - start }, best[end].id, first, ids, err)))
            return st;
    return PAL_OK;
}
