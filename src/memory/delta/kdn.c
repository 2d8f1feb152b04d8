/* SPDX-License-Identifier: MIT */
/* Kalman Delta Networks, diagonal: the memory's uncertainty, a variance per key channel shared by all values, sets how
 * far a token moves it. var is carried, 1/Ip at the start; r is the variance of the value:
 *
 *     P = a^2 var + noise        kappa = P k / (r + sum P k^2)        var = P / (1 + dk k^2 P / r)
 *     D = S diag(a)              S = D + (v - D k) kappa'
 *
 * The factor dk in var is the authors' default, part of the rule rather than of a filter. */
#include <string.h>

#include "memory/delta/delta.h"

static float variance_at(const pal_linear_chunk *c, const pal_delta_rows *x, size_t t, size_t j) {
    const float a = x->D[t * x->kl + j];
    return a * a * x->before[t * x->kl + j] + c->in.noisek.data[t * c->in.noisek.stride + j];
}

/* r + sum P k^2, and P of every channel. */
static float spread_at(const pal_linear_chunk *c, const pal_delta_rows *x, size_t t) {
    double sum = (double)c->in.r.data[t * c->in.r.stride];
    for (size_t j = 0; j < (size_t)c->dk; j++) {
        const double k = (double)x->k[t * x->kl + j];
        sum += (double)variance_at(c, x, t, j) * k * k;
    }
    return (float)sum;
}

static void fill(const pal_linear_chunk *c, const pal_delta_rows *x) {
    for (size_t t = 0; t < (size_t)c->n; t++) {
        memcpy(x->before + t * x->kl, c->carried, (size_t)c->dk * sizeof(float));
        const float spread = spread_at(c, x, t), more = (float)c->dk / c->in.r.data[t * c->in.r.stride];
        for (size_t j = 0; j < (size_t)c->dk; j++) {
            const float k = x->k[t * x->kl + j], P = variance_at(c, x, t, j);
            x->c[t * x->kl + j] = P * k / spread;
            c->carried[j] = P / (1 + more * k * k * P);
        }
        pal_delta_variance(c, x, t);
    }
}

static void unfill(const pal_linear_chunk *c, const pal_delta_rows *x, const pal_delta_rows *d,
                   const pal_memory_gradients *grad) {
    for (size_t t = (size_t)c->n; t-- > 0;) {
        const float spread = spread_at(c, x, t), r = c->in.r.data[t * c->in.r.stride], more = (float)c->dk / r;
        double with_gain = 0, dmore = 0;
        float *var = c->carried; /* after the token; what it held is in x->before */
        for (size_t j = 0; j < (size_t)c->dk; j++) {
            const float k = x->k[t * x->kl + j], P = variance_at(c, x, t, j);
            var[j] = P / (1 + more * k * k * P);
        }
        pal_delta_variance_backward(c, x, d, t, var);
        for (size_t j = 0; j < (size_t)c->dk; j++) /* spread divides every gain */
            with_gain += (double)d->c[t * x->kl + j] * (double)x->c[t * x->kl + j];
        const float dspread = -(float)(with_gain / (double)spread);
        for (size_t j = 0; j < (size_t)c->dk; j++) {
            const size_t key = t * x->kl + j;
            const float k = x->k[key], a = x->D[key], P = variance_at(c, x, t, j);
            const float shrink = 1 / (1 + more * k * k * P), dvar = c->dcarried[j] * shrink * shrink;
            const float dP = d->c[key] * k / spread + dspread * k * k + dvar;
            dmore -= (double)dvar * (double)P * (double)P * (double)k * (double)k;
            d->k[key] += d->c[key] * P / spread + 2 * dspread * P * k - 2 * dvar * P * P * more * k;
            d->D[key] += dP * 2 * a * a * x->before[key]; /* a is the exponential of gk */
            grad->noisek.data[t * grad->noisek.stride + j] = dP;
            c->dcarried[j] = dP * a * a;
        }
        grad->r.data[t * grad->r.stride] = (float)((double)dspread - dmore * (double)more / (double)r);
    }
}

static const pal_delta_rule rule = { .own_c = true, .fill = fill, .unfill = unfill };

PAL_DELTA_CARRYING_RULE(kdn, rule, PAL_CARRIES_KEY, "var", PAL_INPUT_GK | PAL_INPUT_NOISEK | PAL_INPUT_R | PAL_INPUT_IP,
                        .has_variance = true,
                        .summary = "Kalman Delta Network, a variance per key channel: S = D + (v - D k) kappa'");
