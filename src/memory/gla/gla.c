/* SPDX-License-Identifier: MIT */
#include "memory/gla/gla.h"

PAL_VARIANTS(gla_forward)
PAL_VARIANTS(gla_backward)
PAL_VARIANTS(gla_step)

static size_t scratch_floats(pal_cpu_level level, pal_memory_pass pass, int n, int dk, int dv) {
    if (level == PAL_CPU_REF) return pass == PAL_BACKWARD ? pal_gla_backward_scratch_ref(n, dk, dv) : 0;
    const size_t k = pal_linear_row(dk), v = pal_linear_row(dv);
    return pal_linear_chunk_scratch(n, dk) + (size_t)n * (pass == PAL_BACKWARD ? 4 * k + 3 * v : 2 * k + 2 * v);
}

static const pal_linear_kernels kernels = {
    .inputs = PAL_INPUT_Q | PAL_INPUT_K | PAL_INPUT_V | PAL_INPUT_G,
    .forward = pal_gla_forward_variants,
    .backward = pal_gla_backward_variants,
    .step = pal_gla_step_variants,
    .scratch_floats = scratch_floats,
};

static size_t scratch_bytes(const pal_context *cx, const pal_memory_shape *shape, pal_memory_pass pass) {
    return pal_linear_scratch_bytes(&kernels, cx, shape, pass);
}
static void forward(const pal_context *cx, const pal_memory_run *run) { pal_linear_forward(&kernels, cx, run); }
static void backward(const pal_context *cx, const pal_memory_run *run) { pal_linear_backward(&kernels, cx, run); }
static void step(const pal_context *cx, const pal_memory_run *run) { pal_linear_step(&kernels, cx, run); }

const pal_memory_rule pal_rule_gla = {
    .name = "gla",
    .summary = "simple gated linear attention, the Mamba2 limit: S = a S + v k'",
    .inputs = PAL_INPUT_Q | PAL_INPUT_K | PAL_INPUT_V | PAL_INPUT_G,
    .parts = { "S", NULL },
    .part_floats = pal_linear_part_floats,
    .state_floats = pal_linear_state_floats,
    .saved_floats = pal_linear_saved_floats,
    .scratch_bytes = scratch_bytes,
    .reset = pal_linear_reset,
    .import = pal_linear_import,
    .export = pal_linear_export,
    .compare = pal_linear_compare,
    .foresee = pal_linear_foresee,
    .forward = forward,
    .backward = backward,
    .step = step,
};
