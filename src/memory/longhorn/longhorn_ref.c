/* SPDX-License-Identifier: MIT */
/* Longhorn in plain C: reads like the formulas of README.md and is what the vector kernels are checked against. */
#include <string.h>

#include "memory/longhorn/longhorn.h"

static double dot(const float *x, const float *y, int n) {
    double sum = 0;
    for (int j = 0; j < n; j++) sum += (double)x[j] * (double)y[j];
    return sum;
}

/* One token: S (dk, width) with rows `row` apart; y NULL when only the memory is needed. */
static void token(const pal_longhorn_block *p, size_t t, float *S, size_t row, float *y) {
    const float *q = p->q.data + t * p->q.stride, *k = p->k.data + t * p->k.stride;
    const float *v = p->v.data + t * p->v.stride, *b = p->b.data + t * p->b.stride;
    const double kk = dot(k, k, p->dk);
    for (int i = 0; i < p->width; i++) {
        const double r = (double)b[i] / (1.0 + (double)b[i] * kk);
        double sum = 0;
        for (int j = 0; j < p->dk; j++) {
            float *s = &S[(size_t)j * row + (size_t)i];
            *s = (float)((double)*s + r * (double)k[j] * ((double)v[i] - (double)k[j] * (double)*s));
            sum += (double)*s * (double)q[j];
        }
        if (y) y[i] = (float)(sum * (double)p->scale);
    }
}

void pal_longhorn_step_ref(const pal_longhorn_block *p) { token(p, 0, p->final, p->row, p->y.data); }

static void copy_memory(float *to, size_t to_row, const float *from, size_t from_row, int dk, int width) {
    for (size_t j = 0; j < (size_t)dk; j++) {
        if (from) memcpy(to + j * to_row, from + j * from_row, (size_t)width * sizeof *to);
        else memset(to + j * to_row, 0, (size_t)width * sizeof *to);
    }
}

void pal_longhorn_forward_ref(const pal_longhorn_block *p) {
    float *S = p->scratch;
    const size_t row = (size_t)p->width;
    copy_memory(S, row, p->initial, p->row, p->dk, p->width);
    for (size_t t = 0; t < (size_t)p->tokens; t++) {
        if (p->saved && t % PAL_LONGHORN_CHUNK == 0)
            copy_memory(p->saved + t / PAL_LONGHORN_CHUNK * p->between, p->row, S, row, p->dk, p->width);
        token(p, t, S, row, p->y.data + t * p->y.stride);
    }
    if (p->final) copy_memory(p->final, p->row, S, row, p->dk, p->width);
}

/* Through one token: S before and after it, dS the gradient of the memory after it, replaced by that before it. */
static void token_backward(const pal_longhorn_block *p, size_t t, const float *before, const float *after, float *dS) {
    const size_t row = (size_t)p->width;
    const float *q = p->q.data + t * p->q.stride, *k = p->k.data + t * p->k.stride, *dy = p->dy.data + t * p->dy.stride;
    const float *v = p->v.data + t * p->v.stride, *b = p->b.data + t * p->b.stride;
    float *dq = p->dq.data ? p->dq.data + t * p->dq.stride : NULL,
          *dk = p->dk_rows.data ? p->dk_rows.data + t * p->dk_rows.stride : NULL;
    const double kk = dot(k, k, p->dk);
    double dkk = 0;
    for (int j = 0; j < p->dk && !p->add; j++) {
        if (dq) dq[j] = 0;
        if (dk) dk[j] = 0;
    }
    for (int j = 0; j < p->dk && dq; j++)
        for (int i = 0; i < p->width; i++) dq[j] += p->scale * dy[i] * after[(size_t)j * row + (size_t)i];
    for (int i = 0; i < p->width; i++) {
        const double c = 1.0 / (1.0 + (double)b[i] * kk), r = (double)b[i] * c;
        double dr = 0, dv = 0;
        for (int j = 0; j < p->dk; j++) {
            const double S = (double)before[(size_t)j * row + (size_t)i];
            double d = (double)dS[(size_t)j * row + (size_t)i] + (double)p->scale * (double)dy[i] * (double)q[j];
            dr += d * (double)k[j] * ((double)v[i] - (double)k[j] * S);
            dv += d * r * (double)k[j];
            if (dk) dk[j] += (float)(d * r * ((double)v[i] - 2 * (double)k[j] * S));
            d *= 1.0 - r * (double)k[j] * (double)k[j];
            dS[(size_t)j * row + (size_t)i] = (float)d;
        }
        dkk -= dr * r * r; /* dr_i / d(k.k) = -r_i^2 */
        if (p->dv.data) p->dv.data[t * p->dv.stride + (size_t)i] = (float)dv;
        if (p->db.data) p->db.data[t * p->db.stride + (size_t)i] = (float)(dr * c * c);
    }
    for (int j = 0; j < p->dk && dk; j++) dk[j] += (float)(2 * (double)k[j] * dkk);
}

void pal_longhorn_backward_ref(const pal_longhorn_block *p) {
    const size_t width = (size_t)p->width, dk = (size_t)p->dk, memory = dk * width, chunk = PAL_LONGHORN_CHUNK;
    float *dS = p->scratch, *S = dS + memory; /* S: the memories around each token of a chunk */
    for (size_t j = 0; j < dk; j++)
        for (size_t i = 0; i < width; i++) dS[j * width + i] = p->dfinal ? p->dfinal[i * dk + j] : 0.0f;
    for (size_t first = ((size_t)p->tokens - 1) / chunk * chunk;; first -= chunk) {
        const size_t count = (size_t)p->tokens - first < chunk ? (size_t)p->tokens - first : chunk;
        copy_memory(S, width, p->saved + first / chunk * p->between, p->row, p->dk, p->width);
        for (size_t t = 0; t < count; t++) {
            memcpy(S + (t + 1) * memory, S + t * memory, memory * sizeof *S);
            token(p, first + t, S + (t + 1) * memory, width, NULL);
        }
        for (size_t t = count; t-- > 0;) token_backward(p, first + t, S + t * memory, S + (t + 1) * memory, dS);
        if (first == 0) break;
    }
    for (size_t i = 0; i < width && p->dinitial; i++)
        for (size_t j = 0; j < dk; j++) p->dinitial[i * dk + j] = dS[j * width + i];
}
