/* SPDX-License-Identifier: MIT */
/* Linear layers y = x W' (+ bias), W stored [out, in] in any type. Several that read the same x, are of one type and
 * stand next to each other in memory are one matrix product. */
#ifndef PAL_LAYERS_DENSE_H
#define PAL_LAYERS_DENSE_H

#include "kernels/matmul/matmul.h"
#include "layers/pass.h"
#include "palimpsa/matrix.h"

enum { PAL_DENSE_MATRICES = 8 };

typedef struct pal_dense {
    int in, matrices;
    int out[PAL_DENSE_MATRICES]; /* rows of each; columns of y follow each other in this order */
    pal_matrix w[PAL_DENSE_MATRICES];
    float *dw[PAL_DENSE_MATRICES]; /* backward; NULL: not trained */
    bool trains;                   /* the model is; then matrices without a gradient are multiplied one by one, as where
                                    * they lie differs from file to file */
} pal_dense;

/* y (rows, sum of out) = or += x W'. Where sequences grow by one token, a row's bits do not depend on the others. */
void pal_dense_forward(const pal_pass *pass, const pal_dense *l, int rows, const float *x, size_t ldx,
                       pal_accumulate acc, float *y, size_t ldy);
/* Of pass->scratch, for up to so many rows. */
size_t pal_dense_scratch_bytes(const pal_dense *l, int rows);
/* dx = or += dy W; dx NULL: not computed. dW += dy' x; x NULL: not computed. */
void pal_dense_backward(const pal_pass *pass, const pal_dense *l, int rows, const float *x, size_t ldx, const float *dy,
                        size_t ldy, pal_accumulate acc, float *dx, size_t lddx);

/* y[r,:] += bias; dbias += column sums of dy. Only models with biases need them. */
void pal_bias_add(const pal_context *cx, float *y, size_t ldy, int rows, int width, const float *bias);
void pal_bias_backward(const pal_context *cx, float *dbias, const float *dy, size_t ldy, int rows, int width);

/* memcpy and memset on all threads, for activations that do not fit the cache. */
void pal_copy_floats(const pal_context *cx, float *to, const float *from, size_t n);
void pal_clear_floats(const pal_context *cx, float *x, size_t n);

#endif
