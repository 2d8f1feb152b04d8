/* SPDX-License-Identifier: MIT */
#include "kernels/optimiser/adamw.h"

#include <assert.h>
#include <math.h>

#include "base/half.h"
#include "base/parallel.h"

PAL_VARIANTS(adamw_range)
PAL_VARIANTS(sum_squares_range)

enum { BLOCK = 16384 };

void pal_adamw_range_ref(const pal_adamw_coefficients *k, float *p, float *m, float *v, const float *g, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double gi = k->factor * (double)g[i], pi = (double)p[i];
        m[i] = (float)((double)m[i] + k->to_m * (gi - (double)m[i]));
        v[i] = (float)((double)v[i] + k->to_v * (gi * gi - (double)v[i]));
        p[i] = (float)(pi - k->decay * pi - k->rate * (double)m[i] / (sqrt((double)v[i]) * k->v_scale + k->eps));
    }
}

double pal_sum_squares_range_ref(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

typedef struct {
    pal_adamw_coefficients k;
    pal_adamw_range_fn *range;
    float *p, *m, *v;
    const float *g;
} adamw_job;

static void adamw_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const adamw_job *job = arg;
    job->range(&job->k, job->p + begin, job->m + begin, job->v + begin, job->g + begin, end - begin);
}

void pal_adamw(const pal_context *cx, const pal_adamw_step *s, float *p, float *m, float *v, const float *g, size_t n) {
    assert(s->step >= 1);
    adamw_job job = { .range = PAL_PICK(cx, adamw_range), .p = p, .m = m, .v = v, .g = g };
    job.k.to_m = 1 - s->beta1;
    job.k.to_v = 1 - s->beta2;
    job.k.decay = s->lr * s->weight_decay;
    job.k.rate = s->lr / (1 - pow(s->beta1, (double)s->step));
    job.k.v_scale = 1 / sqrt(1 - pow(s->beta2, (double)s->step));
    job.k.eps = s->eps;
    job.k.factor = s->factor;
    pal_parallel_ranges(cx, n, BLOCK, adamw_task, &job);
}

static float bf16(float x) { return pal_bf16_to_f32(pal_f32_to_bf16(x)); }

void pal_round_bf16(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = bf16(x[i]);
}

typedef struct {
    float keep, to_m, beta2, to_v, correction, eps, rate;
    double factor;
    float *p, *m, *v;
    const float *g;
} bf16_job;

/* torch's calls in their order: mul, lerp, mul, addcmul (fused, hence the double), sqrt, div, add, addcdiv. On a CPU,
 * mul and add round their scalar to bf16. A GPU does not, which is the same where beta2 and 1 - lr wd round to 1. */
static void bf16_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const bf16_job *k = arg;
    for (size_t i = begin; i < end; i++) {
        const float g = bf16((float)(k->factor * (double)k->g[i])), p = bf16(bf16(k->p[i]) * k->keep);
        k->m[i] = bf16(k->to_m < 0.5f ? k->m[i] + k->to_m * (g - k->m[i]) : g - (g - k->m[i]) * (1 - k->to_m));
        k->v[i] = bf16((float)((double)bf16(k->v[i] * k->beta2) + (double)(k->to_v * g) * (double)g));
        const float root = bf16(bf16(bf16(sqrtf(k->v[i])) / k->correction) + k->eps);
        k->p[i] = bf16(p - k->rate * (k->m[i] / root));
    }
}

void pal_adamw_bf16(const pal_context *cx, const pal_adamw_step *s, float *p, float *m, float *v, const float *g,
                    size_t n) {
    assert(s->step >= 1);
    bf16_job job = { .keep = bf16((float)(1 - s->lr * s->weight_decay)),
                     .to_m = (float)(1 - s->beta1),
                     .beta2 = bf16((float)s->beta2),
                     .to_v = (float)(1 - s->beta2),
                     .correction = (float)sqrt(1 - pow(s->beta2, (double)s->step)),
                     .eps = bf16((float)s->eps),
                     .rate = (float)(s->lr / (1 - pow(s->beta1, (double)s->step))),
                     .factor = s->factor,
                     .p = p,
                     .m = m,
                     .v = v,
                     .g = g };
    pal_parallel_ranges(cx, n, BLOCK, bf16_task, &job);
}

typedef struct {
    const float *x;
    double *sums;
    pal_sum_squares_range_fn *range;
} squares_job;

static void squares_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const squares_job *job = arg;
    job->sums[begin / BLOCK] = job->range(job->x + begin, end - begin);
}

size_t pal_sum_squares_blocks(size_t n) { return (n + BLOCK - 1) / BLOCK; }

double pal_sum_squares(const pal_context *cx, const float *x, size_t n, double *scratch) {
    squares_job job = { .x = x, .sums = scratch, .range = PAL_PICK(cx, sum_squares_range) };
    pal_parallel_ranges(cx, n, BLOCK, squares_task, &job);
    double sum = 0;
    for (size_t b = 0; b < pal_sum_squares_blocks(n); b++) sum += scratch[b];
    return sum;
}

double pal_clip_factor(double norm, double clip) { return clip > 0 ? fmin(1.0, clip / (norm + 1e-6)) : 1.0; }
