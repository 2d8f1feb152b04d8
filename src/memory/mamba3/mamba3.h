/* SPDX-License-Identifier: MIT */
/* The memory of Mamba-3 with one input and one output: each pair of key channels turns by an angle as it decays, and a
 * token is written twice, when it is read and once more with the next one (the trapezoidal rule).
 *
 *     S_t = a_t (S_{t-1} + lag_t v_{t-1} k_{t-1}') R(turn_t) + beta_t v_t k_t'        y_t = S_t (s q_t)
 *
 * R turns channels 2p and 2p+1 back by turn[p]; where dk is odd, the last channel does not turn. The second part is the
 * last key and value. README.md derives the chunked form; signatures are those of memory/linear/linear.h. */
#ifndef PAL_MEMORY_MAMBA3_H
#define PAL_MEMORY_MAMBA3_H

#include "memory/linear/linear.h"

typedef pal_linear_forward_fn pal_mamba3_forward_fn;
typedef pal_linear_backward_fn pal_mamba3_backward_fn;
typedef pal_linear_step_fn pal_mamba3_step_fn;
PAL_DECLARE_VARIANTS(mamba3_forward)
PAL_DECLARE_VARIANTS(mamba3_backward)
PAL_DECLARE_VARIANTS(mamba3_step)
size_t pal_mamba3_backward_scratch_ref(int n, int dk, int dv); /* floats */

#endif
