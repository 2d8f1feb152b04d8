/* SPDX-License-Identifier: MIT */
/* The programs that pal_mixer_forward and pal_mixer_backward choose from, and pieces that forward and backward of a
 * gated mixer share. */
#ifndef PAL_LAYERS_MIXER_PARTS_H
#define PAL_LAYERS_MIXER_PARTS_H

#include "kernels/activations/activations.h"
#include "kernels/conv/conv.h"
#include "layers/mixer.h"

typedef void pal_mixer_forward_fn(const pal_pass *pass, const pal_mixer_plan *plan, const pal_layer *layer,
                                  pal_mixer_kept *kept, pal_mixer_work *work, const float *x, float *h);
typedef void pal_mixer_backward_fn(const pal_pass *pass, const pal_mixer_plan *plan, const pal_layer *layer,
                                   pal_mixer_kept *kept, pal_mixer_work *work, const float *x, const float *dh,
                                   pal_accumulate acc, float *dx);
pal_mixer_forward_fn pal_gated_forward, pal_attention_forward, pal_convolution_forward;
pal_mixer_backward_fn pal_gated_backward, pal_attention_backward, pal_convolution_backward;

/* x *= factor over columns [at, at + width) of rows of ld floats. */
void pal_mixer_scale(const pal_pass *ps, float *x, size_t ld, int width, float factor);
/* p's columns by plan->in_scale. */
void pal_mixer_scale_in(const pal_pass *ps, const pal_mixer_plan *m, float *p);
/* y = o silu(z), which stands in for the norm where there is none. */
pal_swiglu_args pal_mixer_gate_only_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_mixer_kept *a,
                                         float *o);

pal_rmsnorm_args pal_mixer_norm_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                                     const pal_mixer_kept *a, float *o);
pal_head_gate_args pal_mixer_gate_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                                       const pal_mixer_kept *a, const pal_mixer_work *w);
pal_l2norm_args pal_mixer_l2_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_mixer_kept *a,
                                  const pal_mixer_work *w);
pal_conv_args pal_mixer_conv_args(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                                  const pal_mixer_kept *a);

/* The extras of a plan (extras.c): parameters; gates as they are kept; what the memory reads of them. Backward adds to
 * dn and writes columns of dp. */
void pal_extra_parameters(const pal_mixer_plan *m, const pal_layer *layer, pal_mixer_work *w);
void pal_extra_parameters_backward(const pal_mixer_plan *m, const pal_layer *layer, const pal_mixer_work *w);
void pal_extra_gates(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, const pal_mixer_kept *a);
void pal_extra_prepare(const pal_pass *ps, const pal_mixer_plan *m, const pal_mixer_kept *a, const pal_mixer_work *w);
void pal_extra_backward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, const pal_mixer_kept *a,
                        const pal_mixer_work *w);

/* Normalised keys, gated values and importance gates from what is kept. */
void pal_mixer_prepare(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, const pal_mixer_kept *a,
                       const pal_mixer_work *w);
/* o = y + D x, and with `norm` the gated norm of it. o may be a->y. */
void pal_mixer_finish(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, const pal_mixer_kept *a,
                      const pal_mixer_work *w, float *o, bool norm);

#endif
