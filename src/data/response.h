/* SPDX-License-Identifier: MIT */
/* Where the response of a prompt begins, in tokens. */
#ifndef PAL_DATA_RESPONSE_H
#define PAL_DATA_RESPONSE_H

#include "text/strings.h"

/* The first token of a text (ids, count) that begins at byte `after` of it or later; count: none. Tokens have no
 * places in the text they were made of, which a normaliser may have changed; so the text before is encoded by itself,
 * and what both decode to is compared. Fails where the two begin differently: then there is no such place. */
pal_status pal_response_token(const pal_tokenizer *tok, pal_tokenizer_scratch *scratch, pal_slice text, size_t behind,
                              const uint32_t *ids, size_t count, size_t *first, pal_error *err);

#endif
