/* SPDX-License-Identifier: MIT */
/* Small operations between the projections of a mixer and its memory, and rows that are picked from others. One plain
 * loop each. */
#ifndef PAL_KERNELS_GATES_H
#define PAL_KERNELS_GATES_H

#include <stdbool.h>

#include "kernels/rows.h"

/* A positive parameter from its stored form: y = e^x or softplus(x). Backward dx += dy dy/dx. */
typedef enum { PAL_EXP, PAL_SOFTPLUS_OF } pal_positive_kind;
void pal_positive(const pal_context *cx, pal_positive_kind kind, size_t n, const float *x, float *y);
void pal_positive_backward(const pal_context *cx, pal_positive_kind kind, size_t n, const float *x, const float *y,
                           const float *dy, float *dx);

/* x between low and high; backward clears dx where x lies on a limit. Both do nothing without limits (0 and
 * infinity). */
void pal_clamp(const pal_context *cx, size_t n, float low, float high, float *x);
void pal_clamp_backward(const pal_context *cx, size_t n, float low, float high, const float *x, float *dx);

/* The logarithm of the decay, g = -A dt, of rows of `each` numbers a head. Backward ddt = -A dg and dA -= sum over rows
 * of dt dg. */
void pal_log_decay(const pal_context *cx, size_t rows, int heads, int each, const float *A, const float *dt, float *g);
void pal_log_decay_backward(const pal_context *cx, size_t rows, int heads, int each, const float *A, const float *dt,
                            const float *dg, float *ddt, float *dA);

/* to[i] = from[at[i]] and to[at[i]] = from[i], rows of `width` next to each other; at NULL: i itself. */
void pal_take_rows(const pal_context *cx, float *to, const float *from, const int *at, size_t n, int width);
void pal_put_rows(const pal_context *cx, float *to, const float *from, const int *at, size_t n, int width);

void pal_fill(const pal_context *cx, float *x, size_t n, float value);

#endif
