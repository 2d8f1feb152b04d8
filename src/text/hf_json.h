/* SPDX-License-Identifier: MIT */
/* The parts of a tokenizer.json around its model, for hf_json.c. */
#ifndef PAL_TEXT_HF_JSON_H
#define PAL_TEXT_HF_JSON_H

#include <jansson.h>

#include "text/tokenizer.h"

pal_status pal_hf_normalizer(pal_tokenizer *tok, const char *name, const json_t *node, pal_error *err);
pal_status pal_hf_pre_tokenizer(pal_tokenizer *tok, const char *name, const json_t *node, pal_error *err);
/* Fills the texts of all names. */
pal_status pal_hf_decoder(pal_tokenizer *tok, const char *name, const json_t *node, pal_error *err);
pal_status pal_hf_post_processor(pal_tokenizer *tok, const char *name, const json_t *node, pal_error *err);

/* Fills the list of added tokens from what tokenizer.json calls added_tokens; NULL: none. */
pal_status pal_hf_added(pal_tokenizer *tok, const json_t *added, pal_error *err);

/* "the WHAT 'type' is not supported" */
pal_status pal_hf_unsupported(const char *name, const char *what, const json_t *node, pal_error *err);
enum { PAL_NESTING_MAX = 16 }; /* of sequences within sequences */

static inline pal_slice pal_json_slice(const json_t *string) {
    return (pal_slice){ (const unsigned char *)json_string_value(string), json_string_length(string) };
}
/* The "type" of a part, "" when it has none. */
static inline const char *pal_json_type(const json_t *node) {
    const char *type = json_string_value(json_object_get(node, "type"));
    return type ? type : "";
}

/* Adds a step; fails when there are too many. */
pal_split_step *pal_split_add(pal_tokenizer *tok, pal_split_kind kind);
extern const char pal_gpt2_pattern[];
/* Sets a pattern step; GPT-2's own is matched by hand. */
pal_status pal_split_pattern_add(pal_tokenizer *tok, const char *name, pal_slice source, pal_split_behaviour behaviour,
                                 bool invert, pal_error *err);

#endif
