/* SPDX-License-Identifier: MIT */
/* Processes that work on one thing together, numbered from 0: "ranks". Rank 0, the root, is the one that prints and
 * writes files.
 *
 * What is exchanged goes over a transport; the program has one over MPI (comm/mpi.h), which is the only place that
 * calls it. A process alone needs none: every function below then returns at once, so callers need not ask.
 *
 * Sums are taken in the order of ranks: the same number of ranks gives the same bits. Every call that waits ends when
 * another rank has failed, and when one stays silent for longer than `timeout`. */
#ifndef PAL_COMM_COMM_H
#define PAL_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>

#include "palimpsa/status.h"

/* Messages of one kind between two ranks arrive in the order in which they were sent. */
typedef enum pal_comm_kind { PAL_COMM_VALUES, PAL_COMM_GRADIENTS, PAL_COMM_PARAMETERS, PAL_COMM_WORK } pal_comm_kind;

/* How bytes get from one rank to another. Sends and receives only begin; *left counts those that are not done, and
 * progress counts it down. */
typedef struct pal_transport {
    pal_status (*send)(void *self, int to, pal_comm_kind kind, const void *data, size_t bytes, int *left,
                       pal_error *err);
    pal_status (*receive)(void *self, int from, pal_comm_kind kind, void *data, size_t bytes, int *left,
                          pal_error *err);
    pal_status (*progress)(void *self, pal_error *err); /* an error: some rank has failed */
    int (*silent)(void *self, const int *left);         /* a rank that *left waits for */
} pal_transport;

typedef struct pal_comm {
    int rank, size;
    double timeout; /* seconds that a rank may stay silent */
    int room;       /* messages that this rank should have under way at most */
    const pal_transport *transport;
    void *self;
} pal_comm;

/* A single process. */
extern const pal_comm pal_comm_alone;
/* NULL stands for it where a comm is an option. */
static inline const pal_comm *pal_comm_or_alone(const pal_comm *c) { return c ? c : &pal_comm_alone; }
static inline bool pal_comm_is_root(const pal_comm *c) { return c->rank == 0; }

/* The items first .. first+count-1 of n that belong to a rank: neighbours, shared out as evenly as possible. */
typedef struct pal_share {
    int first, count;
} pal_share;
pal_share pal_comm_share_of(const pal_comm *c, int rank, int n);
static inline pal_share pal_comm_share(const pal_comm *c, int n) { return pal_comm_share_of(c, c->rank, n); }
static inline int pal_comm_largest_share(const pal_comm *c, int n) { return (n + c->size - 1) / c->size; }

/* x[i] becomes the sum over ranks, everywhere. */
pal_status pal_comm_sum(const pal_comm *c, double *x, size_t n, pal_error *err);
/* Whether a flag is set on any rank. */
pal_status pal_comm_any(const pal_comm *c, bool mine, bool *any, pal_error *err);
/* data goes from one rank to another, and stays where it is on all others. */
pal_status pal_comm_move(const pal_comm *c, int from, int to, void *data, size_t bytes, pal_error *err);
/* From the root to everybody. */
pal_status pal_comm_broadcast(const pal_comm *c, void *data, size_t bytes, pal_error *err);
/* The same for a text that ends with 0: *text is the root's, and a copy to be freed by pal_free elsewhere. */
pal_status pal_comm_broadcast_text(const pal_comm *c, char **text, pal_error *err);
/* A checksum, or any other text, is the same as the root's; NULL is one, too. PAL_E_ARGUMENT where it is not. */
pal_status pal_comm_agree(const pal_comm *c, const char *what, const char *text, pal_error *err);
/* A barrier: no rank continues before all have arrived. Work before it may take any time: there is no time limit. */
pal_status pal_comm_meet(const pal_comm *c, pal_error *err);

/* What the functions above and comm/exchange.h are made of; only for more than one rank. */
pal_status pal_comm_send(const pal_comm *c, int to, pal_comm_kind kind, const void *data, size_t bytes, int *left,
                         pal_error *err);
pal_status pal_comm_receive(const pal_comm *c, int from, pal_comm_kind kind, void *data, size_t bytes, int *left,
                            pal_error *err);
pal_status pal_comm_progress(const pal_comm *c, pal_error *err);
/* Until *left is 0. */
pal_status pal_comm_wait(const pal_comm *c, const int *left, pal_error *err);

#endif
