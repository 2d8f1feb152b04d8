/* SPDX-License-Identifier: MIT */
/* Keys and values in pages of 64 tokens, which sequences share: what attention reads and appends to in place of one
 * block of floats. A page holds all layers of a model; model/pages.h counts its users. */
#ifndef PAL_MEMORY_ATTENTION_PAGED_H
#define PAL_MEMORY_ATTENTION_PAGED_H

#include <stdatomic.h>
#include <stdint.h>

#include "palimpsa/matrix.h"

enum { PAL_PAGE_TOKENS = 64 };

typedef struct pal_page {
    atomic_int users;              /* sequences that hold it; one with several is only read */
    uint64_t file, place; /* where it was written, for who writes: a number that is not 0, and which page there */
    _Alignas(64) unsigned char data[]; /* of each layer keys (key_heads, 64, dk), then values (key_heads, 64, dv) */
} pal_page;

/* One layer's keys and values in the pages of a sequence. */
typedef struct pal_paged {
    pal_page *const *pages; /* page p holds tokens 64 p .. 64 p + 63 */
    size_t at;              /* bytes of a page where the layer begins */
    pal_dtype type;         /* of its numbers: F32, F16 or Q8_0 */
} pal_paged;

#endif
