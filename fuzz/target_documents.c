/* SPDX-License-Identifier: MIT */
/* JSON lines and plain text as documents; the first byte says which, and which field is asked for. A block is small:
 * one of a megabyte would be cleared for every input. */
#include "data/text.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const fields[] = { NULL, "text", "prompt+response" };
    static const char *const names[] = { "text.txt", "text.jsonl", "pairs.jsonl" };
    if (!size) return 0;
    const int kind = data[0] % 3;
    pal_documents *documents;
    pal_slice text;
    pal_error err;
    bool found;
    if (pal_documents_open(&documents, fuzz_written(names[kind], data + 1, size - 1), fields[kind], 1 << 12, &err))
        return 0;
    while (pal_documents_next(documents, &text, &found, &err) == PAL_OK && found) FUZZ_CHECK(text.size);
    pal_documents_close(documents);
    return 0;
}
