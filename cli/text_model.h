/* SPDX-License-Identifier: MIT */
/* What commands that work on text share: a model with its tokenizer, and whole texts from files. */
#ifndef PAL_CLI_TEXT_MODEL_H
#define PAL_CLI_TEXT_MODEL_H

#include "palimpsa/palimpsa.h"

/* pal_bundle_open for commands: prints a sentence and returns an exit code. */
int text_model_open(pal_bundle *out, const char *path, const char *tokenizer, const char *fallback,
                    const pal_context *cx);

/* --kv-type, of layers that attend; NULL: as it is. Prints a sentence and returns an exit code. */
int text_model_keep_as(pal_model *model, const char *type);
#define TEXT_MODEL_KV_OPTION(to)                                                                                  \
    { "kv-type", OPT_TEXT, &(to), "T", "numbers of attention's keys and values: f32 (default), f16 or q8_0" }

/* One line on stderr, before the work begins: the memory that a model, an engine with these options and this many
 * sequences will take; or, with a budget, at most that for sequences. */
int text_model_tell_memory(const pal_model *model, const pal_engine_options *options, int sequences, size_t budget,
                           const pal_context *cx);

/* A whole file, or standard input for "-"; appended. */
int text_read(const char *path, pal_bytes *text);

/* "512 bytes", "3.1 MiB" */
void text_size(char out[32], size_t bytes);

#endif
