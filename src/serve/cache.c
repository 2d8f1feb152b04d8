/* SPDX-License-Identifier: MIT */
/* Memories of prompts that were read before: copies of states with the ids that they have read. A text begins with the
 * longest one that its prompt begins with. A copy takes its fixed part; pages of keys and values it has in common with
 * other states. All that the server keeps has one budget in bytes, and the least recently used go when their
 * bytes are needed. The worker's alone. */
#include "serve/cache.h"

#include <string.h>

#include "base/alloc.h"
#include "infer/session.h"
#include "serve/inside.h"
#include "text/strings.h"

enum { SHORTEST = 16 }; /* tokens that are worth a copy */

void serve_snapshot_free(serve_snapshot *e) {
    pal_ids_free(&e->ids);
    pal_bytes_free(&e->record);
    pal_state_free(e->state);
    pal_free(e);
}

/* Drops the least recently used one; false: there is none. */
static bool drop_oldest(serve_cache *c) {
    serve_snapshot **at = &c->list;
    if (!*at) return false;
    while ((*at)->next) at = &(*at)->next;
    serve_snapshot *e = *at;
    *at = NULL;
    c->bytes -= e->bytes;
    c->count--;
    if (c->keep) serve_keep_drop(c->keep, e);
    else serve_snapshot_free(e);
    return true;
}

bool serve_cache_shrink(pal_server *s, size_t more) {
    while (serve_bytes_taken(s) + more > s->options.memory_budget)
        if (!drop_oldest(&s->cache)) return false;
    return true;
}

void serve_cache_empty(serve_cache *c) {
    while (drop_oldest(c)) {}
}

static bool begins_with(const uint32_t *ids, size_t count, const pal_ids *start) {
    return start->count <= count && memcmp(ids, start->data, start->count * sizeof *ids) == 0;
}

/* The one at *at is now the most recently used. */
static serve_snapshot *use(serve_cache *c, serve_snapshot **at) {
    serve_snapshot *e = *at;
    *at = e->next;
    e->next = c->list;
    return c->list = e;
}

static void add(serve_cache *c, serve_snapshot *e) {
    e->next = c->list;
    c->list = e;
    c->bytes += e->bytes;
    c->count++;
}

const pal_state *serve_cache_find(pal_server *s, const serve_model *model, const uint32_t *ids, size_t count) {
    serve_cache *c = &s->cache;
    serve_snapshot **best = NULL;
    for (serve_snapshot **at = &c->list; *at; at = &(*at)->next)
        if ((*at)->model == model && !(*at)->version && (*at)->ids.count < count &&
            (!best || (*at)->ids.count > (*best)->ids.count) && begins_with(ids, count, &(*at)->ids))
            best = at;
    serve_snapshot *kept =
        c->keep ? serve_keep_find(c->keep, c, model, ids, count, best ? (*best)->ids.count : SHORTEST - 1) : NULL;
    if (kept) add(c, kept);
    else if (best) use(c, best);
    else return NULL;
    return c->list->state;
}

/* A copy of a state, the most recently used; NULL: the budget or RAM has no room, then it is read again. bytes: what it
 * takes besides the fixed part. */
static serve_snapshot *add_copy(pal_server *s, const serve_model *model, const pal_state *state, size_t bytes) {
    if (!serve_cache_shrink(s, model->fixed_bytes + bytes)) return NULL;
    serve_snapshot *e = pal_alloc(1, sizeof *e);
    if (!e) return NULL;
    *e = (serve_snapshot){ .model = model, .bytes = model->fixed_bytes + bytes, .cached = true };
    if (pal_state_new(&e->state, model->bundle.model, model->context ? model->context : 1, NULL) ||
        pal_state_copy(e->state, state, NULL)) {
        serve_snapshot_free(e);
        return NULL;
    }
    add(&s->cache, e);
    return e;
}

void serve_cache_put(pal_server *s, const serve_model *model, const uint32_t *ids, size_t count, const pal_state *state,
                     bool file) {
    serve_cache *c = &s->cache;
    pal_ids own = { 0 };
    if (count < SHORTEST) return;
    for (serve_snapshot **at = &c->list; *at; at = &(*at)->next)
        if ((*at)->model == model && !(*at)->version && (*at)->ids.count == count &&
            begins_with(ids, count, &(*at)->ids)) {
            serve_snapshot *e = use(c, at);
            if (file && c->keep) serve_keep_write(c->keep, e);
            return;
        }
    if (pal_ids_reserve(&own, count, NULL)) return;
    serve_snapshot *e = add_copy(s, model, state, count * sizeof *ids);
    if (!e) {
        pal_ids_free(&own);
        return;
    }
    (void)pal_state_set_pending(e->state, -1, NULL);
    memcpy(own.data, ids, count * sizeof *ids);
    own.count = count;
    e->ids = own;
    if (file && c->keep) serve_keep_write(c->keep, e);
}

const serve_snapshot *serve_cache_find_saved(pal_server *s, const serve_model *model, uint64_t version) {
    serve_cache *c = &s->cache;
    for (serve_snapshot **at = &c->list; *at; at = &(*at)->next)
        if ((*at)->model == model && (*at)->version == version) return use(c, at);
    return NULL;
}

void serve_cache_put_saved(pal_server *s, const serve_model *model, uint64_t version, const pal_session *session) {
    pal_bytes record = { 0 };
    if (!s->options.cache_distance || pal_session_record(session, &record, NULL)) return;
    serve_snapshot *e = add_copy(s, model, pal_session_state(session), record.size);
    if (e) e->version = version, e->record = record;
    else pal_bytes_free(&record);
}
