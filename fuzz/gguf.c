/* SPDX-License-Identifier: MIT */
#include "gguf.h"

#include "format/source.h"
#include "input.h"
#include "texts.h"

void fuzz_gguf(const void *data, size_t size) {
    pal_source source = { 0 };
    pal_tokenizer *tok;
    pal_error err;
    const char *path = fuzz_file("model.gguf", data, size);
    const bool opens = pal_source_open(&source, path, &err) == PAL_OK;
    for (size_t i = 0; i < source.count; i++) {
        const pal_tensor *t = &source.tensors[i];
        FUZZ_CHECK(t->count <= 2 * size); /* no type has less than four bits a value */
        float *values = malloc(t->count * sizeof *values + 1);
        pal_source_read(&source, t, 0, t->count, values, &err);
        free(values);
    }
    pal_source_close(&source);
    if (opens) fuzz_run_model(path);
    if (pal_tokenizer_open(&tok, path, &err)) return;
    fuzz_texts(tok);
    pal_tokenizer_close(tok);
}
