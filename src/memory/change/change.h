/* SPDX-License-Identifier: MIT */
/* What some tokens did to one head of a memory, in one pass over what it was and what it is.
 *
 *     change = sum (mean_after - mean_before)^2,   size = sum mean_after^2
 *
 * and the least and largest importance after. Sums of a row (or of a few) are floats, sums over rows doubles; variants
 * differ in the order of these sums only. */
#ifndef PAL_MEMORY_CHANGE_H
#define PAL_MEMORY_CHANGE_H

#include "memory/rule.h"

/* A head that is its mean and nothing else but zeros, in any order: n numbers. low and high become NaN. */
typedef void pal_change_plain_fn(const float *before, const float *after, size_t n, pal_memory_change *change);
/* Palimpsa's: rows of `row` floats, groups of 16 numbers M and 16 numbers I, mean M/I; after value dv M is 0. */
typedef void pal_change_paired_fn(const float *before, const float *after, size_t row, int dk, int dv,
                                  pal_memory_change *change);
/* The same for one token that is about to be written, from the memory as it is: every row k of S (dk rows of ld floats)
 * becomes a S + v k, with lost = a - 1; M likewise, and I becomes a I + fresh + b k^2. v and b have dv numbers. */
typedef struct pal_change_token {
    int dk, dv;
    float lost, fresh;
    const float *k, *v, *b;
} pal_change_token;
typedef void pal_change_plain_ahead_fn(const pal_change_token *t, const float *S, size_t ld, pal_memory_change *change);
typedef void pal_change_paired_ahead_fn(const pal_change_token *t, const float *memory, size_t row,
                                        pal_memory_change *change);
enum {
    PAL_CHANGE_GROUP = 16,
    PAL_CHANGE_ROW = 1024, /* numbers of a plain head whose sum is one of floats */
    PAL_CHANGE_ROWS = 16   /* rows of a token's change whose sum is one */
};

/* Between elements of a sample. An odd number meets all keys and values of a head whose sizes are powers of two. */
static inline size_t pal_change_sample_distance(size_t elements) {
    return elements <= PAL_CHANGE_SAMPLE ? 1 : (elements / PAL_CHANGE_SAMPLE + 1) | 1;
}

PAL_DECLARE_VARIANTS(change_plain)
PAL_DECLARE_VARIANTS(change_paired)
PAL_DECLARE_VARIANTS(change_plain_ahead)
PAL_DECLARE_VARIANTS(change_paired_ahead)

#endif
