/* SPDX-License-Identifier: MIT */
/* Attention in plain C, one query or key at a time, sums in double. */
#include <math.h>
#include <string.h>

#include "base/blocks.h"
#include "memory/attention/attention.h"

static double dot(const float *x, const float *y, int n) {
    double sum = 0;
    for (int j = 0; j < n; j++) sum += (double)x[j] * (double)y[j];
    return sum;
}
static const float *row(pal_const_view view, int t) { return view.data + (size_t)t * view.stride; }

/* Row j of the keys or values, decoded after the scratch's sums where pages hold it. */
static const float *stored(const pal_attention_rows *p, bool values, int j) {
    const int width = values ? p->dv : p->dk;
    float *to = p->scratch + 2 * (size_t)p->dv;
    if (!p->pages) return row(values ? p->v : p->k, j);
    const unsigned char *from = p->pages[j / PAL_PAGE_TOKENS]->data + (values ? p->v_at : p->k_at) +
                                (size_t)(j % PAL_PAGE_TOKENS) * (values ? p->v_row : p->k_row);
    pal_blocks_decode(pal_block_format_of(p->type), from, (size_t)width, to);
    return to;
}

static double score(const pal_attention_rows *p, int i, int j) {
    return (double)p->scale * dot(row(p->q, i), stored(p, false, j), p->dk);
}

/* Query i looks at keys 0 .. last. */
static void attend(const pal_attention_rows *p, int i, int last) {
    double *sum = (double *)(void *)p->scratch; /* (dv) */
    double most = -INFINITY, total = 0;
    for (int j = 0; j <= last; j++) most = fmax(most, score(p, i, j));
    memset(sum, 0, (size_t)p->dv * sizeof *sum);
    for (int j = 0; j <= last; j++) {
        const double e = exp(score(p, i, j) - most);
        const float *v = stored(p, true, j);
        total += e;
        for (int c = 0; c < p->dv; c++) sum[c] += e * (double)v[c];
    }
    for (int c = 0; c < p->dv; c++) p->y.data[(size_t)i * p->y.stride + (size_t)c] = (float)(sum[c] / total);
    if (p->lse.data) p->lse.data[(size_t)i * p->lse.stride] = (float)(most + log(total));
}

void pal_attention_forward_ref(const pal_attention_rows *p) {
    for (int i = 0; i < p->queries; i++) attend(p, i, p->first + i);
}

void pal_attention_step_ref(const pal_attention_rows *p) {
    for (int i = 0; i < p->queries; i++) attend(p, i, p->first);
}

/* p_ij and the gradient of the score (before the scale). */
static void pair(const pal_attention_rows *p, int i, int j, double *weight, double *dscore) {
    const pal_const_view y = { p->y.data, p->y.stride };
    *weight = exp(score(p, i, j) - (double)p->lse.data[(size_t)i * p->lse.stride]);
    *dscore = *weight * (dot(row(p->dy, i), row(p->v, j), p->dv) - dot(row(p->dy, i), row(y, i), p->dv));
}

static void put(pal_view to, int t, const double *sum, double factor, int n, bool add) {
    for (size_t c = 0; c < (size_t)n && to.data; c++) {
        float *out = &to.data[(size_t)t * to.stride + c];
        *out = (add ? *out : 0) + (float)(factor * sum[c]);
    }
}

void pal_attention_backward_ref(const pal_attention_rows *p) {
    double *dk = (double *)(void *)p->scratch, *dv = dk + p->dk, *dq = dk;
    double weight, dscore;
    for (int i = 0; i < p->queries; i++) {
        memset(dq, 0, (size_t)p->dk * sizeof *dq);
        for (int j = 0; j <= i; j++) {
            pair(p, i, j, &weight, &dscore);
            for (int c = 0; c < p->dk; c++) dq[c] += dscore * (double)row(p->k, j)[c];
        }
        put(p->dq, i, dq, (double)p->scale, p->dk, false);
    }
    for (int j = 0; j < p->queries; j++) {
        memset(dk, 0, (size_t)(p->dk + p->dv) * sizeof *dk);
        for (int i = j; i < p->queries; i++) {
            pair(p, i, j, &weight, &dscore);
            for (int c = 0; c < p->dk; c++) dk[c] += dscore * (double)row(p->q, i)[c];
            for (int c = 0; c < p->dv; c++) dv[c] += weight * (double)row(p->dy, i)[c];
        }
        put(p->dk_rows, j, dk, (double)p->scale, p->dk, p->add);
        put(p->dv_rows, j, dv, 1.0, p->dv, p->add);
    }
}
