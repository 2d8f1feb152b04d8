/* SPDX-License-Identifier: MIT */
/* Attention as a mixer: project, turn queries and keys by their positions, attend, project back. The rotated queries
 * and keys overwrite the projections: that is what attention's backward reads and what the state keeps. */
#include <assert.h>

#include "kernels/rotary/rotary.h"
#include "layers/mixer.h"

/* Queries and keys are neighbours in a row and turn alike. */
static pal_rotary_args rotary_args(const pal_pass *ps, const pal_mixer_plan *m, float *rows) {
    const pal_view view = { rows + m->q, (size_t)m->columns };
    return (pal_rotary_args){ .sequences = ps->sequences,
                              .cu_seqlens = ps->cu_seqlens,
                              .offsets = ps->past,
                              .heads = m->heads + m->key_heads,
                              .width = m->dk,
                              .table = ps->rotary,
                              .x = pal_reading(view),
                              .y = view,
                              .dy = pal_reading(view),
                              .dx = view };
}

void pal_attention_forward(const pal_pass *ps, const pal_mixer_plan *m, pal_mixer_kept *a, const float *x, float *h) {
    static const pal_mixer_work none = { 0 };
    double t = pal_tick(ps);
    pal_dense_forward(ps, &m->in, ps->tokens, x, (size_t)m->hidden, PAL_OVERWRITE, a->p, (size_t)m->columns);
    t = pal_tock(ps, PAL_T_PROJECT, t);
    const pal_rotary_args rotary = rotary_args(ps, m, a->p);
    pal_rotary(ps->cx, &rotary);
    t = pal_tock(ps, PAL_T_GATES, t);
    const pal_memory_run run = pal_mixer_run(ps, m, a, &none);
    pal_mixer_remember(ps, m, &run);
    t = pal_tock(ps, PAL_T_MEMORY, t);
    if (!h) return;
    pal_dense_forward(ps, &m->out, ps->tokens, a->y, (size_t)m->values, PAL_ADD, h, (size_t)m->hidden);
    pal_tock(ps, PAL_T_OUT, t);
}

void pal_attention_backward(const pal_pass *ps, const pal_mixer_plan *m, pal_mixer_kept *a, pal_mixer_work *w,
                            const float *x, const float *dh, float *dx) {
    const size_t columns = (size_t)m->columns;
    double t = pal_tick(ps);
    pal_dense_backward(ps->cx, &m->out, ps->tokens, a->y, (size_t)m->values, dh, (size_t)m->hidden, w->d_o,
                       (size_t)m->values);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_OUT, t);
    pal_memory_run run = pal_mixer_run(ps, m, a, w);
    assert(m->rule->scratch_bytes(ps->cx, &run.shape, PAL_BACKWARD) <= ps->scratch_bytes);
    run.dy = (pal_const_view){ w->d_o, (size_t)m->values };
    run.grad.q = (pal_view){ w->dp + m->q, columns };
    run.grad.k = (pal_view){ w->dp + m->k, columns };
    run.grad.v = (pal_view){ w->dp + m->v, columns };
    m->rule->backward(ps->cx, &run);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_MEMORY, t);
    const pal_rotary_args rotary = rotary_args(ps, m, w->dp);
    pal_rotary_backward(ps->cx, &rotary);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_GATES, t);
    pal_dense_backward(ps->cx, &m->in, ps->tokens, x, (size_t)m->hidden, w->dp, columns, dx, (size_t)m->hidden);
    pal_tock(ps, PAL_T_BACKWARD + PAL_T_PROJECT, t);
}
