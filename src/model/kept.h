/* SPDX-License-Identifier: MIT */
/* States with their text as files that have pages in common (docs/reference/formats.md, "Kept prompts"). One kind of
 * file holds full pages of keys and values, which are never written again; the other a state's fixed part, the ids that
 * it has read, where its full pages are, and the page that is not full. */
#ifndef PAL_MODEL_KEPT_H
#define PAL_MODEL_KEPT_H

#include "base/map.h"
#include "model/state.h"

/* Where a full page is. */
typedef struct pal_kept_place {
    uint64_t file, page; /* the number that who writes gave the file; which of its pages */
} pal_kept_place;

/* What the head of a file says, whose size fits it. */
typedef struct pal_kept_head {
    uint64_t fingerprint, text; /* of the model; of the ids, by pal_kept_hash */
    int64_t tokens;
    size_t bytes; /* of the file */
} pal_kept_head;

typedef struct pal_kept {
    pal_map map;
    pal_kept_head head;
    const uint32_t *ids;          /* (tokens) */
    const pal_kept_place *places; /* (pages) */
    size_t pages;                 /* full ones */
    const float *fixed;
    const unsigned char *rest; /* the page that is not full; NULL: none */
} pal_kept;

/* Continues the hash of a text by one id; begins with 0. */
static inline uint64_t pal_kept_hash(uint64_t hash, uint32_t id) {
    hash = (hash ^ (id + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
    return hash ^ hash >> 29;
}

/* A state without a pending token, which has read ids (its position of them). */
pal_status pal_kept_save(const pal_state *state, const uint32_t *ids, const pal_kept_place *places, const char *path,
                         pal_error *err);
/* Checks every byte against this model; without one (NULL) the head alone, and the rest may be anything. Close what was
 * opened. */
pal_status pal_kept_open(pal_kept *out, const pal_model *model, const char *path, pal_error *err);
void pal_kept_close(pal_kept *kept);
/* Into a state whose context holds it. full: its full pages, a share of each of which becomes the state's. On failure
 * the state is as it was, and the shares are still the caller's. */
pal_status pal_kept_take(pal_state *state, const pal_kept *kept, pal_page *const *full, pal_error *err);

pal_status pal_kept_save_pages(const pal_model *model, pal_page *const *pages, size_t count, const char *path,
                               pal_error *err);
typedef struct pal_kept_pages {
    pal_map map;
    size_t count;
    uint64_t bytes; /* of a page */
} pal_kept_pages;
pal_status pal_kept_open_pages(pal_kept_pages *out, const pal_model *model, const char *path, pal_error *err);
void pal_kept_close_pages(pal_kept_pages *pages);
/* A new page with the numbers of page `index` for one user. */
pal_status pal_kept_read_page(pal_page **out, const pal_kept_pages *pages, const pal_model *model, uint64_t index,
                              const char *path, pal_error *err);

#endif
