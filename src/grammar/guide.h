/* SPDX-License-Identifier: MIT */
/* Which tokens of a vocabulary may come next under a grammar. Texts of one grammar share a guide, each with a place in
 * it. */
#ifndef PAL_GRAMMAR_GUIDE_H
#define PAL_GRAMMAR_GUIDE_H

#include "grammar/machine.h"
#include "grammar/spellings.h"

typedef struct pal_guide pal_guide;

pal_status pal_guide_new(pal_guide **out, const pal_grammar *grammar, const pal_spellings *spellings, pal_error *err);
void pal_guide_free(pal_guide *guide); /* after its places were dropped */
const pal_grammar *pal_guide_grammar(const pal_guide *guide);
void pal_guide_begin(pal_guide *guide, pal_place *place); /* at the beginning of a text; drop it when it is done */

/* Sets the bit of each token that may come next, and *complete when the text may end here. False: the grammar has more
 * ways at once than there is room for. Neither call allocates. */
bool pal_guide_next(pal_guide *guide, pal_place *place, uint64_t *allowed, bool *complete);
/* The same bit by bit, where tokens are not what they are in the middle of a text: spell(user, id) gives the bytes. */
typedef pal_slice pal_spell_fn(void *user, uint32_t id);
bool pal_guide_next_spelled(pal_guide *guide, pal_place *place, pal_spell_fn *spell, void *user, uint64_t *allowed,
                            bool *complete);
/* Bytes became part of the text. False: they may not, or there is no room. *over: nothing can follow. */
bool pal_guide_accept(pal_guide *guide, pal_place *place, pal_slice bytes, bool *over);

#endif
