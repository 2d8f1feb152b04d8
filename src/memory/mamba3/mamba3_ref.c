/* SPDX-License-Identifier: MIT */
/* The recurrence as it is written, one token after another. S[j][i] is the exported S[i][j]: key j, value i. */
#include <math.h>
#include <string.h>

#include "memory/mamba3/mamba3.h"

/* One token with the key and value of the one before. */
typedef struct {
    size_t dk, dv;
    const float *q, *k, *v, *turn, *last_k, *last_v;
    double a, beta, lag;
} token;

static const float *row(pal_const_view rows, int t) { return rows.data + (size_t)t * rows.stride; }

static token token_at(const pal_linear_chunk *c, int t) {
    token x = { .dk = (size_t)c->dk, .dv = (size_t)c->dv };
    x.q = row(c->in.q, t);
    x.k = row(c->in.k, t);
    x.v = row(c->in.v, t);
    x.turn = row(c->in.turn, t);
    x.last_k = t ? row(c->in.k, t - 1) : c->carried;
    x.last_v = t ? row(c->in.v, t - 1) : c->carried + x.dk;
    x.a = exp((double)row(c->in.g, t)[0]);
    x.beta = (double)row(c->in.beta, t)[0];
    x.lag = (double)row(c->in.lag, t)[0];
    return x;
}

/* Channels j and j + 1 of value i, with the last token written once more, turned back; at an odd end there is one. */
typedef struct {
    double first, second;
} pair;
static double cosine(const token *x, size_t j) { return j + 1 < x->dk ? cos((double)x->turn[j / 2]) : 1; }
static double sine(const token *x, size_t j) { return j + 1 < x->dk ? sin((double)x->turn[j / 2]) : 0; }

static pair turned(const token *x, const float *S, size_t ld, size_t j, size_t i, double c, double s) {
    const double v = x->lag * (double)x->last_v[i], u0 = (double)S[j * ld + i] + v * (double)x->last_k[j],
                 u1 = j + 1 < x->dk ? (double)S[(j + 1) * ld + i] + v * (double)x->last_k[j + 1] : 0;
    return (pair){ c * u0 + s * u1, c * u1 - s * u0 };
}

static void write_token(const token *x, float *S, size_t ld) {
    for (size_t j = 0; j < x->dk; j += 2) {
        const double c = cosine(x, j), s = sine(x, j);
        for (size_t i = 0; i < x->dv; i++) {
            const pair h = turned(x, S, ld, j, i, c, s);
            const double v = x->beta * (double)x->v[i];
            S[j * ld + i] = (float)(x->a * h.first + v * (double)x->k[j]);
            if (j + 1 < x->dk) S[(j + 1) * ld + i] = (float)(x->a * h.second + v * (double)x->k[j + 1]);
        }
    }
}

void pal_mamba3_forward_ref(const pal_linear_chunk *c, float *S, size_t ld, pal_view y, float *scratch) {
    (void)scratch;
    for (int t = 0; t < c->n; t++) {
        const token x = token_at(c, t);
        write_token(&x, S, ld);
        for (size_t i = 0; i < x.dv; i++) {
            double sum = 0;
            for (size_t j = 0; j < x.dk; j++) sum += (double)S[j * ld + i] * (double)x.q[j];
            y.data[(size_t)t * y.stride + i] = (float)((double)c->in.scale * sum);
        }
    }
    memcpy(c->carried, row(c->in.k, c->n - 1), (size_t)c->dk * sizeof(float));
    memcpy(c->carried + c->dk, row(c->in.v, c->n - 1), (size_t)c->dv * sizeof(float));
}

void pal_mamba3_step_ref(const pal_linear_chunk *c, float *S, size_t ld, float *y, float *scratch) {
    pal_mamba3_forward_ref(c, S, ld, (pal_view){ y, 0 }, scratch);
}

/* All states of the chunk: (n+1, dk, dv). */
size_t pal_mamba3_backward_scratch_ref(int n, int dk, int dv) { return ((size_t)n + 1) * (size_t)dk * (size_t)dv; }

static float *grad_row(pal_view rows, int t) { return rows.data + (size_t)t * rows.stride; }

/* Gradients of q and of what token t writes; those of k and v gain what the next token gave. dS gains what y asks. */
static void written_backward(const pal_linear_chunk *c, const token *x, int t, const float *after, float *dS,
                             size_t dld, const float *dy, const pal_memory_gradients *grad) {
    const double scale = (double)c->in.scale;
    double dbeta = 0;
    float *dk = grad_row(grad->k, t), *dv = grad_row(grad->v, t);
    for (size_t j = 0; j < x->dk; j++) {
        double dq = 0, sum = 0;
        for (size_t i = 0; i < x->dv; i++) {
            float *d = &dS[j * dld + i];
            *d += (float)(scale * (double)x->q[j] * (double)dy[i]);
            dq += (double)dy[i] * (double)after[j * x->dv + i];
            sum += (double)*d * (double)x->v[i];
        }
        grad_row(grad->q, t)[j] = (float)(scale * dq);
        dk[j] = (float)((double)c->dcarried[j] + x->beta * sum);
        dbeta += sum * (double)x->k[j];
    }
    for (size_t i = 0; i < x->dv; i++) {
        double sum = 0;
        for (size_t j = 0; j < x->dk; j++) sum += (double)dS[j * dld + i] * (double)x->k[j];
        dv[i] = (float)((double)c->dcarried[x->dk + i] + x->beta * sum);
    }
    grad_row(grad->beta, t)[0] = (float)dbeta;
}

/* dS through decay and turn, to the gradient of the memory before token t. */
static void turned_backward(const token *x, int t, const float *before, float *dS, size_t dld,
                            const pal_memory_gradients *grad) {
    double da = 0;
    for (size_t j = 0; j < x->dk; j += 2) {
        const double c = cosine(x, j), s = sine(x, j);
        const bool two = j + 1 < x->dk;
        double dturn = 0;
        for (size_t i = 0; i < x->dv; i++) {
            const pair h = turned(x, before, x->dv, j, i, c, s);
            float *d0 = &dS[j * dld + i], *d1 = two ? &dS[(j + 1) * dld + i] : NULL;
            const double first = x->a * (double)*d0, second = two ? x->a * (double)*d1 : 0;
            da += first * h.first + second * h.second;
            dturn += first * h.second - second * h.first;
            *d0 = (float)(c * first - s * second);
            if (two) *d1 = (float)(s * first + c * second);
        }
        grad_row(grad->turn, t)[j / 2] = two ? (float)dturn : 0;
    }
    grad_row(grad->g, t)[0] = (float)da;
}

/* What the token before gets for being written once more: dlag, and its key and value in dcarried. */
static void lag_backward(const pal_linear_chunk *c, const token *x, int t, const float *dS, size_t dld,
                         const pal_memory_gradients *grad) {
    double dlag = 0;
    for (size_t j = 0; j < x->dk; j++) {
        double sum = 0;
        for (size_t i = 0; i < x->dv; i++) sum += (double)dS[j * dld + i] * (double)x->last_v[i];
        c->dcarried[j] = (float)(x->lag * sum);
        dlag += sum * (double)x->last_k[j];
    }
    for (size_t i = 0; i < x->dv; i++) {
        double sum = 0;
        for (size_t j = 0; j < x->dk; j++) sum += (double)dS[j * dld + i] * (double)x->last_k[j];
        c->dcarried[x->dk + i] = (float)(x->lag * sum);
    }
    grad_row(grad->lag, t)[0] = (float)dlag;
}

void pal_mamba3_backward_ref(const pal_linear_chunk *c, const float *S, size_t ld, float *dS, size_t dld,
                             pal_const_view dy, const pal_memory_gradients *grad, float *scratch) {
    const size_t dk = (size_t)c->dk, dv = (size_t)c->dv, size = dk * dv;
    for (size_t j = 0; j < dk; j++) memcpy(scratch + j * dv, S + j * ld, dv * sizeof *S);
    for (int t = 0; t < c->n; t++) {
        float *next = scratch + ((size_t)t + 1) * size;
        const token x = token_at(c, t);
        memcpy(next, next - size, size * sizeof *next);
        write_token(&x, next, dv);
    }
    for (int t = c->n - 1; t >= 0; t--) {
        const float *before = scratch + (size_t)t * size;
        const token x = token_at(c, t);
        written_backward(c, &x, t, before + size, dS, dld, row(dy, t), grad);
        turned_backward(&x, t, before, dS, dld, grad);
        lag_backward(c, &x, t, dS, dld, grad);
    }
}
