/* SPDX-License-Identifier: MIT */
/* Preconditioned Kimi Delta Attention (arXiv 2604.21100): what is written goes under k M, where M grows smaller for key
 * channels that were written much. With A, one number a key channel, carried from token to token:
 *
 *     A = e^{gp} A + betap k^2        l = log(A + eps) - center        M = squash^{-l / (1 + |l|)}
 *
 * from 1/squash to squash. eps, center and squash are the authors' defaults. */
#include <math.h>
#include <string.h>

#include "memory/delta/delta.h"

static const float EPS = (float)1e-6, CENTER = (float)-0.2, LOG_SQUASH = (float)0.40546510810816438; /* log 1.5 */

/* A after token t, from that before. */
static float next_at(const pal_linear_chunk *c, const pal_delta_rows *x, size_t t, size_t j, float decay) {
    const float k = x->k[t * x->kl + j];
    return decay * x->before[t * x->kl + j] + c->in.betap.data[t * c->in.betap.stride] * k * k;
}
static float decay_at(const pal_linear_chunk *c, size_t t) { return expf(c->in.gp.data[t * c->in.gp.stride]); }

static float factor(float A) {
    const float l = logf(A + EPS) - CENTER;
    return expf(-LOG_SQUASH * l / (1 + fabsf(l)));
}

static void fill(const pal_linear_chunk *c, const pal_delta_rows *x) {
    for (size_t t = 0; t < (size_t)c->n; t++) {
        const float decay = decay_at(c, t);
        memcpy(x->before + t * x->kl, c->carried, (size_t)c->dk * sizeof(float));
        for (size_t j = 0; j < (size_t)c->dk; j++) {
            c->carried[j] = next_at(c, x, t, j, decay);
            x->c[t * x->kl + j] = x->k[t * x->kl + j] * factor(c->carried[j]);
        }
    }
}

static void unfill(const pal_linear_chunk *c, const pal_delta_rows *x, const pal_delta_rows *d,
                   const pal_memory_gradients *grad) {
    for (size_t t = (size_t)c->n; t-- > 0;) {
        const float decay = decay_at(c, t), betap = c->in.betap.data[t * c->in.betap.stride];
        double dgp = 0, dbetap = 0;
        for (size_t j = 0; j < (size_t)c->dk; j++) {
            const size_t key = t * x->kl + j;
            const float k = x->k[key], A = next_at(c, x, t, j, decay), M = factor(A), l = logf(A + EPS) - CENTER;
            const float slope = 1 / ((1 + fabsf(l)) * (1 + fabsf(l))); /* of l / (1 + |l|) */
            const float dA = c->dcarried[j] - d->c[key] * k * M * LOG_SQUASH * slope / (A + EPS);
            d->k[key] += d->c[key] * M + 2 * dA * betap * k;
            dgp += (double)dA * (double)decay * (double)x->before[key];
            dbetap += (double)dA * (double)k * (double)k;
            c->dcarried[j] = dA * decay;
        }
        grad->gp.data[t * grad->gp.stride] = (float)dgp;
        grad->betap.data[t * grad->betap.stride] = (float)dbetap;
    }
}

static const pal_delta_rule rule = { .own_c = true, .fill = fill, .unfill = unfill };

PAL_DELTA_CARRYING_RULE(pkda, rule, PAL_CARRIES_KEY, "A",
                        PAL_INPUT_BETA | PAL_INPUT_GK | PAL_INPUT_GP | PAL_INPUT_BETAP,
                        .summary = "preconditioned KDA: D = S diag(a), S = D + beta (v - D k) (k M)'");
