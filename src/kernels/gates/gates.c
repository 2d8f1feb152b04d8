/* SPDX-License-Identifier: MIT */
#include "kernels/gates/gates.h"

#include <math.h>
#include <string.h>

#include "base/device.h"
#include "base/math.h"

void pal_positive(const pal_context *cx, pal_positive_kind kind, size_t n, const float *x, float *y) {
    PAL_ON_DEVICE(cx, positive, kind == PAL_SOFTPLUS_OF, n, x, y);
    for (size_t i = 0; i < n; i++) y[i] = kind == PAL_EXP ? expf(x[i]) : pal_softplus(x[i]);
}

void pal_positive_backward(const pal_context *cx, pal_positive_kind kind, size_t n, const float *x, const float *y,
                           const float *dy, float *dx) {
    (void)cx;
    for (size_t i = 0; i < n; i++) dx[i] += dy[i] * (kind == PAL_EXP ? y[i] : pal_sigmoid(x[i]));
}

static bool limited(float low, float high) { return low > 0 || isfinite(high); }

void pal_clamp(const pal_context *cx, size_t n, float low, float high, float *x) {
    if (!limited(low, high)) return;
    PAL_ON_DEVICE(cx, clamp, n, low, high, x);
    for (size_t i = 0; i < n; i++) x[i] = x[i] < low ? low : x[i] > high ? high : x[i];
}

void pal_clamp_backward(const pal_context *cx, size_t n, float low, float high, const float *x, float *dx) {
    (void)cx;
    for (size_t i = 0; limited(low, high) && i < n; i++)
        if (x[i] <= low || x[i] >= high) dx[i] = 0;
}

void pal_log_decay(const pal_context *cx, size_t rows, int heads, int each, const float *A, const float *dt, float *g) {
    PAL_ON_DEVICE(cx, log_decay, rows, heads, each, A, dt, g);
    const size_t width = (size_t)heads * (size_t)each;
    for (size_t t = 0; t < rows * width; t += width)
        for (size_t c = 0; c < width; c++) g[t + c] = -A[c / (size_t)each] * dt[t + c];
}

void pal_log_decay_backward(const pal_context *cx, size_t rows, int heads, int each, const float *A, const float *dt,
                            const float *dg, float *ddt, float *dA) {
    (void)cx;
    const size_t H = (size_t)heads, E = (size_t)each;
    for (size_t h = 0; h < H; h++) {
        double sum = 0;
        for (size_t t = 0; t < rows; t++)
            for (size_t i = (t * H + h) * E; i < (t * H + h + 1) * E; i++) {
                sum -= (double)dg[i] * (double)dt[i];
                ddt[i] = -A[h] * dg[i];
            }
        dA[h] += (float)sum;
    }
}

void pal_take_rows(const pal_context *cx, float *to, const float *from, const int *at, size_t n, int width) {
    PAL_ON_DEVICE(cx, take_rows, to, from, at, n, width);
    const size_t w = (size_t)width;
    for (size_t i = 0; i < n; i++) memcpy(to + i * w, from + (at ? (size_t)at[i] : i) * w, w * sizeof *to);
}

void pal_put_rows(const pal_context *cx, float *to, const float *from, const int *at, size_t n, int width) {
    (void)cx;
    const size_t w = (size_t)width;
    for (size_t i = 0; i < n; i++) memcpy(to + (at ? (size_t)at[i] : i) * w, from + i * w, w * sizeof *to);
}

void pal_fill(const pal_context *cx, float *x, size_t n, float value) {
    PAL_ON_DEVICE(cx, fill, x, n, value);
    for (size_t i = 0; i < n; i++) x[i] = value;
}
