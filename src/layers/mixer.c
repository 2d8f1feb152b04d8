/* SPDX-License-Identifier: MIT */
/* The gated mixers, forward. docs/explanation/models.md has the formulas. */
#include "layers/mixer.h"

#include <assert.h>

#include "kernels/activations/activations.h"
#include "kernels/conv/conv.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/gates/gates.h"
#include "layers/mixer_parts.h"

void pal_mixer_parameters(const pal_context *cx, const pal_mixer_plan *m, const pal_layer *layer, pal_mixer_work *w) {
    const size_t heads = (size_t)m->heads;
    if (layer->w[PAL_W_A_LOG]) pal_positive(cx, PAL_EXP, heads, layer->w[PAL_W_A_LOG], w->A);
    if (m->gate_b) pal_positive(cx, PAL_SOFTPLUS_OF, heads, layer->w[PAL_W_B_SCALE], w->c);
    if (m->rule->inputs & PAL_INPUT_IP) pal_positive(cx, PAL_EXP, heads, layer->w[PAL_W_IP_LOG], w->Ip);
    if (m->rule->inputs & PAL_INPUT_LAM)
        pal_positive(cx, PAL_SOFTPLUS_OF, heads * (size_t)m->dk, layer->w[PAL_W_LAM], w->lam);
    pal_extra_parameters(m, layer, w);
}

pal_memory_run pal_mixer_run(const pal_pass *ps, const pal_mixer_plan *m, const pal_mixer_kept *a,
                             const pal_mixer_work *w) {
    const size_t heads = (size_t)m->heads, values = (size_t)m->values;
    pal_memory_run run = { .shape = pal_mixer_shape(m, ps->tokens, ps->sequences, ps->cu_seqlens, 0),
                           .state = ps->memory,
                           .borrowed = ps->borrowed,
                           .past = ps->past,
                           .paged = ps->paged,
                           .saved = ps->training ? a->saved : NULL,
                           .scratch = ps->scratch,
                           .y = { a->y, values } };
    run.in = (pal_memory_inputs){ .scale = m->scale,
                                  .mesa_tolerance = m->mesa_tolerance,
                                  .A = w->A,
                                  .Ip = w->Ip,
                                  .lam = w->lam,
                                  .keep = w->keep,
                                  .drift = w->drift,
                                  .dt = { a->dt, heads },
                                  .g = { a->g, heads },
                                  .gk = { a->g, (size_t)m->dt_width },
                                  .beta = { m->trapezoid ? w->beta : a->bs, heads },
                                  .b = { w->b, values },
                                  .p = { w->compared, (size_t)m->keys } };
    for (int i = 0; i < m->extras; i++)
        *pal_memory_input_rows(&run.in, m->extra[i].input) = (pal_const_view){ w->extra[i], (size_t)m->extra[i].width };
    if (ps->variance && m->rule->has_variance) run.y_var = (pal_view){ ps->variance, values };
    if (m->program == PAL_MIXER_ATTENDING) { /* attention reads its projections */
        if (ps->caches) run.state = ps->caches, run.shape.context = ps->room;
        run.in.q = a->qn ? (pal_const_view){ a->qn, heads * (size_t)m->dk }
                         : (pal_const_view){ a->p + m->q, (size_t)m->columns };
        run.in.k = a->kn ? (pal_const_view){ a->kn, (size_t)m->keys }
                         : (pal_const_view){ a->p + m->k, (size_t)m->columns };
        run.in.v = (pal_const_view){ a->p + m->v, (size_t)m->columns };
        return run;
    }
    if (m->l2) {
        run.in.q = (pal_const_view){ w->n, 2 * (size_t)m->keys };
        run.in.k = (pal_const_view){ w->n + m->keys, 2 * (size_t)m->keys };
    } else {
        run.in.q = (pal_const_view){ a->c + m->q, (size_t)m->channels };
        run.in.k = (pal_const_view){ a->c + m->k, (size_t)m->channels };
    }
    run.in.v = m->gate_v ? (pal_const_view){ w->v, values } : (pal_const_view){ a->c + m->v, (size_t)m->channels };
    return run;
}

/* One token after the other, each by a step. */
static void remember_apart(const pal_pass *ps, const pal_mixer_plan *m, const pal_memory_run *run) {
    for (int t = 0; t < ps->tokens; t++) {
        const int past = run->past ? run->past[0] + t : t;
        const size_t row = (size_t)t;
        pal_memory_run one = *run;
        one.shape.tokens = 1;
        one.shape.cu_seqlens = NULL;
        one.past = &past;
        one.y = pal_view_at(run->y, row, 0);
        one.y_var = pal_view_at(run->y_var, row, 0);
        for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
            pal_const_view *rows = pal_memory_input_rows(&one.in, i);
            if (!pal_memory_input_list[i].parameter) *rows = pal_const_view_at(*rows, row, 0);
        }
        pal_memory_pass_on(m->rule, ps->cx, &one, PAL_STEP);
    }
}

void pal_mixer_remember(const pal_pass *ps, const pal_mixer_plan *m, const pal_memory_run *run) {
    if (ps->apart) {
        remember_apart(ps, m, run);
        return;
    }
    const pal_memory_pass pass = ps->cu_seqlens ? PAL_FORWARD : PAL_STEP;
    assert(m->rule->scratch_bytes(ps->cx, &run->shape, pass) <= ps->scratch_bytes);
    pal_memory_pass_on(m->rule, ps->cx, run, pass);
}

pal_rmsnorm_args pal_mixer_norm_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                                     const pal_mixer_kept *a, float *o) {
    const size_t values = (size_t)m->values;
    return (pal_rmsnorm_args){ .rows = (size_t)ps->tokens,
                               .groups = m->norm_groups,
                               .width = m->values / m->norm_groups,
                               .gate = m->norm,
                               .shared_weight = m->norm_shared,
                               .eps = m->eps,
                               .w = layer->w[PAL_W_MIXER_NORM],
                               .x = { o, values },
                               .z = { a->p + m->z, (size_t)m->columns },
                               .y = { o, values } };
}

pal_head_gate_args pal_mixer_gate_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                                       const pal_mixer_kept *a, const pal_mixer_work *w) {
    const size_t values = (size_t)m->values, heads = (size_t)m->heads;
    return (pal_head_gate_args){ .rows = (size_t)ps->tokens,
                                 .heads = m->heads,
                                 .width = m->dv,
                                 .x = { a->c + m->v, (size_t)m->channels },
                                 .pre = { a->pre, values },
                                 .s = { m->dt_gates ? a->dt : a->bs, heads },
                                 .c = w->c,
                                 .D = m->skip ? layer->w[PAL_W_D] : NULL,
                                 .v = { w->v, values },
                                 .b = { m->gate_b ? w->b : NULL, values } };
}

pal_l2norm_args pal_mixer_l2_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_mixer_kept *a,
                                  const pal_mixer_work *w) {
    return (pal_l2norm_args){ .rows = (size_t)ps->tokens,
                              .groups = 2 * m->key_heads,
                              .width = m->dk,
                              .kind = m->l2_kind,
                              .x = { a->c + m->q, (size_t)m->channels },
                              .y = { w->n, 2 * (size_t)m->keys } };
}

pal_conv_args pal_mixer_conv_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                                  const pal_mixer_kept *a) {
    return (pal_conv_args){ .sequences = ps->sequences,
                            .cu_seqlens = ps->cu_seqlens,
                            .channels = m->channels,
                            .taps = m->taps,
                            .w = layer->w[PAL_W_CONV],
                            .bias = layer->w[PAL_W_CONV_BIAS],
                            .x = { a->p + m->conv_at, (size_t)m->columns },
                            .y = { a->c, (size_t)m->channels },
                            .window = ps->conv_window,
                            .borrowed = ps->borrowed };
}

static void time_steps(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, pal_mixer_kept *a,
                       const pal_mixer_work *w) {
    const size_t width = (size_t)m->dt_width;
    const pal_activation_args softplus = { .rows = (size_t)ps->tokens,
                                           .width = m->dt_width,
                                           .kind = PAL_SOFTPLUS,
                                           .bias = layer->w[PAL_W_DT_BIAS],
                                           .x = { a->p + m->dt, (size_t)m->columns },
                                           .y = { a->dt, width } };
    pal_activate(ps->cx, &softplus);
    pal_clamp(ps->cx, (size_t)ps->tokens * width, m->dt_low, m->dt_high, a->dt);
    if (m->uses_g) pal_log_decay(ps->cx, (size_t)ps->tokens, m->heads, m->dt_width / m->heads, w->A, a->dt, a->g);
}

/* Everything between the kept activations and the memory that is cheaper to compute twice than to keep. */
void pal_mixer_prepare(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, const pal_mixer_kept *a,
                       const pal_mixer_work *w) {
    if (m->l2) {
        const pal_l2norm_args l2 = pal_mixer_l2_args(ps, m, a, w);
        pal_l2norm(ps->cx, &l2);
    }
    pal_extra_prepare(ps, m, a, w);
    if (m->gate_v || m->gate_b) {
        const pal_head_gate_args gate = pal_mixer_gate_args(ps, m, layer, a, w);
        pal_head_gate(ps->cx, &gate);
    }
}

void pal_mixer_scale(const pal_pass *ps, float *x, size_t ld, int width, float factor) {
    if (factor != 1)
        pal_scale_rows(
            ps->cx, &(pal_elementwise_args){
                        .rows = (size_t)ps->tokens, .width = width, .factor = factor, .x = { x, ld }, .y = { x, ld } });
}

void pal_mixer_scale_in(const pal_pass *ps, const pal_mixer_plan *m, float *p) {
    const int widths[5] = { m->values, m->values, m->keys, m->keys, m->heads };
    if (!m->scales_in) return;
    for (int i = 0; i < 5; p += widths[i++]) pal_mixer_scale(ps, p, (size_t)m->columns, widths[i], m->in_scale[i]);
}

pal_swiglu_args pal_mixer_gate_only_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_mixer_kept *a,
                                         float *o) {
    const size_t values = (size_t)m->values;
    return (pal_swiglu_args){ .rows = (size_t)ps->tokens,
                              .width = m->values,
                              .gate = { a->p + m->z, (size_t)m->columns },
                              .up = { o, values },
                              .y = { o, values } };
}

/* o = norm and gate of y + D x, the input of the output projection. */
void pal_mixer_finish(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, const pal_mixer_kept *a,
                      const pal_mixer_work *w, float *o, bool norm) {
    const size_t values = (size_t)m->values;
    if (o != a->y) pal_copy_floats(ps->cx, o, a->y, (size_t)ps->tokens * values);
    if (m->skip) {
        pal_head_gate_args skip = pal_mixer_gate_args(ps, m, layer, a, w);
        skip.o = (pal_view){ o, values };
        pal_head_skip(ps->cx, &skip);
    }
    if (!norm) return;
    if (m->normed) {
        const pal_rmsnorm_args args = pal_mixer_norm_args(ps, m, layer, a, o);
        pal_rmsnorm(ps->cx, &args);
    } else {
        const pal_swiglu_args args = pal_mixer_gate_only_args(ps, m, a, o);
        pal_swiglu(ps->cx, &args);
    }
    pal_mixer_scale(ps, o, values, m->values, m->out_scale);
}

static void project(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, pal_mixer_kept *a,
                    const float *x) {
    const size_t columns = (size_t)m->columns;
    const float *bias = layer->w[PAL_W_IN_BIAS];
    pal_dense_forward(ps, &m->in, ps->tokens, x, (size_t)m->hidden, PAL_OVERWRITE, a->p, columns);
    if (bias) pal_bias_add(ps->cx, a->p, columns, ps->tokens, m->in.out[0], bias);
    pal_mixer_scale_in(ps, m, a->p);
}

void pal_gated_forward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, pal_mixer_kept *a,
                       pal_mixer_work *w, const float *x, float *h) {
    const size_t columns = (size_t)m->columns, hidden = (size_t)m->hidden;
    double t = pal_tick(ps);
    if (!ps->projected) project(ps, m, layer, a, x);
    t = pal_tock(ps, PAL_T_PROJECT, t);
    const pal_conv_args conv = pal_mixer_conv_args(ps, m, layer, a);
    pal_conv_silu(ps->cx, &conv);
    t = pal_tock(ps, PAL_T_CONV, t);
    pal_mixer_parameters(ps->cx, m, layer, w);
    if (m->dt >= 0) time_steps(ps, m, layer, a, w);
    if (m->bs >= 0) {
        const pal_activation_args sigmoid = { .rows = (size_t)ps->tokens,
                                              .width = m->heads,
                                              .kind = PAL_SIGMOID,
                                              .x = { a->p + m->bs, columns },
                                              .y = { a->bs, (size_t)m->heads } };
        pal_activate(ps->cx, &sigmoid);
    }
    pal_extra_gates(ps, m, layer, a);
    if (m->gate_b)
        pal_dense_forward(ps, &m->b, ps->tokens, a->p + m->rank_at, columns, PAL_OVERWRITE, a->pre, (size_t)m->values);
    pal_mixer_prepare(ps, m, layer, a, w);
    t = pal_tock(ps, PAL_T_GATES, t);
    pal_memory_run run = pal_mixer_run(ps, m, a, w);
    if (ps->before_memory) ps->before_memory(ps->before_memory_user, &run);
    pal_mixer_remember(ps, m, &run);
    t = pal_tock(ps, PAL_T_MEMORY, t);
    if (!h) return;
    float *o = ps->training ? w->o : a->y;
    pal_mixer_finish(ps, m, layer, a, w, o, true);
    t = pal_tock(ps, PAL_T_GATES, t);
    pal_dense_forward(ps, &m->out, ps->tokens, o, (size_t)m->values, PAL_ADD, h, hidden);
    if (layer->w[PAL_W_OUT_BIAS]) pal_bias_add(ps->cx, h, hidden, ps->tokens, m->hidden, layer->w[PAL_W_OUT_BIAS]);
    pal_tock(ps, PAL_T_OUT, t);
}

void pal_mixer_forward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, pal_mixer_kept *a,
                       pal_mixer_work *w, const float *x, float *h) {
    static pal_mixer_forward_fn *const programs[] = { pal_gated_forward, pal_attention_forward,
                                                      pal_convolution_forward };
    programs[m->program](ps, m, layer, a, w, x, h);
}

void pal_mixer_backward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, pal_mixer_kept *a,
                        pal_mixer_work *w, const float *x, const float *dh, pal_accumulate acc, float *dx) {
    static pal_mixer_backward_fn *const programs[] = { pal_gated_backward, pal_attention_backward,
                                                       pal_convolution_backward };
    programs[m->program](ps, m, layer, a, w, x, dh, acc, dx);
}
