/* SPDX-License-Identifier: MIT */
/* The formulas of norms.h, one row at a time. */
#include <math.h>
#include <string.h>

#include "base/math.h"
#include "kernels/norms/norms.h"

static size_t weight_count(const pal_rmsnorm_args *a) {
    return (size_t)a->width * (size_t)(a->shared_weight ? 1 : a->groups);
}

/* What is normalised: x, or x silu(z). */
static double gated(const pal_rmsnorm_args *a, const float *x, const float *z, int j) {
    return a->gate == PAL_GATE_BEFORE ? (double)x[j] * (double)pal_silu(z[j]) : (double)x[j];
}

static double inverse_rms(const pal_rmsnorm_args *a, const float *x, const float *z) {
    double square = 0;
    for (int j = 0; j < a->width; j++) {
        const double u = gated(a, x, z, j);
        square += u * u;
    }
    return 1 / sqrt(square / a->width + (double)a->eps);
}

void pal_rmsnorm_rows_ref(const pal_rmsnorm_args *a, size_t begin, size_t end) {
    for (size_t t = begin; t < end; t++)
        for (int g = 0; g < a->groups; g++) {
            const size_t at = (size_t)g * (size_t)a->width;
            const float *x = pal_row_in(a->x, t) + at, *z = a->gate ? pal_row_in(a->z, t) + at : NULL;
            const float *w = a->w + (a->shared_weight ? 0 : at);
            float *y = pal_row(a->y, t) + at;
            const double r = inverse_rms(a, x, z);
            for (int j = 0; j < a->width; j++) {
                const double n = (double)w[j] * gated(a, x, z, j) * r;
                y[j] = (float)(a->gate == PAL_GATE_AFTER ? n * (double)pal_silu(z[j]) : n);
            }
        }
}

/* With n = u r and e = dL/dn:  du = r (e - n mean(e n)). */
void pal_rmsnorm_backward_rows_ref(const pal_rmsnorm_args *a, size_t begin, size_t end, float *dw_all) {
    if (dw_all) memset(dw_all, 0, weight_count(a) * sizeof *dw_all);
    for (size_t t = begin; t < end; t++)
        for (int g = 0; g < a->groups; g++) {
            const size_t at = (size_t)g * (size_t)a->width, w_at = a->shared_weight ? 0 : at;
            const float *x = pal_row_in(a->x, t) + at, *z = a->gate ? pal_row_in(a->z, t) + at : NULL;
            const float *dy = pal_row_in(a->dy, t) + at, *add = a->add.data ? pal_row_in(a->add, t) + at : NULL;
            const float *w = a->w + w_at;
            float *dx = pal_row(a->dx, t) + at, *dz = a->gate ? pal_row(a->dz, t) + at : NULL;
            float *dw = dw_all ? dw_all + w_at : NULL, *again = a->again.data ? pal_row(a->again, t) + at : NULL;
            const double r = inverse_rms(a, x, z);
            double mean = 0; /* of e n */
            for (int j = 0; j < a->width; j++) {
                const double after = a->gate == PAL_GATE_AFTER ? (double)pal_silu(z[j]) : 1;
                mean += (double)dy[j] * (double)w[j] * after * gated(a, x, z, j) * r / a->width;
            }
            for (int j = 0; j < a->width; j++) {
                const double after = a->gate == PAL_GATE_AFTER ? (double)pal_silu(z[j]) : 1;
                const double n = gated(a, x, z, j) * r, e = (double)dy[j] * (double)w[j] * after;
                const double du = r * (e - n * mean), extra = add ? (double)add[j] : 0, xj = (double)x[j],
                             dyj = (double)dy[j];
                if (dw) dw[j] += (float)(dyj * after * n);
                if (again) again[j] = (float)((double)w[j] * n * after);
                if (a->gate == PAL_GATE_BEFORE) {
                    const double before = (double)pal_silu(z[j]);
                    dz[j] = (float)(du * xj * (double)pal_silu_slope(z[j]));
                    dx[j] = (float)(du * before + extra);
                } else {
                    if (a->gate == PAL_GATE_AFTER)
                        dz[j] = (float)(dyj * (double)w[j] * n * (double)pal_silu_slope(z[j]));
                    dx[j] = (float)(du + extra);
                }
            }
        }
}

static void mean_and_inverse(const pal_layernorm_args *a, const float *x, double *mean, double *r) {
    double sum = 0, square = 0;
    for (int j = 0; j < a->width; j++) sum += (double)x[j];
    *mean = sum / a->width;
    for (int j = 0; j < a->width; j++) square += ((double)x[j] - *mean) * ((double)x[j] - *mean);
    *r = 1 / sqrt(square / a->width + (double)a->eps);
}

void pal_layernorm_rows_ref(const pal_layernorm_args *a, size_t begin, size_t end) {
    for (size_t t = begin; t < end; t++) {
        const float *x = pal_row_in(a->x, t);
        float *y = pal_row(a->y, t);
        double mean, r;
        mean_and_inverse(a, x, &mean, &r);
        for (int j = 0; j < a->width; j++)
            y[j] = (float)(((double)x[j] - mean) * r * (double)a->w[j] + (double)a->b[j]);
    }
}

/* dx = r (e - mean(e) - n mean(e n)),  e = dy w,  n = (x - mean) r */
void pal_layernorm_backward_rows_ref(const pal_layernorm_args *a, size_t begin, size_t end, float *dw, float *db) {
    for (int j = 0; j < a->width; j++) {
        if (dw) dw[j] = 0;
        if (db) db[j] = 0;
    }
    for (size_t t = begin; t < end; t++) {
        const float *x = pal_row_in(a->x, t), *dy = pal_row_in(a->dy, t),
                    *add = a->add.data ? pal_row_in(a->add, t) : NULL;
        float *dx = pal_row(a->dx, t);
        double mean, r, e_mean = 0, en_mean = 0;
        mean_and_inverse(a, x, &mean, &r);
        for (int j = 0; j < a->width; j++) {
            const double e = (double)dy[j] * (double)a->w[j];
            e_mean += e / a->width;
            en_mean += e * ((double)x[j] - mean) * r / a->width;
        }
        for (int j = 0; j < a->width; j++) {
            const double n = ((double)x[j] - mean) * r, e = (double)dy[j] * (double)a->w[j];
            if (dw) dw[j] += (float)((double)dy[j] * n);
            if (db) db[j] += dy[j];
            dx[j] = (float)(r * (e - e_mean - n * en_mean) + (add ? (double)add[j] : 0));
        }
    }
}

/* 1/max(|x|, 1e-12) or 1/sqrt(|x|^2 + 1e-6); *clamped: the length was below the clamp and is a constant. */
static double inverse_length(const pal_l2norm_args *a, const float *x, bool *clamped) {
    double square = 0;
    for (int j = 0; j < a->width; j++) square += (double)x[j] * (double)x[j];
    *clamped = a->kind == PAL_L2_CLAMP && square < 1e-24;
    if (*clamped) return 1e12;
    return 1 / sqrt(a->kind == PAL_L2_EPS ? square + 1e-6 : square);
}

void pal_l2norm_rows_ref(const pal_l2norm_args *a, size_t begin, size_t end) {
    for (size_t t = begin; t < end; t++)
        for (int g = 0; g < a->groups; g++) {
            const size_t at = (size_t)g * (size_t)a->width;
            const float *x = pal_row_in(a->x, t) + at;
            float *y = pal_row(a->y, t) + at;
            bool clamped;
            const double r = inverse_length(a, x, &clamped);
            for (int j = 0; j < a->width; j++) y[j] = (float)((double)x[j] * r);
        }
}

/* dx = r (dy - y (y.dy)), and r dy where the clamp holds */
void pal_l2norm_backward_rows_ref(const pal_l2norm_args *a, size_t begin, size_t end) {
    for (size_t t = begin; t < end; t++)
        for (int g = 0; g < a->groups; g++) {
            const size_t at = (size_t)g * (size_t)a->width;
            const float *x = pal_row_in(a->x, t) + at, *dy = pal_row_in(a->dy, t) + at;
            float *dx = pal_row(a->dx, t) + at;
            bool clamped;
            const double r = inverse_length(a, x, &clamped);
            double dot = 0;
            for (int j = 0; j < a->width && !clamped; j++) dot += (double)x[j] * r * (double)dy[j];
            for (int j = 0; j < a->width; j++) dx[j] = (float)(r * ((double)dy[j] - (double)x[j] * r * dot));
        }
}
