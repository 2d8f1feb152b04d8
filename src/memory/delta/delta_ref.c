/* SPDX-License-Identifier: MIT */
/* The recurrence as it is written, one token after another. S[j][i] is the exported S[i][j]: key j, value i. */
#include <math.h>
#include <string.h>

#include "memory/delta/delta.h"

static float decay_at(const pal_linear_chunk *c, int t) {
    return c->g.data ? expf(c->g.data[(size_t)t * c->g.stride]) : 1.0f;
}
/* c_t: what the memory is multiplied by before it is compared with the value. */
static float compared_at(const pal_linear_chunk *c, int t) { return c->undecayed ? 1.0f : decay_at(c, t); }

/* e_i = v_i - c_t sum_j S[j][i] k_j */
static float error_at(const pal_linear_chunk *c, int t, const float *S, size_t ld, size_t i) {
    const float *k = c->k.data + (size_t)t * c->k.stride;
    double sum = 0;
    for (size_t j = 0; j < (size_t)c->dk; j++) sum += (double)S[j * ld + i] * (double)k[j];
    return (float)((double)c->v.data[(size_t)t * c->v.stride + i] - (double)compared_at(c, t) * sum);
}

/* S <- a S + k u^T; values do not meet, so each is finished before the next begins. */
static void write_token(const pal_linear_chunk *c, int t, float *S, size_t ld) {
    const float *k = c->k.data + (size_t)t * c->k.stride, a = decay_at(c, t);
    for (size_t i = 0; i < (size_t)c->dv; i++) {
        const float u = c->beta.data[(size_t)t * c->beta.stride] * error_at(c, t, S, ld, i);
        for (size_t j = 0; j < (size_t)c->dk; j++) S[j * ld + i] = a * S[j * ld + i] + k[j] * u;
    }
}

void pal_delta_forward_ref(const pal_linear_chunk *c, float *S, size_t ld, pal_view y, float *scratch) {
    (void)scratch;
    for (int t = 0; t < c->n; t++) {
        const float *q = c->q.data + (size_t)t * c->q.stride;
        write_token(c, t, S, ld);
        for (int i = 0; i < c->dv; i++) {
            double sum = 0;
            for (int j = 0; j < c->dk; j++) sum += (double)S[(size_t)j * ld + (size_t)i] * (double)q[j];
            y.data[(size_t)t * y.stride + (size_t)i] = (float)((double)c->scale * sum);
        }
    }
}

void pal_delta_step_ref(const pal_linear_chunk *c, float *S, size_t ld, float *y) {
    pal_delta_forward_ref(c, S, ld, (pal_view){ y, 0 }, NULL);
}

/* All states of the chunk (n+1, dk, dv), then e (dv) and du (dv). */
size_t pal_delta_backward_scratch_ref(int n, int dk, int dv) { return (((size_t)n + 1) * (size_t)dk + 2) * (size_t)dv; }

void pal_delta_backward_ref(const pal_linear_chunk *c, const float *S, size_t ld, float *dS, size_t dld,
                            pal_const_view dy, const pal_linear_gradients *grad, float *scratch) {
    const size_t dk = (size_t)c->dk, dv = (size_t)c->dv, size = dk * dv;
    float *e = scratch + ((size_t)c->n + 1) * size, *du = e + dv;
    for (size_t j = 0; j < dk; j++) memcpy(scratch + j * dv, S + j * ld, dv * sizeof *S);
    for (int t = 0; t < c->n; t++) {
        float *next = scratch + ((size_t)t + 1) * size;
        memcpy(next, next - size, size * sizeof *next);
        write_token(c, t, next, dv);
    }
    for (int t = c->n - 1; t >= 0; t--) {
        const float *before = scratch + (size_t)t * size, *after = before + size, a = decay_at(c, t),
                    compared = compared_at(c, t);
        const float *q = c->q.data + (size_t)t * c->q.stride, *k = c->k.data + (size_t)t * c->k.stride;
        const float *dyt = dy.data + (size_t)t * dy.stride, beta = c->beta.data[(size_t)t * c->beta.stride];
        double dbeta = 0, da = 0;
        for (size_t j = 0; j < dk; j++) {
            double dq = 0;
            for (size_t i = 0; i < dv; i++) {
                dS[j * dld + i] += c->scale * q[j] * dyt[i];
                dq += (double)dyt[i] * (double)after[j * dv + i];
            }
            grad->q.data[(size_t)t * grad->q.stride + j] = (float)((double)c->scale * dq);
        }
        for (size_t i = 0; i < dv; i++) {
            double sum = 0;
            for (size_t j = 0; j < dk; j++) sum += (double)dS[j * dld + i] * (double)k[j];
            e[i] = error_at(c, t, before, dv, i);
            du[i] = (float)sum;
            dbeta += sum * (double)e[i];
            grad->v.data[(size_t)t * grad->v.stride + i] = beta * du[i];
        }
        /* S_{t-1} is used twice: it decays into S_t, and is compared with v under k. */
        for (size_t j = 0; j < dk; j++) {
            double dkey = 0;
            for (size_t i = 0; i < dv; i++) {
                float *d = &dS[j * dld + i];
                const double s = (double)before[j * dv + i], u = (double)beta * (double)e[i],
                             dp = -(double)beta * (double)du[i];
                dkey += (double)*d * u + (double)compared * dp * s;
                da += (double)*d * s + (c->undecayed ? 0 : dp * (double)k[j] * s);
                *d = (float)((double)a * (double)*d + (double)compared * dp * (double)k[j]);
            }
            grad->k.data[(size_t)t * grad->k.stride + j] = (float)dkey;
        }
        if (c->g.data) grad->g.data[(size_t)t * grad->g.stride] = (float)((double)a * da);
        grad->beta.data[(size_t)t * grad->beta.stride] = (float)dbeta;
    }
}
