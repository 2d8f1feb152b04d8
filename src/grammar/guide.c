/* SPDX-License-Identifier: MIT */
#include "grammar/guide.h"

#include <string.h>

#include "base/alloc.h"

enum { MASKS = 64 }; /* that are remembered */

struct pal_guide {
    const pal_grammar *g;
    const pal_spellings *spellings;
    pal_machine *m;
    int32_t *by_depth;    /* (longest + 1) places of a walk */
    uint64_t *mask;       /* (MASKS, words) */
    int32_t owner[MASKS]; /* the place whose mask it is; 0: none */
    int8_t *mask_of;      /* by place; -1: none */
    int next_mask;
    uint32_t age; /* of the machine, when that was written */
    int plain_classes;
    uint8_t plain[256]; /* a byte of each class that has plain ones */
};

void pal_guide_free(pal_guide *u) {
    if (!u) return;
    pal_machine_free(u->m);
    pal_free(u->by_depth), pal_free(u->mask), pal_free(u->mask_of);
    pal_free(u);
}

const pal_grammar *pal_guide_grammar(const pal_guide *u) { return u->g; }

static void forget(pal_guide *u) {
    memset(u->owner, 0, sizeof u->owner);
    memset(u->mask_of, -1, PAL_MACHINE_PLACES);
    u->age = pal_machine_age(u->m);
}

pal_status pal_guide_new(pal_guide **out, const pal_grammar *g, const pal_spellings *s, pal_error *err) {
    void *block;
    pal_status st = pal_alloc_named(&block, 1, sizeof(pal_guide), "a grammar's masks", err);
    *out = NULL;
    if (st) return st;
    pal_guide *u = block;
    bool known[256] = { false };
    u->g = g;
    u->spellings = s;
    st = pal_machine_new(&u->m, g, (uint32_t)s->longest, err);
    if (!st) st = pal_alloc_named((void **)&u->by_depth, s->longest + 1, sizeof *u->by_depth, "a grammar's masks", err);
    if (!st) st = pal_alloc_named((void **)&u->mask, MASKS * s->words, sizeof *u->mask, "a grammar's masks", err);
    if (!st) st = pal_alloc_named((void **)&u->mask_of, PAL_MACHINE_PLACES, 1, "a grammar's masks", err);
    if (st) {
        pal_guide_free(u);
        return st;
    }
    for (int b = 0; b < 256; b++) {
        if (!pal_byte_is_plain((unsigned char)b) || known[g->class_of[b]]) continue;
        known[g->class_of[b]] = true;
        u->plain[u->plain_classes++] = (uint8_t)b;
    }
    forget(u);
    *out = u;
    return PAL_OK;
}

void pal_guide_begin(pal_guide *u, pal_place *place) { pal_machine_hold(u->m, place); }

/* Whether every plain byte leads back to the place: 1 or 0; FULL. */
static int32_t stays(pal_guide *u, int32_t at) {
    for (int i = 0; i < u->plain_classes; i++) {
        const int32_t to = pal_machine_step(u->m, at, u->plain[i]);
        if (to == PAL_PLACE_FULL) return to;
        if (to != at) return 0;
    }
    return 1;
}

/* Sets the bits of tokens that can follow. False: the machine is full. */
static bool walk(pal_guide *u, const pal_letters *l, int32_t at, uint64_t *allowed) {
    const uint8_t *class_of = u->g->class_of;
    u->by_depth[0] = at;
    for (uint32_t i = 0; i < l->nodes;) {
        const pal_letter *k = &l->node[i];
        const int32_t from = u->by_depth[k->depth - 1];
        int32_t to = pal_machine_ways(u->m, from)[class_of[k->byte]];
        if (to == PAL_PLACE_ODD) to = pal_machine_step(u->m, from, k->byte);
        if (to == PAL_PLACE_FULL) return false;
        if (to == PAL_PLACE_DEAD) {
            i = k->end;
            continue;
        }
        u->by_depth[k->depth] = to;
        for (uint32_t t = k->first; t < k[1].first; t++) allowed[l->order[t] / 64] |= (uint64_t)1 << l->order[t] % 64;
        i++;
    }
    return true;
}

/* The mask of a near place, made if it is not remembered; NULL: the machine is full. */
static const uint64_t *mask_of(pal_guide *u, int32_t at) {
    const size_t words = u->spellings->words;
    if (u->age != pal_machine_age(u->m)) forget(u);
    if (u->mask_of[at] >= 0) return u->mask + (size_t)u->mask_of[at] * words;
    const int slot = u->next_mask;
    uint64_t *mask = u->mask + (size_t)slot * words;
    if (u->owner[slot]) u->mask_of[u->owner[slot]] = -1;
    u->owner[slot] = 0;
    const int32_t plain = stays(u, at);
    if (plain == PAL_PLACE_FULL) return NULL;
    if (plain) memcpy(mask, u->spellings->plain, words * sizeof *mask);
    else memset(mask, 0, words * sizeof *mask);
    if (!walk(u, plain ? &u->spellings->rest : &u->spellings->all, at, mask)) return NULL;
    u->mask_of[at] = (int8_t)slot;
    u->owner[slot] = at;
    u->next_mask = (slot + 1) % MASKS;
    return mask;
}

bool pal_guide_next(pal_guide *u, pal_place *place, uint64_t *allowed, bool *complete) {
    for (int tries = 0; tries < 2 && place->at >= 0; tries++) {
        const int32_t near = pal_machine_near(u->m, place->at);
        const uint64_t *mask = near > 0 ? mask_of(u, near) : NULL;
        if (mask || near == PAL_PLACE_DEAD) {
            if (mask) memcpy(allowed, mask, u->spellings->words * sizeof *mask);
            else memset(allowed, 0, u->spellings->words * sizeof *allowed);
            *complete = pal_machine_complete(u->m, place->at);
            return true;
        }
        if (!pal_machine_collect(u->m)) return false;
    }
    return false;
}

bool pal_guide_next_spelled(pal_guide *u, pal_place *place, pal_spell_fn *spell, void *user, uint64_t *allowed,
                            bool *complete) {
    const size_t ids = pal_tokenizer_size(u->spellings->tok);
    memset(allowed, 0, u->spellings->words * sizeof *allowed);
    for (uint32_t id = 0; id < ids && place->at >= 0; id++) {
        const pal_slice text = spell(user, id);
        if (!text.size) continue;
        int32_t to = pal_machine_bytes(u->m, place->at, text.data, text.size);
        if (to == PAL_PLACE_FULL && pal_machine_collect(u->m))
            to = pal_machine_bytes(u->m, place->at, text.data, text.size);
        if (to == PAL_PLACE_FULL) return false;
        if (to != PAL_PLACE_DEAD) allowed[id / 64] |= (uint64_t)1 << id % 64;
    }
    *complete = pal_machine_complete(u->m, place->at);
    return place->at >= 0;
}

bool pal_guide_accept(pal_guide *u, pal_place *place, pal_slice bytes, bool *over) {
    int32_t to = pal_machine_bytes(u->m, place->at, bytes.data, bytes.size);
    if (to == PAL_PLACE_FULL && pal_machine_collect(u->m))
        to = pal_machine_bytes(u->m, place->at, bytes.data, bytes.size);
    place->at = to;
    *over = pal_machine_over(u->m, to);
    return to > 0;
}
