/* SPDX-License-Identifier: MIT */
/* Kalman Delta Networks, isotropic: one variance for the whole memory. var is carried, 1/Ip at the start; r is the
 * variance of the value:
 *
 *     P = mean(a^2) var + noise        beta = P / (r + P |k|^2)        var = P / (1 + |k|^2 P / r) = r beta
 *     D = S diag(a)                    S = D + beta (v - D k) k'
 */
#include "memory/delta/delta.h"

typedef struct {
    float mean, P, norm, r, spread; /* of a^2; the variance before the value comes; |k|^2; r; r + P |k|^2 */
} token;

static token token_at(const pal_linear_chunk *c, const pal_delta_rows *x, size_t t) {
    double mean = 0, norm = 0;
    for (size_t j = 0; j < (size_t)c->dk; j++) {
        mean += (double)x->D[t * x->kl + j] * (double)x->D[t * x->kl + j];
        norm += (double)x->k[t * x->kl + j] * (double)x->k[t * x->kl + j];
    }
    token k = { .mean = (float)(mean / c->dk), .norm = (float)norm, .r = c->in.r.data[t * c->in.r.stride] };
    k.P = k.mean * x->before[t * x->kl] + c->in.noise.data[t * c->in.noise.stride];
    k.spread = k.r + k.P * k.norm;
    return k;
}

static void fill(const pal_linear_chunk *c, const pal_delta_rows *x) {
    for (size_t t = 0; t < (size_t)c->n; t++) {
        x->before[t * x->kl] = c->carried[0];
        const token k = token_at(c, x, t);
        x->beta[t] = k.P / k.spread;
        c->carried[0] = k.r * x->beta[t];
        pal_delta_variance(c, x, t);
    }
}

static void unfill(const pal_linear_chunk *c, const pal_delta_rows *x, const pal_delta_rows *d,
                   const pal_memory_gradients *grad) {
    for (size_t t = (size_t)c->n; t-- > 0;) {
        const token k = token_at(c, x, t);
        pal_delta_variance_backward(c, x, d, t, &(float){ k.r * x->beta[t] });
        const float before = x->before[t * x->kl], square = k.spread * k.spread;
        const float dbeta = d->beta[t] + c->dcarried[0] * k.r, dP = dbeta * k.r / square;
        const float dnorm = -dbeta * k.P * k.P / square, dmean = dP * before;
        for (size_t j = 0; j < (size_t)c->dk; j++) {
            const size_t key = t * x->kl + j;
            d->k[key] += 2 * dnorm * x->k[key];
            d->D[key] += dmean * 2 * x->D[key] * x->D[key] / (float)c->dk; /* a is the exponential of gk */
        }
        grad->noise.data[t * grad->noise.stride] = dP;
        grad->r.data[t * grad->r.stride] = c->dcarried[0] * x->beta[t] - dbeta * k.P / square;
        c->dcarried[0] = dP * k.mean;
    }
}

static const pal_delta_rule rule = { .fill = fill, .unfill = unfill };

PAL_DELTA_CARRYING_RULE(kdn_iso, rule, PAL_CARRIES_ONE, "var",
                        PAL_INPUT_GK | PAL_INPUT_NOISE | PAL_INPUT_R | PAL_INPUT_IP,
                        .has_variance = true,
                        .summary = "Kalman Delta Network, one variance: S = D + beta (v - D k) k'");
