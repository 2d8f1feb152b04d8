/* SPDX-License-Identifier: MIT */
/* What all delta rules make of their inputs, and the three whose keys are simply k. */
#include "memory/delta/delta.h"

#include <math.h>
#include <string.h>

PAL_VARIANTS(delta_forward)
PAL_VARIANTS(delta_backward)
PAL_VARIANTS(delta_step)

static float *take(float **scratch, size_t floats) {
    float *x = *scratch;
    *scratch += (floats + 15) / 16 * 16;
    return x;
}

/* Sets of (n, kl) rows that pal_delta_take takes. */
static size_t key_rows(const pal_linear_kernels *k) {
    return 3 + (size_t)k->delta->own_a + (size_t)k->delta->own_c + (size_t)(k->carries != PAL_CARRIES_NONE);
}
static size_t row_floats(const pal_linear_kernels *kernels, int n, int dk, int dv, bool gradients) {
    const size_t kl = pal_linear_row(dk), vl = pal_linear_row(dv);
    return (size_t)n * (kl * (gradients ? 5 : key_rows(kernels)) + vl) + pal_linear_row(n);
}

size_t pal_delta_scratch_floats(const pal_linear_kernels *kernels, pal_cpu_level level, pal_memory_pass pass, int n,
                                int dk, int dv) {
    const size_t kl = pal_linear_row(dk), vl = pal_linear_row(dv), writes = kernels->delta->apart ? 2 : 1;
    size_t floats = row_floats(kernels, n, dk, dv, false);
    if (pass == PAL_BACKWARD) floats += row_floats(kernels, n, dk, dv, true);
    if (level == PAL_CPU_REF) return floats + (pass == PAL_BACKWARD ? pal_delta_backward_scratch_ref(n, dk, dv) : 0);
    if (pass == PAL_STEP) return floats;
    const size_t block = PAL_DELTA_BLOCK, blocks = ((size_t)n + block - 1) / block;
    const size_t token = 4 * block + (writes + 3) * kl + (writes + 1) * vl; /* what a token leaves in its block */
    if (pass == PAL_FORWARD) return floats + block * (token + 2 * vl);
    return floats + blocks * (block * token + (size_t)dk * vl) +
           block * ((writes + 3) * vl + 4 * block + (writes + 3) * kl) + kl;
}

static void copy(float *to, size_t to_ld, pal_const_view from, int n, int width) {
    for (size_t t = 0; t < (size_t)n; t++)
        memcpy(to + t * to_ld, from.data + t * from.stride, (size_t)width * sizeof *to);
}

pal_delta_rows pal_delta_take(const pal_linear_chunk *c, float **scratch) {
    const pal_delta_rule *rule = c->kernels->delta;
    pal_delta_rows x = { .kl = pal_linear_row(c->dk), .vl = pal_linear_row(c->dv) };
    const size_t n = (size_t)c->n, keys = n * x.kl;
    float *begin = *scratch;
    x.q = take(scratch, keys);
    x.k = take(scratch, keys);
    x.D = take(scratch, keys);
    x.a = rule->own_a ? take(scratch, keys) : x.k;
    x.c = rule->own_c ? take(scratch, keys) : x.k;
    x.before = c->kernels->carries != PAL_CARRIES_NONE ? take(scratch, keys) : NULL;
    x.v = take(scratch, n * x.vl);
    x.beta = take(scratch, n);
    if ((size_t)c->dk != x.kl || (size_t)c->dv != x.vl)
        memset(begin, 0, (size_t)((char *)*scratch - (char *)begin)); /* the padding */
    copy(x.q, x.kl, c->in.q, c->n, c->dk);
    copy(x.k, x.kl, c->in.k, c->n, c->dk);
    copy(x.v, x.vl, c->in.v, c->n, c->dv);
    if (c->in.gk.data) copy(x.D, x.kl, c->in.gk, c->n, c->dk);
    for (size_t t = 0; t < n; t++) {
        x.beta[t] = c->in.beta.data ? c->in.beta.data[t * c->in.beta.stride] : 1.0f;
        if (c->in.gk.data) continue;
        const float decay = c->in.g.data ? expf(c->in.g.data[t * c->in.g.stride]) : 1.0f;
        for (size_t j = 0; j < (size_t)c->dk; j++) x.D[t * x.kl + j] = decay;
    }
    return x;
}

void pal_delta_fill(const pal_linear_chunk *c, const pal_delta_rows *x) {
    if (c->kernels->delta->fill) c->kernels->delta->fill(c, x);
}

pal_delta_rows pal_delta_take_gradients(const pal_linear_chunk *c, float **scratch) {
    pal_delta_rows d = { .kl = pal_linear_row(c->dk), .vl = pal_linear_row(c->dv) };
    const size_t n = (size_t)c->n, keys = n * d.kl;
    d.q = take(scratch, keys);
    d.k = take(scratch, keys);
    d.a = take(scratch, keys);
    d.c = take(scratch, keys);
    d.D = take(scratch, keys);
    d.v = take(scratch, n * d.vl);
    d.beta = take(scratch, n);
    return d;
}

static void add(float *to, const float *x, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] += x[i];
}
static void give(pal_view to, const float *from, size_t ld, int n, int width) {
    for (size_t t = 0; t < (size_t)n; t++) memcpy(to.data + t * to.stride, from + t * ld, (size_t)width * sizeof *from);
}

void pal_delta_unfill(const pal_linear_chunk *c, const pal_delta_rows *x, const pal_delta_rows *d,
                      const pal_memory_gradients *grad) {
    const pal_delta_rule *rule = c->kernels->delta;
    const size_t n = (size_t)c->n;
    if (rule->unfill) rule->unfill(c, x, d, grad);
    if (!rule->own_a) add(d->k, d->a, n * d->kl);
    if (!rule->own_c) add(d->k, d->c, n * d->kl);
    give(grad->q, d->q, d->kl, c->n, c->dk);
    give(grad->k, d->k, d->kl, c->n, c->dk);
    give(grad->v, d->v, d->vl, c->n, c->dv);
    if (c->in.gk.data) give(grad->gk, d->D, d->kl, c->n, c->dk);
    for (size_t t = 0; t < n; t++) {
        if (c->in.beta.data) grad->beta.data[t * grad->beta.stride] = d->beta[t];
        if (!c->in.g.data) continue;
        double sum = 0;
        for (size_t j = 0; j < (size_t)c->dk; j++) sum += (double)d->D[t * d->kl + j];
        grad->g.data[t * grad->g.stride] = (float)sum;
    }
}

void pal_delta_variance(const pal_linear_chunk *c, const pal_delta_rows *x, size_t t) {
    const size_t each = c->kernels->carries == PAL_CARRIES_KEY;
    double sum = 0;
    if (!c->y_var.data) return;
    for (size_t j = 0; j < (size_t)c->dk; j++) {
        const double q = (double)c->in.scale * (double)x->q[t * x->kl + j];
        sum += q * q * (double)c->carried[j * each];
    }
    for (size_t i = 0; i < (size_t)c->dv; i++) c->y_var.data[t * c->y_var.stride + i] = (float)sum;
}

void pal_delta_variance_backward(const pal_linear_chunk *c, const pal_delta_rows *x, const pal_delta_rows *d, size_t t,
                                 const float *var) {
    const size_t each = c->kernels->carries == PAL_CARRIES_KEY;
    const float square = c->in.scale * c->in.scale;
    double sum = 0;
    if (!c->dy_var.data) return;
    for (size_t i = 0; i < (size_t)c->dv; i++) sum += (double)c->dy_var.data[t * c->dy_var.stride + i];
    for (size_t j = 0; j < (size_t)c->dk; j++) {
        const float q = x->q[t * x->kl + j], d_square = square * (float)sum;
        d->q[t * x->kl + j] += 2 * d_square * q * var[j * each];
        c->dcarried[j * each] += d_square * q * q;
    }
}

static const pal_delta_rule after = { 0 }, app = { .undecayed = true };

PAL_DELTA_RULE(delta, after, PAL_INPUT_BETA, .summary = "DeltaNet: S = S + beta (v - S k) k'");
PAL_DELTA_RULE(gdn, after, PAL_INPUT_BETA | PAL_INPUT_G,
               .summary = "Gated DeltaNet: D = a S, S = D + beta (v - D k) k'");
PAL_DELTA_RULE(gdn_app, app, PAL_INPUT_BETA | PAL_INPUT_G,
               .summary = "Gated DeltaNet as in the paper's appendix: S = a S + beta (v - S k) k'");
