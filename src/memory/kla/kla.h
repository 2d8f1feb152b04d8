/* SPDX-License-Identifier: MIT */
/* Kalman Linear Attention: a Kalman filter for every pair of key j and value i, with a mean mu and a precision I.
 *
 *     U = I / (a^2 + p I)              what is left of the precision before the token's value comes
 *     I = U + b k^2                    b: the precision of the value
 *     mu = a mu + (b k / I) (v - k a mu)
 *     y = sum_j s q mu                 y_var = sum_j (s q)^2 / I
 *
 * a is `keep` and p is `drift`, two numbers for each pair that do not change with time. Signatures are those of
 * memory/linear/linear.h; S is mu, and the second part is I. */
#ifndef PAL_MEMORY_KLA_H
#define PAL_MEMORY_KLA_H

#include "memory/linear/linear.h"

/* As the authors have it, a counts as at least this: its square divides. */
#define PAL_KLA_LEAST 1e-6f
/* And p as this, so that the precision of a memory that only fades ends at 1e18 and not at infinity. */
#define PAL_KLA_LEAST_DRIFT 1e-18f

typedef pal_linear_forward_fn pal_kla_forward_fn;
typedef pal_linear_backward_fn pal_kla_backward_fn;
typedef pal_linear_step_fn pal_kla_step_fn;
PAL_DECLARE_VARIANTS(kla_forward)
PAL_DECLARE_VARIANTS(kla_backward)
PAL_DECLARE_VARIANTS(kla_step)

enum { PAL_KLA_VALUES = 16 };                               /* of the widest vector */
size_t pal_kla_backward_scratch_ref(int n, int dk, int dv); /* floats */

#endif
