/* SPDX-License-Identifier: MIT */
/* The recurrence as it is written, one token after another. S[j][i] is the exported S[i][j]: key j, value i. */
#include <math.h>
#include <string.h>

#include "memory/gla/gla.h"

static float decay_at(const pal_linear_chunk *c, int t) {
    return c->in.g.data ? expf(c->in.g.data[(size_t)t * c->in.g.stride]) : 1.0f;
}

/* S <- a S + k v^T */
static void write_token(const pal_linear_chunk *c, int t, float *S, size_t ld) {
    const float *k = c->in.k.data + (size_t)t * c->in.k.stride, *v = c->in.v.data + (size_t)t * c->in.v.stride,
                a = decay_at(c, t);
    for (int j = 0; j < c->dk; j++)
        for (int i = 0; i < c->dv; i++) S[(size_t)j * ld + (size_t)i] = a * S[(size_t)j * ld + (size_t)i] + k[j] * v[i];
}

void pal_gla_forward_ref(const pal_linear_chunk *c, float *S, size_t ld, pal_view y, float *scratch) {
    (void)scratch;
    for (int t = 0; t < c->n; t++) {
        const float *q = c->in.q.data + (size_t)t * c->in.q.stride;
        write_token(c, t, S, ld);
        for (int i = 0; i < c->dv; i++) {
            double sum = 0;
            for (int j = 0; j < c->dk; j++) sum += (double)S[(size_t)j * ld + (size_t)i] * (double)q[j];
            y.data[(size_t)t * y.stride + (size_t)i] = (float)((double)c->in.scale * sum);
        }
    }
}

void pal_gla_step_ref(const pal_linear_chunk *c, float *S, size_t ld, float *y, float *scratch) {
    pal_gla_forward_ref(c, S, ld, (pal_view){ y, 0 }, scratch);
}

/* All states of the chunk: (n+1, dk, dv). */
size_t pal_gla_backward_scratch_ref(int n, int dk, int dv) { return ((size_t)n + 1) * (size_t)dk * (size_t)dv; }

void pal_gla_backward_ref(const pal_linear_chunk *c, const float *S, size_t ld, float *dS, size_t dld,
                          pal_const_view dy, const pal_memory_gradients *grad, float *scratch) {
    const size_t dk = (size_t)c->dk, dv = (size_t)c->dv, size = dk * dv;
    for (size_t j = 0; j < dk; j++) memcpy(scratch + j * dv, S + j * ld, dv * sizeof *S);
    for (int t = 0; t < c->n; t++) {
        float *next = scratch + ((size_t)t + 1) * size;
        memcpy(next, next - size, size * sizeof *next);
        write_token(c, t, next, dv);
    }
    for (int t = c->n - 1; t >= 0; t--) {
        const float *before = scratch + (size_t)t * size, *after = before + size, a = decay_at(c, t);
        const float *q = c->in.q.data + (size_t)t * c->in.q.stride, *k = c->in.k.data + (size_t)t * c->in.k.stride;
        const float *v = c->in.v.data + (size_t)t * c->in.v.stride, *dyt = dy.data + (size_t)t * dy.stride;
        double da = 0;
        for (size_t j = 0; j < dk; j++) {
            double dq = 0, dkey = 0;
            for (size_t i = 0; i < dv; i++) {
                float *d = &dS[j * dld + i];
                *d += c->in.scale * q[j] * dyt[i];
                dq += (double)dyt[i] * (double)after[j * dv + i];
                dkey += (double)*d * (double)v[i];
                da += (double)*d * (double)before[j * dv + i];
            }
            grad->q.data[(size_t)t * grad->q.stride + j] = (float)((double)c->in.scale * dq);
            grad->k.data[(size_t)t * grad->k.stride + j] = (float)dkey;
        }
        for (size_t i = 0; i < dv; i++) {
            double sum = 0;
            for (size_t j = 0; j < dk; j++) sum += (double)dS[j * dld + i] * (double)k[j];
            grad->v.data[(size_t)t * grad->v.stride + i] = (float)sum;
        }
        if (c->in.g.data) grad->g.data[(size_t)t * grad->g.stride] = (float)((double)a * da);
        for (size_t j = 0; j < dk; j++)
            for (size_t i = 0; i < dv; i++) dS[j * dld + i] *= a;
    }
}
