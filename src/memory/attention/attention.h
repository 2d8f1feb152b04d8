/* SPDX-License-Identifier: MIT */
/* Causal softmax attention, the rule whose memory grows: a cache of all keys and values (README.md has the
 * mathematics).
 *
 *     p_ij = exp(scale q_i.k_j - lse_i) for j <= i,   lse_i = log sum_j exp(scale q_i.k_j),   y_i = sum_j p_ij v_j
 *
 * Kernels work on one query head. Variants differ in rounding and in the order of sums. */
#ifndef PAL_MEMORY_ATTENTION_H
#define PAL_MEMORY_ATTENTION_H

#include "base/context.h"
#include "memory/attention/paged.h"
#include "palimpsa/memory.h"

enum { PAL_ATTENTION_BLOCK = PAL_PAGE_TOKENS }; /* queries, and keys, that are worked on together */

/* Some queries of one head. k and v start at the sequence's first key; query i may look at keys 0 .. first + i. A step
 * has a token's queries of several heads that share their keys: all look at keys 0 .. first. */
typedef struct pal_attention_rows {
    int queries; /* forward, step: at most PAL_ATTENTION_BLOCK; backward: the whole sequence */
    int first;   /* position of the first query */
    int dk, dv;
    float scale;
    pal_const_view q, k, v;
    pal_page *const *pages; /* forward, step: keys and values are here and not in k and v; NULL: in k and v ... */
    pal_dtype type;         /* ... as numbers of this type ... */
    size_t k_at, v_at, k_row, v_row; /* ... from these bytes of a page on, so many bytes from row to row */
    pal_view y;
    pal_view lse; /* one number a row; data NULL when not wanted (forward) */

    pal_const_view dy;         /* backward, where first = 0 */
    pal_view dq;               /* overwritten; data NULL where not wanted */
    pal_view dk_rows, dv_rows; /* overwritten, or added to when `add`; data NULL where not wanted */
    bool add;

    float *scratch; /* pal_attention_scratch_floats() */
} pal_attention_rows;

/* Enough for every variant, a multiple of 16. `tokens` matters to backward only: no sequence is longer. */
size_t pal_attention_scratch_floats(int dk, int dv, int tokens, pal_memory_pass pass);

typedef void pal_attention_forward_fn(const pal_attention_rows *rows);
typedef void pal_attention_backward_fn(const pal_attention_rows *rows);
typedef void pal_attention_step_fn(const pal_attention_rows *rows);

PAL_DECLARE_VARIANTS(attention_forward)
PAL_DECLARE_VARIANTS(attention_backward)
PAL_DECLARE_VARIANTS(attention_step)

#endif
