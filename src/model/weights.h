/* SPDX-License-Identifier: MIT */
/* The table of weights. Each row says once what a tensor is called in files, what shape it has, how it starts, whether
 * it decays, is frozen or may be quantised; allocation, initialisation, loading, saving, optimiser groups and printing
 * walk it. Tensors that one matrix product can read together stand next to each other in memory. */
#ifndef PAL_MODEL_WEIGHTS_H
#define PAL_MODEL_WEIGHTS_H

#include "base/context.h"
#include "layers/layer.h"
#include "model/config.h"

typedef enum pal_init {
    PAL_INIT_NORMAL, /* N(0, init_range^2); MQAR N(0, 1/128) */
    PAL_INIT_ZERO,
    PAL_INIT_ONE,
    PAL_INIT_A_LOG,   /* log U(0,16); official log U(1,16); MQAR a ramp */
    PAL_INIT_DT_BIAS, /* inverse softplus of a log-uniform or ramped time step */
    PAL_INIT_B_PROJ,  /* U(-R^-1/2, R^-1/2) */
    PAL_INIT_B_SCALE, /* 1, or U(0.1, 1) for fine-tuning */
    PAL_INIT_LAM,     /* softplus gives 1 */
    PAL_INIT_NOISE,   /* softplus gives 0.01 */
    PAL_INIT_OUT,     /* M: U(+-inner^-1/2 / sqrt(layers)) when residuals are rescaled, else NORMAL */
    PAL_INIT_IN,      /* official: U(+-E^-1/2), else NORMAL */
    PAL_INIT_CONV     /* official: U(+-W^-1/2), else NORMAL (bias: zero) */
} pal_init;

/* One tensor of one model. `view` is what users see. */
typedef struct pal_weight_entry {
    pal_weight view;
    pal_weight_id id;
    pal_init init;
    bool beside;   /* of a block's second mixer, whose weights have a separate pal_layer */
    bool adjacent; /* no gap to the entry before */
    bool optional; /* may be absent from a file: an importance gate that nothing reads */
    bool kept;     /* training leaves it as the file has it: no gradient, not in the flat buffers */
} pal_weight_entry;

typedef struct pal_weight_table {
    size_t count, flat, parameters; /* flat: floats of a flat buffer, gaps included; parameters: without */
    pal_weight_entry *entries;
    char *names;
} pal_weight_table;

/* Lists all tensors of a configuration with flat offsets; no data. keep_gate(source, layer) decides whether a layer
 * whose rule reads no importance gate stores one all the same; NULL: as the reference does (with one switch for all
 * layers it does, with listed layers not). */
typedef bool pal_keep_gate_fn(const void *source, int layer);
pal_status pal_weights_list(pal_weight_table *out, const pal_model_config *config, pal_keep_gate_fn *keep_gate,
                            const void *source, pal_error *err);
void pal_weights_release(pal_weight_table *table);

/* Fills flat[] with initial values. Number i of a tensor is a function of seed, the tensor's name and i. */
uint64_t pal_weight_stream(const char *name); /* of random numbers */
void pal_weights_init(const pal_weight_table *table, const pal_model_config *config, const pal_context *cx,
                      uint64_t seed, float *flat);
void pal_weight_init_one(const pal_weight_entry *entry, const pal_model_config *config, const pal_context *cx,
                         uint64_t seed, float *x);

#endif
