/* SPDX-License-Identifier: MIT */
/* A layer's weights by what they are for. Names in files, shapes and initial values are the model's business. */
#ifndef PAL_LAYERS_LAYER_H
#define PAL_LAYERS_LAYER_H

#include "palimpsa/matrix.h"
#include "palimpsa/memory.h"

/* What a tensor is for. Gated DeltaNet's a_proj and b_proj do what Palimpsa-D's dt_proj and bs_proj do. */
typedef enum pal_weight_id {
    PAL_W_EMBEDDING,
    PAL_W_HEAD,
    PAL_W_FINAL_NORM,
    PAL_W_FINAL_NORM_BIAS, /* outside the blocks */
    PAL_W_NORM,
    PAL_W_MLP_NORM, /* of the residual stream */
    PAL_W_Q,
    PAL_W_K,
    PAL_W_V,
    PAL_W_GATE,
    PAL_W_DT,
    PAL_W_BS,
    PAL_W_B_RANK,
    PAL_W_B,
    PAL_W_OUT,
    PAL_W_OUT_BIAS,
    PAL_W_IN,
    PAL_W_IN_BIAS, /* M: z, x, B, C and dt in one */
    PAL_W_CONV,
    PAL_W_CONV_K,
    PAL_W_CONV_V,
    PAL_W_CONV_BIAS, /* CONV: of q, or of M's x, B, C */
    PAL_W_A_LOG,
    PAL_W_DT_BIAS,
    PAL_W_D,
    PAL_W_B_SCALE,
    PAL_W_IP_LOG,
    PAL_W_LAM,
    PAL_W_P_SCALE,
    PAL_W_ERASE,
    PAL_W_WRITE,
    PAL_W_GP,
    PAL_W_GP_BIAS,
    PAL_W_BETAP,
    PAL_W_NOISE,
    PAL_W_NOISE_BIAS,
    PAL_W_R,
    PAL_W_R_BIAS,
    PAL_W_RATE,
    PAL_W_TURN,
    PAL_W_KEEP,
    PAL_W_DRIFT, /* D: what some rules read besides */
    PAL_W_MIXER_NORM,
    PAL_W_Q_NORM,
    PAL_W_K_NORM, /* attention: of each head */
    PAL_W_MLP_GATE,
    PAL_W_MLP_UP,
    PAL_W_MLP_DOWN,
    PAL_W_COUNT
} pal_weight_id;

/* A block's weights by what they are for: matrices that only products read are stored in any type (`m`, without data
 * where the block has none), all others are floats (`w`, NULL likewise); and where their gradients go. */
typedef struct pal_layer {
    const pal_memory_rule *rule; /* NULL: no memory */
    pal_matrix m[PAL_W_COUNT];
    const float *w[PAL_W_COUNT];
    float *d[PAL_W_COUNT]; /* NULL for inference, and for what is unused or not trained */
    bool trains;           /* some weight of the model has a gradient */
} pal_layer;

#endif
