/* SPDX-License-Identifier: MIT */
#include "memory/kla/kla.h"

#include "memory/change/change.h"

PAL_VARIANTS(kla_forward)
PAL_VARIANTS(kla_backward)
PAL_VARIANTS(kla_step)

/* The vector kernels sum y and the gradients of rows in dense rows; backward keeps a tile's memories, 2 keys wide. */
static size_t scratch_floats(const pal_linear_kernels *kernels, pal_cpu_level level, pal_memory_pass pass, int n,
                             int dk, int dv) {
    (void)kernels;
    if (level == PAL_CPU_REF) return pass == PAL_BACKWARD ? pal_kla_backward_scratch_ref(n, dk, dv) : 0;
    const size_t tokens = (size_t)n, values = pal_linear_row(dv);
    if (pass == PAL_FORWARD || pass == PAL_STEP) return 2 * tokens * values;
    return 2 * tokens * values + (8 * tokens + 4) * PAL_KLA_VALUES;
}

enum {
    kla_inputs = PAL_INPUT_Q | PAL_INPUT_K | PAL_INPUT_V | PAL_INPUT_B | PAL_INPUT_IP | PAL_INPUT_KEEP | PAL_INPUT_DRIFT
};
static const pal_linear_kernels kernels = {
    .inputs = kla_inputs,
    .carries = PAL_CARRIES_MATRIX,
    .forward = pal_kla_forward_variants,
    .backward = pal_kla_backward_variants,
    .step = pal_kla_step_variants,
    .scratch_floats = scratch_floats,
};

static void compare(const pal_context *cx, const pal_memory_shape *s, const float *before, const float *after,
                    pal_memory_change *change) {
    const size_t ld = pal_linear_row(s->dv), dv = (size_t)s->dv, elements = dv * (size_t)s->dk;
    const float *I = after + ld * (size_t)s->dk;
    PAL_PICK(cx, change_plain)(before, after, ld * (size_t)s->dk, change);
    change->low = change->high = I[0];
    for (size_t e = 0; e < elements; e++) {
        const float x = I[e / dv * ld + e % dv];
        change->low = x < change->low ? x : change->low;
        change->high = x > change->high ? x : change->high;
    }
    const size_t distance = pal_change_sample_distance(elements);
    for (size_t e = 0; e < elements; e += distance) change->sample[change->samples++] = I[e / dv * ld + e % dv];
}

PAL_LINEAR_COMPARED_RULE(kla, kernels, compare, .has_variance = true, .has_importance = true, .parts = { "mu", "I" },
                         .summary = "Kalman Linear Attention: a Kalman filter for every pair of value and key");
