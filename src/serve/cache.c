/* SPDX-License-Identifier: MIT */
/* Memories of prompts that were read before: copies of states with the ids that they have read. A text begins with the
 * longest one that its prompt begins with. The least recently used go when their bytes are needed. The worker's alone.
 */
#include "serve/inside.h"

#include <string.h>

#include "base/alloc.h"
#include "text/strings.h"

enum {
    SHORTEST = 16, /* tokens that are worth a copy */
    MOST = 4096
};

struct serve_snapshot {
    serve_snapshot *next; /* more recently used ones first */
    const serve_model *model;
    pal_ids ids;
    pal_state *state; /* has read ids, nothing is pending */
    size_t bytes;
};

static void free_snapshot(serve_snapshot *e) {
    pal_ids_free(&e->ids);
    pal_state_free(e->state);
    pal_free(e);
}

/* Takes the least recently used one out; NULL: there is none. */
static serve_snapshot *take_oldest(serve_cache *c) {
    serve_snapshot **at = &c->list;
    if (!*at) return NULL;
    while ((*at)->next) at = &(*at)->next;
    serve_snapshot *e = *at;
    *at = NULL;
    c->bytes -= e->bytes;
    c->count--;
    return e;
}

void serve_cache_shrink(serve_cache *c, size_t most) {
    while (c->bytes > most) free_snapshot(take_oldest(c));
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

const pal_state *serve_cache_find(serve_cache *c, const serve_model *model, const uint32_t *ids, size_t count) {
    serve_snapshot **best = NULL;
    for (serve_snapshot **at = &c->list; *at; at = &(*at)->next)
        if ((*at)->model == model && (*at)->ids.count < count && (!best || (*at)->ids.count > (*best)->ids.count) &&
            begins_with(ids, count, &(*at)->ids))
            best = at;
    if (!best) return NULL;
    return use(c, best)->state;
}

/* A snapshot to fill: one that makes room, if it is of the same model, or a new one. Its ids go: a long list that holds
 * a short one would take more than is counted. */
static serve_snapshot *make_room(serve_cache *c, const serve_model *model, size_t bytes, size_t most) {
    serve_snapshot *reused = NULL;
    while (c->bytes + bytes > most || c->count >= MOST) {
        serve_snapshot *e = take_oldest(c);
        if (!e) break;
        if (e->model != model || reused) free_snapshot(e);
        else reused = e;
    }
    if (reused) pal_ids_free(&reused->ids);
    if (reused) return reused;
    serve_snapshot *e = pal_alloc(1, sizeof *e);
    if (e && !pal_state_new(&e->state, model->bundle.model, model->context ? model->context : 1, NULL)) return e;
    pal_free(e);
    return NULL;
}

void serve_cache_put(serve_cache *c, const serve_model *model, const uint32_t *ids, size_t count,
                     const pal_state *state, size_t most) {
    const size_t bytes = model->session_bytes + count * sizeof *ids;
    if (count < SHORTEST || bytes > most) return;
    for (serve_snapshot **at = &c->list; *at; at = &(*at)->next)
        if ((*at)->model == model && (*at)->ids.count == count && begins_with(ids, count, &(*at)->ids)) {
            use(c, at);
            return;
        }
    serve_snapshot *e = make_room(c, model, bytes, most);
    if (!e) return; /* no memory: then it is read again */
    e->model = model;
    e->bytes = bytes;
    if (pal_ids_reserve(&e->ids, count, NULL) || pal_state_copy(e->state, state, NULL)) {
        free_snapshot(e);
        return;
    }
    (void)pal_state_set_pending(e->state, -1, NULL);
    memcpy(e->ids.data, ids, count * sizeof *ids);
    e->ids.count = count;
    e->next = c->list;
    c->list = e;
    c->bytes += bytes;
    c->count++;
}
