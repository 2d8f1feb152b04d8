/* SPDX-License-Identifier: MIT */
/* The recurrence as delta.h writes it, one token after another. S[j][i] is the exported S[i][j]: key j, value i. */
#include <math.h>
#include <string.h>

#include "memory/delta/delta.h"

static pal_delta_rows rows_of(const pal_linear_chunk *c, float **scratch) {
    const pal_delta_rows x = pal_delta_take(c, scratch);
    for (size_t i = 0; i < (size_t)c->n * x.kl && c->in.gk.data; i++) x.D[i] = expf(x.D[i]);
    pal_delta_fill(c, &x);
    return x;
}

/* u_i of token t, and what it makes of the value: e_i / beta. */
static double error_at(const pal_linear_chunk *c, const pal_delta_rows *x, size_t t, const float *S, size_t ld,
                       size_t i) {
    const pal_delta_rule *rule = c->kernels->delta;
    double u = 0;
    for (size_t j = 0; j < (size_t)c->dk; j++) {
        const double decay = rule->undecayed ? 1.0 : (double)x->D[t * x->kl + j];
        u += (double)x->a[t * x->kl + j] * decay * (double)S[j * ld + i];
    }
    return (rule->apart ? 0.0 : (double)x->v[t * x->vl + i]) - u;
}

static void write_token(const pal_linear_chunk *c, const pal_delta_rows *x, size_t t, float *S, size_t ld) {
    for (size_t i = 0; i < (size_t)c->dv; i++) { /* values do not meet, so each is finished before the next begins */
        const double e = (double)x->beta[t] * error_at(c, x, t, S, ld, i), v = (double)x->v[t * x->vl + i];
        for (size_t j = 0; j < (size_t)c->dk; j++) {
            const size_t key = t * x->kl + j;
            S[j * ld + i] = (float)((double)x->D[key] * (double)S[j * ld + i] + (double)x->c[key] * e +
                                    (c->kernels->delta->apart ? (double)x->k[key] * v : 0.0));
        }
    }
}

void pal_delta_forward_ref(const pal_linear_chunk *c, float *S, size_t ld, pal_view y, float *scratch) {
    const pal_delta_rows x = rows_of(c, &scratch);
    for (size_t t = 0; t < (size_t)c->n; t++) {
        write_token(c, &x, t, S, ld);
        for (size_t i = 0; i < (size_t)c->dv; i++) {
            double sum = 0;
            for (size_t j = 0; j < (size_t)c->dk; j++) sum += (double)S[j * ld + i] * (double)x.q[t * x.kl + j];
            y.data[t * y.stride + i] = (float)((double)c->in.scale * sum);
        }
    }
}

void pal_delta_step_ref(const pal_linear_chunk *c, float *S, size_t ld, float *y, float *scratch) {
    pal_delta_forward_ref(c, S, ld, (pal_view){ y, 0 }, scratch);
}

/* All states of the chunk (n+1, dk, dv), then e/beta (dv) and the gradient of e (dv). */
size_t pal_delta_backward_scratch_ref(int n, int dk, int dv) { return (((size_t)n + 1) * (size_t)dk + 2) * (size_t)dv; }

/* dS is the gradient of S_t and becomes that of S_{t-1}. */
static void token_backward(const pal_linear_chunk *c, const pal_delta_rows *x, const pal_delta_rows *d, size_t t,
                           const float *before, float *dS, size_t dld, const float *dy, float *e, float *de) {
    const pal_delta_rule *rule = c->kernels->delta;
    const size_t dk = (size_t)c->dk, dv = (size_t)c->dv, key = t * x->kl;
    const float *after = before + dk * dv, *q = x->q + key, *a = x->a + key, *w = x->c + key, *k = x->k + key,
                *D = x->D + key, *v = x->v + t * x->vl;
    double dbeta = 0;
    for (size_t j = 0; j < dk; j++) {
        double dq = 0;
        for (size_t i = 0; i < dv; i++) {
            dS[j * dld + i] += c->in.scale * q[j] * dy[i];
            dq += (double)dy[i] * (double)after[j * dv + i];
        }
        d->q[key + j] = (float)((double)c->in.scale * dq);
    }
    for (size_t i = 0; i < dv; i++) {
        double sum = 0, dvalue = 0;
        for (size_t j = 0; j < dk; j++) {
            sum += (double)dS[j * dld + i] * (double)w[j];
            dvalue += (double)dS[j * dld + i] * (double)k[j];
        }
        e[i] = (float)error_at(c, x, t, before, dv, i);
        dbeta += sum * (double)e[i];
        de[i] = (float)((double)x->beta[t] * sum);
        d->v[t * d->vl + i] = rule->apart ? (float)dvalue : de[i];
    }
    d->beta[t] = (float)dbeta;
    /* S_{t-1} is used twice: it decays into S_t, and is compared with v under a. */
    for (size_t j = 0; j < dk; j++) {
        const double compared = rule->undecayed ? 1.0 : (double)D[j];
        double da = 0, dc = 0, dkey = 0, dD = 0;
        for (size_t i = 0; i < dv; i++) {
            float *g = &dS[j * dld + i];
            const double s = (double)before[j * dv + i], du = -(double)de[i];
            dc += (double)*g * (double)x->beta[t] * (double)e[i];
            dkey += rule->apart ? (double)*g * (double)v[i] : 0.0;
            da += du * compared * s;
            dD += (double)*g * s + (rule->undecayed ? 0.0 : du * (double)a[j] * s);
            *g = (float)((double)D[j] * (double)*g + compared * (double)a[j] * du);
        }
        d->a[key + j] = (float)da;
        d->c[key + j] = (float)dc;
        d->k[key + j] = (float)dkey;
        d->D[key + j] = (float)((double)D[j] * dD);
    }
}

void pal_delta_backward_ref(const pal_linear_chunk *c, const float *S, size_t ld, float *dS, size_t dld,
                            pal_const_view dy, const pal_memory_gradients *grad, float *scratch) {
    const size_t dk = (size_t)c->dk, dv = (size_t)c->dv, size = dk * dv, n = (size_t)c->n;
    const pal_delta_rows x = rows_of(c, &scratch), d = pal_delta_take_gradients(c, &scratch);
    float *e = scratch + (n + 1) * size, *de = e + dv;
    memset(d.q, 0, (size_t)((char *)scratch - (char *)d.q)); /* the padding */
    for (size_t j = 0; j < dk; j++) memcpy(scratch + j * dv, S + j * ld, dv * sizeof *S);
    for (size_t t = 0; t < n; t++) {
        float *next = scratch + (t + 1) * size;
        memcpy(next, next - size, size * sizeof *next);
        write_token(c, &x, t, next, dv);
    }
    for (size_t t = n; t-- > 0;)
        token_backward(c, &x, &d, t, scratch + t * size, dS, dld, dy.data + t * dy.stride, e, de);
    pal_delta_unfill(c, &x, &d, grad);
}
