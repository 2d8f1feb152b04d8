/* SPDX-License-Identifier: MIT */
/* The formulas of activations.h. */
#include <math.h>
#include <string.h>

#include "base/math.h"
#include "kernels/activations/activations.h"

static float activation(pal_activation kind, float x) {
    switch (kind) {
    case PAL_SILU: return pal_silu(x);
    case PAL_SIGMOID: return pal_sigmoid(x);
    case PAL_SOFTPLUS: return pal_softplus(x);
    default: return x < 0 ? 1 / (1 - x) : 1 + x;
    }
}

/* saved: x + bias of silu, y of the others. */
static float slope_at(pal_activation kind, float saved) {
    switch (kind) {
    case PAL_SILU: return pal_silu_slope(saved);
    case PAL_SIGMOID: return saved * (1.0f - saved);
    case PAL_SOFTPLUS: return -expm1f(-saved);
    default: return saved < 1 ? saved * saved : saved - saved + 1; /* NaN stays NaN */
    }
}

void pal_activate_rows_ref(const pal_activation_args *a, size_t begin, size_t end) {
    for (size_t t = begin; t < end; t++) {
        const float *x = pal_row_in(a->x, t);
        float *y = pal_row(a->y, t);
        for (int j = 0; j < a->width; j++) {
            const float in = x[j] + (a->bias ? a->bias[j] : 0.0f);
            y[j] = activation(a->kind, in);
        }
    }
}

void pal_activate_backward_rows_ref(const pal_activation_args *a, size_t begin, size_t end, float *dbias) {
    if (dbias) memset(dbias, 0, (size_t)a->width * sizeof *dbias);
    for (size_t t = begin; t < end; t++) {
        const float *saved = a->kind == PAL_SILU ? pal_row_in(a->x, t) : pal_row(a->y, t), *dy = pal_row_in(a->dy, t);
        float *dx = pal_row(a->dx, t);
        for (int j = 0; j < a->width; j++) {
            const float in = saved[j] + (a->kind == PAL_SILU && a->bias ? a->bias[j] : 0.0f),
                        slope = slope_at(a->kind, in);
            dx[j] = dy[j] * slope;
            if (dbias) dbias[j] += dx[j];
        }
    }
}

void pal_swiglu_rows_ref(const pal_swiglu_args *a, size_t begin, size_t end) {
    for (size_t t = begin; t < end; t++) {
        const float *gate = pal_row_in(a->gate, t), *up = pal_row_in(a->up, t);
        float *y = pal_row(a->y, t);
        for (int j = 0; j < a->width; j++) y[j] = pal_silu(gate[j]) * up[j];
    }
}

void pal_swiglu_backward_rows_ref(const pal_swiglu_args *a, size_t begin, size_t end) {
    for (size_t t = begin; t < end; t++) {
        const float *gate = pal_row_in(a->gate, t), *up = pal_row_in(a->up, t), *dy = pal_row_in(a->dy, t);
        float *dgate = pal_row(a->dgate, t), *dup = pal_row(a->dup, t);
        for (int j = 0; j < a->width; j++) {
            const float to_gate = dy[j] * up[j] * pal_silu_slope(gate[j]), to_up = dy[j] * pal_silu(gate[j]);
            dgate[j] = to_gate;
            dup[j] = to_up;
        }
    }
}

void pal_head_gate_rows_ref(const pal_head_gate_args *a, size_t begin, size_t end) {
    for (size_t t = begin; t < end; t++)
        for (int h = 0; h < a->heads; h++) {
            const size_t at = (size_t)h * (size_t)a->width;
            const float *x = pal_row_in(a->x, t) + at, *pre = a->b.data ? pal_row_in(a->pre, t) + at : NULL;
            float *v = pal_row(a->v, t) + at, *b = a->b.data ? pal_row(a->b, t) + at : NULL;
            const float s = pal_row_in(a->s, t)[h];
            for (int i = 0; i < a->width; i++) {
                v[i] = s * x[i];
                if (b) b[i] = pal_sigmoid(pre[i]) * a->c[h] * s;
            }
        }
}

void pal_head_skip_rows_ref(const pal_head_gate_args *a, size_t begin, size_t end) {
    for (size_t t = begin; t < end; t++)
        for (int h = 0; h < a->heads; h++) {
            const size_t at = (size_t)h * (size_t)a->width;
            const float *x = pal_row_in(a->x, t) + at;
            float *o = pal_row(a->o, t) + at;
            for (int i = 0; i < a->width; i++) o[i] += a->D[h] * x[i];
        }
}

void pal_head_gate_backward_rows_ref(const pal_head_gate_args *a, size_t begin, size_t end, float *dc, float *dD) {
    if (dc) memset(dc, 0, (size_t)a->heads * sizeof *dc);
    if (dD) memset(dD, 0, (size_t)a->heads * sizeof *dD);
    for (size_t t = begin; t < end; t++)
        for (int h = 0; h < a->heads; h++) {
            const size_t at = (size_t)h * (size_t)a->width;
            const float *x = pal_row_in(a->x, t) + at, *dv = pal_row_in(a->dv, t) + at;
            const float *d_o = a->d_o.data ? pal_row_in(a->d_o, t) + at : NULL,
                        *db = a->db.data ? pal_row_in(a->db, t) + at : NULL;
            const float *pre = db ? pal_row_in(a->pre, t) + at : NULL;
            float *dx = pal_row(a->dx, t) + at, *dpre = db ? pal_row(a->dpre, t) + at : NULL;
            const float s = pal_row_in(a->s, t)[h];
            double value = 0, importance = 0, skip = 0; /* sums over i of dv x, db sig, do x */
            for (int i = 0; i < a->width; i++) {
                value += (double)dv[i] * (double)x[i];
                if (d_o) skip += (double)d_o[i] * (double)x[i];
                dx[i] = s * dv[i] + (d_o ? a->D[h] * d_o[i] : 0.0f);
                if (!db) continue;
                const float sig = pal_sigmoid(pre[i]), dbi = db[i];
                importance += (double)dbi * (double)sig;
                dpre[i] = dbi * a->c[h] * s * sig * (1.0f - sig);
            }
            const double c = db ? (double)a->c[h] : 0;
            pal_row(a->ds, t)[h] = (float)(value + importance * c +
                                           (a->ds_add.data ? (double)pal_row_in(a->ds_add, t)[h] : 0));
            if (dc) dc[h] += (float)(importance * (double)s);
            if (dD) dD[h] += (float)skip;
        }
}
