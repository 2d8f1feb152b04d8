/* SPDX-License-Identifier: MIT */
/* A safetensors file: every tensor is read. */
#include "input.h"
#include "palimpsa/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_safetensors *st;
    pal_error err;
    if (pal_safetensors_parse(&st, "input", data, size, &err)) return 0;
    for (size_t i = 0; i < pal_safetensors_count(st); i++) {
        const pal_tensor *t = pal_safetensors_at(st, i);
        FUZZ_CHECK(pal_safetensors_find(st, t->name) == t);
        FUZZ_CHECK(t->count <= 8 * size + 1);
        float *values = malloc(t->count * sizeof *values + 1);
        pal_tensor_to_f32(t, values, &err);
        free(values);
    }
    pal_safetensors_close(st);
    return 0;
}
