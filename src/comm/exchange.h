/* SPDX-License-Identifier: MIT */
/* Training on several ranks, each with its own part of a batch: gradients go to their owners and are summed there,
 * owners update their slice of the parameters, and everybody gets all of them back.
 *
 * A flat buffer is cut into buckets, and each bucket into one slice a rank. Backward finishes gradients from the end of
 * the buffer to its beginning, so buckets are sent from the last to the first while the layers below still compute. A
 * slice is summed in the order of ranks once all of its parts are there. Alone there is one slice, the whole buffer,
 * and nothing to do. */
#ifndef PAL_COMM_EXCHANGE_H
#define PAL_COMM_EXCHANGE_H

#include "comm/comm.h"

typedef struct pal_flat_slice {
    size_t begin, end;
} pal_flat_slice;

typedef struct pal_exchange pal_exchange;
/* Of buffers of `flat` floats. */
pal_status pal_exchange_new(pal_exchange **out, const pal_comm *comm, size_t flat, pal_error *err);
void pal_exchange_free(pal_exchange *x);
const pal_comm *pal_exchange_comm(const pal_exchange *x);
size_t pal_exchange_bytes(const pal_comm *comm, size_t flat); /* that it takes */

/* The slices of a rank, by rising place. */
size_t pal_exchange_slices(const pal_exchange *x);
pal_flat_slice pal_exchange_slice(const pal_exchange *x, size_t index, int rank);

/* Before the backward pass that makes the gradients final. */
void pal_exchange_begin(pal_exchange *x, float *gradients);
/* gradients[from ...] are final: begins to send what is complete. Errors are reported by pal_exchange_sum. */
void pal_exchange_ready(pal_exchange *x, size_t from);
/* Afterwards the gradients in this rank's slices are the sums over ranks. */
pal_status pal_exchange_sum(pal_exchange *x, pal_error *err);
/* This rank's slices go to the others, and theirs come here. */
pal_status pal_exchange_share(pal_exchange *x, float *parameters, pal_error *err);

#endif
