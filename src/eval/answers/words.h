/* SPDX-License-Identifier: MIT */
/* Words of two texts, numbered so that equal words have equal numbers. */
#ifndef PAL_EVAL_ANSWER_WORDS_H
#define PAL_EVAL_ANSWER_WORDS_H

#include "eval/python_text.h"
#include "text/strings.h"

typedef struct pal_word_numbers {
    uint32_t *number; /* (count) the index of the first equal word */
    bool *seen;       /* (count) for the caller, by number */
    size_t count;
} pal_word_numbers;
pal_status pal_number_words(pal_word_numbers *out, const pal_strings *words, pal_error *err);
void pal_word_numbers_free(pal_word_numbers *n);

/* str.split(): appends the words between white space. */
pal_status pal_split_words(pal_strings *words, pal_slice text, pal_error *err);

#endif
