/* SPDX-License-Identifier: MIT */
/* AdamW over a model's flat buffers. Weights with the same settings that lie next to each other are updated in one
 * sweep. Of several ranks each has the moments of its own slices (comm/exchange.h) and updates those. */
#ifndef PAL_TRAIN_OPTIMISER_H
#define PAL_TRAIN_OPTIMISER_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/exchange.h"
#include "palimpsa/model.h"

#define PAL_MOST_COUNT (INT64_C(1) << 62) /* that a checkpoint may say: what training adds to it cannot overflow */

typedef struct pal_optimiser_options {
    double beta1, beta2, eps, weight_decay;
    double clip;         /* largest global norm of the gradient; 0: no clipping */
    bool bf16;           /* parameters, gradients and moments are rounded to bf16, as torch's are after .to(bfloat16) */
    bool decay_matrices; /* decay only what is not marked "no decay" and has two or more dimensions; else everything */
    /* Lists of groups (pal_weight) and of shell patterns on weights' names, separated by commas; NULL or "": none. */
    const char *freeze;     /* "PATTERN,..." never updated */
    const char *train_only; /* "PATTERN,..." everything else is frozen */
    const char *rates;      /* "PATTERN=FACTOR,..." factor of the learning rate; the last match wins */
} pal_optimiser_options;

/* Whether pal_optimiser_options let a weight be updated; for pal_model_open_partly. */
bool pal_optimiser_trains(const void *options, const pal_weight *weight);

typedef struct pal_optimiser pal_optimiser;

/* A pattern that no weight matches is refused: it would be a misspelling. exchange (borrowed) says which slices are
 * this rank's; NULL: all is. */
pal_status pal_optimiser_new(pal_optimiser **out, const pal_model *model, const pal_optimiser_options *options,
                             const pal_exchange *exchange, pal_error *err);
/* Whether it could be made, without the memory for its moments. */
pal_status pal_optimiser_check(const pal_model *model, const pal_optimiser_options *options, pal_error *err);
void pal_optimiser_free(pal_optimiser *optimiser);

size_t pal_optimiser_moment_bytes(const pal_optimiser *optimiser); /* that this rank keeps */
size_t pal_optimiser_trainable(const pal_optimiser *optimiser); /* numbers that are updated */

/* One update in two halves, between which the squares are summed over ranks: the squares of this rank's gradients, and
 * the rest of what pal_optimiser_step does with the sum. */
double pal_optimiser_squares(const pal_optimiser *optimiser, const pal_model *model, const pal_context *cx);
double pal_optimiser_apply(pal_optimiser *optimiser, pal_model *model, const pal_context *cx, double squares,
                           double scale, double rate);
/* One update from `scale` times the model's gradients (1 / the number of targets, where they are those of a sum).
 * Returns the norm of that before clipping; when it is not finite, nothing is changed. */
double pal_optimiser_step(pal_optimiser *optimiser, pal_model *model, const pal_context *cx, double scale, double rate);

/* Forgets moments and the count of updates: a new stage of a curriculum. */
void pal_optimiser_reset(pal_optimiser *optimiser);

/* Moments and count as a safetensors file ("m.NAME", "v.NAME" for every trainable weight). All ranks call these, rank 0
 * alone touches the file; of several, the moments pass through the model's gradients, which are lost. */
pal_status pal_optimiser_save(const pal_optimiser *optimiser, pal_model *model, const char *path, pal_error *err);
pal_status pal_optimiser_load(pal_optimiser *optimiser, pal_model *model, const char *path, pal_error *err);

#endif
