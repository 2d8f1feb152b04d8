/* SPDX-License-Identifier: MIT */
/* What commands that work on text share: a model with its tokenizer, and whole texts from files. */
#ifndef PAL_CLI_TEXT_MODEL_H
#define PAL_CLI_TEXT_MODEL_H

#include "palimpsa/palimpsa.h"

typedef struct text_model {
    pal_model *model;
    pal_tokenizer *tokenizer;
    pal_tokenizer_scratch *scratch;
} text_model;

/* The model, with `tokenizer` or, when that is NULL, the one whose files stand beside it, or else in `fallback`. Prints
 * a sentence and returns an exit code when there is none, or when it has more ids than the model knows. Without a
 * context the weights are not read: for a look before the work. */
int text_model_open(text_model *out, const char *path, const char *tokenizer, const char *fallback,
                    const pal_context *cx);
void text_model_close(text_model *m);

/* A whole file, or standard input for "-"; appended. */
int text_read(const char *path, pal_bytes *text);

/* Bytes as a JSON text: what is not UTF-8 becomes U+FFFD. */
struct json_t;
struct json_t *text_json(const void *bytes, size_t size);

/* "512 bytes", "3.1 MiB" */
void text_size(char out[32], size_t bytes);

#endif
