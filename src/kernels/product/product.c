/* SPDX-License-Identifier: MIT */
#include "kernels/product/product.h"

#include <assert.h>

#include "base/device.h"
#include "base/parallel.h"
#include "kernels/matmul/matmul.h"

/* 8 MiB: a panel for the last cache rather than the second, as narrow products are slow. */
enum { PANEL_FLOATS = 1 << 21, PANEL_ROWS = 64 /* at least */ };

PAL_VARIANTS_AVX2(decode_rows)
/* ARM64 decodes, as it has no faster way to multiply words than floats. */
const pal_variant pal_product_blocks_variants[] = { PAL_VARIANT(ref, product_blocks)
                                                        PAL_VARIANT_X86(avx2, product_blocks)
                                                            PAL_VARIANT_X86(avx512vnni, product_blocks)
                                                                PAL_VARIANTS_END };

void pal_product_blocks_ref(const pal_matvec_job *job, size_t begin, size_t end) {
    ((pal_matvec_fn *)pal_matvec_variants(job->a->w->type)->fn)(job, begin, end);
}

void pal_decode_rows_ref(const pal_matrix *w, size_t begin, size_t end, float *out) {
    for (size_t row = begin; row < end; row++) pal_matrix_row(w, row, out + (row - begin) * (size_t)w->columns);
}

static size_t panel_rows(int columns) {
    const size_t fit = (size_t)PANEL_FLOATS / (size_t)columns / 16 * 16;
    return fit < PANEL_ROWS ? PANEL_ROWS : fit;
}

size_t pal_product_scratch_bytes(int rows, int columns) {
    const size_t least = (size_t)PANEL_ROWS * (size_t)columns, rounded = pal_matvec_scratch_bytes(rows, columns);
    /* never less for more columns */
    const size_t panel = (least > PANEL_FLOATS ? least : PANEL_FLOATS) * sizeof(float);
    return panel > rounded ? panel : rounded;
}

typedef struct {
    const pal_matrix *w;
    pal_decode_rows_fn *decode;
    size_t first; /* row of the panel */
    const int32_t *ids;
    float *out;
    size_t ld;
} decode_job;

static void panel_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const decode_job *job = arg;
    job->decode(job->w, job->first + begin, job->first + end, job->out + begin * job->ld);
}

static void gather_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const decode_job *job = arg;
    for (size_t i = begin; i < end; i++) {
        const size_t row = (size_t)job->ids[i];
        job->decode(job->w, row, row + 1, job->out + i * job->ld);
    }
}

typedef struct {
    pal_matvec_job job;
    pal_product_blocks_fn *outputs;
} blocks_job;

static void blocks_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const blocks_job *b = arg;
    b->outputs(&b->job, begin, end);
}

static void product_of_blocks(const pal_context *cx, const pal_matvec_args *a, pal_product_blocks_fn *outputs) {
    enum { GRAIN = 32 }; /* a whole number of every variant's panels */
    blocks_job b = { .job = { .a = a, .rounded = pal_matvec_round(cx, a) }, .outputs = outputs };
    pal_parallel_ranges(cx, (size_t)a->w->rows, GRAIN, blocks_task, &b);
}

void pal_product(const pal_context *cx, const pal_matvec_args *a) {
    PAL_ON_DEVICE(cx, product, a, false);
    pal_product_blocks_fn *const blocks = PAL_PICK(cx, product_blocks);
    if (pal_dtype_values(a->w->type) > 1 && blocks != pal_product_blocks_ref) { /* the reference is for tests */
        product_of_blocks(cx, a, blocks);
        return;
    }
    const pal_accumulate acc = a->add ? PAL_ADD : PAL_OVERWRITE;
    const size_t in = (size_t)a->w->columns, out = (size_t)a->w->rows;
    const size_t panels = (out - 1) / panel_rows(a->w->columns) + 1;
    const size_t most = ((out - 1) / panels / 16 + 1) * 16; /* all alike: one of a few rows is a slow product */
    if (a->w->type == PAL_F32) {
        pal_matmul(cx, PAL_KEEP, PAL_TRANSPOSE, a->rows, a->w->rows, a->w->columns, a->x, a->ldx, a->w->data,
                   a->w->row_bytes / sizeof(float), acc, a->y, a->ldy);
        return;
    }
    assert(a->scratch);
    decode_job job = { .w = a->w, .decode = PAL_PICK(cx, decode_rows), .out = a->scratch, .ld = in };
    for (; job.first < out; job.first += most) {
        const size_t n = out - job.first < most ? out - job.first : most;
        pal_parallel_ranges(cx, n, 16, panel_task, &job);
        pal_matmul(cx, PAL_KEEP, PAL_TRANSPOSE, a->rows, (int)n, a->w->columns, a->x, a->ldx, a->scratch, in, acc,
                   a->y + job.first, a->ldy);
    }
}

void pal_gather_rows(const pal_context *cx, const pal_matrix *w, const int32_t *ids, size_t count, float *out,
                     size_t ld) {
    PAL_ON_DEVICE(cx, gather_rows, w, ids, count, out, ld);
    decode_job job = { .w = w, .decode = PAL_PICK(cx, decode_rows), .ids = ids, .out = out, .ld = ld };
    pal_parallel_ranges(cx, count, 64, gather_task, &job);
}
