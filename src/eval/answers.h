/* SPDX-License-Identifier: MIT */
/* Documents that ask for what they stated before, as `palimpsa needle` writes them: which tokens answer, and how far
 * back the answer was stated. */
#ifndef PAL_EVAL_ANSWERS_H
#define PAL_EVAL_ANSWERS_H

#include <jansson.h>

#include "palimpsa/tokenizer.h"

typedef struct pal_answers {
    uint64_t count, bytes; /* answers, and what they take of the text */
} pal_answers;

/* row: the JSON object of a document, with its `questions`; ids: the whole text's. distance[i]: 0 where token i answers
 * nothing, else the tokens from the sentence that states the number to the answer. Needs a tokenizer whose ids spell
 * the text byte for byte. */
pal_status pal_answers_find(pal_answers *out, uint32_t *distance, const json_t *row, pal_slice text,
                            const pal_tokenizer *tok, const uint32_t *ids, size_t count, pal_error *err);

#endif
