/* SPDX-License-Identifier: MIT */
/* The files next to a tokenizer's: tokenizer_config.json, added_tokens.json, chat_template.jinja and others. They
 * name BOS and EOS, add tokens, end texts and hold the chat template. A tokenizer keeps these files as they are, and
 * pal_tokenizer_save writes them back. */
#ifndef PAL_TEXT_SIDE_FILES_H
#define PAL_TEXT_SIDE_FILES_H

#include <jansson.h>

#include "text/tokenizer.h"

typedef struct pal_side_files {
    json_t *config; /* tokenizer_config.json; NULL: there is none */
    json_t *added;  /* tokens that these files add, sorted by id, as tokenizer.json lists them; NULL: none */
} pal_side_files;

/* path: the tokenizer's file. The files are kept in tok, and so are the chat templates. */
pal_status pal_side_files_read(pal_side_files *out, pal_tokenizer *tok, const char *path, pal_error *err);
void pal_side_files_free(pal_side_files *beside); /* a zeroed one is fine */

/* A text begins with BOS and ends with EOS: those that tokenizer_config.json names (NULL: there is none), else special
 * tokens of a usual name. A name that no token has is none, with a warning. path: the tokenizer's, for that. */
void pal_find_bos_and_eos(pal_tokenizer *tok, const char *path, const json_t *config);

/* For SentencePiece, whose model names its own: what tokenizer_config.json says instead, and whether it puts them
 * around a text. */
pal_status pal_find_around(pal_tokenizer *tok, const char *path, const json_t *config, pal_error *err);

/* "eos_token_id" of a configuration, a number or a list: more ids that end a text. Those of ordinary tokens do not
 * count: classes of transformers write 2 into every configuration that does not say otherwise. */
pal_status pal_tokenizer_add_ends(pal_tokenizer *tok, const json_t *config, pal_error *err);
/* The same from a directory: generation_config.json, or config.json where that says nothing. */
pal_status pal_tokenizer_add_ends_of(pal_tokenizer *tok, const char *directory, pal_error *err);
pal_status pal_tokenizer_add_ends_near(pal_tokenizer *tok, const char *path, pal_error *err); /* of a file */

/* The chat templates of a directory: chat_template.jinja, or "chat_template" of tokenizer_config.json, a text or a list
 * of named templates. They replace those of tok; where there are none, tok keeps its own. */
pal_status pal_chat_templates_read(pal_tokenizer *tok, const char *directory, pal_error *err);
/* Adds one template, or replaces the one of this name. */
pal_status pal_chat_template_set(pal_tokenizer *tok, pal_slice name, pal_slice text, pal_error *err);
/* What a model's directory says, for a tokenizer that may come from elsewhere: more ends, and its chat templates where
 * the tokenizer has none. */
pal_status pal_tokenizer_add_from(pal_tokenizer *tok, const char *directory, pal_error *err);
/* After the tokens and templates are known: marks the tokens that only a template may produce. */
void pal_mark_control(pal_tokenizer *tok);

#endif
