/* SPDX-License-Identifier: MIT */
/* Comba (arXiv 2506.02475): what the memory holds under p, a second key, is compared before the memory decays. The
 * authors' chunked and fused kernels read in this order; their recurrent reference decays first (README.md). */
#include <string.h>

#include "memory/delta/delta.h"

static void fill(const pal_linear_chunk *c, const pal_delta_rows *x) {
    for (size_t t = 0; t < (size_t)c->n; t++)
        memcpy(x->a + t * x->kl, c->in.p.data + t * c->in.p.stride, (size_t)c->dk * sizeof(float));
}

static void unfill(const pal_linear_chunk *c, const pal_delta_rows *x, const pal_delta_rows *d,
                   const pal_memory_gradients *grad) {
    (void)x;
    for (size_t t = 0; t < (size_t)c->n; t++)
        memcpy(grad->p.data + t * grad->p.stride, d->a + t * d->kl, (size_t)c->dk * sizeof(float));
}

static const pal_delta_rule rule = { .undecayed = true, .own_a = true, .fill = fill, .unfill = unfill };

PAL_DELTA_RULE(comba, rule, PAL_INPUT_BETA | PAL_INPUT_G | PAL_INPUT_P,
               .summary = "Comba: S = a S + beta (v - S p) k', p a second key");
