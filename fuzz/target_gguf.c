/* SPDX-License-Identifier: MIT */
/* A GGUF file: every tensor is read, then the tokenizer in it. */
#include "format/source.h"
#include "input.h"
#include "palimpsa/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_source source = { 0 };
    pal_tokenizer *tok;
    pal_error err;
    const char *path = fuzz_file("model.gguf", data, size);
    if (pal_source_open(&source, path, &err) == PAL_OK)
        for (size_t i = 0; i < source.count; i++) {
            const pal_tensor *t = &source.tensors[i];
            FUZZ_CHECK(t->count <= 2 * size); /* no type has less than four bits a value */
            float *values = malloc(t->count * sizeof *values + 1);
            pal_source_read(&source, t, 0, t->count, values, &err);
            free(values);
        }
    pal_source_close(&source);
    if (pal_tokenizer_open(&tok, path, &err) == PAL_OK) pal_tokenizer_close(tok);
    return 0;
}
