/* SPDX-License-Identifier: MIT */
/* What a pal_model holds. */
#ifndef PAL_MODEL_MODEL_H
#define PAL_MODEL_MODEL_H

#include "format/source.h"
#include "model/weights.h"

struct pal_model {
    pal_model_config config;
    pal_weight_table table;
    pal_model_use use;
    pal_layer outer;   /* embedding, head, final norm; a tied head has the embedding's pointers */
    pal_layer *layers; /* (config.layers) */
    float *parameters; /* flat; for inference only what is not mapped */
    float *gradients;  /* flat, training only */
    pal_source source; /* keeps mapped weights and the configuration alive; zeroed for a new model */
};

/* A model whose files were opened and compared with its configuration, but whose weights were not read: it cannot run.
 */
pal_status pal_model_open_unloaded(pal_model **out, const char *path, pal_model_use use, pal_error *err);

/* Four interleaved multiply-xor lanes: for fingerprints and checksums, not against an adversary. */
uint64_t pal_hash_floats(uint64_t seed, const float *x, size_t n);

#endif
