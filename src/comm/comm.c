/* SPDX-License-Identifier: MIT */
#include "comm/comm.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { BROADCAST_PIECE = 1 << 20 /* bytes */ };

const pal_comm pal_comm_alone = { .size = 1, .timeout = INFINITY };

pal_share pal_comm_share_of(const pal_comm *c, int rank, int n) {
    const int each = n / c->size, more = n % c->size; /* the first `more` ranks have one item more */
    return (pal_share){ .first = rank * each + (rank < more ? rank : more), .count = each + (rank < more) };
}

pal_status pal_comm_send(const pal_comm *c, int to, pal_comm_kind kind, const void *data, size_t bytes, int *left,
                         pal_error *err) {
    return c->transport->send(c->self, to, kind, data, bytes, left, err);
}

pal_status pal_comm_receive(const pal_comm *c, int from, pal_comm_kind kind, void *data, size_t bytes, int *left,
                            pal_error *err) {
    return c->transport->receive(c->self, from, kind, data, bytes, left, err);
}

pal_status pal_comm_progress(const pal_comm *c, pal_error *err) {
    return c->size > 1 ? c->transport->progress(c->self, err) : PAL_OK;
}

/* Gives the processor away while nothing arrives: ranks may have to share it. A long wait is for a rank that
 * computes, and then a later look costs nothing. */
static void rest(double idle) {
    if (idle < 0.05) sched_yield();
    else nanosleep(&(struct timespec){ .tv_nsec = 200 * 1000 }, NULL);
}

/* Ranks of higher number wait a little longer, so that one of them notifies the others and not all at once. */
static double limit(const pal_comm *c) { return c->timeout + 0.25 * c->rank; }

static pal_status wait_for(const pal_comm *c, const int *left, double seconds, pal_error *err) {
    double since = pal_seconds();
    for (int before = *left; *left > 0;) {
        const pal_status st = c->transport->progress(c->self, err);
        if (st) return st;
        const double idle = pal_seconds() - since;
        if (*left != before) {
            before = *left;
            since = pal_seconds();
        } else if (idle > seconds)
            return pal_fail(err, PAL_E_IO, "rank %d has been silent for %.0f s", c->transport->silent(c->self, left),
                            c->timeout);
        else rest(idle);
    }
    return PAL_OK;
}

pal_status pal_comm_wait(const pal_comm *c, const int *left, pal_error *err) {
    return wait_for(c, left, limit(c), err);
}

/* Begins and ends one message. */
static pal_status send_now(const pal_comm *c, int to, const void *data, size_t bytes, double seconds, pal_error *err) {
    int left = 0;
    const pal_status st = pal_comm_send(c, to, PAL_COMM_VALUES, data, bytes, &left, err);
    return st ? st : wait_for(c, &left, seconds, err);
}

static pal_status receive_now(const pal_comm *c, int from, void *data, size_t bytes, double seconds, pal_error *err) {
    int left = 0;
    const pal_status st = pal_comm_receive(c, from, PAL_COMM_VALUES, data, bytes, &left, err);
    return st ? st : wait_for(c, &left, seconds, err);
}

pal_status pal_comm_move(const pal_comm *c, int from, int to, void *data, size_t bytes, pal_error *err) {
    enum { PIECE = 64 << 20 }; /* a message's length is an int in MPI */
    pal_status st = PAL_OK;
    if (from == to || (c->rank != from && c->rank != to)) return PAL_OK;
    for (size_t at = 0; at < bytes && !st; at += PIECE) {
        const size_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        st = c->rank == from ? send_now(c, to, (char *)data + at, piece, limit(c), err)
                             : receive_now(c, from, (char *)data + at, piece, limit(c), err);
    }
    return st;
}

/* From rank to rank: each hands a piece on while the next one comes, so that the weights of a model reach a hundred
 * ranks hardly later than the first, and no rank waits in silence for the turn of all before it. */
static pal_status broadcast_along(const pal_comm *c, char *data, size_t bytes, pal_error *err) {
    int handing_on = 0;
    pal_status st = PAL_OK;
    for (size_t at = 0; at < bytes && !st; at += BROADCAST_PIECE) {
        const size_t piece = bytes - at < BROADCAST_PIECE ? bytes - at : BROADCAST_PIECE;
        if (handing_on >= c->room) st = wait_for(c, &handing_on, limit(c), err);
        if (!st && c->rank > 0) st = receive_now(c, c->rank - 1, data + at, piece, limit(c), err);
        if (!st && c->rank + 1 < c->size)
            st = pal_comm_send(c, c->rank + 1, PAL_COMM_VALUES, data + at, piece, &handing_on, err);
    }
    return st ? st : wait_for(c, &handing_on, limit(c), err);
}

pal_status pal_comm_broadcast(const pal_comm *c, void *data, size_t bytes, pal_error *err) {
    pal_status st = PAL_OK;
    if (c->size > 2 && bytes > BROADCAST_PIECE) return broadcast_along(c, data, bytes, err);
    for (int r = 1; r < c->size && !st; r++) st = pal_comm_move(c, 0, r, data, bytes, err);
    return st;
}

pal_status pal_comm_broadcast_text(const pal_comm *c, char **text, pal_error *err) {
    if (c->size == 1) return PAL_OK;
    size_t size = pal_comm_is_root(c) ? strlen(*text) + 1 : 0;
    pal_status st = pal_comm_broadcast(c, &size, sizeof size, err);
    if (!st && !pal_comm_is_root(c)) st = pal_alloc_named((void **)text, size, 1, "a text from rank 0", err);
    return st ? st : pal_comm_broadcast(c, *text, size, err);
}

/* The root adds up what ranks send, one after the other, and hands the sums out. */
pal_status pal_comm_sum(const pal_comm *c, double *x, size_t n, pal_error *err) {
    enum { PIECE = 64 };
    double theirs[PIECE];
    pal_status st = PAL_OK;
    if (c->size == 1) return PAL_OK;
    for (size_t at = 0; at < n && !st; at += PIECE) {
        const size_t count = n - at < PIECE ? n - at : PIECE, bytes = count * sizeof *x;
        if (!pal_comm_is_root(c)) {
            st = pal_comm_move(c, c->rank, 0, x + at, bytes, err);
            continue;
        }
        for (int r = 1; r < c->size && !st; r++) {
            st = pal_comm_move(c, r, 0, theirs, bytes, err);
            for (size_t i = 0; i < count && !st; i++) x[at + i] += theirs[i];
        }
    }
    return st ? st : pal_comm_broadcast(c, x, n * sizeof *x, err);
}

pal_status pal_comm_any(const pal_comm *c, bool mine, bool *any, pal_error *err) {
    double count = mine;
    const pal_status st = pal_comm_sum(c, &count, 1, err);
    *any = count > 0;
    return st;
}

pal_status pal_comm_agree(const pal_comm *c, const char *what, const char *text, pal_error *err) {
    const char *mine = text ? text : "";
    if (c->size == 1) return PAL_OK;
    char *first = pal_comm_is_root(c) ? pal_strdup(mine) : NULL;
    if (pal_comm_is_root(c) && !first) return pal_fail(err, PAL_E_MEMORY, "out of memory for %s", what);
    pal_status st = pal_comm_broadcast_text(c, &first, err);
    if (!st && first && strcmp(first, mine) != 0)
        st = pal_fail(err, PAL_E_ARGUMENT, "%s is %s here, and %s on rank 0", what, mine, first);
    pal_free(first);
    return st;
}

pal_status pal_comm_meet(const pal_comm *c, pal_error *err) {
    pal_status st = PAL_OK;
    char here = 0;
    for (int r = 1; r < c->size && !st; r++)
        if (pal_comm_is_root(c)) st = receive_now(c, r, &here, 1, INFINITY, err);
        else if (c->rank == r) st = send_now(c, 0, &here, 1, INFINITY, err);
    for (int r = 1; r < c->size && !st; r++)
        if (pal_comm_is_root(c)) st = send_now(c, r, &here, 1, INFINITY, err);
        else if (c->rank == r) st = receive_now(c, 0, &here, 1, INFINITY, err);
    return st;
}
