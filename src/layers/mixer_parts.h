/* SPDX-License-Identifier: MIT */
/* Pieces of a gated mixer that its forward and its backward share. */
#ifndef PAL_LAYERS_MIXER_PARTS_H
#define PAL_LAYERS_MIXER_PARTS_H

#include "kernels/activations/activations.h"
#include "kernels/conv/conv.h"
#include "layers/mixer.h"

pal_rmsnorm_args pal_mixer_norm_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                                     const pal_mixer_kept *a, float *o);
pal_head_gate_args pal_mixer_gate_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                                       const pal_mixer_kept *a, const pal_mixer_work *w);
pal_l2norm_args pal_mixer_l2_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_mixer_kept *a,
                                  const pal_mixer_work *w);
pal_conv_args pal_mixer_conv_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                                  const pal_mixer_kept *a);

/* Normalised keys, gated values and importance gates from what is kept. */
void pal_mixer_prepare(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, const pal_mixer_kept *a,
                       const pal_mixer_work *w);
/* o = y + D x, and with `norm` the gated norm of it. o may be a->y. */
void pal_mixer_finish(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, const pal_mixer_kept *a,
                      const pal_mixer_work *w, float *o, bool norm);

#endif
