/* SPDX-License-Identifier: MIT */
/* Simple gated linear attention (the limit of Mamba2 and of Palimpsa without metaplasticity): u_t = v_t in
 * memory/linear/linear.h, whose signatures these kernels have. README.md derives the chunked form. */
#ifndef PAL_MEMORY_GLA_H
#define PAL_MEMORY_GLA_H

#include "memory/linear/linear.h"

extern const pal_variant pal_gla_forward_variants[], pal_gla_backward_variants[], pal_gla_step_variants[];

pal_linear_forward_fn pal_gla_forward_ref, pal_gla_forward_avx2, pal_gla_forward_avx512;
pal_linear_backward_fn pal_gla_backward_ref, pal_gla_backward_avx2, pal_gla_backward_avx512;
pal_linear_step_fn pal_gla_step_ref, pal_gla_step_avx2, pal_gla_step_avx512;
size_t pal_gla_backward_scratch_ref(int n, int dk, int dv); /* floats */

#endif
