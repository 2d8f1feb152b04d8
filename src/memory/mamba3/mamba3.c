/* SPDX-License-Identifier: MIT */
#include "memory/mamba3/mamba3.h"

PAL_VARIANTS(mamba3_forward)
PAL_VARIANTS(mamba3_backward)
PAL_VARIANTS(mamba3_step)

static size_t scratch_floats(const pal_linear_kernels *kernels, pal_cpu_level level, pal_memory_pass pass, int n,
                             int dk, int dv) {
    (void)kernels;
    if (level == PAL_CPU_REF) return pass == PAL_BACKWARD ? pal_mamba3_backward_scratch_ref(n, dk, dv) : 0;
    if (pass == PAL_STEP) return 0;
    const size_t tokens = (size_t)n, k = pal_linear_row(dk), v = pal_linear_row(dv),
                 angles = 2 * (tokens + 1) * pal_linear_row((dk + 1) / 2);
    const size_t floats = pal_linear_chunk_scratch(n, dk) + angles;
    return floats + (pass == PAL_BACKWARD ? tokens * (4 * k + 3 * v) + (size_t)dk * v : tokens * (2 * k + 2 * v));
}

enum {
    mamba3_inputs = PAL_INPUT_Q | PAL_INPUT_K | PAL_INPUT_V | PAL_INPUT_G | PAL_INPUT_BETA | PAL_INPUT_LAG |
                    PAL_INPUT_TURN
};
static const pal_linear_kernels kernels = {
    .inputs = mamba3_inputs,
    .carries = PAL_CARRIES_TOKEN,
    .forward = pal_mamba3_forward_variants,
    .backward = pal_mamba3_backward_variants,
    .step = pal_mamba3_step_variants,
    .scratch_floats = scratch_floats,
};

PAL_LINEAR_RULE(
    mamba3, kernels, .parts = { "S", "last" },
    .summary = "Mamba-3: S = a (S + lag v k' of the token before) R + beta v k', where R turns pairs of keys");
