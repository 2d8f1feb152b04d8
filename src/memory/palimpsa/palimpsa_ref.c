/* SPDX-License-Identifier: MIT */
/* Palimpsa in plain C, the specification of the fast variants: the formulas of the README, one value's row of the
 * memory at a time (rows do not meet), numbers stored in f32 and computed in double. */
#include "memory/palimpsa/palimpsa.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* What one token does to every element of a memory. */
typedef struct {
    double alpha, rest; /* exp(-A dt) and 1 - alpha without cancellation */
    const float *q, *k;
    double v, b;
} token;

static token token_at(const pal_palimpsa_item *it, int t, int i) {
    const size_t at = (size_t)t;
    const double x = (double)it->A * (double)it->dt.data[at * it->dt.stride];
    return (token){ .alpha = exp(-x),
                    .rest = -expm1(-x),
                    .q = it->q.data + at * it->q.stride,
                    .k = it->k.data + at * it->k.stride,
                    .v = (double)it->v.data[at * it->v.stride + (size_t)i],
                    .b = (double)it->b.data[at * it->b.stride + (size_t)i] };
}

static void update(const token *x, double Ip, int j, float *M, float *I) {
    const double k = (double)x->k[j];
    *M = (float)(x->alpha * (double)*M + x->v * k);
    *I = (float)(x->alpha * (double)*I + (x->rest * Ip + x->b * k * k));
}

/* Tokens from..to-1 through the memory `state`. */
static void forward_tokens(const pal_palimpsa_item *it, int from, int to, float *state, size_t row) {
    for (int i = 0; i < it->values; i++)
        for (int t = from; t < to; t++) {
            const token x = token_at(it, t, i);
            double y = 0, y_var = 0;
            for (int j = 0; j < it->dk; j++) {
                float *M = state + pal_palimpsa_at(row, (size_t)i, (size_t)j), *I = M + PAL_PALIMPSA_GROUP;
                update(&x, (double)it->Ip, j, M, I);
                const double q = (double)it->scale * (double)x.q[j];
                y += q * (double)*M / (double)*I;
                y_var += q * q / (double)*I;
            }
            it->y.data[(size_t)t * it->y.stride + (size_t)i] = (float)y;
            if (it->y_var.data) it->y_var.data[(size_t)t * it->y_var.stride + (size_t)i] = (float)y_var;
        }
}

static void copy_memory(float *to, size_t to_row, const float *from, size_t from_row, int dk, int values) {
    const size_t floats = pal_palimpsa_groups(values) * 2 * PAL_PALIMPSA_GROUP;
    for (size_t j = 0; j < pal_palimpsa_rows(dk); j++)
        memcpy(to + j * to_row, from + j * from_row, floats * sizeof *to);
}

void pal_palimpsa_forward_ref(const pal_palimpsa_item *it, void *scratch) {
    (void)scratch;
    if (it->saved) copy_memory(it->state, it->row, it->saved, it->saved_row, it->dk, it->values);
    for (int from = 0, chunk = 0; from < it->length; from += PAL_PALIMPSA_CHUNK, chunk++) {
        const int to = from + PAL_PALIMPSA_CHUNK < it->length ? from + PAL_PALIMPSA_CHUNK : it->length;
        if (it->saved && chunk)
            copy_memory(it->saved + (size_t)chunk * it->saved_chunk, it->saved_row, it->state, it->row, it->dk,
                        it->values);
        forward_tokens(it, from, to, it->state, it->row);
    }
}

void pal_palimpsa_step_ref(const pal_palimpsa_item *it, void *scratch) {
    (void)scratch;
    assert(it->length == 1 && !it->saved);
    forward_tokens(it, 0, 1, it->state, it->row);
}

/* One value's memories of a chunk: row t is M or I after t of its tokens. */
typedef struct {
    float *M, *I;       /* (chunk+1, dk) */
    double *dq, *dk;    /* (chunk, dk) summed over values */
    double *da, *prior; /* (chunk) alpha times d alpha, and sum of dI */
} workspace;

static size_t lay_out(workspace *w, int dk, char *base) {
    const size_t row = (size_t)dk, tokens = PAL_PALIMPSA_CHUNK;
    const size_t doubles = 2 * tokens * row + 2 * tokens, floats = 2 * (tokens + 1) * row;
    if (w) {
        w->dq = (double *)(void *)base;
        w->dk = w->dq + tokens * row;
        w->da = w->dk + tokens * row;
        w->prior = w->da + tokens;
        w->M = (float *)(void *)(w->prior + tokens);
        w->I = w->M + (tokens + 1) * row;
    }
    return doubles * sizeof(double) + floats * sizeof(float);
}

size_t pal_palimpsa_scratch_ref(int dk, int values, pal_memory_pass pass) {
    (void)values;
    return pass == PAL_BACKWARD ? lay_out(NULL, dk, NULL) : 0;
}

/* Backward through one value's row for tokens from..to-1, whose memories w holds. */
static void backward_row(const pal_palimpsa_item *it, const workspace *w, int from, int to, int i) {
    const size_t dk = (size_t)it->dk;
    const double s = (double)it->scale, Ip = (double)it->Ip;
    for (int t = to - 1; t >= from; t--) {
        const token x = token_at(it, t, i);
        const size_t c = (size_t)(t - from);
        const double dy = (double)it->dy.data[(size_t)t * it->dy.stride + (size_t)i];
        const double dy_var = it->dy_var.data ? (double)it->dy_var.data[(size_t)t * it->dy_var.stride + (size_t)i]
                                              : 0.0;
        double dv = 0, db = 0;
        for (size_t j = 0; j < dk; j++) {
            float *adjoint = it->state + pal_palimpsa_at(it->row, (size_t)i, j);
            const double M = (double)w->M[(c + 1) * dk + j], I = (double)w->I[(c + 1) * dk + j];
            const double k = (double)x.k[j], sq = s * (double)x.q[j], dm = dy * sq;
            const double dM = (double)adjoint[0] + dm / I;
            const double dI = (double)adjoint[PAL_PALIMPSA_GROUP] - dm * M / (I * I) - dy_var * sq * sq / (I * I);
            w->dq[c * dk + j] += s * dy * M / I + 2 * s * sq * dy_var / I;
            w->dk[c * dk + j] += dM * x.v + 2 * k * dI * x.b;
            w->da[c] += x.alpha * (dM * (double)w->M[c * dk + j] + dI * ((double)w->I[c * dk + j] - Ip));
            w->prior[c] += x.rest * dI;
            dv += dM * k;
            db += dI * k * k;
            adjoint[0] = (float)(x.alpha * dM);
            adjoint[PAL_PALIMPSA_GROUP] = (float)(x.alpha * dI);
        }
        if (it->dv.data) it->dv.data[(size_t)t * it->dv.stride + (size_t)i] = (float)dv;
        if (it->db.data) it->db.data[(size_t)t * it->db.stride + (size_t)i] = (float)db;
    }
}

static void put(float *x, double value, bool add) { *x = (add ? *x : 0.0f) + (float)value; }

void pal_palimpsa_backward_ref(const pal_palimpsa_item *it, void *scratch) {
    workspace w;
    const size_t bytes = lay_out(&w, it->dk, scratch), dk = (size_t)it->dk;
    it->dparameters[0] = it->dparameters[1] = 0;
    for (int chunk = (it->length - 1) / PAL_PALIMPSA_CHUNK; chunk >= 0; chunk--) {
        const int from = chunk * PAL_PALIMPSA_CHUNK;
        const int to = from + PAL_PALIMPSA_CHUNK < it->length ? from + PAL_PALIMPSA_CHUNK : it->length;
        memset(scratch, 0, bytes);
        for (int i = 0; i < it->values; i++) {
            const float *start = it->saved + (size_t)chunk * it->saved_chunk;
            for (size_t j = 0; j < dk; j++) {
                w.M[j] = start[pal_palimpsa_at(it->saved_row, (size_t)i, j)];
                w.I[j] = start[pal_palimpsa_at(it->saved_row, (size_t)i, j) + PAL_PALIMPSA_GROUP];
            }
            for (int t = from; t < to; t++) {
                const token x = token_at(it, t, i);
                float *M = w.M + (size_t)(t - from + 1) * dk, *I = w.I + (size_t)(t - from + 1) * dk;
                memcpy(M, M - dk, dk * sizeof *M);
                memcpy(I, I - dk, dk * sizeof *I);
                for (int j = 0; j < it->dk; j++) update(&x, (double)it->Ip, j, M + j, I + j);
            }
            backward_row(it, &w, from, to, i);
        }
        for (int t = from; t < to; t++) {
            const size_t c = (size_t)(t - from);
            for (size_t j = 0; j < dk; j++) {
                if (it->dq.data) put(it->dq.data + (size_t)t * it->dq.stride + j, w.dq[c * dk + j], it->add_keys);
                if (it->dk_.data) put(it->dk_.data + (size_t)t * it->dk_.stride + j, w.dk[c * dk + j], it->add_keys);
            }
            if (it->ddt.data) put(it->ddt.data + (size_t)t * it->ddt.stride, -(double)it->A * w.da[c], it->add_dt);
            it->dparameters[0] -= (double)it->dt.data[(size_t)t * it->dt.stride] * w.da[c];
            it->dparameters[1] += w.prior[c];
        }
    }
}

float pal_palimpsa_bound_ref(size_t vectors) {
    volatile double hidden = 1e-6; /* read once: the loop below has no memory in it */
    const double x = hidden;
    double M = x, I = 1, y = 0;
    for (size_t n = 0; n < vectors; n++) {
        M = (1 - x) * M + x;
        I = (1 - x) * I + (x + x * M);
        y += x * M / I;
    }
    return (float)(y + M + I);
}
