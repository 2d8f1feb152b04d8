/* SPDX-License-Identifier: MIT */
/* A model with its tokenizer, opened together. */
#ifndef PALIMPSA_BUNDLE_H
#define PALIMPSA_BUNDLE_H

#include "palimpsa/model.h"
#include "palimpsa/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pal_bundle {
    pal_model *model;
    pal_tokenizer *tokenizer;
    pal_tokenizer_scratch *scratch; /* for one thread */
} pal_bundle;

/* The model at path (as pal_model_open, for inference), with `tokenizer` (as pal_tokenizer_open) or, when that is NULL,
 * the one whose files are next to the model, or else in `fallback` (NULL: nowhere else). Either may be "ids": then the
 * text of an id is its number, for models whose ids stand for nothing that people write. Refuses a tokenizer with more
 * ids than the model's vocabulary and warns of one with far fewer. Without a context the weights are not read: for a
 * look before the work. */
PAL_API pal_status pal_bundle_open(pal_bundle *out, const char *path, const char *tokenizer, const char *fallback,
                                   const pal_context *cx, pal_error *err);
PAL_API void pal_bundle_close(pal_bundle *m); /* fine on zeroes */

#ifdef __cplusplus
}
#endif
#endif
