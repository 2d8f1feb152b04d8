/* SPDX-License-Identifier: MIT */
/* Where a long text may be cut such that its parts, encoded one by one, give the ids of the whole.
 *
 * Without merges every character stands for itself: anywhere. For the pre-tokenizers of GPT-2, GPT-NeoX, Llama 3,
 * Qwen 2 and Qwen 3.5: before a blank that is followed by a letter, a digit or anything outside ASCII but white space,
 * and preceded by a character that is not a blank. There the pattern ends a pre-token in the whole text: a word, or a
 * run of white space less its last blank, which goes with the word after it; and in the part before, which ends there,
 * the same run is taken up to the end. For scripts without blanks also after a line break with no white space on either
 * side: it ends a pre-token, alone or with punctuation before it, and no pre-token begins with one that continues.
 * Where digits are split off before the pattern sees the text, or compatibility characters are taken apart (some begin
 * with a blank), white space may end at what follows: there the word must begin with a letter that stays one.
 * SentencePiece's merges never cross a blank when no piece joins the two sides (tok->words); the blank itself is left
 * out where the next part gets one in front anyway. Whatever else a tokenizer may do, the whole text is encoded at
 * once. */
#include "text/cut.h"

#include "text/gguf_pre.h"

static const char *const known_patterns[] = { pal_llama3_pattern, pal_qwen2_pattern, pal_qwen35_pattern };

static bool known(const pal_split_step *step) {
    if (step->kind == PAL_SPLIT_GPT2) return true;
    if (step->kind != PAL_SPLIT_PATTERN || !step->pattern || step->behaviour != PAL_ISOLATED || step->invert)
        return false;
    for (size_t i = 0; i < sizeof known_patterns / sizeof known_patterns[0]; i++)
        if (step->literal.size == strlen(known_patterns[i]) &&
            memcmp(step->literal.data, known_patterns[i], step->literal.size) == 0)
            return true;
    return false;
}

/* An added token must neither reach over the cut nor look at what is on its other side. */
static bool added_stay_aside(const pal_tokenizer *tok) {
    for (size_t i = 0; i < tok->added_count; i++) {
        const pal_added_token *a = &tok->added[i];
        const pal_slice name = pal_strings_at(&tok->names, a->id);
        if (a->single_word || a->lstrip || a->rstrip || name.size == 0) return false;
        /* Where one begins, the white space before it ends a segment and is taken whole; words must not begin so. */
        const unsigned char first = name.data[0];
        if (first >= 0x80 || (first >= '0' && first <= '9') || (first >= 'A' && first <= 'Z') ||
            (first >= 'a' && first <= 'z'))
            return false;
        for (size_t k = 0; k < name.size; k++)
            if (name.data[k] == '\n' || (k && name.data[k] == ' ' && name.data[k - 1] != ' ')) return false;
    }
    return true;
}

pal_cut pal_tokenizer_cut(const pal_tokenizer *tok) {
    if (tok->model != PAL_MODEL_BPE) {
        const pal_spm_rules *r = &tok->spm;
        if (tok->model != PAL_MODEL_SPM_BPE || !tok->words || r->collapse_blanks || !r->escape_blanks ||
            r->charsmap.size || !added_stay_aside(tok))
            return PAL_CUT_NEVER;
        if (tok->added_count && r->dummy_prefix && !r->prefix_once)
            return PAL_CUT_NEVER; /* " a" after one is two blanks */
        for (size_t id = 0; id < tok->size; id++)
            if (tok->flags[id] & PAL_TOKEN_USER) return PAL_CUT_NEVER;
        return r->dummy_prefix ? PAL_CUT_BLANKS : PAL_CUT_WORDS;
    }
    bool pattern = false, letters = false;
    for (size_t i = 0; i < tok->split_count; i++) {
        const pal_split_step *step = &tok->split[i];
        letters = letters || (step->kind == PAL_SPLIT_DIGITS && !pattern);
        if (step->kind == PAL_SPLIT_DIGITS) continue;
        if (!known(step)) return PAL_CUT_NEVER;
        pattern = true;
    }
    for (size_t i = 0; i < tok->normal_count; i++) {
        if (tok->normal[i].kind == PAL_PREPEND || tok->normal[i].kind == PAL_REPLACE) return PAL_CUT_NEVER;
        letters = letters || tok->normal[i].kind == PAL_NFKC || tok->normal[i].kind == PAL_NFKD;
    }
    if (tok->merges.count == 0 && tok->added_count == 0 && tok->normal_count == 0 && !tok->ignore_merges &&
        !(tok->unk != PAL_NO_ID && tok->fuse_unk))
        return PAL_CUT_CHARACTERS;
    return !pattern || !added_stay_aside(tok) ? PAL_CUT_NEVER : letters ? PAL_CUT_LETTERS : PAL_CUT_LINES;
}
