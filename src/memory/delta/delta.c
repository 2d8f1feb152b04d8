/* SPDX-License-Identifier: MIT */
/* Three rules, one set of kernels. */
#include "memory/delta/delta.h"

PAL_VARIANTS(delta_forward)
PAL_VARIANTS(delta_backward)
PAL_VARIANTS(delta_step)

static size_t scratch_floats(pal_cpu_level level, pal_memory_pass pass, int n, int dk, int dv) {
    if (level == PAL_CPU_REF) return pass == PAL_BACKWARD ? pal_delta_backward_scratch_ref(n, dk, dv) : 0;
    const size_t k = pal_linear_row(dk), v = pal_linear_row(dv),
                 system = PAL_LINEAR_CHUNK + k + 2 * v; /* N, scaled keys, e, u */
    return pal_linear_chunk_scratch(n, dk) + (size_t)n * (system + (pass == PAL_BACKWARD ? 4 * k + 2 * v : 2 * k));
}

enum {
    DELTA_INPUTS = PAL_INPUT_Q | PAL_INPUT_K | PAL_INPUT_V | PAL_INPUT_BETA,
    GDN_INPUTS = DELTA_INPUTS | PAL_INPUT_G
};

#define DELTA_RULE(word, line, which, before_decay)                                                            \
    static const pal_linear_kernels word##_kernels = {                                                         \
        .inputs = which,                                                                                       \
        .undecayed = before_decay,                                                                             \
        .forward = pal_delta_forward_variants,                                                                 \
        .backward = pal_delta_backward_variants,                                                               \
        .step = pal_delta_step_variants,                                                                       \
        .scratch_floats = scratch_floats,                                                                      \
    };                                                                                                         \
    static size_t word##_scratch(const pal_context *cx, const pal_memory_shape *shape, pal_memory_pass pass) { \
        return pal_linear_scratch_bytes(&word##_kernels, cx, shape, pass);                                     \
    }                                                                                                          \
    static void word##_forward(const pal_context *cx, const pal_memory_run *run) {                             \
        pal_linear_forward(&word##_kernels, cx, run);                                                          \
    }                                                                                                          \
    static void word##_backward(const pal_context *cx, const pal_memory_run *run) {                            \
        pal_linear_backward(&word##_kernels, cx, run);                                                         \
    }                                                                                                          \
    static void word##_step(const pal_context *cx, const pal_memory_run *run) {                                \
        pal_linear_step(&word##_kernels, cx, run);                                                             \
    }                                                                                                          \
    const pal_memory_rule pal_rule_##word = {                                                                  \
        .name = #word,                                                                                         \
        .summary = line,                                                                                       \
        .inputs = which,                                                                                       \
        .parts = { "S", NULL },                                                                                \
        .part_floats = pal_linear_part_floats,                                                                 \
        .state_floats = pal_linear_state_floats,                                                               \
        .saved_floats = pal_linear_saved_floats,                                                               \
        .scratch_bytes = word##_scratch,                                                                       \
        .reset = pal_linear_reset,                                                                             \
        .import = pal_linear_import,                                                                           \
        .export = pal_linear_export,                                                                           \
        .compare = pal_linear_compare,                                                                         \
        .forward = word##_forward,                                                                             \
        .backward = word##_backward,                                                                           \
        .step = word##_step,                                                                                   \
    }

DELTA_RULE(delta, "DeltaNet: S = S + beta (v - S k) k'", DELTA_INPUTS, false);
DELTA_RULE(gdn, "Gated DeltaNet: D = a S, S = D + beta (v - D k) k'", GDN_INPUTS, false);
DELTA_RULE(gdn_app, "Gated DeltaNet as in the paper's appendix: S = a S + beta (v - S k) k'", GDN_INPUTS, true);
