/* SPDX-License-Identifier: MIT */
/* What a pal_model holds. */
#ifndef PAL_MODEL_MODEL_H
#define PAL_MODEL_MODEL_H

#include "format/model_dir.h"
#include "model/weights.h"
#include "palimpsa/memory.h"

/* A block's weights by what they are for, NULL where it has none; and where their gradients go. */
typedef struct pal_layer {
    const pal_memory_rule *rule;
    const float *w[PAL_W_COUNT];
    float *d[PAL_W_COUNT]; /* NULL for inference, and for what is unused */
} pal_layer;

struct pal_model {
    pal_model_config config;
    pal_weight_table table;
    pal_model_use use;
    pal_layer outer;   /* embedding, head, final norm; a tied head has the embedding's pointers */
    pal_layer *layers; /* (config.layers) */
    float *parameters; /* flat; for inference only what is not mapped */
    float *gradients;  /* flat, training only */
    pal_model_dir dir; /* keeps mapped weights and config.json alive; zeroed for a new model */
};

#endif
