/* SPDX-License-Identifier: MIT */
/* Memories of prompts that were read before, in RAM (cache.c) and in files (keep.c). */
#ifndef PAL_SERVE_CACHE_H
#define PAL_SERVE_CACHE_H

#include "palimpsa/session.h"
#include "palimpsa/tokenizer.h"

typedef struct pal_server pal_server;
typedef struct serve_model serve_model;
typedef struct serve_keep serve_keep;

/* A state that has read ids, and nothing is pending; or that of a saved memory's file, with what the file has besides.
 * Its pages of keys and values are other states' too. */
typedef struct serve_snapshot {
    struct serve_snapshot *next; /* in the cache; more recently used ones first */
    const serve_model *model;
    pal_ids ids;
    uint64_t version; /* of a saved memory's file; 0: not of one */
    pal_bytes record;
    pal_state *state;
    size_t bytes;                 /* without pages */
    bool cached, queued, written; /* by keep.c: waits to be written, or has been; with its lock */
    struct serve_snapshot *next_queued;
} serve_snapshot;

typedef struct serve_cache {
    serve_snapshot *list;
    size_t bytes, count; /* bytes: without pages, which the models count */
    serve_keep *keep;    /* NULL: files are not asked for */
} serve_cache;

/* cache.c. The worker's. */
/* The state that has read the most of these ids, but not all; NULL: none. Valid until the cache changes. */
const pal_state *serve_cache_find(pal_server *s, const serve_model *model, const uint32_t *ids, size_t count);
/* Keeps a copy of a state that has read these ids, as far as the budget has room; file: in a file, too, when files are
 * asked for. */
void serve_cache_put(pal_server *s, const serve_model *model, const uint32_t *ids, size_t count, const pal_state *state,
                     bool file);
/* The same of saved memories. */
const serve_snapshot *serve_cache_find_saved(pal_server *s, const serve_model *model, uint64_t version);
void serve_cache_put_saved(pal_server *s, const serve_model *model, uint64_t version, const pal_session *session);
/* Drops what was not used for longest until the budget has room for `more` bytes; false: it never has. */
bool serve_cache_shrink(pal_server *s, size_t more);
void serve_cache_empty(serve_cache *cache);
void serve_snapshot_free(serve_snapshot *snapshot);

/* keep.c. Opens DIRECTORY and the thread that writes to it; close writes what waits. */
pal_status serve_keep_open(serve_keep **out, pal_server *s, const char *directory, size_t limit, pal_error *err);
void serve_keep_close(serve_keep *keep);
/* Reads the longest text of a file that these ids begin with, when it has more than `known` of them. NULL: none. */
serve_snapshot *serve_keep_find(serve_keep *keep, const serve_cache *cache, const serve_model *model,
                                const uint32_t *ids, size_t count, size_t known);
void serve_keep_write(serve_keep *keep, serve_snapshot *snapshot); /* some time later */
/* The cache has dropped it: freed now, or once it is written. */
void serve_keep_drop(serve_keep *keep, serve_snapshot *snapshot);
typedef struct serve_kept_counts {
    size_t bytes, files;   /* of files; prompts in them */
    uint64_t found, failed; /* read from files; could not be written or read */
} serve_kept_counts;
serve_kept_counts serve_keep_counted(serve_keep *keep);

#endif
