/* SPDX-License-Identifier: MIT */
/* Chinese text as words, cut as the package jieba cuts in its default mode, with the dictionary and the tables of that
 * package, which its user has: the likeliest way through the words of the dictionary, and a hidden Markov model for
 * runs of characters that none of them joins. */
#ifndef PAL_EVAL_CHINESE_H
#define PAL_EVAL_CHINESE_H

#include "text/strings.h"

typedef struct pal_chinese pal_chinese;
/* directory: jieba's, with dict.txt and finalseg/prob_start.py, prob_trans.py, prob_emit.py. */
pal_status pal_chinese_open(pal_chinese **out, const char *directory, pal_error *err);
void pal_chinese_close(pal_chinese *c);
/* Appends the words of a text. */
pal_status pal_chinese_cut(const pal_chinese *c, pal_slice text, pal_strings *words, pal_error *err);

#endif
