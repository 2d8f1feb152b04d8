/* SPDX-License-Identifier: MIT */
/* What gla, delta, gdn and gdn_app have in common: one matrix S per head, written by outer products and read by the
 * query,
 *
 *     S_t = a_t S_{t-1} + u_t k_t^T,    y_t = S_t (s q_t),    a_t = exp(g_t)
 *
 * They differ in u_t alone. This folder owns the layout of the memory, the cutting into chunks, items and threads, and
 * the sums over heads that share a key; a rule brings kernels for one chunk of one head.
 *
 * Layout of a state: (H, dk, dvp), the transpose of the exported (H, dv, dk), so that values fill the vectors of step
 * and the rows of matrix products; dvp rounds dv up to 16 floats, and the padding is zero.
 *
 * Saved for backward: the state at the start of every chunk, (chunks, H, dk, dvp). */
#ifndef PAL_MEMORY_LINEAR_H
#define PAL_MEMORY_LINEAR_H

#include "memory/rule.h"

enum { PAL_LINEAR_CHUNK = 64 }; /* most tokens in a chunk */

/* n tokens of one head, or of a block of its values. Every view stands at its first token and channel. */
typedef struct pal_linear_chunk {
    int n, dk, dv;
    float scale;
    pal_const_view q, k; /* (n, dk) */
    pal_const_view v;    /* (n, dv) */
    pal_const_view g;    /* (n, 1); data NULL: no decay */
    pal_const_view beta; /* (n, 1); data NULL in gla */
    bool undecayed;      /* gdn_app: the memory is compared with v before it decays */
    bool ends;           /* nobody reads S behind this chunk: forward may leave anything there */
} pal_linear_chunk;

/* Gradients of the same, all wanted, all overwritten. g and beta may be NULL when the chunk has none. */
typedef struct pal_linear_gradients {
    pal_view q, k, v, g, beta;
} pal_linear_gradients;

/* S (dk, ld) goes from the start of the chunk to its end; y (n, dv). */
typedef void pal_linear_forward_fn(const pal_linear_chunk *c, float *S, size_t ld, pal_view y, float *scratch);
/* S is the memory at the start of the chunk, dS the gradient of that at its end, replaced by that at its start. */
typedef void pal_linear_backward_fn(const pal_linear_chunk *c, const float *S, size_t ld, float *dS, size_t dld,
                                    pal_const_view dy, const pal_linear_gradients *grad, float *scratch);
/* One token; n = 1. */
typedef void pal_linear_step_fn(const pal_linear_chunk *c, float *S, size_t ld, float *y);

typedef struct pal_linear_kernels {
    unsigned inputs; /* PAL_INPUT_* that the rule reads */
    bool undecayed;
    const pal_variant *forward, *backward, *step;
    /* of forward or backward at this level, for one chunk of n tokens */
    size_t (*scratch_floats)(pal_cpu_level level, pal_memory_pass pass, int n, int dk, int dv);
} pal_linear_kernels;

/* Scratch of the chunked form (chunk_simd.inc), in floats: dense rows start on cache lines; two squares of tokens and
 * two sets of scaled rows of keys come on top of the dense rows a kernel takes. */
static inline size_t pal_linear_row(int width) { return ((size_t)width + 15) / 16 * 16; }
static inline size_t pal_linear_chunk_scratch(int n, int dk) {
    return 2 * (size_t)n * (PAL_LINEAR_CHUNK + pal_linear_row(dk));
}

/* Steps walk memories that may lie far from the processor. */
static inline void pal_linear_fetch_ahead(const float *S) { __builtin_prefetch(S + 512); }

/* The functions of a pal_memory_rule; the last four are called through one line in the rule's file that adds `kernels`.
 */
size_t pal_linear_part_floats(const pal_memory_shape *shape, int part);
size_t pal_linear_state_floats(const pal_memory_shape *shape);
size_t pal_linear_saved_floats(const pal_memory_shape *shape);
void pal_linear_reset(const pal_memory_shape *shape, const pal_memory_inputs *in, float *state);
void pal_linear_import(const pal_memory_shape *shape, const pal_memory_inputs *in, const float *const parts[2],
                       float *state);
void pal_linear_export(const pal_memory_shape *shape, const pal_memory_inputs *in, float *const parts[2],
                       const float *state);
void pal_linear_foresee(const pal_context *cx, const pal_memory_run *run, pal_memory_change *change); /* gla's */
void pal_linear_compare(const pal_context *cx, const pal_memory_shape *shape, const float *before, const float *after,
                        pal_memory_change *change);
size_t pal_linear_scratch_bytes(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_shape *shape,
                                pal_memory_pass pass);
void pal_linear_forward(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_run *run);
void pal_linear_backward(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_run *run);
void pal_linear_step(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_run *run);

#endif
