/* SPDX-License-Identifier: MIT */
/* A GGUF file, as bytes. */
#include "gguf.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_gguf(data, size);
    return 0;
}
