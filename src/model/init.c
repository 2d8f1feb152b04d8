/* SPDX-License-Identifier: MIT */
/* Initial weights. Every tensor has a random stream of its own, named by the tensor, so that a model and its ablation
 * start from the same numbers wherever they share a tensor. */
#include <math.h>
#include <string.h>

#include "base/math.h"
#include "base/random.h"
#include "model/weights.h"

uint64_t pal_weight_stream(const char *name) { /* FNV-1a */
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

static void fill(float *x, size_t n, float value) {
    for (size_t i = 0; i < n; i++) x[i] = value;
}

static bool as_recall(const pal_model_config *c) { return c->mqar || c->recall_init; }

/* MQAR: deterministic ramps over heads, u = 0 .. 1. */
static double ramp(size_t h, size_t heads) { return heads > 1 ? (double)h / (double)(heads - 1) : 0.0; }

static void init_a_log(float *x, size_t n, const pal_model_config *c, pal_rng *rng) {
    static const double lowest[] = { 0.01, 1.0, 0.001 }, span[] = { 0.15, 15.0, 0.015 };
    for (size_t h = 0; h < n; h++) {
        double rate;
        if (as_recall(c)) rate = lowest[c->forgetting] + span[c->forgetting] * ramp(h, n);
        else if (c->official) rate = 1 + 15 * pal_rng_uniform(rng);
        else rate = 16 * (1 - pal_rng_uniform(rng)); /* (0, 16] */
        x[h] = (float)log(rate);
    }
}

static void init_dt_bias(float *x, size_t n, const pal_model_config *c, pal_rng *rng) {
    const double low = log(0.001), high = log(0.1);
    for (size_t h = 0; h < n; h++) {
        const double u = as_recall(c) ? 1 - ramp(h, n) : pal_rng_uniform(rng);
        x[h] = (float)pal_softplus_inverse(fmax(exp(u * (high - low) + low), 1e-4));
    }
}

void pal_weight_init_one(const pal_weight_entry *e, const pal_model_config *c, const pal_context *cx, uint64_t seed,
                         float *x) {
    const size_t n = e->view.count;
    const uint64_t stream = pal_weight_stream(e->view.name);
    const double deviation = as_recall(c) ? 1 / sqrt(128.0) : c->init_range;
    pal_rng rng = pal_rng_at(seed, stream);
    const pal_mixer_spec *m = e->view.layer < 0 ? NULL : &pal_model_block(c, e->view.layer)->mixer[e->beside];
    double bound = 0; /* > 0: uniform on (-bound, bound) */
    switch (e->init) {
    case PAL_INIT_ZERO: fill(x, n, 0); return;
    case PAL_INIT_ONE: fill(x, n, 1); return;
    case PAL_INIT_LAM: fill(x, n, (float)pal_softplus_inverse(1.0)); return;
    case PAL_INIT_NOISE: fill(x, n, (float)pal_softplus_inverse(0.01)); return;
    case PAL_INIT_A_LOG: init_a_log(x, n, c, &rng); return;
    case PAL_INIT_DT_BIAS: init_dt_bias(x, n, c, &rng); return;
    case PAL_INIT_B_SCALE:
        if (c->finetuning) pal_fill_uniform(cx, x, n, seed, stream, 0.1, 1.0);
        else fill(x, n, 1);
        return;
    case PAL_INIT_B_PROJ: bound = 1 / sqrt((double)m->rank); break;
    case PAL_INIT_OUT:
        if (c->official || c->rescale_residual) bound = 1 / sqrt((double)pal_mixer_inner(m)) / sqrt((double)c->layers);
        break;
    case PAL_INIT_IN:
        if (c->official) bound = 1 / sqrt((double)c->hidden);
        break;
    case PAL_INIT_CONV:
        if (c->official) bound = 1 / sqrt((double)m->conv);
        else if (e->view.rank == 1) { /* a bias */ fill(x, n, 0);
            return;
        }
        break;
    case PAL_INIT_NORMAL: break;
    }
    if (bound > 0) pal_fill_uniform(cx, x, n, seed, stream, -bound, bound);
    else pal_fill_normal(cx, x, n, seed, stream, deviation);
}

void pal_weights_init(const pal_weight_table *table, const pal_model_config *config, const pal_context *cx,
                      uint64_t seed, float *flat) {
    for (size_t i = 0; i < table->count; i++)
        pal_weight_init_one(&table->entries[i], config, cx, seed, flat + table->entries[i].view.offset);
}
