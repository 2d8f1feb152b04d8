/* SPDX-License-Identifier: MIT */
#ifndef PAL_MODEL_ON_DEVICE_H
#define PAL_MODEL_ON_DEVICE_H

#include "base/device.h"
#include "model/model.h"

/* What a model has on a device. It must be closed before the context that it was opened with. */
struct pal_model_on {
    pal_device *device;
    pal_model_layers layers; /* whose pointers are the device's addresses */
    void **buffers;          /* (layers + 1) of what is outside the blocks, then of each layer */
};

/* Puts the weights on the device of the context, if it has one, after a check that it can run the model. */
pal_status pal_model_move(pal_model *model, const pal_context *cx, pal_error *err);
void pal_model_leave(pal_model *model);

/* The device that a model lives on; NULL: the CPU. */
static inline pal_device *pal_model_device(const pal_model *m) { return m->on ? m->on->device : NULL; }

#endif
