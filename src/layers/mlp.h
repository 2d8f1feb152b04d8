/* SPDX-License-Identifier: MIT */
/* The MLP: h += (silu(x Wg') * x Wu') Wd', or without a gate h += max(x Wu', 0)^2 Wd'. */
#ifndef PAL_LAYERS_MLP_H
#define PAL_LAYERS_MLP_H

#include "base/arena.h"
#include "layers/dense.h"
#include "layers/layer.h"
#include "layers/pass.h"
#include "palimpsa/config.h"

typedef struct pal_mlp_plan {
    pal_mlp_form form;          /* PAL_MLP_NONE: the block has none */
    int hidden, width, columns; /* columns of the first products: gate and up, or up alone */
    float gate_scale, down_scale;
    pal_dense in, out;
} pal_mlp_plan;

void pal_mlp_plan_make(pal_mlp_plan *plan, const pal_model_config *config, const pal_block_spec *block,
                       const pal_layer *layer);

typedef struct pal_mlp_kept {
    float *both; /* (T, columns) gate and up; backward overwrites it */
} pal_mlp_kept;
typedef struct pal_mlp_work {
    float *act, *dact; /* (T, width) */
} pal_mlp_work;

void pal_mlp_keep(pal_mlp_kept *kept, const pal_mlp_plan *plan, int tokens, pal_arena *arena);
void pal_mlp_take(pal_mlp_work *work, int width, int tokens, bool training, pal_arena *arena);
size_t pal_mlp_scratch_bytes(const pal_mlp_plan *plan, int tokens);
/* h NULL: only what backward reads. */
void pal_mlp_forward(const pal_pass *pass, const pal_mlp_plan *plan, pal_mlp_kept *kept, pal_mlp_work *work,
                     const float *x, float *h);
void pal_mlp_backward(const pal_pass *pass, const pal_mlp_plan *plan, pal_mlp_kept *kept, pal_mlp_work *work,
                      const float *x, const float *dh, float *dx);

#endif
