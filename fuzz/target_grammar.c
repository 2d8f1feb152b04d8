/* SPDX-License-Identifier: MIT */
/* The first byte: 0 a JSON Schema, 1 rules; then a text. What is read follows the text as far as it goes, and every
 * mask on the way agrees with the machine, token by token. */
#include "grammar/guide.h"
#include "input.h"
#include "text/tokenizer.h"

static void check_mask(pal_guide *guide, pal_place *place, pal_machine *m, int32_t at, const pal_tokenizer *tok) {
    uint64_t allowed[8] = { 0 };
    bool complete;
    if (!pal_guide_next(guide, place, allowed, &complete)) return;
    for (uint32_t id = 0; id < pal_tokenizer_size(tok); id++) {
        const pal_slice text = pal_tokenizer_text(tok, id);
        int32_t to = pal_machine_bytes(m, at, text.data, text.size);
        if (to == PAL_PLACE_FULL) return;
        if (text.size == 1 && text.data[0] != PAL_TOKEN_MARK) FUZZ_CHECK((to > 0) == (allowed[id / 64] >> id % 64 & 1));
    }
    FUZZ_CHECK(complete == pal_machine_complete(m, at));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static pal_tokenizer *tok;
    static pal_spellings *spellings;
    pal_error err;
    if (!tok) FUZZ_CHECK(!pal_tokenizer_open(&tok, "bytes", &err) && !pal_spellings_new(&spellings, tok, &err));
    if (!size) return 0;
    pal_slice rest = { data + 1, size - 1 };
    const pal_slice source = fuzz_next(&rest);
    pal_grammar *g;
    if ((data[0] & 1 ? pal_grammar_read : pal_grammar_from_schema)(&g, (const char *)source.data, source.size, &err)) {
        FUZZ_CHECK(!g && err.text[0]);
        return 0;
    }
    pal_guide *guide;
    pal_machine *m;
    pal_place place, plain;
    FUZZ_CHECK(!pal_guide_new(&guide, g, spellings, &err) && !pal_machine_new(&m, g, UINT32_MAX / 2, &err));
    pal_guide_begin(guide, &place);
    pal_machine_hold(m, &plain);
    for (size_t i = 0; i <= rest.size && i < 64 && place.at > 0 && plain.at > 0; i++) {
        bool over;
        check_mask(guide, &place, m, plain.at, tok);
        if (i == rest.size) break;
        plain.at = pal_machine_step(m, plain.at, rest.data[i]);
        (void)pal_guide_accept(guide, &place, (pal_slice){ rest.data + i, 1 }, &over);
        if (plain.at != PAL_PLACE_FULL && place.at != PAL_PLACE_FULL) FUZZ_CHECK((plain.at > 0) == (place.at > 0));
    }
    pal_machine_drop(&place);
    pal_machine_drop(&plain);
    pal_guide_free(guide);
    pal_machine_free(m);
    pal_grammar_free(g);
    return 0;
}
