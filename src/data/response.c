/* SPDX-License-Identifier: MIT */
#include "data/response.h"

#include <string.h>

/* The text of tokens, until it has `enough` bytes; *used: how many that took. */
static pal_status decode(const pal_tokenizer *tok, const uint32_t *ids, size_t count, size_t enough, pal_bytes *text,
                         size_t *used, pal_error *err) {
    pal_decoder *decoder;
    pal_status st = pal_decoder_new(&decoder, tok, false, err);
    if (st) return st;
    for (*used = 0; *used < count && text->size < enough && !st; ++*used)
        st = pal_decoder_push(decoder, ids[*used], text, err);
    pal_decoder_free(decoder);
    return st;
}

pal_status pal_response_token(const pal_tokenizer *tok, pal_tokenizer_scratch *scratch, pal_slice text, size_t behind,
                              const uint32_t *ids, size_t count, size_t *first, pal_error *err) {
    pal_ids before = { 0 };
    pal_bytes alone = { 0 }, together = { 0 };
    size_t used;
    pal_status st = pal_tokenizer_encode(tok, scratch, text.data, behind, NULL, &before, err);
    if (!st) st = decode(tok, before.data, before.count, SIZE_MAX, &alone, &used, err);
    if (!st) st = decode(tok, ids, count, alone.size, &together, first, err);
    if (!st && (together.size < alone.size || (alone.size && memcmp(together.data, alone.data, alone.size) != 0)))
        st = pal_fail(err, PAL_E_UNSUPPORTED,
                      "this tokenizer cannot separate prompt and response: what follows a prompt changes its tokens");
    pal_ids_free(&before);
    pal_bytes_free(&alone), pal_bytes_free(&together);
    return st;
}
