/* SPDX-License-Identifier: MIT */
/* The kernels of the Palimpsa rule: what one works on, the layout of a memory, and the lists of variants.
 *
 *     M_t[i,j] = alpha_t M_{t-1}[i,j] + v_t[i] k_t[j]                         alpha_t = exp(-A dt_t)
 *     I_t[i,j] = alpha_t I_{t-1}[i,j] + (1-alpha_t) Ip + b_t[i] k_t[j]^2
 *     y_t[i]     = sum_j s q_t[j] M_t[i,j] / I_t[i,j]
 *     y_var_t[i] = sum_j (s q_t[j])^2 / I_t[i,j]
 *
 * Memory layout. Values lie along the vector: key j is a row of groups of 16 values, each group 16 numbers M and then
 * 16 numbers I. A head has dk rounded up to 8 such rows, dv rounded up to 16. The padding depends on no instruction
 * set, so a memory made at one CPU level serves at any other. Padded elements hold M = 0 and some I > 0, and stay so.
 */
#ifndef PAL_MEMORY_PALIMPSA_H
#define PAL_MEMORY_PALIMPSA_H

#include "memory/rule.h"

enum {
    PAL_PALIMPSA_GROUP = 16, /* values that lie together in a memory */
    PAL_PALIMPSA_KEYS = 8,   /* keys of a head are padded to a multiple of this */
    PAL_PALIMPSA_BLOCK = 64, /* values of one work item at most */
    PAL_PALIMPSA_CHUNK = 32  /* tokens from one saved memory to the next */
};

static inline size_t pal_palimpsa_rows(int dk) {
    return ((size_t)dk + PAL_PALIMPSA_KEYS - 1) / PAL_PALIMPSA_KEYS * PAL_PALIMPSA_KEYS;
}
static inline size_t pal_palimpsa_groups(int dv) { return ((size_t)dv + PAL_PALIMPSA_GROUP - 1) / PAL_PALIMPSA_GROUP; }
/* Element (value i, key j) of M in a memory whose rows are `row` floats apart; its I is PAL_PALIMPSA_GROUP floats
 * further. */
static inline size_t pal_palimpsa_at(size_t row, size_t i, size_t j) {
    return j * row + i / PAL_PALIMPSA_GROUP * (2 * PAL_PALIMPSA_GROUP) + i % PAL_PALIMPSA_GROUP;
}

/* One block of values of one head of one sequence. Views start at the sequence's first token and the item's first
 * channel. */
typedef struct pal_palimpsa_item {
    int dk, values, length; /* 1 <= values <= PAL_PALIMPSA_BLOCK (a step takes any number); tokens */
    float A, Ip, scale;
    pal_const_view q, k, v, b, dt;

    float *state; /* forward and step: the memory, in place. Backward: (dM, dI) in M's and I's places, from last to
                     first */
    size_t row;   /* floats from one key's row to the next */

    /* Memories at the start of every chunk, or NULL. Forward finds the initial memory in chunk 0 (not in state) and
     * fills the others; backward reads them. */
    float *saved;
    size_t saved_row, saved_chunk; /* floats between rows and between chunks */

    pal_view y, y_var; /* y_var.data may be NULL */

    /* Backward. Gradients whose data is NULL are not computed; those marked are added to what is there. */
    pal_const_view dy, dy_var; /* dy_var.data may be NULL */
    pal_view dq, dk_, dv, db, ddt;
    bool add_keys, add_dt; /* of dq and dk_; of ddt */
    double *dparameters;   /* overwritten: gradients of A and Ip through the tokens (not through a default start) */
} pal_palimpsa_item;

/* Each works on one item with pal_palimpsa_scratch() bytes, 64-byte aligned. Variants differ in rounding only. */
typedef void pal_palimpsa_forward_fn(const pal_palimpsa_item *item, void *scratch);
typedef void pal_palimpsa_backward_fn(const pal_palimpsa_item *item, void *scratch);
typedef void pal_palimpsa_step_fn(const pal_palimpsa_item *item, void *scratch); /* length 1, saved NULL */

PAL_DECLARE_VARIANTS(palimpsa_forward)
PAL_DECLARE_VARIANTS(palimpsa_backward)
PAL_DECLARE_VARIANTS(palimpsa_step)

/* What forward's speed is measured against: the arithmetic of its innermost loop on registers alone, `vectors` times
 * one vector of the memory at one token (8 elements at avx2, 16 at avx512, 4 at neon, 1 at ref). The result only keeps
 * a compiler from leaving the work out. pal_palimpsa_bound_width() says how many elements a vector has at a level. */
typedef float pal_palimpsa_bound_fn(size_t vectors);
PAL_DECLARE_VARIANTS(palimpsa_bound)
int pal_palimpsa_bound_width(pal_cpu_level level);

size_t pal_palimpsa_scratch(int dk, int values, pal_memory_pass pass);
/* What each file of kernels needs of it. */
size_t pal_palimpsa_scratch_ref(int dk, int values, pal_memory_pass pass);
size_t pal_palimpsa_scratch_avx2(int dk, int values, pal_memory_pass pass);
size_t pal_palimpsa_scratch_avx512(int dk, int values, pal_memory_pass pass);
size_t pal_palimpsa_scratch_neon(int dk, int values, pal_memory_pass pass);
size_t pal_palimpsa_scratch_simd128(int dk, int values, pal_memory_pass pass);

#endif
