/* SPDX-License-Identifier: MIT */
/* The filter as it is written, numbers stored in f32 and computed in double. */
#include <math.h>
#include <string.h>

#include "memory/kla/kla.h"

static double at(pal_const_view rows, size_t t, size_t c) { return (double)rows.data[t * rows.stride + c]; }

/* One pair's part of one token. */
typedef struct {
    double a, p, k, b;  /* of the pair, of the token */
    double mu, I;       /* before the token */
    double m, U, after; /* a mu; the precision before the value comes, and after */
    double gain, error; /* b k / after; v - k m */
} pair;

static pair pair_at(const pal_linear_chunk *c, size_t t, size_t j, size_t i, float mu, float I) {
    const size_t element = j * (size_t)c->dv + i;
    const float keep = c->in.keep[element];
    pair x = { .a = (double)(keep > PAL_KLA_LEAST ? keep : PAL_KLA_LEAST) };
    x.p = fmax((double)c->in.drift[element], (double)PAL_KLA_LEAST_DRIFT);
    x.k = at(c->in.k, t, j);
    x.b = at(c->in.b, t, i);
    x.mu = (double)mu;
    x.I = (double)I;
    x.m = x.a * x.mu;
    x.U = x.I / (x.a * x.a + x.p * x.I);
    x.after = x.U + x.b * x.k * x.k;
    x.gain = x.b * x.k / x.after;
    x.error = at(c->in.v, t, i) - x.k * x.m;
    return x;
}

void pal_kla_forward_ref(const pal_linear_chunk *c, float *S, size_t ld, pal_view y, float *scratch) {
    (void)scratch;
    const double scale = (double)c->in.scale;
    for (size_t t = 0; t < (size_t)c->n; t++)
        for (size_t i = 0; i < (size_t)c->dv; i++) {
            double mean = 0, variance = 0;
            for (size_t j = 0; j < (size_t)c->dk; j++) {
                float *mu = S + j * ld + i, *I = c->carried + j * ld + i;
                const pair x = pair_at(c, t, j, i, *mu, *I);
                const double q = scale * at(c->in.q, t, j);
                *mu = (float)(x.m + x.gain * x.error);
                *I = (float)x.after;
                mean += q * (double)*mu;
                variance += q * q / (double)*I;
            }
            y.data[t * y.stride + i] = (float)mean;
            if (c->y_var.data) c->y_var.data[t * c->y_var.stride + i] = (float)variance;
        }
}

void pal_kla_step_ref(const pal_linear_chunk *c, float *S, size_t ld, float *y, float *scratch) {
    pal_kla_forward_ref(c, S, ld, (pal_view){ y, 0 }, scratch);
}

/* One pair's mu and I before each token and after the last. */
size_t pal_kla_backward_scratch_ref(int n, int dk, int dv) {
    (void)dk, (void)dv;
    return 2 * ((size_t)n + 1);
}

static void add(pal_view rows, size_t t, size_t c, double x) { rows.data[t * rows.stride + c] += (float)x; }

static void pair_backward(const pal_linear_chunk *c, size_t j, size_t i, float *dmu, float *dI, pal_const_view dy,
                          const pal_memory_gradients *grad, const float *mu, const float *I) {
    const double scale = (double)c->in.scale;
    double dm_after = (double)*dmu, dI_after = (double)*dI, da = 0, dp = 0;
    for (size_t t = (size_t)c->n; t-- > 0;) {
        const pair x = pair_at(c, t, j, i, mu[t], I[t]);
        const double q = scale * at(c->in.q, t, j), after = (double)I[t + 1], d = at(dy, t, i),
                     d_var = c->dy_var.data ? at(c->dy_var, t, i) : 0;
        add(grad->q, t, j, scale * (d * (double)mu[t + 1] + 2 * q * d_var / after));
        dm_after += q * d;
        dI_after -= q * q * d_var / (after * after);
        const double dgain = dm_after * x.error;
        dI_after -= dgain * x.gain / x.after;
        add(grad->b, t, i, dgain * x.k / x.after + dI_after * x.k * x.k);
        add(grad->k, t, j, dgain * x.b / x.after + dI_after * 2 * x.b * x.k - dm_after * x.gain * x.m);
        add(grad->v, t, i, dm_after * x.gain);
        const double dm = dm_after * x.U / x.after, left = 1 / (x.a * x.a + x.p * x.I);
        da += dm * x.mu - 2 * x.a * x.U * left * dI_after;
        dp -= x.U * x.U * dI_after;
        dm_after = x.a * dm;
        dI_after *= x.a * x.a * left * left;
    }
    *dmu = (float)dm_after;
    *dI = (float)dI_after;
    grad->keep[j * (size_t)c->dv + i] += (float)da;
    grad->drift[j * (size_t)c->dv + i] += (float)dp;
}

void pal_kla_backward_ref(const pal_linear_chunk *c, const float *S, size_t ld, float *dS, size_t dld,
                          pal_const_view dy, const pal_memory_gradients *grad, float *scratch) {
    const size_t n = (size_t)c->n, dk = (size_t)c->dk, dv = (size_t)c->dv;
    float *mu = scratch, *I = mu + n + 1;
    for (size_t t = 0; t < n; t++) {
        memset(grad->q.data + t * grad->q.stride, 0, dk * sizeof(float));
        memset(grad->k.data + t * grad->k.stride, 0, dk * sizeof(float));
        memset(grad->v.data + t * grad->v.stride, 0, dv * sizeof(float));
        memset(grad->b.data + t * grad->b.stride, 0, dv * sizeof(float));
    }
    for (size_t j = 0; j < dk; j++)
        for (size_t i = 0; i < dv; i++) {
            mu[0] = S[j * ld + i];
            I[0] = c->carried[j * ld + i];
            for (size_t t = 0; t < n; t++) {
                const pair x = pair_at(c, t, j, i, mu[t], I[t]);
                mu[t + 1] = (float)(x.m + x.gain * x.error);
                I[t + 1] = (float)x.after;
            }
            pair_backward(c, j, i, dS + j * dld + i, c->dcarried + j * dld + i, dy, grad, mu, I);
        }
}
