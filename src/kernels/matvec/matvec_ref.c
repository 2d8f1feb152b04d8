/* SPDX-License-Identifier: MIT */
/* The formula, with w as it decodes and x as it was rounded, summed in double. */
#include <float.h>
#include <math.h>

#include "base/blocks.h"
#include "kernels/matvec/matvec.h"

static float value_of_x(const pal_matvec_job *job, size_t r, size_t i) {
    const size_t in = (size_t)job->a->w->columns;
    if (!job->rounded.q) return job->a->x[r * job->a->ldx + i];
    return job->rounded.d[(r * in + i) / PAL_ROUNDED] * (float)job->rounded.q[r * in + i];
}

static void outputs(const pal_matvec_job *job, size_t begin, size_t end) {
    enum { TOGETHER = 8 };
    const pal_matvec_args *a = job->a;
    const pal_block_format *format = pal_block_format_of(a->w->type);
    const size_t in = (size_t)a->w->columns, rows = (size_t)a->rows;
    for (size_t o = begin; o < end; o++)
        for (size_t first = 0; first < rows; first += TOGETHER) {
            const unsigned char *block = (const unsigned char *)a->w->data + o * a->w->row_bytes;
            const size_t last = rows - first < TOGETHER ? rows : first + TOGETHER;
            double sums[TOGETHER] = { 0 };
            for (size_t at = 0; at < in; at += format->values, block += format->bytes) {
                float w[PAL_BLOCK_VALUES_MAX];
                format->decode(block, w);
                for (size_t r = first; r < last; r++)
                    for (size_t i = 0; i < format->values; i++)
                        sums[r - first] += (double)value_of_x(job, r, at + i) * (double)w[i];
            }
            for (size_t r = first; r < last; r++) {
                float *y = &a->y[r * a->ldy + o];
                *y = (float)(sums[r - first] + (a->add ? (double)*y : 0));
            }
        }
}

#define X(name, type) \
    void pal_matvec_##name##_ref(const pal_matvec_job *job, size_t begin, size_t end) { outputs(job, begin, end); }
PAL_MATVEC_TYPES(X)
#undef X

void pal_matvec_round_ref(const pal_matvec_args *a, const pal_rounded_rows *to, size_t begin, size_t end) {
    const size_t in = (size_t)a->w->columns;
    for (size_t r = begin; r < end; r++)
        for (size_t at = 0; at < in; at += PAL_ROUNDED) {
            const float *x = a->x + r * a->ldx + at;
            const size_t here = r * in + at;
            float largest = 0;
            bool finite = true;
            for (int i = 0; i < PAL_ROUNDED; i++) {
                const float size = fabsf(x[i]);
                finite = finite && size <= FLT_MAX;
                if (size > largest) largest = size;
            }
            const bool any = finite && largest > PAL_ROUNDED_ZERO;
            const float inverse = any ? 127.0f / largest : 0, d = any ? largest * (1.0f / 127.0f) : finite ? 0 : NAN;
            int sum = 0, quad = 0;
            for (size_t i = 0; i < PAL_ROUNDED; i++) {
                const int q = any ? (int)rintf(x[i] * inverse) : 0;
                to->q[here + i] = (int8_t)q;
                quad += q, sum += q;
                if (i % 4 == 3) to->quads[(here + i) / 4] = quad, quad = 0;
                if (i % 16 == 15) to->sums[(here + i) / 16] = d * (float)sum, sum = 0;
            }
            to->d[here / PAL_ROUNDED] = d;
        }
}
