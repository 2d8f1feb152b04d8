/* SPDX-License-Identifier: MIT */
/* A SentencePiece tokenizer.model; one that opens encodes and decodes a text. */
#include "input.h"
#include "texts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_tokenizer *tok;
    pal_error err;
    if (pal_tokenizer_open(&tok, fuzz_file("tokenizer.model", data, size), &err)) return 0;
    fuzz_texts(tok);
    pal_tokenizer_close(tok);
    return 0;
}
