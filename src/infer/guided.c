/* SPDX-License-Identifier: MIT */
/* Sessions whose text follows a grammar. */
#include <string.h>

#include "base/alloc.h"
#include "infer/session.h"
#include "text/strings.h"
#include "text/tokenizer.h"

static pal_status ready(pal_engine *e, pal_error *err) {
    pal_status st = PAL_OK;
    if (!e->spellings) st = pal_spellings_new(&e->spellings, e->tok, err);
    if (!st && !e->allowed)
        st = pal_alloc_named((void **)&e->allowed, PAL_TOGETHER * e->spellings->words, sizeof *e->allowed,
                             "a grammar's masks", err);
    return st;
}

pal_status pal_engine_guide(pal_engine *e, const pal_grammar *grammar, pal_shared_guide **out, pal_error *err) {
    void *block;
    pal_status st;
    *out = NULL;
    if (!grammar) return PAL_OK;
    for (pal_shared_guide *g = e->guides; g; g = g->next)
        if (pal_guide_grammar(g->guide) == grammar) {
            g->users++;
            *out = g;
            return PAL_OK;
        }
    if ((st = ready(e, err)) || (st = pal_alloc_named(&block, 1, sizeof(pal_shared_guide), "a grammar's masks", err)))
        return st;
    pal_shared_guide *made = block;
    if ((st = pal_guide_new(&made->guide, grammar, e->spellings, err))) {
        pal_free(made);
        return st;
    }
    made->users = 1;
    made->next = e->guides;
    *out = e->guides = made;
    return PAL_OK;
}

void pal_engine_unguide(pal_engine *e, pal_shared_guide *guide) {
    if (!guide || --guide->users) return;
    pal_shared_guide **at = &e->guides;
    while (*at != guide) at = &(*at)->next;
    *at = guide->next;
    pal_guide_free(guide->guide);
    pal_free(guide);
}

void pal_session_unguide(pal_session *s) {
    pal_machine_drop(&s->place);
    pal_engine_unguide(s->engine, s->guide);
    s->guide = NULL;
}

/* What a token is where it stands; `spelled` has room for the longest. */
static pal_slice spell(void *user, uint32_t id) {
    pal_session *s = user;
    const pal_tokenizer *tok = s->engine->tok;
    s->spelled.size = 0;
    const bool plain = !pal_tokenizer_is_special(tok, id) && pal_decoder_begins(s->decoder);
    (void)pal_spell(tok, id, &s->spelled, NULL);
    if (plain && s->spelled.size) {
        s->spelled.size = 0;
        (void)pal_decoder_peek(s->decoder, id, &s->spelled, NULL);
    }
    return (pal_slice){ s->spelled.data, s->spelled.size };
}

void pal_session_allow(pal_session *s, int i) {
    const pal_engine *e = s->engine;
    uint64_t *allowed = e->allowed + (size_t)i * e->spellings->words;
    bool complete = false;
    const bool known = pal_decoder_begins(s->decoder)
                           ? pal_guide_next_spelled(s->guide->guide, &s->place, spell, s, allowed, &complete)
                           : pal_guide_next(s->guide->guide, &s->place, allowed, &complete);
    if (!known) memset(allowed, 0, e->spellings->words * sizeof *allowed);
    if (!known || !complete) return;
    for (uint32_t id = 0; id < (uint32_t)e->vocab && !s->options.ignore_eos; id++)
        if (pal_tokenizer_is_end(e->tok, id)) allowed[id / 64] |= (uint64_t)1 << id % 64;
    for (size_t k = 0; k < s->stops.count; k++) {
        const int64_t id = s->stops.list[k].id;
        if (id >= 0) allowed[id / 64] |= (uint64_t)1 << id % 64;
    }
}

bool pal_session_accept(pal_session *s, uint32_t id, bool *over) {
    return pal_guide_accept(s->guide->guide, &s->place, spell(s, id), over);
}
