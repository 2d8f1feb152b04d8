/* SPDX-License-Identifier: MIT */
/* Which tokens wrote what a token reads: a rule is linear in its values, and value channel i of what is read depends on
 * channel i of the values alone. The gradient of the sum of y_t over channels with respect to v_s[i] is then the weight
 * of v_s[i] in y_t[i], whatever the rule: one backward pass with ones at t. The reference kernels do it, which keep the
 * relative accuracy of small numbers next to large ones; vector kernels trade some of that for speed. Attention's
 * weights are taken from its softmax, because heads that share values share that gradient. */
#include "palimpsa/attribution.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "layers/mixer_parts.h"
#include "model/work.h"

/* One layer's part. */
typedef struct {
    const pal_mixer_plan *plan;
    pal_memory_run run;
    int tokens;
    float *q, *k;      /* (T, heads dk) a row for each head, where heads read key heads in turn */
    float *y, *dy;     /* (T, values) */
    float *weights;    /* (T, heads dv) */
    float *shares;     /* (T, heads) */
    float *saved, *scratch;
    float *state;      /* the memory after the last token */
    float *mean;       /* (dv, dk) of one head of it */
} layer_run;

static void release(layer_run *r) {
    pal_free(r->q), pal_free(r->k), pal_free(r->y), pal_free(r->dy);
    pal_free(r->weights), pal_free(r->shares), pal_free(r->saved), pal_free(r->scratch);
    pal_free(r->state), pal_free(r->mean);
}

static pal_status floats(float **out, size_t count, pal_error *err) {
    return pal_alloc_named((void **)out, count ? count : 1, sizeof **out, "an attribution", err);
}

/* Rows in which every head has its own key. */
static void spread_keys(const layer_run *r, pal_const_view from, float *to) {
    const size_t heads = (size_t)r->run.shape.heads, dk = (size_t)r->run.shape.dk;
    for (size_t t = 0; t < (size_t)r->tokens; t++)
        for (size_t h = 0; h < heads; h++)
            memcpy(to + (t * heads + h) * dk, from.data + t * from.stride + pal_memory_key_head(&r->run.shape, h) * dk,
                   dk * sizeof *to);
}

static pal_status remembered(layer_run *r, const pal_context *cx, pal_error *err) {
    const pal_memory_rule *rule = r->plan->rule;
    pal_memory_run *run = &r->run;
    const size_t T = (size_t)r->tokens, values = (size_t)r->plan->values;
    pal_status st = PAL_OK;
    if (run->shape.tiled) {
        const size_t keys = (size_t)run->shape.heads * (size_t)run->shape.dk;
        if ((st = floats(&r->q, T * keys, err)) || (st = floats(&r->k, T * keys, err))) return st;
        spread_keys(r, run->in.q, r->q), spread_keys(r, run->in.k, r->k);
        run->in.q = (pal_const_view){ r->q, keys }, run->in.k = (pal_const_view){ r->k, keys };
        run->shape.tiled = false;
        run->shape.key_heads = run->shape.heads;
    }
    size_t bytes = pal_memory_scratch_bytes(rule, cx, &run->shape, PAL_FORWARD);
    const size_t back = pal_memory_scratch_bytes(rule, cx, &run->shape, PAL_BACKWARD);
    if (back > bytes) bytes = back;
    if ((st = floats(&r->saved, pal_memory_saved_floats(rule, &run->shape), err)) ||
        (st = floats(&r->scratch, bytes / sizeof(float) + 1, err)) ||
        (st = floats(&r->state, pal_memory_state_floats(rule, &run->shape), err)) ||
        (st = floats(&r->mean, (size_t)run->shape.dk * (size_t)run->shape.dv, err)))
        return st;
    run->state = &r->state, run->fresh = true, run->borrowed = NULL, run->past = NULL;
    run->saved = r->saved, run->scratch = r->scratch;
    run->y = (pal_view){ r->y, values };
    run->y_var = (pal_view){ 0 };
    if ((st = pal_memory_forward(rule, cx, run, err))) return st;
    for (size_t i = 0; i < values; i++) r->dy[(T - 1) * values + i] = 1;
    run->dy = (pal_const_view){ r->dy, values };
    run->grad.v = (pal_view){ r->weights, values };
    return pal_memory_backward(rule, cx, run, err);
}

/* w_t[s] = softmax over s of scale q_t k_s, and y_t in doubles. */
static void attended(layer_run *r) {
    const pal_memory_run *run = &r->run;
    const pal_memory_shape *s = &run->shape;
    const size_t T = (size_t)r->tokens, heads = (size_t)s->heads, dk = (size_t)s->dk, dv = (size_t)s->dv;
    for (size_t h = 0; h < heads; h++) {
        const size_t key_head = pal_memory_key_head(s, h);
        const float *q = run->in.q.data + (T - 1) * run->in.q.stride + h * dk;
        double most = -INFINITY, sum = 0;
        for (size_t t = 0; t < T; t++) {
            const float *k = run->in.k.data + t * run->in.k.stride + key_head * dk;
            double dot = 0;
            for (size_t j = 0; j < dk; j++) dot += (double)q[j] * (double)k[j];
            r->shares[t * heads + h] = (float)(dot * (double)run->in.scale);
            most = fmax(most, dot * (double)run->in.scale);
        }
        for (size_t t = 0; t < T; t++) sum += exp((double)r->shares[t * heads + h] - most);
        for (size_t t = 0; t < T; t++)
            for (size_t i = 0; i < dv; i++)
                r->weights[(t * heads + h) * dv + i] = (float)(exp((double)r->shares[t * heads + h] - most) / sum);
    }
}

/* The size of the terms whose sum channel i of head h reads: q_j mu_ij. They may cancel, and then no more of the sum is
 * exact than their rounding leaves. */
static double read_size(const layer_run *r, size_t i, const float *q) {
    double size = 0;
    for (size_t j = 0; j < (size_t)r->run.shape.dk; j++)
        size += fabs((double)q[j] * (double)r->mean[i * (size_t)r->run.shape.dk + j]);
    return size * fabs((double)r->run.in.scale);
}

/* Shares, and how far the sum is from what was read. */
static double add_up(layer_run *r, const float *y) {
    const size_t T = (size_t)r->tokens, heads = (size_t)r->run.shape.heads, dv = (size_t)r->run.shape.dv;
    const bool shared = r->plan->program == PAL_MIXER_ATTENDING;
    double worst = 0;
    for (size_t h = 0; h < heads; h++) {
        const size_t from = (shared ? pal_memory_key_head(&r->run.shape, h) : h) * dv;
        const size_t key = pal_memory_key_head(&r->run.shape, h) * (size_t)r->run.shape.dk;
        const float *q = r->run.in.q.data + (T - 1) * r->run.in.q.stride + key;
        pal_memory_shape alone = r->run.shape;
        double length = 0;
        alone.heads = alone.key_heads = 1;
        const size_t floats_of_head = shared ? 0 : pal_memory_state_floats(r->plan->rule, &alone);
        if (!shared) pal_memory_head(r->plan->rule, &alone, r->state + h * floats_of_head, r->mean, NULL);
        for (size_t i = 0; i < dv; i++) length += (double)y[h * dv + i] * (double)y[h * dv + i];
        for (size_t t = 0; t < T; t++) {
            double along = 0;
            for (size_t i = 0; i < dv; i++)
                along += (double)r->weights[(t * heads + h) * dv + i] *
                         (double)r->run.in.v.data[t * r->run.in.v.stride + from + i] * (double)y[h * dv + i];
            r->shares[t * heads + h] = length > 0 ? (float)(along / length) : 0;
        }
        for (size_t i = 0; i < dv; i++) {
            double sum = 0, size = 0;
            const double terms = shared ? 0 : read_size(r, i, q);
            for (size_t t = 0; t < T; t++) {
                const double term = (double)r->weights[(t * heads + h) * dv + i] *
                                    (double)r->run.in.v.data[t * r->run.in.v.stride + from + i];
                sum += term, size += fabs(term);
            }
            const double error = fabs(sum - (double)y[h * dv + i]) / fmax(fmax(size, terms), (double)FLT_MIN);
            if (!(error <= worst)) worst = error; /* NaN too */
        }
    }
    return worst;
}

static pal_status attribute_layer(const pal_pass *ps, const pal_context *plain, pal_work *w, int i,
                                  pal_attribution_fn *fn, void *user, pal_error *err) {
    pal_block *b = &w->blocks[i];
    const pal_mixer_plan *m = &b->plan;
    const size_t T = (size_t)ps->tokens, values = (size_t)m->heads * (size_t)m->dv;
    layer_run r = { .plan = m, .tokens = ps->tokens };
    pal_status st = floats(&r.weights, T * values, err);
    if (!st) st = floats(&r.shares, T * (size_t)m->heads, err);
    if (!st) st = floats(&r.y, T * values, err);
    if (!st) st = floats(&r.dy, T * values, err);
    if (!st) {
        if (m->program == PAL_MIXER_GATED) pal_mixer_prepare(ps, m, &w->model->layers[i], &b->mixer, &b->mixer_work);
        r.run = pal_mixer_run(ps, m, &b->mixer, &b->mixer_work);
        if (m->program == PAL_MIXER_GATED) st = remembered(&r, plain, err);
        else {
            r.run.y = (pal_view){ r.y, values };
            pal_mixer_remember(ps, m, &r.run); /* again: the layer may have gated what it read in place */
            attended(&r);
        }
    }
    if (!st) {
        const float *read = r.y + (T - 1) * values;
        const pal_attribution seen = { .layer = i,
                                       .rule = pal_model_layer_rule(&w->model->config, i),
                                       .tokens = ps->tokens,
                                       .heads = m->heads,
                                       .dv = m->dv,
                                       .weights = r.weights,
                                       .error = add_up(&r, read),
                                       .shares = r.shares,
                                       .read = read };
        if (!fn(user, &seen)) st = pal_fail(err, PAL_STOPPED, "stopped at layer %d", i);
    }
    release(&r);
    return st;
}

static bool reads(const pal_block *b) {
    return b->mixers && (b->plan.program == PAL_MIXER_GATED || b->plan.program == PAL_MIXER_ATTENDING);
}

pal_status pal_model_attribute(const pal_model *model, const pal_context *cx, const int32_t *ids, int count, int layer,
                               pal_attribution_fn *fn, void *user, pal_error *err) {
    const int layers = model->config.layers, cu[2] = { 0, count };
    if (layer != PAL_EVERY_LAYER && (layer < 0 || layer >= layers))
        return pal_fail(err, PAL_E_ARGUMENT, "attribution of layer %d: the model has layers 0 to %d", layer,
                        layers - 1);
    if (count < 1) return pal_fail(err, PAL_E_ARGUMENT, "attribution of %d tokens: expected at least 1", count);
    if (model->on) return pal_fail(err, PAL_E_UNSUPPORTED, "what is read from a memory on a device is not attributed");
    pal_context *plain = NULL;
    pal_work *w = NULL;
    pal_pass ps;
    pal_status st = pal_context_new(&plain, pal_context_threads(cx), "ref", err);
    if (!st) st = pal_work_new(&w, model, cx, &(pal_work_options){ .tokens = count, .context = count }, err);
    const pal_batch batch = { .tokens = count, .sequences = 1, .cu_seqlens = cu, .ids = ids };
    if (!st) st = pal_stack_enter(w, model, &batch, &ps, err);
    for (int i = 0; !st && i < layers && (layer == PAL_EVERY_LAYER || i <= layer); i++) {
        pal_stack_block(w, &ps, i);
        if (reads(&w->blocks[i]) && (layer == PAL_EVERY_LAYER || i == layer))
            st = attribute_layer(&ps, plain, w, i, fn, user, err);
        else if (i == layer)
            st = pal_fail(err, PAL_E_ARGUMENT, "layer %d neither remembers nor attends: its rule is %s", i,
                          pal_model_layer_rule(&model->config, i));
    }
    pal_work_free(w);
    pal_context_free(plain);
    return st;
}
