/* SPDX-License-Identifier: MIT */
/* Element-wise functions of rows, as mixers and the gated MLP need them. Gradients of activations are overwritten,
 * those of parameters added to (NULL where not wanted; they need scratch). An output may be the same rows as any input
 * of the same width unless said otherwise; two outputs never share rows. NaN in gives NaN out, in its own element only.
 */
#ifndef PAL_KERNELS_ACTIVATIONS_H
#define PAL_KERNELS_ACTIVATIONS_H

#include "kernels/rows.h"

/* y = f(x + bias). Backward dx = dy f'(x + bias) and dbias = sum over rows of dx; it reads what is named here:
 *   silu      x sig(x)        x and bias
 *   sigmoid   1/(1+e^-x)      y:  f' = y (1 - y)
 *   softplus  log(1+e^x)      y:  f' = 1 - e^-y
 *   rational  1 + x, 1/(1-x) below zero      y:  f' = min(1, y^2) */
typedef enum { PAL_SILU, PAL_SIGMOID, PAL_SOFTPLUS, PAL_RATIONAL } pal_activation;
typedef struct pal_activation_args {
    size_t rows;
    int width;
    pal_activation kind;
    const float *bias; /* (width); NULL: none */
    pal_const_view x;
    pal_view y;

    pal_const_view dy;
    pal_view dx;
    float *dbias;
} pal_activation_args;
void pal_activate(const pal_context *cx, const pal_activation_args *a);
void pal_activate_backward(const pal_context *cx, const pal_activation_args *a, float *scratch);
size_t pal_activate_scratch_floats(const pal_activation_args *a);

/* The gated MLP's middle: y = silu(gate) up. dgate may lie on gate or dy, dup on up or dy. */
typedef struct pal_swiglu_args {
    size_t rows;
    int width;
    pal_const_view gate, up;
    pal_view y;

    pal_const_view dy;
    pal_view dgate, dup;
} pal_swiglu_args;
void pal_swiglu(const pal_context *cx, const pal_swiglu_args *a);
void pal_swiglu_backward(const pal_context *cx, const pal_swiglu_args *a);

/* Between the projections of a metaplastic mixer and its memory, per head h and channel i (spec: v* and b of the D and
 * M mixers; s is the sigmoid gate bs or the time step dt, c is softplus(b_scale)):
 *
 *   v[h,i] = s[h] x[h,i]
 *   b[h,i] = sig(pre[h,i]) c[h] s[h]            left out when b.data is NULL (a plain rule)
 *
 * and after the memory the skip  o[h,i] += D[h] x[h,i]  (pal_head_skip). Backward does both at once:
 *
 *   dx = s dv + D do        ds = ds_add + sum_i (dv x + db sig c)        dpre = db c s sig (1 - sig)
 *   dc += sum db sig s      dD += sum do x                               (sums over rows and i)
 *
 * v, dx may lie on x (then not on each other's inputs), b, dpre on pre. */
typedef struct pal_head_gate_args {
    size_t rows;
    int heads, width;
    pal_const_view x, pre; /* (heads*width) */
    pal_const_view s;      /* (heads) */
    const float *c, *D;    /* (heads); D NULL: no skip */
    pal_view v, b;         /* forward */
    pal_view o;            /* pal_head_skip adds to it */

    pal_const_view dv, db, d_o; /* backward; db.data NULL: no b, d_o.data NULL: no skip */
    pal_const_view ds_add;      /* added to ds, which may be the same rows; data NULL: none */
    pal_view dx, dpre, ds;
    float *dc, *dD;
} pal_head_gate_args;
void pal_head_gate(const pal_context *cx, const pal_head_gate_args *a);
void pal_head_skip(const pal_context *cx, const pal_head_gate_args *a);
void pal_head_gate_backward(const pal_context *cx, const pal_head_gate_args *a, float *scratch);
size_t pal_head_gate_scratch_floats(const pal_head_gate_args *a);

/* The kernels: rows begin .. end-1; parameter sums are this range's own, overwritten. */
typedef void pal_activate_rows_fn(const pal_activation_args *a, size_t begin, size_t end);
typedef void pal_activate_backward_rows_fn(const pal_activation_args *a, size_t begin, size_t end, float *dbias);
typedef void pal_swiglu_rows_fn(const pal_swiglu_args *a, size_t begin, size_t end);
typedef void pal_swiglu_backward_rows_fn(const pal_swiglu_args *a, size_t begin, size_t end);
typedef void pal_head_gate_rows_fn(const pal_head_gate_args *a, size_t begin, size_t end);
typedef void pal_head_skip_rows_fn(const pal_head_gate_args *a, size_t begin, size_t end);
typedef void pal_head_gate_backward_rows_fn(const pal_head_gate_args *a, size_t begin, size_t end, float *dc,
                                            float *dD);
#define PAL_ACTIVATION_KERNELS(X) \
    X(activate_rows)              \
    X(activate_backward_rows)     \
    X(swiglu_rows) X(swiglu_backward_rows) X(head_gate_rows) X(head_skip_rows) X(head_gate_backward_rows)
PAL_ACTIVATION_KERNELS(PAL_DECLARE_VARIANTS)

#endif
