/* SPDX-License-Identifier: MIT */
/* GPT-2's two files, vocab.json and merges.txt; a pair that opens encodes and decodes a text. */
#include "input.h"
#include "texts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_slice rest = { data, size };
    const pal_slice vocab = fuzz_next(&rest);
    pal_tokenizer *tok;
    pal_error err;
    fuzz_file("gpt2/vocab.json", vocab.data, vocab.size);
    fuzz_file("gpt2/merges.txt", rest.data, rest.size);
    if (pal_tokenizer_open(&tok, fuzz_path("gpt2"), &err)) return 0;
    fuzz_texts(tok);
    pal_tokenizer_close(tok);
    return 0;
}
