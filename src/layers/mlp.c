/* SPDX-License-Identifier: MIT */
#include "layers/mlp.h"

#include "kernels/activations/activations.h"
#include "kernels/elementwise/elementwise.h"

void pal_mlp_plan_make(pal_mlp_plan *m, const pal_model_config *c, const pal_block_spec *b, const pal_layer *layer) {
    const bool gated = b->form == PAL_MLP_SWIGLU;
    *m = (pal_mlp_plan){ .form = b->form };
    if (!b->form) return;
    m->hidden = c->hidden;
    m->width = b->mlp;
    m->columns = gated ? 2 * b->mlp : b->mlp;
    m->gate_scale = b->gate_scale != 0 ? (float)b->gate_scale : 1;
    m->down_scale = b->down_scale != 0 ? (float)b->down_scale : 1;
    m->in = (pal_dense){ .in = c->hidden, .trains = layer->trains };
    for (int i = gated ? 0 : 1; i < 2; i++) {
        static const pal_weight_id ids[] = { PAL_W_MLP_GATE, PAL_W_MLP_UP };
        m->in.out[m->in.matrices] = b->mlp;
        m->in.w[m->in.matrices] = layer->m[ids[i]];
        m->in.dw[m->in.matrices++] = layer->d[ids[i]];
    }
    m->out = (pal_dense){ .in = b->mlp,
                          .matrices = 1,
                          .out = { c->hidden },
                          .w = { layer->m[PAL_W_MLP_DOWN] },
                          .dw = { layer->d[PAL_W_MLP_DOWN] },
                          .trains = layer->trains };
}

void pal_mlp_keep(pal_mlp_kept *kept, const pal_mlp_plan *m, int tokens, pal_arena *arena) {
    kept->both = pal_take(arena, (size_t)tokens * (size_t)m->columns, sizeof(float));
}

void pal_mlp_take(pal_mlp_work *work, int width, int tokens, bool training, pal_arena *arena) {
    work->act = pal_take(arena, (size_t)tokens * (size_t)width, sizeof(float));
    work->dact = training ? pal_take(arena, (size_t)tokens * (size_t)width, sizeof(float)) : NULL;
}

size_t pal_mlp_scratch_bytes(const pal_mlp_plan *m, int tokens) {
    const size_t first = pal_dense_scratch_bytes(&m->in, tokens), second = pal_dense_scratch_bytes(&m->out, tokens);
    return first > second ? first : second;
}

static pal_swiglu_args swiglu_args(const pal_pass *ps, const pal_mlp_plan *m, const pal_mlp_kept *kept,
                                   const pal_mlp_work *work) {
    const size_t width = (size_t)m->width;
    const pal_view gate = { kept->both, 2 * width }, up = { kept->both + width, 2 * width };
    return (pal_swiglu_args){ .rows = (size_t)ps->tokens,
                              .width = m->width,
                              .gate = pal_reading(gate),
                              .up = pal_reading(up),
                              .y = { work->act, width },
                              .dy = { work->dact, width },
                              .dgate = gate,
                              .dup = up };
}

static void scale(const pal_pass *ps, const pal_mlp_plan *m, float *x, int columns, float factor) {
    const pal_view rows = { x, (size_t)columns };
    if (factor != 1)
        pal_scale_rows(
            ps->cx,
            &(pal_elementwise_args){
                .rows = (size_t)ps->tokens, .width = m->width, .factor = factor, .x = pal_reading(rows), .y = rows });
}

/* work->act from the first products. */
static void activate(const pal_pass *ps, const pal_mlp_plan *m, const pal_mlp_kept *kept, const pal_mlp_work *work) {
    const size_t width = (size_t)m->width;
    if (m->form == PAL_MLP_RELU2) {
        pal_relu2(ps->cx, &(pal_elementwise_args){ .rows = (size_t)ps->tokens,
                                                   .width = m->width,
                                                   .x = { kept->both, width },
                                                   .y = { work->act, width } });
    } else {
        const pal_swiglu_args act = swiglu_args(ps, m, kept, work);
        pal_swiglu(ps->cx, &act);
    }
    scale(ps, m, work->act, m->width, m->down_scale);
}

/* kept->both becomes the gradient of the first products. */
static void activate_backward(const pal_pass *ps, const pal_mlp_plan *m, const pal_mlp_kept *kept,
                              const pal_mlp_work *work) {
    const size_t width = (size_t)m->width;
    scale(ps, m, work->dact, m->width, m->down_scale);
    if (m->form == PAL_MLP_RELU2) {
        pal_relu2_backward(ps->cx, &(pal_elementwise_args){ .rows = (size_t)ps->tokens,
                                                            .width = m->width,
                                                            .x = { kept->both, width },
                                                            .by = { work->dact, width },
                                                            .y = { kept->both, width } });
        return;
    }
    const pal_swiglu_args act = swiglu_args(ps, m, kept, work);
    pal_swiglu_backward(ps->cx, &act);
    scale(ps, m, kept->both, m->columns, m->gate_scale);
}

void pal_mlp_forward(const pal_pass *ps, const pal_mlp_plan *m, pal_mlp_kept *kept, pal_mlp_work *work, const float *x,
                     float *h) {
    const size_t width = (size_t)m->width, hidden = (size_t)m->hidden;
    double t = pal_tick(ps);
    pal_dense_forward(ps, &m->in, ps->tokens, x, hidden, PAL_OVERWRITE, kept->both, (size_t)m->columns);
    if (m->form == PAL_MLP_SWIGLU) scale(ps, m, kept->both, m->columns, m->gate_scale);
    t = pal_tock(ps, PAL_T_MLP, t);
    if (!h) return;
    activate(ps, m, kept, work);
    t = pal_tock(ps, PAL_T_SWIGLU, t);
    pal_dense_forward(ps, &m->out, ps->tokens, work->act, width, PAL_ADD, h, hidden);
    pal_tock(ps, PAL_T_MLP, t);
}

void pal_mlp_backward(const pal_pass *ps, const pal_mlp_plan *m, pal_mlp_kept *kept, pal_mlp_work *work, const float *x,
                      const float *dh, float *dx) {
    const size_t width = (size_t)m->width, hidden = (size_t)m->hidden;
    double t = pal_tick(ps);
    activate(ps, m, kept, work);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_SWIGLU, t);
    pal_dense_backward(ps, &m->out, ps->tokens, work->act, width, dh, hidden, PAL_OVERWRITE, work->dact, width);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_MLP, t);
    activate_backward(ps, m, kept, work);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_SWIGLU, t);
    pal_dense_backward(ps, &m->in, ps->tokens, x, hidden, kept->both, (size_t)m->columns, PAL_OVERWRITE, dx,
                       hidden);
    pal_tock(ps, PAL_T_BACKWARD + PAL_T_MLP, t);
}
