/* SPDX-License-Identifier: MIT */
/* Longhorn: an online regression whose step size comes from its own closed form (README.md has the mathematics).
 *
 *     r_i = b_i / (1 + b_i k.k)
 *     S[i,j] <- S[i,j] + r_i k_j (v_i - k_j S[i,j])
 *     y_i = sum_j S[i,j] scale q_j
 *
 * Rows i of S never meet, so the kernels below work on a block of values of one head. A memory is kept transposed,
 * (dk, dv) per head, so that values fill a vector. Variants differ only in rounding and in the order of sums. */
#ifndef PAL_MEMORY_LONGHORN_H
#define PAL_MEMORY_LONGHORN_H

#include "base/context.h"
#include "palimpsa/memory.h"

enum {
    PAL_LONGHORN_CHUNK = 64, /* tokens between saved memories */
    PAL_LONGHORN_BLOCK = 64  /* values that one item works on */
};

/* `width` values of one head over one sequence. Views start at the sequence's first token and this block's channels. */
typedef struct pal_longhorn_block {
    int tokens, dk, width;
    float scale;
    pal_const_view q, k, v, b;

    pal_view y;           /* forward */
    const float *initial; /* (dk, width), rows `row` apart; NULL: zero */
    float *final;         /* likewise, may be `initial`; NULL: dropped */
    float *saved; /* the memory before tokens 0, CHUNK, 2 CHUNK, ..., `between` apart, rows `row`; NULL: not wanted */
    size_t row, between;

    pal_const_view dy;    /* backward */
    const float *dfinal;  /* (width, dk) contiguous, or NULL for zero */
    float *dinitial;      /* likewise, or NULL where not wanted */
    pal_view dv, db;      /* overwritten; data NULL where not wanted */
    pal_view dq, dk_rows; /* overwritten, or added to when `add` */
    bool add;

    float *scratch; /* pal_longhorn_scratch_floats() */
} pal_longhorn_block;

/* What the variants of a level need, a multiple of 16. */
size_t pal_longhorn_scratch_floats(pal_cpu_level level, int dk, int width);

typedef void pal_longhorn_forward_fn(const pal_longhorn_block *block);
typedef void pal_longhorn_backward_fn(const pal_longhorn_block *block);
/* One token: q, k, v, b, y are its rows; `final` is updated in place. Needs no scratch. */
typedef void pal_longhorn_step_fn(const pal_longhorn_block *block);

PAL_DECLARE_VARIANTS(longhorn_forward)
PAL_DECLARE_VARIANTS(longhorn_backward)
PAL_DECLARE_VARIANTS(longhorn_step)

#endif
