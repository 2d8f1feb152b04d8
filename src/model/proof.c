/* SPDX-License-Identifier: MIT */
/* The proof of a surgery: the source, the result with its plasticity off, and the result, on the same text. */
#include <string.h>

#include "base/alloc.h"
#include "model/model.h"
#include "model/surgery.h"
#include "palimpsa/state.h"

enum { PIECE = 128, RUNS = 3 }; /* tokens whose logits are compared at once */

pal_status pal_model_view(pal_model **out, const pal_model *model, const bool *metaplastic, pal_error *err) {
    const pal_model_config *c = &model->config;
    pal_status st;
    void *block;
    *out = NULL;
    for (int i = 0; metaplastic && i < c->layers; i++)
        if (metaplastic[i] && strcmp(pal_model_layer_rule(c, i), "palimpsa") != 0)
            return pal_fail(err, PAL_E_ARGUMENT, "layer %d runs rule '%s': it has no plasticity that could be on", i,
                            pal_model_layer_rule(c, i));
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_model), "a model", err))) return st;
    pal_model *m = block;
    m->config = *c;
    m->use = PAL_FOR_INFERENCE;
    m->outer = model->outer;
    m->viewed = model;
    if ((st = pal_fingerprint_keep(m, err))) {
        pal_model_close(m);
        return st;
    }
    if ((st = pal_model_make_layers(m, err))) {
        pal_model_close(m);
        return st;
    }
    if (m->pages) (void)pal_pages_set_type(m->pages, model->pages->type, NULL); /* it fits there, too */
    memcpy(m->layers, model->layers, (size_t)c->layers * sizeof *m->layers);
    if (m->beside) memcpy(m->beside, model->beside, (size_t)c->layers * sizeof *m->beside);
    for (int i = 0; i < c->layers && !c->official; i++) {
        const pal_mixer_spec *memory = pal_model_memory(c, i);
        if (!memory || !pal_mixer_may_gate(memory) || strcmp(memory->rule, "palimpsa") != 0) continue;
        m->config.listed = true;
        m->config.metaplastic[i] = metaplastic && metaplastic[i];
        m->layers[i].rule = pal_memory_find(pal_model_layer_rule(&m->config, i));
    }
    *out = m;
    return PAL_OK;
}

typedef struct {
    const pal_model *model;
    pal_work *work;
    pal_state *state;
    float *logits; /* (PIECE, rows) */
} reading;

static pal_status reading_open(reading *r, const pal_model *model, const pal_context *cx, int tokens, pal_error *err) {
    pal_status st;
    r->model = model;
    if ((st = pal_work_new(&r->work, model, cx,
                           &(pal_work_options){ .tokens = PIECE, .sequences = 1, .logits = PIECE, .context = tokens },
                           err)))
        return st;
    if ((st = pal_state_new(&r->state, model, tokens, err))) return st;
    return pal_alloc_named((void **)&r->logits, (size_t)PIECE * (size_t)model->config.vocab_rows, sizeof(float),
                           "logits", err);
}

static void reading_close(reading *r) {
    pal_state_free(r->state);
    pal_work_free(r->work);
    pal_free(r->logits);
}

static double larger(double a, double b) { return a >= b || isnan(b) ? a : b; }

/* The larger of `so_far` and max |x - ref|; infinite for NaN. */
static double difference(const float *x, const float *ref, size_t n, double so_far) {
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)x[i] - (double)ref[i]);
        if (!(d <= so_far)) so_far = isnan(d) ? INFINITY : d;
    }
    return so_far;
}

static int most_likely(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* -log softmax(x)[target] over every row of the embedding. */
static double surprise(const float *x, int n, int target) {
    const double most = (double)x[most_likely(x, n)];
    double sum = 0;
    for (int i = 0; i < n; i++) sum += exp((double)x[i] - most);
    return most + log(sum) - (double)x[target];
}

static void compare(pal_proof *p, double *scale, const reading *r, const int32_t *ids, int done, int piece) {
    const pal_model_config *c = &r[0].model->config;
    const size_t rows = (size_t)c->vocab_rows, n = (size_t)piece * rows;
    for (size_t i = 0; i < n; i++) *scale = larger(*scale, fabs((double)r[0].logits[i]));
    p->off = difference(r[1].logits, r[0].logits, n, p->off);
    p->on = difference(r[2].logits, r[0].logits, n, p->on);
    for (int t = 0; t < piece; t++) {
        const float *source = r[0].logits + (size_t)t * rows, *on = r[2].logits + (size_t)t * rows;
        p->moved += most_likely(source, c->vocab) != most_likely(on, c->vocab);
        if (done + t + 1 == p->tokens) break;
        p->loss_source += surprise(source, c->vocab_rows, ids[done + t + 1]) / (p->tokens - 1);
        p->loss_on += surprise(on, c->vocab_rows, ids[done + t + 1]) / (p->tokens - 1);
    }
}

pal_status pal_surgery_prove(pal_proof *out, const pal_surgery *surgery, const pal_model *source,
                             const pal_model *result, const pal_context *cx, const int32_t *ids, int tokens,
                             pal_error *err) {
    reading r[RUNS] = { { 0 } };
    bool before[PAL_MAX_LAYERS] = { false };
    pal_model *plain = NULL;
    double scale = 0;
    pal_status st = PAL_OK;
    *out = (pal_proof){ .tokens = tokens };
    if (tokens < 2) return pal_fail(err, PAL_E_ARGUMENT, "a proof on %d tokens: expected at least 2", tokens);
    if (source->config.vocab_rows != result->config.vocab_rows || source->config.layers != result->config.layers)
        return pal_fail(err, PAL_E_FORMAT, "the source has %d layers and %d logits, the result %d and %d",
                        source->config.layers, source->config.vocab_rows, result->config.layers,
                        result->config.vocab_rows);
    for (int i = 0; i < source->config.layers; i++)
        before[i] = strcmp(pal_model_layer_rule(&source->config, i), "palimpsa") == 0;
    st = pal_model_view(&plain, result, before, err);
    const pal_model *const models[RUNS] = { source, plain, result };
    for (int k = 0; k < RUNS && !st; k++) st = reading_open(&r[k], models[k], cx, tokens, err);
    for (int done = 0; done < tokens && !st; done += PIECE) {
        const int piece = tokens - done < PIECE ? tokens - done : PIECE, cu[2] = { 0, piece };
        const pal_batch batch = { .tokens = piece, .sequences = 1, .ids = ids + done, .cu_seqlens = cu };
        for (int k = 0; k < RUNS && !st; k++)
            st = pal_model_continue(models[k], r[k].work, &r[k].state, &batch, NULL, piece, r[k].logits, err);
        if (!st) compare(out, &scale, r, ids, done, piece);
        const size_t so_far = (size_t)done + (size_t)piece;
        if (!st && surgery && surgery->go_on && !surgery->go_on(surgery->user, so_far, (size_t)tokens))
            st = pal_fail(err, PAL_STOPPED, "the proof was interrupted; nothing was written");
    }
    for (int k = 0; k < RUNS; k++) reading_close(&r[k]);
    pal_model_close(plain);
    if (st) return st;
    if (scale > 0) out->off /= scale, out->on /= scale;
    if (!(out->off <= PAL_PROOF_ACCEPT))
        return pal_fail(err, PAL_E_FORMAT,
                        "with plasticity off the result differs from its source: logits by %.3g of the largest, "
                        "expected at most %g",
                        out->off, PAL_PROOF_ACCEPT);
    return PAL_OK;
}
