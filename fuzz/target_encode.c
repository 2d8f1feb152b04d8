/* SPDX-License-Identifier: MIT */
/* Any bytes through one of our small tokenizers, which the first byte chooses. Byte-level ones give every text back. */
#include "input.h"
#include "support/text.h"
#include "texts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static pal_tokenizer *tokenizers[TINY_KINDS];
    if (!size) return 0;
    const tiny_kind kind = (tiny_kind)(data[0] % TINY_KINDS);
    if (!tokenizers[kind]) tokenizers[kind] = test_tiny(kind);
    pal_bytes decoded = { 0 };
    const bool encoded = fuzz_text(tokenizers[kind], data + 1, size - 1, NULL, &decoded);
    if (kind == TINY_BYTES || kind == TINY_TRAINED) {
        FUZZ_CHECK(encoded && decoded.size == size - 1);
        FUZZ_CHECK(size == 1 || memcmp(decoded.data, data + 1, size - 1) == 0);
    }
    pal_bytes_free(&decoded);
    return 0;
}
