/* SPDX-License-Identifier: MIT */
/* What the paper's figure of training dynamics shows, per layer: the memory window, the metaplasticity ratio, the scale
 * of the importance gate, and importance per head. */
#ifndef PAL_TRAIN_DYNAMICS_H
#define PAL_TRAIN_DYNAMICS_H

#include <jansson.h>

#include "palimpsa/model.h"

/* Adds to `metrics`, one entry a layer (null where a layer has none):
 *   n_t      mean over tokens and sequences of N_t = 1/(1-exp(-A dt)) per head, then over heads
 *   ratio    (max I - min I)/min I of each head's final importance, mean over sequences and heads
 *   b_scale  effective scale of the importance gate, mean over heads
 *   importance  [{mean, sd}] per head over elements and sequences */
pal_status pal_dynamics_measure(const pal_model *model, pal_work *work, pal_observer *observer, const pal_batch *batch,
                                json_t *metrics, pal_error *err);

#endif
