/* SPDX-License-Identifier: MIT */
/* The gated short convolution as a mixer: project to b, c and x, convolve b x over the last tokens, gate by c, project
 * back. All it remembers is the convolution's window. */
#include "kernels/elementwise/elementwise.h"
#include "layers/mixer_parts.h"

/* y = x by, all of them (T, values). */
static void multiply(const pal_pass *ps, const pal_mixer_plan *m, pal_const_view x, pal_const_view by, pal_view y) {
    pal_multiply_rows(
        ps->cx, &(pal_elementwise_args){ .rows = (size_t)ps->tokens, .width = m->values, .x = x, .by = by, .y = y });
}

static pal_conv_args conv_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                               const pal_mixer_kept *a) {
    return (pal_conv_args){ .sequences = ps->sequences,
                            .cu_seqlens = ps->cu_seqlens,
                            .channels = m->values,
                            .taps = m->taps,
                            .linear = true,
                            .w = layer->w[PAL_W_CONV],
                            .x = { a->c, (size_t)m->values },
                            .y = { a->y, (size_t)m->values },
                            .window = ps->conv_window,
                            .borrowed = ps->borrowed };
}

/* A third of p, or of its gradient. */
static pal_view third(const pal_mixer_plan *m, float *p, int i) {
    return (pal_view){ p + (size_t)i * (size_t)m->values, (size_t)m->columns };
}

/* What enters the output projection; training keeps y. */
static float *finish(const pal_pass *ps, const pal_mixer_plan *m, const pal_mixer_kept *a, const pal_mixer_work *w) {
    const size_t values = (size_t)m->values;
    float *o = ps->training ? w->o : a->y;
    multiply(ps, m, (pal_const_view){ a->y, values }, pal_reading(third(m, a->p, 1)), (pal_view){ o, values });
    pal_mixer_scale(ps, o, values, m->values, m->out_scale);
    return o;
}

void pal_convolution_forward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, pal_mixer_kept *a,
                             pal_mixer_work *w, const float *x, float *h) {
    const size_t hidden = (size_t)m->hidden, values = (size_t)m->values;
    double t = pal_tick(ps);
    if (!ps->projected) pal_dense_forward(ps, &m->in, ps->tokens, x, hidden, PAL_OVERWRITE, a->p, (size_t)m->columns);
    t = pal_tock(ps, PAL_T_PROJECT, t);
    multiply(ps, m, pal_reading(third(m, a->p, 0)), pal_reading(third(m, a->p, 2)), (pal_view){ a->c, values });
    const pal_conv_args conv = conv_args(ps, m, layer, a);
    pal_conv_silu(ps->cx, &conv);
    t = pal_tock(ps, PAL_T_CONV, t);
    if (!h) return;
    const float *o = finish(ps, m, a, w);
    t = pal_tock(ps, PAL_T_GATES, t);
    pal_dense_forward(ps, &m->out, ps->tokens, o, values, PAL_ADD, h, hidden);
    pal_tock(ps, PAL_T_OUT, t);
}

void pal_convolution_backward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, pal_mixer_kept *a,
                              pal_mixer_work *w, const float *x, const float *dh, pal_accumulate acc, float *dx) {
    const size_t hidden = (size_t)m->hidden, values = (size_t)m->values;
    const pal_view d_o = { w->d_o, values }, du = { w->dconv, values };
    double t = pal_tick(ps);
    const float *o = finish(ps, m, a, w);
    pal_dense_backward(ps, &m->out, ps->tokens, o, values, dh, hidden, PAL_OVERWRITE, w->d_o, values);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_OUT, t);
    pal_mixer_scale(ps, w->d_o, values, m->values, m->out_scale);
    multiply(ps, m, pal_reading(d_o), (pal_const_view){ a->y, values }, third(m, w->dp, 1));
    multiply(ps, m, pal_reading(d_o), pal_reading(third(m, a->p, 1)), d_o);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_GATES, t);
    pal_conv_args conv = conv_args(ps, m, layer, a);
    conv.before = ps->before;
    conv.dy = pal_reading(d_o);
    conv.dx = du;
    conv.dw = layer->d[PAL_W_CONV];
    pal_conv_silu_backward(ps->cx, &conv, ps->scratch);
    multiply(ps, m, pal_reading(du), pal_reading(third(m, a->p, 2)), third(m, w->dp, 0));
    multiply(ps, m, pal_reading(du), pal_reading(third(m, a->p, 0)), third(m, w->dp, 2));
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_CONV, t);
    pal_dense_backward(ps, &m->in, ps->tokens, x, hidden, w->dp, (size_t)m->columns, acc, dx, hidden);
    pal_tock(ps, PAL_T_BACKWARD + PAL_T_PROJECT, t);
}
