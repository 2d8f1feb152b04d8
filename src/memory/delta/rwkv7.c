/* SPDX-License-Identifier: MIT */
/* RWKV-7 (arXiv 2503.14456): what the memory held under p before it decays is taken away under another key, erase, and
 * the value is written as it is. The model makes p of unit length and erase = p times a gate. */
#include <string.h>

#include "memory/delta/delta.h"

static void fill(const pal_linear_chunk *c, const pal_delta_rows *x) {
    for (size_t t = 0; t < (size_t)c->n; t++) {
        memcpy(x->a + t * x->kl, c->in.p.data + t * c->in.p.stride, (size_t)c->dk * sizeof(float));
        memcpy(x->c + t * x->kl, c->in.erase.data + t * c->in.erase.stride, (size_t)c->dk * sizeof(float));
    }
}

static void unfill(const pal_linear_chunk *c, const pal_delta_rows *x, const pal_delta_rows *d,
                   const pal_memory_gradients *grad) {
    (void)x;
    for (size_t t = 0; t < (size_t)c->n; t++) {
        memcpy(grad->p.data + t * grad->p.stride, d->a + t * d->kl, (size_t)c->dk * sizeof(float));
        memcpy(grad->erase.data + t * grad->erase.stride, d->c + t * d->kl, (size_t)c->dk * sizeof(float));
    }
}

static const pal_delta_rule rule = {
    .undecayed = true, .apart = true, .own_a = true, .own_c = true, .fill = fill, .unfill = unfill
};

PAL_DELTA_RULE(rwkv7, rule, PAL_INPUT_GK | PAL_INPUT_P | PAL_INPUT_ERASE,
               .summary = "RWKV-7: S = S diag(a) - (S p) erase' + v k'");
