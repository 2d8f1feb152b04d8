/* SPDX-License-Identifier: MIT */
/* Simple gated linear attention (the limit of Mamba2 and of Palimpsa without metaplasticity): u_t = v_t in
 * memory/linear/linear.h, whose signatures these kernels have. README.md derives the chunked form. */
#ifndef PAL_MEMORY_GLA_H
#define PAL_MEMORY_GLA_H

#include "memory/linear/linear.h"

typedef pal_linear_forward_fn pal_gla_forward_fn;
typedef pal_linear_backward_fn pal_gla_backward_fn;
typedef pal_linear_step_fn pal_gla_step_fn;
PAL_DECLARE_VARIANTS(gla_forward)
PAL_DECLARE_VARIANTS(gla_backward)
PAL_DECLARE_VARIANTS(gla_step)
size_t pal_gla_backward_scratch_ref(int n, int dk, int dv); /* floats */

#endif
