/* SPDX-License-Identifier: MIT */
/* What a pal_model holds. */
#ifndef PAL_MODEL_MODEL_H
#define PAL_MODEL_MODEL_H

#include "format/source.h"
#include "model/pages.h"
#include "model/weights.h"

/* What runs: weights by layers. */
typedef struct pal_model_layers {
    pal_layer outer, *layers, *beside;
} pal_model_layers;
typedef struct pal_model_on pal_model_on;

struct pal_model {
    pal_model_config config;
    pal_weight_table table;
    pal_model_use use;
    pal_layer outer;   /* embedding, head, final norm; a tied head has the embedding's pointers */
    pal_layer *layers; /* (config.layers) with the weights of the first mixer, the norms and the MLP */
    pal_layer *beside; /* (config.layers) of second mixers; NULL: no block has one */
    float *parameters; /* flat; for inference only what is not mapped */
    void *retyped;     /* weights in another type than the file's */
    float *gradients;  /* flat, training only */
    int lowest;        /* training: the first layer that has a gradient, or into whose input one has to go */
    pal_source source; /* keeps mapped weights and the configuration alive; zeroed for a new model */
    const struct pal_model *viewed;      /* whose weights these are, of a pal_model_view; NULL: its own */
    pal_pages *pages;                    /* of keys and values of all states; NULL: no layer attends */
    pal_model_on *on;                    /* the weights on a device (on_device.h); NULL: the CPU computes */
    struct pal_fingerprint *fingerprint; /* of a model for inference, once it was asked for; NULL: taken every time */
};

/* Makes the layers, with their rules and no weights yet. */
pal_status pal_model_make_layers(pal_model *model, pal_error *err);
/* Makes the layers point to the weights. */
void pal_model_bind(pal_model *model);
/* The same for other layers: weight i is at data[i], gradients are one after the other as in the flat buffer (NULL:
 * none). */
void pal_model_bind_to(const pal_model *model, pal_model_layers *to, const void *const *data, float *gradients);
/* Room for a fingerprint that is taken once. */
pal_status pal_fingerprint_keep(pal_model *model, pal_error *err);
/* Matrices in types that are only read become Q8_0, and one warning says so. */
pal_status pal_model_hold_read_types(pal_model *model, const pal_context *cx, pal_error *err);
/* Warns of every tensor that holds NaN, or blocks with scales that are not finite. */
void pal_weights_warn_of_nan(const pal_model *model, const pal_context *cx);

/* A model without weights, which has sizes but cannot run; and one whose files were opened and compared with its
 * configuration, but not read. */
pal_status pal_model_new_unloaded(pal_model **out, const pal_model_config *config, pal_model_use use, pal_error *err);
pal_status pal_model_open_unloaded(pal_model **out, const char *path, pal_model_use use, pal_error *err);

/* Opens a model to train some of its weights. Those that `trains` says no to have no gradient and no place in the flat
 * buffers; matrices among them stay mapped, in the file's type (F32, F16 or BF16). NULL: all are trained. */
typedef bool pal_trains_fn(const void *user, const pal_weight *weight);
pal_status pal_model_open_partly(pal_model **out, const char *path, pal_trains_fn *trains, const void *user,
                                 const pal_context *cx, pal_error *err);

/* Whether the model's files hold any part of a layer's importance gate; for pal_weights_list. */
bool pal_model_file_has_gate(const void *model, int layer);

/* Four interleaved multiply-xor lanes: for fingerprints and checksums, not against an adversary. */
uint64_t pal_hash_floats(uint64_t seed, const float *x, size_t n);

/* What pal_source_open said of path, or a better sentence where path is a usual mistake. Returns st. */
pal_status pal_model_not_opened(const char *path, pal_status st, pal_error *err);

#endif
