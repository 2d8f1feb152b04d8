/* SPDX-License-Identifier: MIT */
/* What memory rules read besides the gates of Palimpsa-D: gates f(Lin x + bias), keys made of the key, and parameters
 * for each element. The models page of the documentation lists them. */
#include <math.h>

#include "base/math.h"
#include "kernels/rows.h"
#include "layers/mixer_parts.h"

void pal_extra_parameters(const pal_mixer_plan *m, const pal_layer *layer, pal_mixer_work *w) {
    const size_t elements = (size_t)m->dk * (size_t)m->values;
    const float *scale = layer->w[PAL_W_P_SCALE];
    for (int h = 0; m->compares && h < m->heads; h++) w->share[h] = scale ? pal_sigmoid(scale[h]) : 1;
    if (m->rule->inputs & PAL_INPUT_KEEP)
        for (size_t i = 0; i < elements; i++) w->keep[i] = expf(-pal_softplus(layer->w[PAL_W_KEEP][i]));
    if (m->rule->inputs & PAL_INPUT_DRIFT)
        for (size_t i = 0; i < elements; i++) w->drift[i] = pal_softplus(layer->w[PAL_W_DRIFT][i]);
}

void pal_extra_parameters_backward(const pal_mixer_plan *m, const pal_layer *layer, const pal_mixer_work *w) {
    const size_t elements = (size_t)m->dk * (size_t)m->values;
    for (int h = 0; layer->d[PAL_W_P_SCALE] && h < m->heads; h++)
        layer->d[PAL_W_P_SCALE][h] += w->dshare[h] * w->share[h] * (1 - w->share[h]);
    for (size_t i = 0; layer->d[PAL_W_KEEP] && i < elements; i++)
        layer->d[PAL_W_KEEP][i] -= w->dkeep[i] * w->keep[i] * pal_sigmoid(layer->w[PAL_W_KEEP][i]);
    for (size_t i = 0; layer->d[PAL_W_DRIFT] && i < elements; i++)
        layer->d[PAL_W_DRIFT][i] += w->ddrift[i] * pal_sigmoid(layer->w[PAL_W_DRIFT][i]);
}

static pal_activation_args activation(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer,
                                      const pal_mixer_kept *a, int i) {
    const pal_mixer_extra *e = &m->extra[i];
    return (pal_activation_args){ .rows = (size_t)ps->tokens,
                                  .width = e->width,
                                  .kind = e->kind,
                                  .bias = e->bias < PAL_W_COUNT ? layer->w[e->bias] : NULL,
                                  .x = { a->p + e->at, (size_t)m->columns },
                                  .y = { a->extra[i], (size_t)e->width } };
}

void pal_extra_gates(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, const pal_mixer_kept *a) {
    for (int i = 0; i < m->extras; i++) {
        const pal_activation_args args = activation(ps, m, layer, a, i);
        pal_activate(ps->cx, &args);
    }
}

typedef struct {
    const pal_mixer_plan *m;
    const pal_mixer_kept *a;
    const pal_mixer_work *w;
    size_t tokens;
    pal_const_view k;
    pal_view dk;
} rows_job;

static rows_job job_of(const pal_pass *ps, const pal_mixer_plan *m, const pal_mixer_kept *a, const pal_mixer_work *w) {
    const size_t keys = (size_t)m->keys;
    return (rows_job){ .m = m,
                       .a = a,
                       .w = w,
                       .tokens = (size_t)ps->tokens,
                       .k = { w->n + keys, 2 * keys },
                       .dk = { w->dn ? w->dn + keys : NULL, 2 * keys } };
}

static void prepare_rows(void *arg, size_t begin, size_t end, int thread) {
    const rows_job *job = arg;
    const pal_mixer_plan *m = job->m;
    const size_t keys = (size_t)m->keys, dk = (size_t)m->dk, heads = (size_t)m->heads;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const float *k = pal_row_in(job->k, t), *dt = m->trapezoid ? job->a->dt + t * heads : NULL;
        for (size_t j = 0; m->compares && j < keys; j++) job->w->compared[t * keys + j] = job->w->share[j / dk] * k[j];
        for (int i = 0; i < m->extras; i++) {
            const pal_mixer_extra *e = &m->extra[i];
            const size_t width = (size_t)e->width;
            const float *from = job->a->extra[i] + t * width;
            float *to = job->w->extra[i] + t * width;
            for (size_t j = 0; j < width; j++)
                to[j] = (e->least + e->factor * from[j]) * (e->of_key ? k[j] : dt ? dt[j * heads / width] : 1);
        }
        for (size_t h = 0; dt && h < heads; h++)
            job->w->beta[t * heads + h] = dt[h] - job->w->extra[PAL_TRAPEZOID_LAG][t * heads + h];
    }
}

void pal_extra_prepare(const pal_pass *ps, const pal_mixer_plan *m, const pal_mixer_kept *a, const pal_mixer_work *w) {
    rows_job job = job_of(ps, m, a, w);
    if (m->compares || m->extras)
        pal_parallel_ranges(ps->cx, (size_t)ps->tokens, pal_row_grain((size_t)m->keys), prepare_rows, &job);
}

/* From gradients of what the memory reads to those of f, of the key and of a trapezoid's time steps. */
static void backward_rows(void *arg, size_t begin, size_t end, int thread) {
    const rows_job *job = arg;
    const pal_mixer_plan *m = job->m;
    const size_t keys = (size_t)m->keys, dk = (size_t)m->dk, heads = (size_t)m->heads;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const float *k = pal_row_in(job->k, t), *dt = m->trapezoid ? job->a->dt + t * heads : NULL;
        float *dkey = pal_row(job->dk, t), *ddt = job->w->ddt + t * (size_t)m->dt_width;
        for (size_t h = 0; dt && h < heads; h++) { /* beta = dt - lag */
            ddt[h] = job->w->dbs[t * heads + h];
            job->w->dextra[PAL_TRAPEZOID_LAG][t * heads + h] -= ddt[h];
        }
        for (size_t j = 0; m->compares && j < keys; j++)
            dkey[j] += job->w->share[j / dk] * job->w->dcompared[t * keys + j];
        for (int i = 0; i < m->extras; i++) {
            const pal_mixer_extra *e = &m->extra[i];
            const size_t width = (size_t)e->width;
            const float *f = job->a->extra[i] + t * width;
            float *d = job->w->dextra[i] + t * width;
            for (size_t j = 0; j < width; j++) {
                if (e->of_key) dkey[j] += (e->least + e->factor * f[j]) * d[j];
                if (dt) ddt[j * heads / width] += (e->least + e->factor * f[j]) * d[j];
                d[j] *= e->factor * (e->of_key ? k[j] : dt ? dt[j * heads / width] : 1);
            }
        }
    }
}

static void share_backward(void *arg, size_t h, int thread) {
    const rows_job *job = arg;
    const size_t dk = (size_t)job->m->dk, keys = (size_t)job->m->keys;
    double sum = 0;
    (void)thread;
    for (size_t t = 0; t < job->tokens; t++)
        for (size_t j = h * dk; j < (h + 1) * dk; j++)
            sum += (double)pal_row_in(job->k, t)[j] * (double)job->w->dcompared[t * keys + j];
    job->w->dshare[h] = (float)sum;
}

void pal_extra_backward(const pal_pass *ps, const pal_mixer_plan *m, const pal_layer *layer, const pal_mixer_kept *a,
                        const pal_mixer_work *w) {
    rows_job job = job_of(ps, m, a, w);
    if (!m->compares && !m->extras) return;
    if (layer->d[PAL_W_P_SCALE]) pal_parallel_for(ps->cx, (size_t)m->heads, share_backward, &job);
    pal_parallel_ranges(ps->cx, job.tokens, pal_row_grain((size_t)m->keys), backward_rows, &job);
    for (int i = 0; i < m->extras; i++) {
        const pal_mixer_extra *e = &m->extra[i];
        pal_activation_args args = activation(ps, m, layer, a, i);
        args.dy = (pal_const_view){ w->dextra[i], (size_t)e->width };
        args.dx = (pal_view){ w->dp + e->at, (size_t)m->columns };
        args.dbias = e->bias < PAL_W_COUNT ? layer->d[e->bias] : NULL;
        pal_activate_backward(ps->cx, &args, ps->scratch);
    }
}
