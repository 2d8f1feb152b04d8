/* SPDX-License-Identifier: MIT */
/* The delta rules: what is written is the error of what the memory holds under the key,
 *
 *     u_t = beta_t (v_t - c_t S_{t-1} k_t)        in S_t = a_t S_{t-1} + u_t k_t^T
 *
 * delta: a_t = c_t = 1.  gdn: c_t = a_t, the memory decays before it is compared.  gdn_app: c_t = 1, it decays after.
 * README.md derives the chunked form; the signatures are those of memory/linear/linear.h. */
#ifndef PAL_MEMORY_DELTA_H
#define PAL_MEMORY_DELTA_H

#include "memory/linear/linear.h"

typedef pal_linear_forward_fn pal_delta_forward_fn;
typedef pal_linear_backward_fn pal_delta_backward_fn;
typedef pal_linear_step_fn pal_delta_step_fn;
PAL_DECLARE_VARIANTS(delta_forward)
PAL_DECLARE_VARIANTS(delta_backward)
PAL_DECLARE_VARIANTS(delta_step)
size_t pal_delta_backward_scratch_ref(int n, int dk, int dv); /* floats */

#endif
