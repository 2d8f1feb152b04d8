/* SPDX-License-Identifier: MIT */
/* How well a model predicts text. Documents are read through states, so that every token is predicted from all tokens
 * before it; several documents run in one pass. A state has the same size for any document, whose ids are held next to
 * it.
 *
 * With a prefix token in front (the tokenizer's BOS, else its EOS) a document's first token is predicted too, as
 * lm-evaluation-harness does; a tokenizer that has neither leaves it out. With `context`, a document is cut into
 * windows of that many predicted tokens, each read from an empty memory after the one token before it. */
#ifndef PAL_EVAL_PERPLEXITY_H
#define PAL_EVAL_PERPLEXITY_H

#include "comm/comm.h"
#include "eval/documents.h"
#include "palimpsa/evaluate.h"

typedef struct pal_perplexity_options {
    int context;   /* 0: whole documents; attention needs one */
    int piece;     /* tokens of one pass; 0: 1024 */
    int documents; /* at a time; 0: 8 */
    bool no_prefix;
    size_t least;      /* documents of fewer tokens are passed over */
    bool by_document;  /* keep the bins of every document */
    const pal_comm *comm; /* its ranks take turns with documents and all get the whole result, which has no
                           * by_document then; NULL: one process */
    bool first_window; /* with a context: of a document only its first window */
    pal_go_on_fn
        *progress; /* after each pass, with the result so far up to date: tokens, of roughly how many; or NULL */
    void *user;
} pal_perplexity_options;

pal_status pal_perplexity_run(pal_perplexity *out, const pal_model *model, const pal_tokenizer *tok,
                              const pal_context *cx, pal_eval_data *data, const pal_perplexity_options *options,
                              pal_error *err);

#endif
