/* SPDX-License-Identifier: MIT */
/* The gated MLP: h += (silu(x Wg') * x Wu') Wd'. */
#ifndef PAL_LAYERS_MLP_H
#define PAL_LAYERS_MLP_H

#include "base/arena.h"
#include "layers/dense.h"
#include "layers/layer.h"
#include "layers/pass.h"

typedef struct pal_mlp_kept {
    float *both; /* (T, 2 width) gate and up; backward overwrites it */
} pal_mlp_kept;
typedef struct pal_mlp_work {
    float *act, *dact; /* (T, width) */
} pal_mlp_work;

void pal_mlp_keep(pal_mlp_kept *kept, int width, int tokens, pal_arena *arena);
void pal_mlp_take(pal_mlp_work *work, int width, int tokens, bool training, pal_arena *arena);
size_t pal_mlp_scratch_bytes(const pal_model_config *config, const pal_layer *layer, int tokens);
/* h NULL: only what backward reads. */
void pal_mlp_forward(const pal_pass *pass, const pal_layer *layer, pal_mlp_kept *kept, pal_mlp_work *work,
                     const float *x, float *h);
void pal_mlp_backward(const pal_pass *pass, const pal_layer *layer, pal_mlp_kept *kept, pal_mlp_work *work,
                      const float *x, const float *dh, float *dx);

#endif
