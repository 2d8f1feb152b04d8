/* SPDX-License-Identifier: MIT */
/* How a model in training continues a prompt, as `palimpsa generate --temperature 1` would. */
#ifndef PAL_TRAIN_SAMPLE_H
#define PAL_TRAIN_SAMPLE_H

#include "palimpsa/model.h"
#include "palimpsa/tokenizer.h"

enum { PAL_SAMPLE_MOST = 1 << 20 }; /* tokens: a sample is for reading */

/* The ids of a prompt, of which there must be one. */
pal_status pal_sample_prompt(const pal_tokenizer *tok, const char *prompt, pal_ids *ids, pal_error *err);
/* Appends text that is fit for terminals and JSON. The same for the same weights and seed. */
pal_status pal_sample(pal_bytes *out, const pal_model *model, const pal_tokenizer *tok, const pal_context *cx,
                      const char *prompt, int64_t tokens, uint64_t seed, pal_error *err);

#endif
