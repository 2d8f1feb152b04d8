/* SPDX-License-Identifier: MIT */
#include "memory/gla/gla.h"

PAL_VARIANTS(gla_forward)
PAL_VARIANTS(gla_backward)
PAL_VARIANTS(gla_step)

static size_t scratch_floats(const pal_linear_kernels *kernels, pal_cpu_level level, pal_memory_pass pass, int n,
                             int dk, int dv) {
    (void)kernels;
    if (pass == PAL_STEP) return 0;
    if (level == PAL_CPU_REF) return pass == PAL_BACKWARD ? pal_gla_backward_scratch_ref(n, dk, dv) : 0;
    const size_t k = pal_linear_row(dk), v = pal_linear_row(dv);
    return pal_linear_chunk_scratch(n, dk) + (size_t)n * (pass == PAL_BACKWARD ? 4 * k + 3 * v : 2 * k + 2 * v);
}

enum { gla_inputs = PAL_INPUT_Q | PAL_INPUT_K | PAL_INPUT_V | PAL_INPUT_G };
static const pal_linear_kernels kernels = {
    .inputs = gla_inputs,
    .forward = pal_gla_forward_variants,
    .backward = pal_gla_backward_variants,
    .step = pal_gla_step_variants,
    .scratch_floats = scratch_floats,
};

PAL_LINEAR_RULE(gla, kernels, .summary = "simple gated linear attention, the Mamba2 limit: S = a S + v k'",
                .parts = { "S", NULL }, .foresee = pal_linear_foresee);
