/* SPDX-License-Identifier: MIT */
/* Gated DeltaNet 2 (arXiv 2605.22791): gates for what is erased, per key channel, and for what is written, per value
 * channel, in place of one beta for both. */
#include "memory/delta/delta.h"

static const float *at(pal_const_view rows, size_t t) { return rows.data + t * rows.stride; }

static void fill(const pal_linear_chunk *c, const pal_delta_rows *x) {
    for (size_t t = 0; t < (size_t)c->n; t++) {
        const float *erase = at(c->in.erase, t), *write = at(c->in.write, t);
        for (size_t j = 0; j < (size_t)c->dk; j++) x->a[t * x->kl + j] = erase[j] * x->k[t * x->kl + j];
        for (size_t i = 0; i < (size_t)c->dv; i++) x->v[t * x->vl + i] *= write[i];
    }
}

static void unfill(const pal_linear_chunk *c, const pal_delta_rows *x, const pal_delta_rows *d,
                   const pal_memory_gradients *grad) {
    for (size_t t = 0; t < (size_t)c->n; t++) {
        const float *erase = at(c->in.erase, t), *write = at(c->in.write, t), *v = at(c->in.v, t);
        float *derase = grad->erase.data + t * grad->erase.stride, *dwrite = grad->write.data + t * grad->write.stride;
        for (size_t j = 0; j < (size_t)c->dk; j++) {
            const size_t key = t * d->kl + j;
            derase[j] = d->a[key] * x->k[key];
            d->k[key] += d->a[key] * erase[j];
        }
        for (size_t i = 0; i < (size_t)c->dv; i++) {
            dwrite[i] = d->v[t * d->vl + i] * v[i];
            d->v[t * d->vl + i] *= write[i];
        }
    }
}

static const pal_delta_rule rule = { .own_a = true, .fill = fill, .unfill = unfill };

PAL_DELTA_RULE(gdn2, rule, PAL_INPUT_GK | PAL_INPUT_ERASE | PAL_INPUT_WRITE,
               .summary = "Gated DeltaNet 2: D = S diag(a), S = D + (write v - D (erase k)) k'");
