/* SPDX-License-Identifier: MIT */
/* Attention as a mixer: project, (norm queries and keys,) turn them by their positions, attend, (gate,) project back.
 * Without norms the turned queries and keys overwrite the projections: that is what attention's backward reads and what
 * the state keeps. With norms, or with a gate, whose columns lie between the queries, they get rows of their own, and
 * the projections stay as backward needs them. */
#include <assert.h>

#include "kernels/elementwise/elementwise.h"
#include "kernels/rotary/rotary.h"
#include "layers/mixer_parts.h"

/* Turns `heads` heads of dk channels in each row. */
static pal_rotary_args rotary_args(const pal_pass *ps, const pal_mixer_plan *m, pal_view rows, int heads) {
    return (pal_rotary_args){ .sequences = ps->sequences,
                              .cu_seqlens = ps->cu_seqlens,
                              .offsets = ps->past,
                              .heads = heads,
                              .width = m->rotary,
                              .stride = m->dk,
                              .table = ps->rotary,
                              .x = pal_reading(rows),
                              .y = rows,
                              .dy = pal_reading(rows),
                              .dx = rows };
}

typedef void rotary_fn(const pal_context *cx, const pal_rotary_args *args);

/* Queries and keys: neighbours in a row of the projection, or apart. */
static void turn(const pal_pass *ps, const pal_mixer_plan *m, rotary_fn *fn, float *p, float *q, float *k) {
    const pal_view queries = q ? (pal_view){ q, (size_t)m->heads * (size_t)m->dk }
                               : (pal_view){ p + m->q, (size_t)m->columns };
    const pal_view keys = k ? (pal_view){ k, (size_t)m->keys } : (pal_view){ p + m->k, (size_t)m->columns };
    if (!m->rotary) return;
    if (!q && !k) {
        const pal_rotary_args both = rotary_args(ps, m, queries, m->heads + m->key_heads);
        fn(ps->cx, &both);
        return;
    }
    const pal_rotary_args one = rotary_args(ps, m, queries, m->heads), other = rotary_args(ps, m, keys, m->key_heads);
    fn(ps->cx, &one);
    fn(ps->cx, &other);
}

/* A row for each head of a token. */
static size_t head_rows(const pal_pass *ps, const pal_mixer_plan *m) { return (size_t)ps->tokens * (size_t)m->heads; }

static pal_rmsnorm_args query_norm_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                                        const pal_mixer_kept *a) {
    return (pal_rmsnorm_args){ .rows = head_rows(ps, m),
                               .groups = 1,
                               .width = m->dk,
                               .eps = m->eps,
                               .w = layer->w[PAL_W_Q_NORM],
                               .x = { a->query, (size_t)m->query_width },
                               .y = { a->qn, (size_t)m->dk } };
}

static pal_rmsnorm_args key_norm_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                                      const pal_mixer_kept *a) {
    return (pal_rmsnorm_args){ .rows = (size_t)ps->tokens,
                               .groups = m->key_heads,
                               .width = m->dk,
                               .shared_weight = true,
                               .eps = m->eps,
                               .w = layer->w[PAL_W_K_NORM],
                               .x = { a->p + m->k, (size_t)m->columns },
                               .y = { a->kn, (size_t)m->keys } };
}

/* One number a channel of a head: to and from rows of queries with their gates between them. */
static pal_elementwise_args by_head(const pal_pass *ps, const pal_mixer_plan *m, pal_const_view x, pal_const_view by,
                                    pal_view y) {
    return (pal_elementwise_args){ .rows = head_rows(ps, m), .width = m->dk, .x = x, .by = by, .y = y };
}

/* The product of the queries alone, and queries and keys as attention reads them, not yet turned. */
static void separate(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, pal_mixer_kept *a,
                     const float *x) {
    const size_t dk = (size_t)m->dk, width = (size_t)m->query_width;
    pal_dense_forward(ps, &m->query, ps->tokens, x, (size_t)m->hidden, PAL_OVERWRITE, a->query,
                      (size_t)m->heads * width);
    if (m->qk_norm) {
        const pal_rmsnorm_args queries = query_norm_args(ps, m, layer, a), keys = key_norm_args(ps, m, layer, a);
        pal_rmsnorm(ps->cx, &queries);
        pal_rmsnorm(ps->cx, &keys);
    } else {
        const pal_elementwise_args copy = by_head(ps, m, (pal_const_view){ a->query, width }, (pal_const_view){ 0 },
                                                  (pal_view){ a->qn, dk });
        pal_copy_rows(ps->cx, &copy);
    }
    if (!m->out_gate) return;
    const pal_activation_args sigmoid = { .rows = head_rows(ps, m),
                                          .width = m->dk,
                                          .kind = PAL_SIGMOID,
                                          .x = { a->query + dk, width },
                                          .y = { a->gate, dk } };
    pal_activate(ps->cx, &sigmoid);
}

/* What enters the output projection: y itself, or y gated and scaled, which training keeps apart from y. */
static float *finish(const pal_pass *ps, const pal_mixer_plan *m, const pal_mixer_kept *a, const pal_mixer_work *w) {
    const size_t dk = (size_t)m->dk, values = (size_t)m->values;
    float *o = ps->training ? w->o : a->y;
    if (!m->out_gate && m->out_scale == 1) return a->y;
    if (m->out_gate) {
        const pal_elementwise_args gate = by_head(ps, m, (pal_const_view){ a->y, dk }, (pal_const_view){ a->gate, dk },
                                                  (pal_view){ o, dk });
        pal_multiply_rows(ps->cx, &gate);
    } else if (o != a->y) {
        pal_copy_floats(ps->cx, o, a->y, (size_t)ps->tokens * values);
    }
    pal_mixer_scale(ps, o, values, m->values, m->out_scale);
    return o;
}

void pal_attention_forward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, pal_mixer_kept *a,
                           pal_mixer_work *w, const float *x, float *h) {
    double t = pal_tick(ps);
    pal_dense_forward(ps, &m->in, ps->tokens, x, (size_t)m->hidden, PAL_OVERWRITE, a->p, (size_t)m->columns);
    if (m->query_width) separate(ps, m, layer, a, x);
    t = pal_tock(ps, PAL_T_PROJECT, t);
    turn(ps, m, pal_rotary, a->p, a->qn, a->kn);
    t = pal_tock(ps, PAL_T_GATES, t);
    const pal_memory_run run = pal_mixer_run(ps, m, a, w);
    pal_mixer_remember(ps, m, &run);
    t = pal_tock(ps, PAL_T_MEMORY, t);
    if (!h) return;
    const float *o = finish(ps, m, a, w);
    pal_dense_forward(ps, &m->out, ps->tokens, o, (size_t)m->values, PAL_ADD, h, (size_t)m->hidden);
    pal_tock(ps, PAL_T_OUT, t);
}

/* w->d_o from the gradient of what entered the output projection to that of y; the gate's goes into dquery. */
static void finish_backward(const pal_pass *ps, const pal_mixer_plan *m, const pal_mixer_kept *a,
                            const pal_mixer_work *w) {
    const size_t dk = (size_t)m->dk, width = (size_t)m->query_width;
    const pal_view d_o = { w->d_o, dk }, dgate = { w->dquery + dk, width };
    pal_mixer_scale(ps, w->d_o, (size_t)m->values, m->values, m->out_scale);
    if (!m->out_gate) return;
    const pal_elementwise_args of_gate = by_head(ps, m, pal_reading(d_o), (pal_const_view){ a->y, dk }, dgate),
                               of_y = by_head(ps, m, pal_reading(d_o), (pal_const_view){ a->gate, dk }, d_o);
    const pal_activation_args sigmoid = { .rows = head_rows(ps, m),
                                          .width = m->dk,
                                          .kind = PAL_SIGMOID,
                                          .y = { a->gate, dk },
                                          .dy = pal_reading(dgate),
                                          .dx = dgate };
    pal_multiply_rows(ps->cx, &of_gate);
    pal_activate_backward(ps->cx, &sigmoid, ps->scratch);
    pal_multiply_rows(ps->cx, &of_y);
}

/* From queries and keys as attention reads them to their projections. */
static void separate_backward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                              const pal_mixer_kept *a, const pal_mixer_work *w) {
    const size_t dk = (size_t)m->dk, width = (size_t)m->query_width;
    if (!m->qk_norm) {
        const pal_elementwise_args copy = by_head(ps, m, (pal_const_view){ w->dqn, dk }, (pal_const_view){ 0 },
                                                  (pal_view){ w->dquery, width });
        pal_copy_rows(ps->cx, &copy);
        return;
    }
    pal_rmsnorm_args queries = query_norm_args(ps, m, layer, a), keys = key_norm_args(ps, m, layer, a);
    queries.dy = (pal_const_view){ w->dqn, dk };
    queries.dx = (pal_view){ w->dquery, width };
    queries.dw = layer->d[PAL_W_Q_NORM];
    keys.dy = (pal_const_view){ w->dkn, (size_t)m->keys };
    keys.dx = (pal_view){ w->dp + m->k, (size_t)m->columns };
    keys.dw = layer->d[PAL_W_K_NORM];
    pal_rmsnorm_backward(ps->cx, &queries, ps->scratch);
    pal_rmsnorm_backward(ps->cx, &keys, ps->scratch);
}

void pal_attention_backward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, pal_mixer_kept *a,
                            pal_mixer_work *w, const float *x, const float *dh, pal_accumulate acc, float *dx) {
    const size_t columns = (size_t)m->columns, hidden = (size_t)m->hidden, values = (size_t)m->values;
    double t = pal_tick(ps);
    const float *o = finish(ps, m, a, w);
    pal_dense_backward(ps, &m->out, ps->tokens, o, values, dh, hidden, PAL_OVERWRITE, w->d_o, values);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_OUT, t);
    finish_backward(ps, m, a, w);
    pal_memory_run run = pal_mixer_run(ps, m, a, w);
    assert(m->rule->scratch_bytes(ps->cx, &run.shape, PAL_BACKWARD) <= ps->scratch_bytes);
    run.dy = (pal_const_view){ w->d_o, values };
    run.grad.q = w->dqn ? (pal_view){ w->dqn, (size_t)m->heads * (size_t)m->dk } : (pal_view){ w->dp + m->q, columns };
    run.grad.k = w->dkn ? (pal_view){ w->dkn, (size_t)m->keys } : (pal_view){ w->dp + m->k, columns };
    run.grad.v = (pal_view){ w->dp + m->v, columns };
    pal_memory_pass_on(m->rule, ps->cx, &run, PAL_BACKWARD);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_MEMORY, t);
    turn(ps, m, pal_rotary_backward, w->dp, w->dqn, w->dkn);
    if (m->query_width) separate_backward(ps, m, layer, a, w);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_GATES, t);
    pal_dense_backward(ps, &m->in, ps->tokens, x, hidden, w->dp, columns, acc, dx, hidden);
    if (m->query_width)
        pal_dense_backward(ps, &m->query, ps->tokens, x, hidden, w->dquery,
                           (size_t)m->heads * (size_t)m->query_width, PAL_ADD, dx, hidden);
    pal_tock(ps, PAL_T_BACKWARD + PAL_T_PROJECT, t);
}
