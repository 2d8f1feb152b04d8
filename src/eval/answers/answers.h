/* SPDX-License-Identifier: MIT */
/* How a written answer compares with a reference, as the programs that published LongBench score it: 0 to 1, equal to
 * theirs in every bit. Texts are UTF-8. */
#ifndef PAL_EVAL_ANSWERS_H
#define PAL_EVAL_ANSWERS_H

#include <jansson.h>

#include "eval/python_text.h"
#include "text/strings.h"

/* Steps that all answers to a prediction may take together, about a second: of ROUGE-L word against word, of code
 * character against character, of classes name against name. Texts that need more are refused; answers of a benchmark
 * are far from it. `work` counts those that were taken. */
enum { PAL_ANSWER_WORK = 1 << 28 };
/* Bytes of a prediction that all of its answers together may go through, about half a second. */
enum { PAL_ANSWER_BYTES = 1 << 24 };

/* F1 of the two bags of words: lower case, without ASCII punctuation and English articles. */
pal_status pal_answer_f1(pal_slice prediction, pal_slice reference, double *score, pal_error *err);
/* The same of Chinese texts that are cut into words already: lower case, without ASCII and Chinese punctuation. */
pal_status pal_answer_f1_zh(const pal_strings *prediction, const pal_strings *reference, double *score, pal_error *err);

/* ROUGE-L (F) of whole summaries: full stops end sentences, and distinct words count. The original walks back through a
 * table by recursion; where that takes more than `steps`, Python gives up and the score is 0. */
enum { PAL_ROUGE_STEPS = 990, PAL_ROUGE_STEPS_ZH = 989 };
pal_status pal_answer_rouge(pal_slice prediction, pal_slice reference, size_t steps, size_t *work, double *score,
                            pal_error *err);

/* One over the number of classes that the prediction names, if the right one is among them. Names inside the right name
 * do not count, except where the original forgets to look. */
pal_status pal_answer_class(pal_slice prediction, pal_slice reference, const json_t *classes, double *score,
                            pal_error *err);
/* The share of numbers in the prediction that are the reference, ... */
pal_status pal_answer_count(pal_slice prediction, pal_slice reference, double *score, pal_error *err);
/* ... or the first number after `word` in the reference, such as 7 in "Paragraph 7". */
pal_status pal_answer_place(pal_slice prediction, pal_slice reference, const char *word, double *score, pal_error *err);

/* How alike the first line of code in the prediction and the reference are, in steps of 0.01, by difflib's matching
 * blocks. */
pal_status pal_answer_code(pal_slice prediction, pal_slice reference, size_t *work, double *score, pal_error *err);

/* The first line after leading line breaks: all that counts of answers to examples in a row. */
pal_slice pal_answer_first_line(pal_slice prediction);

#endif
