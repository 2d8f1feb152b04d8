/* SPDX-License-Identifier: MIT */
/* Whether parts of a text, encoded one by one, give the ids of the whole, and where it may be cut for that. */
#ifndef PAL_TEXT_CUT_H
#define PAL_TEXT_CUT_H

#include "palimpsa/tokenizer.h"

typedef enum pal_cut {
    PAL_CUT_NEVER,
    PAL_CUT_WORDS,     /* before a lone blank in front of a word */
    PAL_CUT_BLANKS,    /* the same, and that blank is left out of the part after it */
    PAL_CUT_LINES,     /* as words, and after a lone line break between characters that are not white */
    PAL_CUT_LETTERS,   /* as lines, but the word must begin with a letter that is not a compatibility character */
    PAL_CUT_CHARACTERS /* between any two characters */
} pal_cut;
pal_cut pal_tokenizer_cut(const pal_tokenizer *tok);

#endif
