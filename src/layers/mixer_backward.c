/* SPDX-License-Identifier: MIT */
/* The gated mixers, backward: the steps of mixer.c in reverse. */
#include <assert.h>

#include "kernels/elementwise/elementwise.h"
#include "kernels/gates/gates.h"
#include "layers/mixer_parts.h"

/* d/d(A_log, Ip_log, b_scale, lam_raw) from the gradients of what they make. */
static void parameters_backward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                                const pal_mixer_work *w) {
    const size_t heads = (size_t)m->heads;
    float *const *d = layer->d;
    if (d[PAL_W_A_LOG]) pal_positive_backward(ps->cx, PAL_EXP, heads, NULL, w->A, w->dA, d[PAL_W_A_LOG]);
    if (m->gate_b && d[PAL_W_B_SCALE])
        pal_positive_backward(ps->cx, PAL_SOFTPLUS_OF, heads, layer->w[PAL_W_B_SCALE], NULL, w->dc, d[PAL_W_B_SCALE]);
    if (m->rule->inputs & PAL_INPUT_IP && d[PAL_W_IP_LOG])
        pal_positive_backward(ps->cx, PAL_EXP, heads, NULL, w->Ip, w->dIp, d[PAL_W_IP_LOG]);
    if (m->rule->inputs & PAL_INPUT_LAM && d[PAL_W_LAM])
        pal_positive_backward(ps->cx, PAL_SOFTPLUS_OF, heads * (size_t)m->dk, layer->w[PAL_W_LAM], NULL, w->dlam,
                              d[PAL_W_LAM]);
    pal_extra_parameters_backward(m, layer, w);
}

static void time_steps_backward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                                const pal_mixer_kept *a, const pal_mixer_work *w) {
    const size_t width = (size_t)m->dt_width;
    pal_clamp_backward(ps->cx, (size_t)ps->tokens * width, m->dt_low, m->dt_high, a->dt, w->ddt);
    const pal_activation_args softplus = { .rows = (size_t)ps->tokens,
                                           .width = m->dt_width,
                                           .kind = PAL_SOFTPLUS,
                                           .bias = layer->w[PAL_W_DT_BIAS],
                                           .x = { a->p + m->dt, (size_t)m->columns },
                                           .y = { a->dt, width },
                                           .dy = { w->ddt, width },
                                           .dx = { w->dp + m->dt, (size_t)m->columns },
                                           .dbias = layer->d[PAL_W_DT_BIAS] };
    pal_activate_backward(ps->cx, &softplus, ps->scratch);
}

static void memory_backward(const pal_pass *ps, const pal_mixer_plan *m, const pal_mixer_kept *a,
                            const pal_mixer_work *w) {
    const size_t heads = (size_t)m->heads, values = (size_t)m->values, channels = (size_t)m->channels;
    pal_memory_run run = pal_mixer_run(ps, m, a, w);
    assert(m->rule->scratch_bytes(ps->cx, &run.shape, PAL_BACKWARD) <= ps->scratch_bytes);
    run.dy = (pal_const_view){ w->d_o, values };
    run.before = ps->before;
    pal_memory_gradients *grad = &run.grad;
    if (m->l2) {
        grad->q = (pal_view){ w->dn, 2 * (size_t)m->keys };
        grad->k = (pal_view){ w->dn + m->keys, 2 * (size_t)m->keys };
    } else {
        grad->q = (pal_view){ w->dconv + m->q, channels };
        grad->k = (pal_view){ w->dconv + m->k, channels };
    }
    /* Where the value goes straight from the convolution to the memory, so does its gradient. */
    const bool direct = !m->gate_v && !m->gate_b && !m->skip;
    grad->v = direct ? (pal_view){ w->dconv + m->v, channels } : (pal_view){ w->dv, values };
    if (m->gate_b) grad->b = (pal_view){ w->db, values };
    if (m->uses_dt) grad->dt = (pal_view){ w->ddt, heads };
    if (m->uses_g) *(m->rule->inputs & PAL_INPUT_GK ? &grad->gk : &grad->g) = (pal_view){ w->dg, (size_t)m->dt_width };
    if (m->compares) grad->p = (pal_view){ w->dcompared, (size_t)m->keys };
    for (int i = 0; i < m->extras; i++)
        *(pal_view *)((char *)grad + pal_memory_input_list[m->extra[i].input].gradient) =
            (pal_view){ w->dextra[i], (size_t)m->extra[i].width };
    grad->keep = w->dkeep, grad->drift = w->ddrift;
    if (m->uses_beta || m->trapezoid) grad->beta = (pal_view){ w->dbs, heads };
    if (m->rule->inputs & PAL_INPUT_A) grad->A = w->dA;
    if (m->rule->inputs & PAL_INPUT_IP) grad->Ip = w->dIp;
    if (m->rule->inputs & PAL_INPUT_LAM) grad->lam = w->dlam;
    pal_memory_pass_on(m->rule, ps->cx, &run, PAL_BACKWARD);
}

/* Gates and skip: dconv of v, dpre (on db), and ds into ddt (M) or dbs (D). */
static void gates_backward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, const pal_mixer_kept *a,
                           const pal_mixer_work *w) {
    const size_t heads = (size_t)m->heads, values = (size_t)m->values, channels = (size_t)m->channels;
    if (!m->gate_v && !m->gate_b && !m->skip) return;
    pal_head_gate_args gate = pal_mixer_gate_args(ps, m, layer, a, w);
    gate.dv = (pal_const_view){ w->dv, values };
    gate.dx = (pal_view){ w->dconv + m->v, channels };
    if (m->gate_b) gate.db = (pal_const_view){ w->db, values }, gate.dpre = (pal_view){ w->db, values };
    if (m->skip) gate.d_o = (pal_const_view){ w->d_o, values };
    gate.dc = w->dc;
    gate.dD = layer->d[PAL_W_D];
    gate.ds = (pal_view){ m->dt_gates ? w->ddt : w->dbs, heads };
    if (m->dt_gates) gate.ds_add = (pal_const_view){ w->ddt, heads };
    if (!m->gate_v && !m->gate_b) { /* skip alone: s = 1, and ds is of no interest */
        gate.s = (pal_const_view){ w->ones, 0 };
        gate.ds = (pal_view){ w->dg, heads };
    } else if (!m->gate_v) { /* b is gated, v is not */
        gate.dv = (pal_const_view){ w->zeros, 0 };
    }
    pal_head_gate_backward(ps->cx, &gate, ps->scratch);
    if (m->gate_v || !m->gate_b) return;
    const pal_view dx = { w->dconv + m->v, channels };
    pal_add_rows(
        ps->cx,
        &(pal_elementwise_args){
            .rows = (size_t)ps->tokens, .width = m->values, .x = pal_reading(dx), .by = { w->dv, values }, .y = dx });
}

/* w->dv = what entered the output projection, and w->d_o from its gradient to that of y + D x. */
static void norm_backward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, const pal_mixer_kept *a,
                          const pal_mixer_work *w) {
    const size_t values = (size_t)m->values, columns = (size_t)m->columns;
    pal_mixer_scale(ps, w->d_o, values, m->values, m->out_scale);
    if (m->normed) {
        pal_rmsnorm_args norm = pal_mixer_norm_args(ps, m, layer, a, w->o);
        norm.again = (pal_view){ w->dv, values }; /* scratch: dv is not live yet */
        norm.dy = (pal_const_view){ w->d_o, values };
        norm.dx = (pal_view){ w->d_o, values };
        norm.dz = (pal_view){ w->dp + m->z, columns };
        norm.dw = layer->d[PAL_W_MIXER_NORM];
        pal_rmsnorm_backward(ps->cx, &norm, ps->scratch);
    } else {
        pal_swiglu_args gate = pal_mixer_gate_only_args(ps, m, a, w->o);
        gate.y = (pal_view){ w->dv, values };
        pal_swiglu(ps->cx, &gate);
        gate.dy = (pal_const_view){ w->d_o, values };
        gate.dgate = (pal_view){ w->dp + m->z, columns };
        gate.dup = (pal_view){ w->d_o, values };
        pal_swiglu_backward(ps->cx, &gate);
    }
    pal_mixer_scale(ps, w->dv, values, m->values, m->out_scale);
}

void pal_gated_backward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, pal_mixer_kept *a,
                        pal_mixer_work *w, const float *x, const float *dh, pal_accumulate acc, float *dx) {
    const size_t columns = (size_t)m->columns, hidden = (size_t)m->hidden, values = (size_t)m->values,
                 heads = (size_t)m->heads;
    double t = pal_tick(ps);
    pal_mixer_parameters(ps->cx, m, layer, w);
    float *const sums[] = { w->dA, w->dIp, w->dc };
    for (size_t i = 0; i < PAL_COUNT(sums); i++) pal_fill(ps->cx, sums[i], heads, 0);
    pal_fill(ps->cx, w->dlam, heads * (size_t)m->dk, 0);
    pal_fill(ps->cx, w->zeros, values, 0);
    pal_fill(ps->cx, w->ones, heads, 1);
    if (w->dkeep) pal_fill(ps->cx, w->dkeep, (size_t)m->dk * values, 0);
    if (w->ddrift) pal_fill(ps->cx, w->ddrift, (size_t)m->dk * values, 0);
    pal_mixer_finish(ps, m, layer, a, w, w->o, false);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_GATES, t);
    pal_dense_backward(ps, &m->out, ps->tokens, NULL, 0, dh, hidden, PAL_OVERWRITE, w->d_o, values);
    if (layer->d[PAL_W_OUT_BIAS])
        pal_bias_backward(ps->cx, layer->d[PAL_W_OUT_BIAS], dh, hidden, ps->tokens, m->hidden);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_OUT, t);

    norm_backward(ps, m, layer, a, w);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_GATES, t);
    pal_dense_backward(ps, &m->out, ps->tokens, w->dv, values, dh, hidden, PAL_OVERWRITE, NULL, 0);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_OUT, t);
    pal_mixer_prepare(ps, m, layer, a, w);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_GATES, t);
    memory_backward(ps, m, a, w);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_MEMORY, t);

    if (m->uses_g)
        pal_log_decay_backward(ps->cx, (size_t)ps->tokens, m->heads, m->dt_width / m->heads, w->A, a->dt, w->dg, w->ddt,
                               w->dA);
    gates_backward(ps, m, layer, a, w);
    if (m->gate_b)
        pal_dense_backward(ps, &m->b, ps->tokens, a->p + m->rank_at, columns, w->db, values, PAL_OVERWRITE,
                           w->dp + m->rank_at, columns);
    pal_extra_backward(ps, m, layer, a, w);
    if (m->dt >= 0) time_steps_backward(ps, m, layer, a, w);
    if (m->bs >= 0) {
        const pal_activation_args sigmoid = { .rows = (size_t)ps->tokens,
                                              .width = m->heads,
                                              .kind = PAL_SIGMOID,
                                              .y = { a->bs, heads },
                                              .dy = { w->dbs, heads },
                                              .dx = { w->dp + m->bs, columns } };
        pal_activate_backward(ps->cx, &sigmoid, ps->scratch);
    }
    if (m->l2) {
        pal_l2norm_args l2 = pal_mixer_l2_args(ps, m, a, w);
        l2.dy = (pal_const_view){ w->dn, 2 * (size_t)m->keys };
        l2.dx = (pal_view){ w->dconv + m->q, (size_t)m->channels };
        pal_l2norm_backward(ps->cx, &l2);
    }
    parameters_backward(ps, m, layer, w);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_GATES, t);
    pal_conv_args conv = pal_mixer_conv_args(ps, m, layer, a);
    conv.before = ps->before;
    conv.dy = (pal_const_view){ w->dconv, (size_t)m->channels };
    conv.dx = (pal_view){ w->dp + m->conv_at, columns };
    conv.dw = layer->d[PAL_W_CONV];
    conv.dbias = layer->d[PAL_W_CONV_BIAS];
    pal_conv_silu_backward(ps->cx, &conv, ps->scratch);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_CONV, t);
    pal_mixer_scale_in(ps, m, w->dp);
    pal_dense_backward(ps, &m->in, ps->tokens, x, hidden, w->dp, columns, acc, dx, hidden);
    if (layer->d[PAL_W_IN_BIAS])
        pal_bias_backward(ps->cx, layer->d[PAL_W_IN_BIAS], w->dp, columns, ps->tokens, m->in.out[0]);
    pal_tock(ps, PAL_T_BACKWARD + PAL_T_PROJECT, t);
}
