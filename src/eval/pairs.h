/* SPDX-License-Identifier: MIT */
/* Texts as requests for pal_score, with the conventions of lm-evaluation-harness: white space between context and
 * continuation belongs to the continuation, both are encoded together, an empty context is the prefix token, what is
 * too long loses its beginning, and a long text is cut into windows. */
#ifndef PAL_EVAL_PAIRS_H
#define PAL_EVAL_PAIRS_H

#include "palimpsa/score.h"
#include "palimpsa/tokenizer.h"

typedef struct pal_pair {
    size_t at;             /* where its ids begin in the list that it was appended to */
    size_t count, scored;  /* as in a pal_score_request */
    size_t context_tokens; /* before anything was cut */
    size_t cut;            /* tokens that were left out at the beginning */
} pal_pair;

typedef struct pal_encoder {
    const pal_tokenizer *tok;
    pal_tokenizer_scratch *scratch;
    int64_t prefix; /* BOS, else EOS; -1: there is none */
    size_t most;    /* tokens that a request may read */
    pal_bytes text; /* work memory */
    pal_ids context;
} pal_encoder;

pal_status pal_encoder_new(pal_encoder *out, const pal_tokenizer *tok, size_t most, pal_error *err);
void pal_encoder_free(pal_encoder *e);

/* Appends to ids. */
pal_status pal_encode_pair(pal_encoder *e, pal_slice context, pal_slice continuation, pal_ids *ids, pal_pair *pair,
                           pal_error *err);

/* A growing list of windows. */
typedef struct pal_pairs {
    pal_pair *data;
    size_t count, capacity;
} pal_pairs;
void pal_pairs_free(pal_pairs *pairs);
pal_status pal_pairs_add(pal_pairs *pairs, pal_pair pair, pal_error *err);

/* A whole text: every token is scored once, in windows of `most` tokens, the first after the prefix token. A text
 * without tokens gives no window. */
pal_status pal_encode_rolling(pal_encoder *e, pal_slice text, pal_ids *ids, pal_pairs *windows, pal_error *err);

#endif
