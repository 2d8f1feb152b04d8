/* SPDX-License-Identifier: MIT */
#include "kernels/matvec/matvec.h"

#include <assert.h>

#include "base/arena.h"
#include "base/device.h"
#include "base/parallel.h"

PAL_VARIANTS(matvec_f32)
PAL_VARIANTS(matvec_f16)
PAL_VARIANTS(matvec_bf16)
PAL_VARIANTS_BLOCKS(matvec_q8_0)
PAL_VARIANTS_BLOCKS(matvec_q4_0)
PAL_VARIANTS_BLOCKS(matvec_q5_0)
PAL_VARIANTS_BLOCKS(matvec_q4_k)
PAL_VARIANTS_BLOCKS(matvec_q5_k)
PAL_VARIANTS_BLOCKS(matvec_q6_k)
PAL_VARIANTS_AVX2(matvec_round)

const pal_variant *pal_matvec_variants(pal_dtype type) {
    switch ((int)type) {
#define X(name, number) \
    case number: return pal_matvec_##name##_variants;
        PAL_MATVEC_TYPES(X)
#undef X
    }
    return NULL;
}

static pal_rounded_rows place(pal_arena *arena, size_t rows, size_t in) {
    return (pal_rounded_rows){
        .q = pal_take(arena, rows * in, sizeof(int16_t)),
        .d = pal_take(arena, rows * in / PAL_ROUNDED, sizeof(float)),
        .sums = pal_take(arena, rows * in / PAL_ROUNDED, sizeof(float)),
    };
}

size_t pal_matvec_scratch_bytes(int rows, int columns) {
    pal_arena arena = { 0 };
    place(&arena, (size_t)rows, (size_t)columns);
    return arena.used;
}

pal_rounded_rows pal_matvec_place(void *scratch, size_t rows, size_t in) {
    pal_arena arena = { .base = scratch, .capacity = SIZE_MAX };
    return place(&arena, rows, in);
}

typedef struct {
    const pal_matvec_args *a;
    pal_rounded_rows to;
    pal_matvec_round_fn *round;
} round_job;

static void round_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const round_job *job = arg;
    job->round(job->a, &job->to, begin, end);
}

pal_rounded_rows pal_matvec_round(const pal_context *cx, const pal_matvec_args *a) {
    const size_t in = (size_t)a->w->columns, rows = (size_t)a->rows;
    assert(a->scratch && in % pal_dtype_values(a->w->type) == 0);
    round_job job = { a, pal_matvec_place(a->scratch, rows, in), PAL_PICK(cx, matvec_round) };
    pal_parallel_ranges(cx, rows, 8, round_task, &job);
    return job.to;
}

typedef struct {
    pal_matvec_job job;
    pal_matvec_fn *outputs;
} matvec_job;

static void matvec_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const matvec_job *m = arg;
    m->outputs(&m->job, begin, end);
}

void pal_matvec(const pal_context *cx, const pal_matvec_args *a) {
    enum { TASKS = 2 }; /* of a thread: enough to share out what a disturbed thread leaves; more of them cost time */
    PAL_ON_DEVICE(cx, product, a, true);
    const size_t out = (size_t)a->w->rows;
    matvec_job m = { .job = { .a = a },
                     .outputs = (pal_matvec_fn *)pal_variant_best(pal_matvec_variants(a->w->type), cx->features) };
    if (!a->rows) return;
    if (pal_dtype_values(a->w->type) > 1) m.job.rounded = pal_matvec_round(cx, a);
    const size_t fours = 4 * TASKS * (size_t)cx->threads;
    size_t grain = (out + fours - 1) / fours * 4; /* an output is the same sum in any task */
    if (grain < 16) grain = 16;
    pal_parallel_ranges(cx, out, grain, matvec_task, &m);
}
