/* SPDX-License-Identifier: MIT */
/* The formula, with w as it decodes and x as it was rounded, summed in double. */
#include <float.h>
#include <math.h>

#include "base/blocks.h"
#include "kernels/matvec/matvec.h"

/* x[first + k, i] of a group of rows. */
static float value_of_x(const pal_matvec_job *job, size_t first, size_t size, size_t k, size_t i) {
    if (!job->rounded.q) return job->a->x[(first + k) * job->a->ldx + i];
    const size_t block = pal_matvec_place_of(job->a->w, first, size, k, i / PAL_ROUNDED);
    const int q = pal_rounded_get(job->a->w->type, job->rounded.q + block * PAL_ROUNDED, i % PAL_ROUNDED);
    return job->rounded.d[block] * (float)q;
}

static void outputs(const pal_matvec_job *job, size_t begin, size_t end) {
    const pal_matvec_args *a = job->a;
    const pal_block_format *format = pal_block_format_of(a->w->type);
    const size_t in = (size_t)a->w->columns, rows = (size_t)a->rows;
    for (size_t o = begin; o < end; o++)
        for (size_t first = 0, size; first < rows; first += size) {
            const unsigned char *block = (const unsigned char *)a->w->data + o * a->w->row_bytes;
            double sums[8] = { 0 };
            size = pal_matvec_group(rows, first);
            for (size_t at = 0; at < in; at += format->values, block += format->bytes) {
                float w[PAL_BLOCK_VALUES_MAX];
                format->decode(block, w);
                for (size_t k = 0; k < size; k++)
                    for (size_t i = 0; i < format->values; i++)
                        sums[k] += (double)value_of_x(job, first, size, k, at + i) * (double)w[i];
            }
            for (size_t k = 0; k < size; k++) {
                float *y = &a->y[(first + k) * a->ldy + o];
                *y = (float)(sums[k] + (a->add ? (double)*y : 0));
            }
        }
}

#define X(name, type) \
    void pal_matvec_##name##_ref(const pal_matvec_job *job, size_t begin, size_t end) { outputs(job, begin, end); }
PAL_MATVEC_TYPES(X)
#undef X

static void round_block(pal_dtype type, const float *x, const pal_rounded_rows *to, size_t block) {
    float largest = 0;
    bool finite = true;
    for (int i = 0; i < PAL_ROUNDED; i++) {
        const float size = fabsf(x[i]);
        finite = finite && size <= FLT_MAX;
        if (size > largest) largest = size;
    }
    const bool any = finite && largest > PAL_ROUNDED_ZERO;
    const float inverse = any ? PAL_ROUNDED_MOST / largest : 0;
    const float d = any ? largest * (1.0f / PAL_ROUNDED_MOST) : finite ? 0 : NAN;
    int sum = 0;
    for (size_t i = 0; i < PAL_ROUNDED; i++) {
        const int q = any ? (int)rintf(x[i] * inverse) : 0;
        pal_rounded_put(type, to->q + PAL_ROUNDED * block, i, q);
        sum += q;
    }
    to->sums[block] = d * (float)sum;
    to->d[block] = d;
}

void pal_matvec_round_ref(const pal_matvec_args *a, const pal_rounded_rows *to, size_t begin, size_t end) {
    const size_t in = (size_t)a->w->columns;
    for (size_t first = begin, size; first < end; first += size) {
        size = pal_matvec_group((size_t)a->rows, first);
        for (size_t k = 0; k < size; k++)
            for (size_t b = 0; b < in / PAL_ROUNDED; b++)
                round_block(a->w->type, a->x + (first + k) * a->ldx + b * PAL_ROUNDED, to,
                            pal_matvec_place_of(a->w, first, size, k, b));
    }
}
