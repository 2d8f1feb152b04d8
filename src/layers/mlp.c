/* SPDX-License-Identifier: MIT */
#include "layers/mlp.h"

#include "kernels/activations/activations.h"

void pal_mlp_keep(pal_mlp_kept *kept, int width, int tokens, pal_arena *arena) {
    kept->both = pal_take(arena, (size_t)tokens * 2 * (size_t)width, sizeof(float));
}

void pal_mlp_take(pal_mlp_work *work, int width, int tokens, bool training, pal_arena *arena) {
    work->act = pal_take(arena, (size_t)tokens * (size_t)width, sizeof(float));
    work->dact = training ? pal_take(arena, (size_t)tokens * (size_t)width, sizeof(float)) : NULL;
}

static pal_dense enter(const pal_model_config *c, const pal_layer *layer) {
    return (pal_dense){ .in = c->hidden,
                        .matrices = 2,
                        .out = { c->mlp, c->mlp },
                        .w = { layer->m[PAL_W_MLP_GATE], layer->m[PAL_W_MLP_UP] },
                        .dw = { layer->d[PAL_W_MLP_GATE], layer->d[PAL_W_MLP_UP] } };
}

static pal_dense leave(const pal_model_config *c, const pal_layer *layer) {
    return (pal_dense){ .in = c->mlp,
                        .matrices = 1,
                        .out = { c->hidden },
                        .w = { layer->m[PAL_W_MLP_DOWN] },
                        .dw = { layer->d[PAL_W_MLP_DOWN] } };
}

size_t pal_mlp_scratch_bytes(const pal_model_config *config, const pal_layer *layer, int tokens) {
    const pal_dense in = enter(config, layer), out = leave(config, layer);
    const size_t first = pal_dense_scratch_bytes(&in, tokens), second = pal_dense_scratch_bytes(&out, tokens);
    return first > second ? first : second;
}

static pal_swiglu_args swiglu_args(const pal_pass *ps, const pal_mlp_kept *kept, const pal_mlp_work *work) {
    const size_t width = (size_t)ps->config->mlp;
    const pal_view gate = { kept->both, 2 * width }, up = { kept->both + width, 2 * width };
    return (pal_swiglu_args){ .rows = (size_t)ps->tokens,
                              .width = ps->config->mlp,
                              .gate = pal_reading(gate),
                              .up = pal_reading(up),
                              .y = { work->act, width },
                              .dy = { work->dact, width },
                              .dgate = gate,
                              .dup = up };
}

void pal_mlp_forward(const pal_pass *ps, const pal_layer *layer, pal_mlp_kept *kept, pal_mlp_work *work, const float *x,
                     float *h) {
    const size_t width = (size_t)ps->config->mlp, hidden = (size_t)ps->config->hidden;
    const pal_dense in = enter(ps->config, layer), out = leave(ps->config, layer);
    double t = pal_tick(ps);
    pal_dense_forward(ps, &in, ps->tokens, x, hidden, PAL_OVERWRITE, kept->both, 2 * width);
    t = pal_tock(ps, PAL_T_MLP, t);
    if (!h) return;
    const pal_swiglu_args act = swiglu_args(ps, kept, work);
    pal_swiglu(ps->cx, &act);
    t = pal_tock(ps, PAL_T_SWIGLU, t);
    pal_dense_forward(ps, &out, ps->tokens, work->act, width, PAL_ADD, h, hidden);
    pal_tock(ps, PAL_T_MLP, t);
}

void pal_mlp_backward(const pal_pass *ps, const pal_layer *layer, pal_mlp_kept *kept, pal_mlp_work *work,
                      const float *x, const float *dh, float *dx) {
    const size_t width = (size_t)ps->config->mlp, hidden = (size_t)ps->config->hidden;
    const pal_dense in = enter(ps->config, layer), out = leave(ps->config, layer);
    double t = pal_tick(ps);
    const pal_swiglu_args act = swiglu_args(ps, kept, work);
    pal_swiglu(ps->cx, &act);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_SWIGLU, t);
    pal_dense_backward(ps->cx, &out, ps->tokens, work->act, width, dh, hidden, work->dact, width);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_MLP, t);
    pal_swiglu_backward(ps->cx, &act);
    t = pal_tock(ps, PAL_T_BACKWARD + PAL_T_SWIGLU, t);
    pal_dense_backward(ps->cx, &in, ps->tokens, x, hidden, kept->both, 2 * width, dx, hidden);
    pal_tock(ps, PAL_T_BACKWARD + PAL_T_MLP, t);
}
