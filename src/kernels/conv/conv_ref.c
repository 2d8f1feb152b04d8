/* SPDX-License-Identifier: MIT */
/* The formulas of conv.h, one number at a time. */
#include "base/math.h"
#include "kernels/conv/conv.h"

/* Raw input of channel c, token t of a sequence that begins at packed token `from`; t < 0 lies in its window (NULL:
 * zeros). */
static double input(const pal_conv_args *a, const float *window, int from, int t, int c) {
    if (t >= 0) return (double)pal_row_in(a->x, (size_t)from + (size_t)t)[c];
    return window ? (double)window[(size_t)(a->taps - 1 + t) * (size_t)a->channels + (size_t)c] : 0;
}

static double convolved(const pal_conv_args *a, const float *window, int from, int t, int c) {
    double u = a->bias ? (double)a->bias[c] : 0;
    for (int i = 0; i < a->taps; i++)
        u += (double)a->w[(size_t)c * (size_t)a->taps + (size_t)i] * input(a, window, from, t - (a->taps - 1) + i, c);
    return u;
}

void pal_conv_strip_ref(const pal_conv_args *a, int sequence, int begin, int end) {
    const int from = pal_sequence_begin(a->cu_seqlens, sequence),
              length = pal_sequence_begin(a->cu_seqlens, sequence + 1) - from;
    const float *window = a->window && !a->fresh ? a->window[sequence] : NULL;
    for (int t = length - 1; t >= 0; t--)
        for (int c = begin; c < end; c++)
            pal_row(a->y, (size_t)from + (size_t)t)[c] = a->linear ? (float)convolved(a, window, from, t, c)
                                                                   : pal_silu((float)convolved(a, window, from, t, c));
}

static double slope_at(const pal_conv_args *a, const float *window, int from, int t, int c) {
    return a->linear ? 1 : (double)pal_silu_slope((float)convolved(a, window, from, t, c));
}

/* du_t = dy_t silu'(u_t);  dx_t = sum_i w[i] du_{t+(W-1)-i};  dw[i] = sum_t du_t x_{t-(W-1)+i};  dbias = sum_t du_t */
void pal_conv_backward_strip_ref(const pal_conv_args *a, int first, int last, int begin, int end, float *dw,
                                 float *dbias) {
    for (int c = begin; c < end; c++) {
        const float *w = a->w + (size_t)c * (size_t)a->taps;
        double sum[PAL_CONV_MAX_TAPS] = { 0 }, bias_sum = 0;
        for (int token = first; token < last; token++) {
            const int n = pal_sequence_of(a->cu_seqlens, a->sequences, token),
                      from = pal_sequence_begin(a->cu_seqlens, n);
            const int length = pal_sequence_begin(a->cu_seqlens, n + 1) - from, t = token - from;
            const float *window = a->before ? a->before[n] : NULL;
            double dx = 0;
            for (int i = 0; i < a->taps; i++) {
                const int later = t + a->taps - 1 - i; /* the output that input t reaches through tap i */
                if (later >= length) continue;
                const double slope = slope_at(a, window, from, later, c);
                dx += (double)w[i] * (double)pal_row_in(a->dy, (size_t)from + (size_t)later)[c] * slope;
            }
            pal_row(a->dx, (size_t)token)[c] = (float)dx;
            const double du = (double)pal_row_in(a->dy, (size_t)token)[c] *
                              slope_at(a, window, from, t, c);
            for (int i = 0; i < a->taps; i++) sum[i] += du * input(a, window, from, t - (a->taps - 1) + i, c);
            bias_sum += du;
        }
        for (int i = 0; i < a->taps; i++) dw[(size_t)c * (size_t)a->taps + (size_t)i] = (float)sum[i];
        dbias[c] = (float)bias_sum;
    }
}
