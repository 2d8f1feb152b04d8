/* SPDX-License-Identifier: MIT */
/* Normalisations of rows. A row is cut into `groups` parts of `width` channels (heads, or the whole row as one group);
 * statistics are taken over each part. Sums are in double, so rows of any width and any magnitude of f32 are fine.
 *
 * Backward needs nothing but the forward's inputs: statistics are taken again while the row is in cache. Gradients of
 * activations are overwritten, those of weights are added to (pass NULL where not wanted; the sum over rows needs
 * scratch). Outputs may be the same rows as inputs (y on x or z; dx on dy, x or add; dz on z); partial overlap is not
 * allowed, nor is one output on another. Variants differ from the reference only in rounding. */
#ifndef PAL_KERNELS_NORMS_H
#define PAL_KERNELS_NORMS_H

#include <stdbool.h>

#include "kernels/rows.h"

/* RMSNorm and its two gated forms:
 *   none    u = x             y = w u r                 r = 1/sqrt(mean(u^2) + eps)
 *   after   u = x             y = w u r silu(z)         Palimpsa-D, Gated DeltaNet: groups = heads, weight shared
 *   before  u = x silu(z)     y = w u r                 Palimpsa-M, Mamba2: over all channels or per group */
typedef enum { PAL_GATE_NONE, PAL_GATE_AFTER, PAL_GATE_BEFORE } pal_norm_gate;
typedef struct pal_rmsnorm_args {
    size_t rows;
    int groups, width; /* channels = groups*width */
    pal_norm_gate gate;
    bool shared_weight; /* one w (width) for every group; else w has all channels */
    float eps;
    const float *w;
    pal_const_view x, z; /* z only with a gate */
    pal_view y;          /* forward */

    pal_const_view dy;  /* backward from here on */
    pal_const_view add; /* added to dx: the gradient that reaches x around the norm; data NULL: none */
    pal_view dx, dz;
    pal_view again; /* y once more, for the gradient of what reads it; data NULL: not wanted */
    float *dw;
} pal_rmsnorm_args;
void pal_rmsnorm(const pal_context *cx, const pal_rmsnorm_args *a);
void pal_rmsnorm_backward(const pal_context *cx, const pal_rmsnorm_args *a, float *scratch);
size_t pal_rmsnorm_scratch_floats(const pal_rmsnorm_args *a);

/* LayerNorm over whole rows: y = w (x - mean)/sqrt(var + eps) + b. */
typedef struct pal_layernorm_args {
    size_t rows;
    int width;
    float eps;
    const float *w, *b;
    pal_const_view x;
    pal_view y;

    pal_const_view dy, add;
    pal_view dx;
    float *dw, *db;
} pal_layernorm_args;
void pal_layernorm(const pal_context *cx, const pal_layernorm_args *a);
void pal_layernorm_backward(const pal_context *cx, const pal_layernorm_args *a, float *scratch);
size_t pal_layernorm_scratch_floats(const pal_layernorm_args *a);

/* L2 normalisation per group: clamp (Palimpsa-D) y = x / max(|x|, 1e-12); eps (Gated DeltaNet) y = x / sqrt(|x|^2 +
 * 1e-6). */
typedef enum { PAL_L2_CLAMP, PAL_L2_EPS } pal_l2_kind;
typedef struct pal_l2norm_args {
    size_t rows;
    int groups, width;
    pal_l2_kind kind;
    pal_const_view x;
    pal_view y;

    pal_const_view dy;
    pal_view dx;
} pal_l2norm_args;
void pal_l2norm(const pal_context *cx, const pal_l2norm_args *a);
void pal_l2norm_backward(const pal_context *cx, const pal_l2norm_args *a);

/* The kernels: rows begin .. end-1. dw (and db) of a backward is this range's own sum, overwritten; NULL: not
 * wanted. */
typedef void pal_rmsnorm_rows_fn(const pal_rmsnorm_args *a, size_t begin, size_t end);
typedef void pal_rmsnorm_backward_rows_fn(const pal_rmsnorm_args *a, size_t begin, size_t end, float *dw);
typedef void pal_layernorm_rows_fn(const pal_layernorm_args *a, size_t begin, size_t end);
typedef void pal_layernorm_backward_rows_fn(const pal_layernorm_args *a, size_t begin, size_t end, float *dw,
                                            float *db);
typedef void pal_l2norm_rows_fn(const pal_l2norm_args *a, size_t begin, size_t end);
typedef void pal_l2norm_backward_rows_fn(const pal_l2norm_args *a, size_t begin, size_t end);
#define PAL_NORM_KERNELS(X) \
    X(rmsnorm_rows)         \
    X(rmsnorm_backward_rows) X(layernorm_rows) X(layernorm_backward_rows) X(l2norm_rows) X(l2norm_backward_rows)
PAL_NORM_KERNELS(PAL_DECLARE_VARIANTS)

#endif
