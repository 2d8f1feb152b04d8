/* SPDX-License-Identifier: MIT */
/* Looking into memories while they are read and written. Of one token, rules that know what it will do from the
 * memory as it is: one pass over a head, just before the rule makes its own and finds the head in the cache, so that
 * nothing is fetched twice. Otherwise a copy of the memory is compared with what the layer made of it. */
#include "palimpsa/watch.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/parallel.h"
#include "model/state.h"
#include "model/windows.h"
#include "model/work.h"

/* Importances are positive: the upper half of their bits without the sign grows with them. */
enum { BIN_BITS = 16, BINS = 1 << (31 - BIN_BITS) };

/* Scratch of a watch, by what it holds. */
typedef struct {
    float *before;              /* one layer's memory */
    pal_memory_change *changes; /* (heads) */
    double *heads;              /* (heads) */
    float *y;                   /* (dv) an answer that is not read */
    float *mean, *importance;   /* (dv, dk) of one head */
    uint32_t *bins;             /* (BINS) zero but while they are used */
} places;

/* Of a memory of fixed size. */
static size_t head_floats(const pal_mixer_plan *m) {
    const pal_memory_shape shape = pal_mixer_shape(m, 1, 1, NULL, 0);
    return m->rule->state_floats(&shape) / (size_t)m->heads;
}

/* memory: floats of the largest layer's, after everything else. */
static size_t place(places *p, const pal_model *model, size_t memory, void *scratch) {
    int most_heads, dk, dv;
    pal_model_widest(&model->config, &most_heads, &dk, &dv);
    const size_t heads = (size_t)most_heads, elements = (size_t)dk * (size_t)dv;
    pal_arena arena = { .base = scratch, .capacity = SIZE_MAX / 2 };
    p->bins = pal_take(&arena, BINS, sizeof *p->bins);
    p->changes = pal_take(&arena, heads, sizeof *p->changes);
    p->heads = pal_take(&arena, heads, sizeof *p->heads);
    p->y = pal_take(&arena, (size_t)dv, sizeof *p->y);
    p->mean = pal_take(&arena, elements, sizeof *p->mean);
    p->importance = pal_take(&arena, elements, sizeof *p->importance);
    p->before = pal_take(&arena, memory, sizeof *p->before);
    return arena.used;
}

size_t pal_watch_bytes(const pal_model *model) {
    places p;
    size_t largest = 0;
    for (int i = 0; i < model->config.layers; i++) {
        const pal_mixer_spec *memory = pal_model_memory(&model->config, i);
        pal_mixer_plan plan;
        if (!memory) continue;
        pal_mixer_plan_make(&plan, &model->config, memory, &model->layers[i]);
        const size_t floats = head_floats(&plan) * (size_t)plan.heads;
        if (floats > largest) largest = floats;
    }
    return place(&p, model, largest, NULL);
}

pal_status pal_watch_check(const pal_watch *watch, const pal_model *model, pal_error *err) {
    const pal_model_config *c = &model->config;
    if (model->on) return pal_fail(err, PAL_E_UNSUPPORTED, "memories on a device are not watched");
    if (!watch->scratch) return pal_fail(err, PAL_E_ARGUMENT, "a watch without scratch");
    if (watch->element_count < 0 || watch->element_count > PAL_ELEMENTS || watch->tokens < 0)
        return pal_fail(err, PAL_E_ARGUMENT, "a watch of %d elements over %d tokens: expected at most %d elements",
                        watch->element_count, watch->tokens, PAL_ELEMENTS);
    for (int i = 0; i < watch->element_count; i++) {
        const pal_element *e = &watch->elements[i];
        if (e->layer < 0 || e->layer >= c->layers)
            return pal_fail(err, PAL_E_ARGUMENT, "element %d is of layer %d: the model has %d layers", i, e->layer,
                            c->layers);
        const pal_mixer_spec *m = pal_model_memory(c, e->layer);
        if (!m)
            return pal_fail(err, PAL_E_ARGUMENT, "element %d: layer %d has no memory of keys by values: its rule is %s",
                            i, e->layer, pal_model_layer_rule(c, e->layer));
        if (e->head < 0 || e->head >= m->heads || e->key < 0 || e->key >= m->dk || e->value < 0 || e->value >= m->dv)
            return pal_fail(err, PAL_E_ARGUMENT,
                            "element %d is head %d, key %d, value %d of layer %d, which has %d heads of %d keys and %d "
                            "values",
                            i, e->head, e->key, e->value, e->layer, m->heads, m->dk, m->dv);
    }
    return PAL_OK;
}

pal_status pal_work_watch(pal_work *w, int sequence, const pal_watch *watch, pal_error *err) {
    pal_status st;
    if (sequence < 0 || sequence >= w->options.sequences)
        return pal_fail(err, PAL_E_ARGUMENT, "a watch of sequence %d: the workspace was made for %d", sequence,
                        w->options.sequences);
    if (watch && (st = pal_watch_check(watch, w->model, err))) return st;
    if (watch && w->cx->device) return pal_fail(err, PAL_E_UNSUPPORTED, "memories on a device are not watched");
    w->watching += (watch != NULL) - (w->watches[sequence] != NULL);
    w->watches[sequence] = watch;
    return PAL_OK;
}

/* One watched sequence at one layer. */
typedef struct {
    const pal_watch *watch;
    const pal_pass *ps;
    const pal_block *block;
    int heads;                /* of the widest layer */
    int layer, first, tokens; /* the sequence's first token in the batch, and how many it has */
    float *memory;
    size_t head_floats;
    const pal_memory_run *run; /* before the memory has run */
    places at;
} view;

static view look(const pal_watched *watched, int sequence) {
    const pal_work *w = watched->work;
    const pal_pass *ps = watched->pass;
    const int *cu = ps->cu_seqlens, layer = watched->block;
    int heads;
    pal_model_widest(&w->model->config, &heads, NULL, NULL);
    view v = { .watch = w->watches[sequence],
               .ps = ps,
               .block = &w->blocks[layer],
               .heads = heads,
               .layer = layer,
               .first = cu ? cu[sequence] : sequence,
               .tokens = cu ? cu[sequence + 1] - cu[sequence] : 1,
               .memory = ps->memory[sequence],
               .head_floats = pal_block_remembers(&w->blocks[layer]) ? head_floats(&w->blocks[layer].plan) : 0 };
    place(&v.at, w->model, v.head_floats * (size_t)w->blocks[layer].plan.heads, v.watch->scratch);
    return v;
}

/* Whether the lists by token are filled. */
static bool by_token(const view *v) { return v->tokens <= v->watch->tokens; }
static bool follows(const view *v) {
    if (!v->watch->followed || !by_token(v)) return false;
    for (int e = 0; e < v->watch->element_count; e++)
        if (v->watch->elements[e].layer == v->layer) return true;
    return false;
}
static bool compares(const view *v) { return v->watch->tiles || v->watch->writes; }

/* Whether the inputs of one token and the memory determine what will come of it, so that no copy is needed. */
static bool foresees(const view *v) { return v->tokens == 1 && v->block->plan.rule->foresee; }

/* One head of one token's inputs, for the rule's step. */
static pal_memory_run step_of(const view *v, const pal_memory_run *all, int head, int token, float **state) {
    const pal_memory_shape *s = &all->shape;
    const size_t t = (size_t)v->first + (size_t)token;
    pal_memory_run run = { .shape = *s,
                           .in = pal_memory_inputs_at(v->block->plan.rule, s, &all->in, t, (size_t)head),
                           .state = state,
                           .scratch = all->scratch,
                           .y = { v->at.y, (size_t)s->dv } };
    run.shape.tokens = run.shape.sequences = run.shape.heads = run.shape.key_heads = 1;
    run.shape.cu_seqlens = NULL;
    return run;
}

static void before_task(void *arg, size_t head, int thread) {
    const view *v = arg;
    (void)thread;
    float *memory = v->memory + head * v->head_floats;
    if (foresees(v) && compares(v)) {
        const pal_memory_run run = step_of(v, v->run, (int)head, 0, &memory);
        v->block->plan.rule->foresee(v->ps->cx, &run, &v->at.changes[head]);
    }
    float *before = v->at.before + head * v->head_floats;
    if (follows(v) || !foresees(v)) memcpy(before, memory, v->head_floats * sizeof *before);
}

static void before_head(void *user, int sequence, int head) {
    const pal_watched *watched = user;
    if (!watched->work->watches[sequence]) return;
    view v = look(watched, sequence);
    v.run = watched->run;
    if (compares(&v) || follows(&v)) before_task(&v, (size_t)head, 0);
}

void pal_watch_before(void *user, pal_memory_run *run) {
    pal_watched *watched = user;
    if (!watched->pass->cu_seqlens && watched->work->blocks[watched->block].plan.rule->foresee) {
        watched->run = run;
        run->before_head = before_head, run->before_head_user = watched;
        return;
    }
    for (int n = 0; n < watched->pass->sequences; n++) {
        if (!watched->work->watches[n]) continue;
        view v = look(watched, n);
        v.run = run;
        if (compares(&v) || follows(&v)) pal_parallel_for(v.ps->cx, (size_t)v.block->plan.heads, before_task, &v);
    }
}

static void compare_task(void *arg, size_t head, int thread) {
    const view *v = arg;
    const pal_memory_shape shape = pal_mixer_shape(&v->block->plan, 1, 1, NULL, 0);
    (void)thread;
    const float *before = v->at.before + head * v->head_floats;
    v->block->plan.rule->compare(v->ps->cx, &shape, before, v->memory + head * v->head_floats, &v->at.changes[head]);
}

static uint32_t bin_of(float x) {
    const uint32_t bits = pal_f32_bits(x);
    return bits >> BIN_BITS < BINS ? bits >> BIN_BITS : 0; /* what is below zero, or no number, as the least */
}

/* The quantiles between the least and the most of all heads' samples, by counting. */
static void spread(const view *v, int heads, float out[PAL_TILE_SPREAD]) {
    static const double shares[] = { 0.05, 0.25, 0.5, 0.75, 0.95 };
    uint32_t *bins = v->at.bins;
    const float low = out[0], high = out[PAL_TILE_SPREAD - 1];
    uint32_t all = 0, passed = 0, bin = bin_of(low);
    const uint32_t last = bin_of(high);
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < v->at.changes[h].samples; i++) bins[bin_of(v->at.changes[h].sample[i])]++, all++;
    for (int q = 0; q < PAL_TILE_SPREAD - 2; q++) {
        while (bin < last && passed + bins[bin] <= (uint32_t)(shares[q] * (double)all)) passed += bins[bin++];
        const float middle = pal_bits_f32(bin << BIN_BITS | 1u << (BIN_BITS - 1));
        out[q + 1] = middle < low ? low : middle > high ? high : middle;
    }
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < v->at.changes[h].samples; i++) bins[bin_of(v->at.changes[h].sample[i])] = 0;
}

static float over(double change, double size) { return size > 0 ? (float)sqrt(change / size) : 0; }

static void compare(const view *v, pal_tile *tile) {
    const pal_mixer_plan *m = &v->block->plan;
    double change = 0, size = 0, ratio = 0;
    if (!foresees(v)) pal_parallel_for(v->ps->cx, (size_t)m->heads, compare_task, (void *)v);
    float *writes = v->watch->writes ? v->watch->writes + (size_t)v->layer * (size_t)v->heads : NULL;
    tile->importance[0] = v->at.changes[0].low, tile->importance[PAL_TILE_SPREAD - 1] = v->at.changes[0].high;
    for (int h = 0; h < m->heads; h++) {
        const pal_memory_change *c = &v->at.changes[h];
        if (writes) writes[h] = over(c->change, c->size);
        change += c->change, size += c->size;
        ratio += ((double)c->high - (double)c->low) / (double)c->low;
        tile->importance[0] = fminf(tile->importance[0], c->low);
        tile->importance[PAL_TILE_SPREAD - 1] = fmaxf(tile->importance[PAL_TILE_SPREAD - 1], c->high);
    }
    tile->write = over(change, size);
    tile->norm = (float)sqrt(size / ((double)m->heads * m->dk * m->dv));
    if (!m->rule->has_importance) return;
    tile->ratio = (float)(ratio / m->heads);
    spread(v, m->heads, tile->importance);
}

static float window_at(const view *v, int token) {
    const pal_block *b = v->block;
    if (!pal_block_forgets(b)) return NAN;
    for (int h = 0; h < b->plan.heads; h++) {
        v->at.heads[h] = pal_window((double)pal_block_decay(b, v->first + token, h));
        if (isnan(v->at.heads[h])) return NAN;
    }
    return (float)pal_median(v->at.heads, (size_t)b->plan.heads);
}

static float variance_at(const view *v, int token) {
    const size_t values = (size_t)v->block->plan.values;
    if (!v->ps->variance || !pal_block_remembers(v->block) || !v->block->plan.rule->has_variance) return NAN;
    const float *row = v->ps->variance + (size_t)(v->first + token) * values;
    double sum = 0;
    for (size_t i = 0; i < values; i++) sum += (double)row[i];
    return (float)(sum / (double)values);
}

/* The copy of each followed head goes through the tokens once more, one by one. */
static void follow(const view *v) {
    const pal_watch *watch = v->watch;
    const pal_mixer_plan *m = &v->block->plan;
    const pal_memory_run all = pal_mixer_run(v->ps, m, &v->block->mixer, &v->block->mixer_work);
    for (int h = 0; h < m->heads; h++) {
        bool wanted = false;
        for (int e = 0; e < watch->element_count; e++)
            wanted |= watch->elements[e].layer == v->layer && watch->elements[e].head == h;
        float *state = v->at.before + (size_t)h * v->head_floats;
        for (int t = 0; wanted && t < v->tokens; t++) {
            const pal_memory_run run = step_of(v, &all, h, t, &state);
            assert(m->rule->scratch_bytes(v->ps->cx, &run.shape, PAL_STEP) <= v->ps->scratch_bytes);
            m->rule->step(v->ps->cx, &run);
            pal_memory_head(m->rule, &run.shape, state, v->at.mean, v->at.importance);
            for (int e = 0; e < watch->element_count; e++) {
                const pal_element *one = &watch->elements[e];
                if (one->layer != v->layer || one->head != h) continue;
                const size_t from = (size_t)one->value * (size_t)m->dk + (size_t)one->key;
                float *to = watch->followed + 2 * ((size_t)t * (size_t)watch->element_count + (size_t)e);
                to[0] = v->at.mean[from], to[1] = v->at.importance[from];
            }
        }
    }
}

static void take_layer(const view *v, int layers) {
    const pal_watch *watch = v->watch;
    const size_t heads = (size_t)v->heads, i = (size_t)v->layer;
    pal_tile tile = { .window = NAN, .ratio = NAN, .write = NAN, .norm = NAN, .variance = NAN };
    for (int q = 0; q < PAL_TILE_SPREAD; q++) tile.importance[q] = NAN;
    for (size_t h = 0; watch->writes && h < heads; h++) watch->writes[i * heads + h] = NAN;
    if (pal_block_remembers(v->block) && compares(v)) compare(v, &tile);
    if (watch->tiles) {
        tile.window = window_at(v, v->tokens - 1);
        tile.variance = variance_at(v, v->tokens - 1);
        watch->tiles[i] = tile;
    }
    for (int t = 0; by_token(v) && t < v->tokens; t++) {
        if (watch->windows) watch->windows[(size_t)t * (size_t)layers + i] = window_at(v, t);
        if (watch->variances) watch->variances[(size_t)t * (size_t)layers + i] = variance_at(v, t);
    }
    if (follows(v)) follow(v);
}

void pal_watch_after(const pal_watched *watched) {
    for (int n = 0; n < watched->pass->sequences; n++) {
        if (!watched->work->watches[n]) continue;
        const view v = look(watched, n);
        take_layer(&v, watched->work->model->config.layers);
    }
}
