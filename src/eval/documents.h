/* SPDX-License-Identifier: MIT */
/* Documents to measure a model on, as ids: from text, JSONL or shards. Each comes with the bytes and words of its
 * original text, by which perplexities of models with different vocabularies compare. */
#ifndef PAL_EVAL_DOCUMENTS_H
#define PAL_EVAL_DOCUMENTS_H

#include "data/shards.h"
#include "palimpsa/tokenizer.h"

typedef enum pal_split {
    PAL_SPLIT_NONE,    /* a plain file is one document */
    PAL_SPLIT_WIKITEXT /* a page begins at each line " = Title = " */
} pal_split;

typedef struct pal_eval_options {
    const char *field; /* of JSONL; NULL: by the file's name */
    pal_split split;   /* of a plain file */
    pal_subset subset; /* of shards */
    bool answers;      /* JSONL of `palimpsa needle`: what counts are the tokens that answer its questions */
} pal_eval_options;

typedef struct pal_eval_document {
    pal_ids ids;       /* appended to; without an EOS at the end */
    pal_ids distances; /* with options.answers, one for each id: 0, or the tokens since its fact was stated */
    uint64_t bytes,
        words; /* of the original text; words = len(re.split(r'\s+', text)). Of answers: their bytes, count */
} pal_eval_document;

typedef struct pal_eval_data pal_eval_data;
/* path: a text or JSONL file ("-": standard input), or a directory of shards, which must have been made with this
 * tokenizer. Options of another kind of data are refused. Borrows both. */
pal_status pal_eval_data_open(pal_eval_data **out, const char *path, const pal_tokenizer *tok,
                              const pal_eval_options *options, pal_error *err);
void pal_eval_data_close(pal_eval_data *data);
/* *found false at the end. Documents without a token are passed over. Errors name the file, and the line or page. */
pal_status pal_eval_data_next(pal_eval_data *data, pal_eval_document *document, bool *found, pal_error *err);
double pal_eval_data_done(const pal_eval_data *data); /* fraction that was given out; NaN: unknown */

/* The bytes of the first page: up to the second heading that is not at the start. */
size_t pal_wikitext_page(pal_slice text);

#endif
