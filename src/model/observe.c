/* SPDX-License-Identifier: MIT */
/* Looking into the memory. A layer's forward does not keep its final memories, so after each block the memory is run
 * once more on what the block kept, this time with states that receive them. */
#include <string.h>

#include "base/alloc.h"
#include "layers/mixer_parts.h"
#include "model/work.h"

struct pal_observer {
    const pal_model *model;
    int tokens, sequences;
    size_t state_floats, bytes;
    float **states; /* (N) of one layer */
    float *data, *decay, *importance, *mean;
};

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

pal_status pal_observer_new(pal_observer **out, const pal_model *model, int tokens, int sequences, pal_error *err) {
    pal_observer *o;
    pal_status st;
    size_t state = 0, part = 0;
    int heads;
    *out = NULL;
    if (tokens < 1 || sequences < 1)
        return pal_fail(err, PAL_E_ARGUMENT, "an observer of %d tokens in %d sequences: expected at least 1", tokens,
                        sequences);
    if (model->on) return pal_fail(err, PAL_E_UNSUPPORTED, "memories on a device are not observed");
    if ((st = pal_alloc_named((void **)&o, 1, sizeof *o, "an observer", err))) return st;
    *o = (pal_observer){ .model = model, .tokens = tokens, .sequences = sequences };
    pal_model_widest(&model->config, &heads, NULL, NULL);
    for (int i = 0; i < model->config.layers; i++) {
        const pal_mixer_spec *memory = pal_model_memory(&model->config, i);
        pal_mixer_plan plan;
        if (!memory) continue;
        pal_mixer_plan_make(&plan, &model->config, memory, &model->layers[i]);
        const pal_memory_shape shape = pal_mixer_shape(&plan, tokens, sequences, NULL, 0);
        state = larger(state, plan.rule->state_floats(&shape));
        part = larger(part, plan.rule->part_floats(&shape, 0));
    }
    o->state_floats = (state + 15) / 16 * 16;
    st = pal_alloc_named((void **)&o->states, (size_t)sequences, sizeof *o->states, "an observer", err);
    if (!st)
        st = pal_alloc_named((void **)&o->data, o->state_floats * (size_t)sequences, sizeof *o->data,
                             "an observer's memories", err);
    if (!st)
        st = pal_alloc_named((void **)&o->decay, (size_t)tokens * (size_t)heads, sizeof *o->decay,
                             "an observer's decays", err);
    if (!st)
        st = pal_alloc_named((void **)&o->importance, part * (size_t)sequences, sizeof *o->importance,
                             "an observer's importances", err);
    if (!st) st = pal_alloc_named((void **)&o->mean, part, sizeof *o->mean, "an observer", err);
    if (st) {
        pal_observer_free(o);
        return st;
    }
    o->bytes = ((o->state_floats + part) * (size_t)sequences + (size_t)tokens * (size_t)heads + part) * sizeof(float);
    for (int n = 0; n < sequences; n++) o->states[n] = o->data + (size_t)n * o->state_floats;
    *out = o;
    return PAL_OK;
}

size_t pal_observer_bytes(const pal_observer *o) { return o->bytes; }

void pal_observer_free(pal_observer *o) {
    if (!o) return;
    pal_free(o->states), pal_free(o->data), pal_free(o->decay), pal_free(o->importance), pal_free(o->mean);
    pal_free(o);
}

static void final_importance(const pal_pass *ps, const pal_block *b, const pal_layer *layer, pal_observer *o) {
    const pal_mixer_plan *m = &b->plan;
    pal_mixer_prepare(ps, m, layer, &b->mixer, &b->mixer_work);
    pal_memory_run run = pal_mixer_run(ps, m, &b->mixer, &b->mixer_work);
    run.saved = NULL;
    run.state = o->states;
    run.fresh = true;
    pal_mixer_remember(ps, m, &run);
    const size_t part = m->rule->part_floats(&run.shape, 1);
    for (int n = 0; n < ps->sequences; n++) {
        float *const parts[2] = { o->mean, o->importance + (size_t)n * part };
        m->rule->export(&run.shape, &run.in, parts, o->states[n]);
    }
}

static bool observe_layer(const pal_pass *ps, pal_work *w, pal_observer *o, int i, pal_observe_fn *fn, void *user) {
    const pal_block *b = &w->blocks[i];
    const pal_mixer_plan *m = &b->plan;
    pal_observation seen = { .layer = i,
                             .rule = pal_model_layer_rule(&w->model->config, i),
                             .tokens = ps->tokens,
                             .sequences = ps->sequences,
                             .heads = m->heads,
                             .dk = m->dk,
                             .dv = m->dv,
                             .cu_seqlens = ps->cu_seqlens };
    if (pal_block_remembers(b)) {
        if (pal_block_forgets(b)) {
            for (int t = 0; t < ps->tokens; t++)
                for (int h = 0; h < m->heads; h++)
                    o->decay[(size_t)t * (size_t)m->heads + (size_t)h] = pal_block_decay(b, t, h);
            seen.decay = o->decay;
        }
        if (m->gate_b) seen.b_scale = b->mixer_work.c;
        if (m->rule->has_importance) {
            final_importance(ps, b, &w->model->layers[i], o);
            seen.importance = o->importance;
        }
    }
    return fn(user, &seen);
}

pal_status pal_model_observe(const pal_model *model, pal_work *w, pal_observer *o, const pal_batch *batch,
                             pal_observe_fn *fn, void *user, pal_error *err) {
    if (o->model != model || batch->tokens > o->tokens || batch->sequences > o->sequences)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "a batch of %d tokens in %d sequences: the observer was made for %d in %d%s", batch->tokens,
                        batch->sequences, o->tokens, o->sequences, o->model == model ? "" : " of another model");
    pal_pass ps;
    const pal_status st = pal_stack_enter(w, model, batch, &ps, err);
    if (st) return st;
    for (int i = 0; i < model->config.layers; i++) {
        pal_stack_block(w, &ps, i);
        if (!observe_layer(&ps, w, o, i, fn, user))
            return pal_fail(err, PAL_STOPPED, "stopped after layer %d of %d", i, model->config.layers);
    }
    return PAL_OK;
}
