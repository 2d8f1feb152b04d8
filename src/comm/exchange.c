/* SPDX-License-Identifier: MIT */
#include "comm/exchange.h"

#include <string.h>

#include "base/alloc.h"

enum {
    WINDOW = 4,        /* buckets whose parts may be on their way to this rank at a time */
    LINE = 16,         /* floats: slices begin on cache lines */
    SMALLEST = 4096,   /* floats of a slice, for which latency does not matter yet */
    LARGEST = 1 << 18, /* floats of a slice: the pipeline stays fine-grained */
    MOST = 1 << 22     /* floats of a bucket: it bounds the memory for parts */
};

struct pal_exchange {
    const pal_comm *comm;
    size_t flat, bucket, buckets; /* floats in all and of a bucket; bucket 0 begins at float 0 */
    float *gradients;
    size_t final; /* gradients[final ...] are */
    float *parts[WINDOW];      /* (size, slice) of the bucket that is being received there */
    int arriving[WINDOW];      /* parts that are missing */
    int sending;               /* messages that are under way */
    size_t sent, asked, added; /* buckets, counted from the end of the buffer */
    pal_error failed;          /* while layers computed */
};

/* Floats of a bucket: fine enough for a pipeline of some sixteen, coarse enough for a network. */
static size_t bucket_floats(const pal_comm *c, size_t flat) {
    const size_t ranks = (size_t)c->size;
    if (ranks == 1) return flat;
    size_t slice = flat / ranks / 16;
    if (slice < SMALLEST) slice = SMALLEST;
    if (slice > LARGEST) slice = LARGEST;
    if (slice * ranks > MOST) slice = MOST / ranks;
    return (slice + LINE - 1) / LINE * LINE * ranks;
}

size_t pal_exchange_bytes(const pal_comm *c, size_t flat) {
    return c->size == 1 ? 0 : WINDOW * bucket_floats(c, flat) * sizeof(float);
}

pal_status pal_exchange_new(pal_exchange **out, const pal_comm *comm, size_t flat, pal_error *err) {
    pal_exchange *x;
    pal_status st = pal_alloc_named((void **)&x, 1, sizeof *x, "the exchange of gradients", err);
    *out = NULL;
    if (st) return st;
    x->comm = comm;
    x->flat = flat;
    x->bucket = bucket_floats(comm, flat);
    x->buckets = (flat + x->bucket - 1) / x->bucket;
    for (int i = 0; comm->size > 1 && i < WINDOW && !st; i++)
        st = pal_alloc_named((void **)&x->parts[i], x->bucket, sizeof(float), "gradients of other ranks", err);
    if (st) pal_exchange_free(x);
    else *out = x;
    return st;
}

void pal_exchange_free(pal_exchange *x) {
    if (!x) return;
    for (int i = 0; i < WINDOW; i++) pal_free(x->parts[i]);
    pal_free(x);
}

const pal_comm *pal_exchange_comm(const pal_exchange *x) { return x->comm; }
size_t pal_exchange_slices(const pal_exchange *x) { return x->buckets; }

pal_flat_slice pal_exchange_slice(const pal_exchange *x, size_t index, int rank) {
    const size_t slice = x->bucket / (size_t)x->comm->size, begin = index * x->bucket + (size_t)rank * slice,
                 end = begin + slice;
    return (pal_flat_slice){ .begin = begin < x->flat ? begin : x->flat, .end = end < x->flat ? end : x->flat };
}

/* The n-th bucket to be exchanged: the last one of the buffer comes first. */
static pal_flat_slice slice_of(const pal_exchange *x, size_t n, int rank) {
    return pal_exchange_slice(x, x->buckets - 1 - n, rank);
}

static size_t bytes_of(pal_flat_slice s) { return (s.end - s.begin) * sizeof(float); }

void pal_exchange_begin(pal_exchange *x, float *gradients) {
    x->gradients = gradients;
    x->final = x->flat;
    x->sent = x->asked = x->added = 0;
    x->failed = (pal_error){ 0 };
}

static float *part_of(const pal_exchange *x, size_t n, int rank) {
    return x->parts[n % WINDOW] + (size_t)rank * (x->bucket / (size_t)x->comm->size);
}

/* Asks for the parts of the next buckets, as far as there is room. */
static pal_status ask(pal_exchange *x, pal_error *err) {
    const pal_comm *c = x->comm;
    for (; x->asked < x->buckets && x->asked < x->added + WINDOW; x->asked++) {
        const pal_flat_slice mine = slice_of(x, x->asked, c->rank);
        for (int r = 0; r < c->size; r++) {
            if (r == c->rank || !bytes_of(mine)) continue;
            const pal_status st = pal_comm_receive(c, r, PAL_COMM_GRADIENTS, part_of(x, x->asked, r), bytes_of(mine),
                                                   &x->arriving[x->asked % WINDOW], err);
            if (st) return st;
        }
    }
    return PAL_OK;
}

/* Sums the buckets whose parts are all there, and this rank's own are final. Blocks stay in the cache. */
static void add(pal_exchange *x) {
    enum { BLOCK = 1024 };
    const pal_comm *c = x->comm;
    float sum[BLOCK];
    for (; x->added < x->asked && x->added < x->sent && !x->arriving[x->added % WINDOW]; x->added++) {
        const pal_flat_slice s = slice_of(x, x->added, c->rank);
        for (size_t at = s.begin; at < s.end; at += BLOCK) {
            const size_t n = s.end - at < BLOCK ? s.end - at : BLOCK;
            for (int r = 0; r < c->size; r++) {
                const float *part = r == c->rank ? x->gradients + at : part_of(x, x->added, r) + (at - s.begin);
                if (r == 0) memcpy(sum, part, n * sizeof *sum);
                else
                    for (size_t i = 0; i < n; i++) sum[i] += part[i];
            }
            memcpy(x->gradients + at, sum, n * sizeof *sum);
        }
    }
}

/* Sends what is final, unless too much is under way: messages wait for owners that have room for their parts. */
static pal_status send_final(pal_exchange *x, pal_error *err) {
    const pal_comm *c = x->comm;
    for (; x->sent < x->buckets && (x->buckets - 1 - x->sent) * x->bucket >= x->final && x->sending < c->room;
         x->sent++)
        for (int r = 0; r < c->size; r++) {
            const pal_flat_slice s = slice_of(x, x->sent, r);
            if (r == c->rank || !bytes_of(s)) continue;
            const pal_status st = pal_comm_send(c, r, PAL_COMM_GRADIENTS, x->gradients + s.begin, bytes_of(s),
                                                &x->sending, err);
            if (st) return st;
        }
    return PAL_OK;
}

static pal_status advance(pal_exchange *x, pal_error *err) {
    pal_status st;
    if ((st = ask(x, err)) || (st = send_final(x, err)) || (st = pal_comm_progress(x->comm, err))) return st;
    add(x);
    return ask(x, err);
}

void pal_exchange_ready(pal_exchange *x, size_t from) {
    if (x->comm->size == 1 || x->failed.status) return;
    x->final = from;
    advance(x, &x->failed);
}

pal_status pal_exchange_sum(pal_exchange *x, pal_error *err) {
    pal_status st;
    if (x->comm->size == 1) return PAL_OK;
    if (x->failed.status) return pal_fail(err, x->failed.status, "%s", x->failed.text);
    x->final = 0;
    if ((st = advance(x, err))) return st;
    while (x->added < x->buckets) {
        const int *missing = x->added < x->sent ? &x->arriving[x->added % WINDOW] : &x->sending;
        if ((st = pal_comm_wait(x->comm, missing, err)) || (st = advance(x, err))) return st;
    }
    return pal_comm_wait(x->comm, &x->sending, err);
}

pal_status pal_exchange_share(pal_exchange *x, float *parameters, pal_error *err) {
    const pal_comm *c = x->comm;
    int left = 0;
    pal_status st = PAL_OK;
    if (c->size == 1) return PAL_OK;
    for (size_t i = 0; i < x->buckets && !st; i++) {
        if (left >= c->room) st = pal_comm_wait(c, &left, err);
        for (int r = 0; r < c->size && !st; r++) {
            const pal_flat_slice mine = pal_exchange_slice(x, i, c->rank), theirs = pal_exchange_slice(x, i, r);
            if (r == c->rank) continue;
            if (bytes_of(theirs))
                st = pal_comm_receive(c, r, PAL_COMM_PARAMETERS, parameters + theirs.begin, bytes_of(theirs), &left,
                                      err);
            if (!st && bytes_of(mine))
                st = pal_comm_send(c, r, PAL_COMM_PARAMETERS, parameters + mine.begin, bytes_of(mine), &left, err);
        }
    }
    return st ? st : pal_comm_wait(c, &left, err);
}
