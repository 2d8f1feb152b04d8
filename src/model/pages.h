/* SPDX-License-Identifier: MIT */
/* Pages of keys and values of one model (memory/attention/paged.h), counted: a page belongs to all states that have its
 * tokens in common, and goes with the last. Threads may share pages; a state is one thread's at a time. */
#ifndef PAL_MODEL_PAGES_H
#define PAL_MODEL_PAGES_H

#include "memory/attention/paged.h"
#include "palimpsa/config.h"
#include "palimpsa/status.h"

/* Of the one mixer of a layer that attends. Its keys and values are 2 key_heads strips in a page, of 64 rows each. */
typedef struct pal_cache {
    bool beside;    /* it is the second mixer */
    size_t strips;  /* keys of each head, then values */
    size_t width;   /* numbers in a row */
    size_t at, row; /* bytes: where the first strip begins in a page, and of a row */
} pal_cache;

typedef struct pal_pages {
    pal_dtype type;
    size_t bytes; /* of the data of a page */
    int layers;
    atomic_size_t count; /* pages that there are */
    pal_cache of[];      /* (layers) strips 0: the layer does not attend */
} pal_pages;

/* *out stays NULL where no layer attends. */
pal_status pal_pages_new(pal_pages **out, const pal_model_config *config, pal_error *err);
void pal_pages_free(pal_pages *pages);
/* Which type keys and values are kept in: F32, F16 or Q8_0. Not while there are pages. */
pal_status pal_pages_set_type(pal_pages *pages, pal_dtype type, pal_error *err);

pal_page *pal_page_new(pal_pages *pages); /* for one user; NULL: no memory */
void pal_page_share(pal_page *page);      /* one user more */
void pal_page_leave(pal_pages *pages, pal_page *page); /* one user fewer */

static inline size_t pal_pages_of(int64_t tokens) { return (size_t)((tokens + PAL_PAGE_TOKENS - 1) / PAL_PAGE_TOKENS); }

/* Row `token` % 64 of a strip. */
static inline unsigned char *pal_page_row(pal_page *page, const pal_cache *cache, size_t strip, int64_t token) {
    return page->data + cache->at + (strip * PAL_PAGE_TOKENS + (size_t)(token % PAL_PAGE_TOKENS)) * cache->row;
}

#endif
