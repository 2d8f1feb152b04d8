/* SPDX-License-Identifier: MIT */
/* Added tokens: found in the text before anything else happens to it, the longest one at the leftmost place, with the
 * options single_word, lstrip and rstrip as the package `tokenizers` means them, down to what it does when a stripped
 * blank is a token itself. */
#include "text/side_files.h"
#include "text/utf8.h"

static pal_status set_add(pal_added_set *set, pal_slice text, uint32_t index, pal_error *err) {
    set->first[text.data[0]] = true;
    if (text.size > 1) set->second[text.data[1]] = true;
    else memset(set->second, true, sizeof set->second);
    return pal_trie_add(&set->trie, text.data, text.size, index, err);
}

pal_status pal_added_finish(pal_tokenizer *tok, const char *name, pal_error *err) {
    pal_tokenizer_scratch s = { .growth = pal_growth_of(tok->names.bytes.size, PAL_TOKENS_GROW, name) };
    pal_status st = PAL_OK;
    /* Special tokens come first, so that of two equal spellings the later, ordinary one counts; the trie keeps the
     * last. */
    for (int special = 1; special >= 0; special--)
        for (size_t i = 0; i < tok->added_count && !st; i++) {
            const pal_added_token *token = &tok->added[i];
            pal_slice text = pal_strings_at(&tok->names, token->id);
            if (token->special != (special == 1)) continue;
            if (token->normalized && (st = pal_normalize(tok, &s, text, &text, err))) break;
            if (text.size == 0) {
                st = pal_fail(err, PAL_E_UNSUPPORTED,
                              "%s: nothing is left of the added token '%s' when it is normalised", name,
                              pal_show(pal_strings_at(&tok->names, token->id)).text);
                break;
            }
            if (text.size > PAL_MATCHED_MAX) {
                st = pal_fail(err, PAL_E_UNSUPPORTED, "%s: the added token '%s' has %zu bytes; at most %d are accepted",
                              name, pal_show(text).text, text.size, PAL_MATCHED_MAX);
                break;
            }
            st = set_add(token->normalized ? &tok->added_normal : &tok->added_raw, text, (uint32_t)i, err);
        }
    pal_normal_scratch_free(&s);
    pal_mark_control(tok);
    return st;
}

/* \w of the package's regular expressions: Alphabetic, marks, decimal digits, connectors, joiners. Alphabetic is taken
 * as letters and letter numbers, and the symbols that Unicode calls Other_Alphabetic. */
static bool is_word(uint32_t c) {
    const int category = (int)utf8proc_category((utf8proc_int32_t)c);
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true; /* letters, marks, Nd, Nl */
    if (category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D) return true;
    return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
           (c >= 0x1F170 && c <= 0x1F189);
}

/* The character that ends at `end`: its start and code point; false: none, or not UTF-8. */
static bool before(pal_slice text, size_t end, size_t *start, uint32_t *code) {
    for (size_t length = 1; length <= 4 && length <= end; length++)
        if (pal_utf8_read(text.data + end - length, length, code) == length) {
            *start = end - length;
            return true;
        }
    return false;
}

static bool stands_alone(pal_slice text, size_t start, size_t end) {
    uint32_t code;
    size_t at;
    if (before(text, start, &at, &code) && is_word(code)) return false;
    return end == text.size || !pal_utf8_read(text.data + end, text.size - end, &code) || !is_word(code);
}

/* Not beyond `from`, where what is done ends. */
static size_t strip_left(pal_slice text, size_t start, size_t from) {
    uint32_t code;
    size_t at;
    while (start > from && before(text, start, &at, &code) && pal_is_blank(code)) start = at;
    return start > from ? start : from;
}

/* Ends before `from` are in the blanks that the token before has stripped, up to there. */
static size_t strip_right(pal_slice text, size_t end, size_t from) {
    uint32_t code;
    size_t length;
    if (end < from) return from;
    while (end < text.size && (length = pal_utf8_read(text.data + end, text.size - end, &code)) && pal_is_blank(code))
        end += length;
    return end;
}

bool pal_added_next(const pal_tokenizer *tok, const pal_added_set *set, bool special_as_text, const unsigned char *said,
                    pal_slice text, size_t *at, size_t from, pal_added_match *match) {
    if (set->trie.nodes == 0) return false;
    for (size_t i = *at; i < text.size;) {
        uint32_t index;
        size_t length;
        /* A token of one byte makes every second byte possible; at the very end there is none to look at. */
        while (i + 1 < text.size && !(set->first[text.data[i]] && set->second[text.data[i + 1]])) i++;
        if (!(length = pal_trie_longest(&set->trie, text.data + i, text.size - i, &index))) {
            i++;
            continue;
        }
        const pal_added_token *token = &tok->added[index];
        *match = (pal_added_match){ .start = i, .end = i + length, .token = token };
        const bool control = tok->flags[token->id] & PAL_TOKEN_CONTROL;
        if (control && said && memchr(said + i, 1, length)) { /* one of the template's may begin within */
            *at = ++i;
            continue;
        }
        *at = i = i + length; /* the search continues after the token, taken or not, and whatever it strips */
        if (control && special_as_text) continue;
        if (token->single_word && !stands_alone(text, match->start, match->end)) continue;
        if (token->lstrip) {
            match->start = strip_left(text, match->start, from);
            if (match->start >= match->end) continue; /* all of it is gone with the token before */
        }
        if (token->rstrip) match->end = strip_right(text, match->end, from);
        return true;
    }
    return false;
}
