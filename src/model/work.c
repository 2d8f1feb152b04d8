/* SPDX-License-Identifier: MIT */
/* Measure, then place: the same layout function first adds up what a model needs and then hands out addresses. */
#include "model/work.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/rotary/rotary.h"
#include "model/on_device.h"

enum { MAX_TOKENS = 1 << 24, DEFAULT_CONTEXT = 4096 };

static float *take_rows(pal_arena *arena, int rows, int width) {
    return pal_take(arena, (size_t)rows * (size_t)width, sizeof(float));
}

/* What one block keeps. Blocks of several kinds keep different things; shared places are as large as the largest. */
static void keep_block(pal_work *w, pal_block *b, pal_arena *arena) {
    const pal_work_options *o = &w->options;
    if (b->mixers) pal_mixer_keep(&b->mixer, &b->plan, o->tokens, o->sequences, o->training, arena);
    if (b->mixers > 1) pal_mixer_keep(&b->beside.mixer, &b->beside.plan, o->tokens, o->sequences, o->training, arena);
    if (b->mlp_plan.form) pal_mlp_keep(&b->mlp, &b->mlp_plan, o->tokens, arena);
    if (o->training && b->mixers && b->mlp_plan.form) b->middle = take_rows(arena, o->tokens, w->model->config.hidden);
}

static void layout_kept(pal_work *w, pal_arena *arena) {
    const pal_model_config *c = &w->model->config;
    const bool shared = !w->options.training || w->options.recompute;
    w->h = take_rows(arena, w->options.tokens, c->hidden);
    for (int i = 0; i < c->layers; i++)
        w->blocks[i].h = w->options.training ? take_rows(arena, w->options.tokens, c->hidden) : w->h;
    const size_t start = arena->used;
    size_t end = start;
    for (int i = 0; i < c->layers; i++) {
        if (shared) arena->used = start;
        keep_block(w, &w->blocks[i], arena);
        if (!w->options.training) w->blocks[i].middle = w->h;
        if (arena->used > end) end = arena->used;
    }
    arena->used = end;
}

/* Blocks share what they need while they run. The memory's parameters come first and are left alone; an MLP takes the
 * place of its mixers' activations. */
static void layout_blocks(pal_work *w, pal_arena *arena) {
    const pal_work_options *o = &w->options;
    const size_t first = arena->used;
    size_t start = first;
    int width = 0;
    for (int i = 0; i < w->model->config.layers; i++) {
        pal_block *b = &w->blocks[i];
        arena->used = first;
        if (b->mixers) pal_mixer_take_parameters(&b->mixer_work, &b->plan, arena);
        if (b->mixers > 1) pal_mixer_take_parameters(&b->beside.work, &b->beside.plan, arena);
        if (arena->used > start) start = arena->used;
        if (b->mlp_plan.width > width) width = b->mlp_plan.width;
    }
    arena->used = start;
    if (width) pal_mlp_take(&w->mlp_work, width, o->tokens, o->training, arena);
    size_t end = arena->used;
    for (int i = 0; i < w->model->config.layers; i++) {
        pal_block *b = &w->blocks[i];
        arena->used = start;
        if (b->mixers) pal_mixer_take(&b->mixer_work, &b->plan, o->tokens, o->training, arena);
        if (b->mixers > 1) pal_mixer_take(&b->beside.work, &b->beside.plan, o->tokens, o->training, arena);
        if (arena->used > end) end = arena->used;
    }
    arena->used = end;
}

static void layout_transient(pal_work *w, pal_arena *arena) {
    const pal_model_config *c = &w->model->config;
    const pal_work_options *o = &w->options;
    w->x = take_rows(arena, o->tokens, c->hidden);
    if (o->training) w->dh = take_rows(arena, o->tokens, c->hidden), w->dx = take_rows(arena, o->tokens, c->hidden);
    layout_blocks(w, arena);
    if (o->variance) {
        int widest = 0;
        for (int i = 0; i < c->layers; i++)
            if (pal_block_remembers(&w->blocks[i]) && w->blocks[i].plan.values > widest)
                widest = w->blocks[i].plan.values;
        w->variance = take_rows(arena, o->tokens, widest);
    }
    if (w->turning) w->rotary = pal_take(arena, pal_rotary_table_floats(w->positions, w->turning), sizeof(float));
}

static void layout_lists(pal_work *w, pal_arena *lists) {
    const size_t tokens = (size_t)w->options.tokens, sequences = (size_t)w->options.sequences;
    w->rows = pal_take(lists, tokens, sizeof(int));
    w->past = pal_take(lists, sequences, sizeof(int));
    w->cu = pal_take(lists, 2, sizeof(int));
    w->memory = pal_take(lists, sequences, sizeof(float *));
    w->caches = pal_take(lists, sequences, sizeof(float *));
    w->paged = pal_take(lists, sequences, sizeof *w->paged);
    w->conv_window = pal_take(lists, sequences, sizeof(float *));
    w->before = pal_take(lists, sequences, sizeof(float *));
    w->watches = pal_take(lists, sequences, sizeof *w->watches);
    if (w->options.trial) w->tried = pal_take(lists, (size_t)w->model->config.layers, sizeof(float *));
    if (w->options.variance) w->mean_variance = pal_take(lists, sequences, sizeof(double));
}

static void layout(pal_work *w, pal_arena *arena, pal_arena *lists) {
    const pal_work_options *o = &w->options;
    layout_lists(w, lists);
    size_t before = arena->used;
    layout_kept(w, arena);
    w->plan.activations = arena->used - before;
    before = arena->used;
    layout_transient(w, arena);
    w->plan.transient = arena->used - before;
    if (o->trial) pal_trial_layout(w, arena);
    before = arena->used;
    const int rows = o->loss || o->training ? o->tokens : o->logits ? o->logits : o->sequences;
    const pal_head_use use = {
        .rows = rows, .loss = o->loss || o->training, .training = o->training, .logits = w->cx->device != NULL
    };
    pal_head_take(&w->head, &w->model->config, &use, arena, lists);
    w->plan.head = arena->used - before;
    before = arena->used;
    w->scratch = pal_take(arena, w->scratch_bytes, 1);
    w->plan.scratch = arena->used - before;
    w->plan.transient += lists->used;
    w->plan.total = arena->used + lists->used;
}

/* The largest scratch over numbers of sequences that a batch may have: rules cut few sequences differently from many.
 * The longest sequence that fits is the worst for rules whose scratch grows with length. */
static pal_status measure_scratch(pal_work *w, pal_error *err) {
    const pal_work_options *o = &w->options;
    void *block;
    const pal_status st = pal_alloc_named(&block, (size_t)o->sequences + 1, sizeof(int), "a plan", err);
    if (st) return st;
    int *cu = block;
    const pal_model *m = w->model;
    size_t most = pal_head_scratch_bytes(&m->config, &w->layers->outer, o->tokens);
    for (int i = 0; i < m->config.layers; i++) {
        const pal_mlp_plan *mlp = &w->blocks[i].mlp_plan;
        const size_t bytes = mlp->form ? pal_mlp_scratch_bytes(mlp, o->tokens) : 0;
        if (bytes > most) most = bytes;
    }
    for (int n = 1;; n = n * 2 < o->sequences ? n * 2 : o->sequences) {
        for (int i = 0; i < n; i++) cu[i] = i;
        cu[n] = o->tokens;
        for (int i = 0; i < w->model->config.layers; i++) {
            const pal_block *b = &w->blocks[i];
            for (int k = 0; k < b->mixers; k++) {
                const size_t bytes = pal_mixer_scratch_bytes(k ? &b->beside.plan : &b->plan, w->cx, o->tokens, n,
                                                             o->training, cu);
                if (bytes > most) most = bytes;
            }
        }
        if (n == o->sequences) break;
    }
    w->scratch_bytes = most;
    pal_free(block);
    return PAL_OK;
}

static void plan_block(pal_work *w, int i) {
    const pal_model *m = w->model;
    const pal_block_spec *spec = pal_model_block(&m->config, i);
    pal_block *b = &w->blocks[i];
    b->mixers = spec->mixers;
    if (spec->mixers) pal_mixer_plan_make(&b->plan, &m->config, &spec->mixer[0], &w->layers->layers[i]);
    if (spec->mixers > 1) pal_mixer_plan_make(&b->beside.plan, &m->config, &spec->mixer[1], &w->layers->beside[i]);
    pal_mlp_plan_make(&b->mlp_plan, &m->config, spec, &w->layers->layers[i]);
    for (int k = 0; k < spec->mixers; k++)
        if (spec->mixer[k].rotary) w->turning = spec->mixer[k].rotary; /* the same in all that turn */
}

/* Which weights run: a model computes where it was opened. */
static pal_status find_layers(pal_work *w, pal_error *err) {
    const pal_model *m = w->model;
    w->own = (pal_model_layers){ m->outer, m->layers, m->beside };
    w->layers = m->on ? &m->on->layers : &w->own;
    if (pal_model_device(m) != w->cx->device)
        return pal_fail(err, PAL_E_ARGUMENT, "the workspace's context and the model's are of different devices");
    return PAL_OK;
}

static pal_status begin(pal_work *w, const pal_model *model, const pal_context *cx, const pal_work_options *options,
                        pal_error *err) {
    pal_status st;
    void *block;
    *w = (pal_work){ .model = model, .cx = cx, .options = *options };
    pal_work_options *o = &w->options;
    if (!o->sequences) o->sequences = 1;
    if (o->tokens < 1 || o->tokens > MAX_TOKENS || o->sequences < 1 || o->sequences > o->tokens)
        return pal_fail(
            err, PAL_E_ARGUMENT,
            "workspace for %d tokens in %d sequences: expected 1 to %d tokens and at most as many sequences", o->tokens,
            o->sequences, MAX_TOKENS);
    if (o->logits < 0 || o->context < 0)
        return pal_fail(err, PAL_E_ARGUMENT, "workspace: logits %d and context %d must not be negative", o->logits,
                        o->context);
    if (o->trial < 0 || o->trial > o->sequences || (o->trial && o->training))
        return pal_fail(err, PAL_E_ARGUMENT,
                        "workspace for a trial of %d tokens: expected 0 to the number of sequences, %d, and no "
                        "training",
                        o->trial, o->sequences);
    w->positions = o->context ? o->context : DEFAULT_CONTEXT;
    if (w->positions < o->tokens) w->positions = o->tokens;
    if ((st = pal_alloc_named(&block, (size_t)model->config.layers, sizeof *w->blocks, "workspace", err))) return st;
    w->blocks = block;
    if ((st = find_layers(w, err))) return st;
    for (int i = 0; i < model->config.layers; i++) plan_block(w, i);
    if ((st = measure_scratch(w, err))) return st;
    layout(w, &w->arena, &w->lists);
    return PAL_OK;
}

pal_status pal_work_plan(pal_plan *out, const pal_model *model, const pal_context *cx, const pal_work_options *options,
                         pal_error *err) {
    pal_work w;
    pal_status st = begin(&w, model, cx, options, err);
    if (!st && w.arena.bad)
        st = pal_fail(err, PAL_E_MEMORY, "workspace: the sizes overflow what this machine can address");
    if (!st) *out = w.plan;
    pal_free(w.blocks);
    return st;
}

/* Room for the numbers, where they are computed with. */
static pal_status reserve(pal_work *w, pal_error *err) {
    pal_arena *arena = &w->arena;
    pal_device *device = w->cx->device;
    void *block;
    if (!device || arena->bad) return pal_arena_reserve(arena, "workspace", err);
    const pal_status st = device->ops->alloc(device, &block, arena->used, "workspace", err);
    if (!st) *arena = (pal_arena){ .base = block, .capacity = arena->used };
    return st;
}

pal_status pal_work_new(pal_work **out, const pal_model *model, const pal_context *cx, const pal_work_options *options,
                        pal_error *err) {
    pal_status st;
    void *block;
    *out = NULL;
    if (options->training && model->use != PAL_FOR_TRAINING)
        return pal_fail(err, PAL_E_ARGUMENT, "a workspace for training needs a model opened for training");
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_work), "workspace", err))) return st;
    pal_work *w = block;
    if ((st = begin(w, model, cx, options, err))) goto failed;
    if ((st = pal_arena_reserve(&w->lists, "workspace", err)) || (st = reserve(w, err))) goto failed;
    layout(w, &w->arena, &w->lists);
    pal_work_reach(w, w->options.tokens);
    static const char *const names[PAL_T_BACKWARD] = {
        "embedding",         "norm",         "projections",    "convolution", "gates", "memory",
        "output projection", "mlp products", "mlp activation", "head",        "loss"
    };
    static const char *const back[PAL_T_BACKWARD] = {
        "embedding'",         "norm'",         "projections'",    "convolution'", "gates'", "memory'",
        "output projection'", "mlp products'", "mlp activation'", "head'",        "loss'"
    };
    for (int i = 0; i < PAL_T_BACKWARD; i++) {
        w->timers.entry[i].name = names[i];
        w->timers.entry[PAL_T_BACKWARD + i].name = back[i];
    }
    *out = w;
    return PAL_OK;
failed:
    pal_work_free(w);
    return st;
}

void pal_work_free(pal_work *w) {
    if (!w) return;
    if (w->cx->device) w->cx->device->ops->free(w->cx->device, w->arena.base);
    else pal_arena_release(&w->arena);
    pal_arena_release(&w->lists);
    pal_free(w->blocks);
    pal_free(w);
}

void pal_work_reach(pal_work *w, int end) {
    enum { MORE = 256 }; /* at a time, when steps come there one by one */
    const int first = w->angles, width = w->turning;
    if (!w->rotary || end <= first) return;
    w->angles = w->positions - end < MORE ? w->positions : end + MORE;
    pal_rotary_table(w->cx, w->rotary + pal_rotary_table_floats(first, width), first, w->angles - first, width,
                     w->model->config.rope_theta);
}

double pal_work_variance(const pal_work *w, int sequence) {
    if (!w->variance || !w->variance_layers || sequence < 0 || sequence >= w->options.sequences) return NAN;
    return w->mean_variance[sequence] / w->variance_layers;
}

const float *pal_work_stream(const pal_work *w, int block) {
    return block < w->model->config.layers ? w->blocks[block].h : w->h;
}

void pal_work_timing_reset(pal_work *w) {
    w->timers.on = true;
    for (int i = 0; i < PAL_T_COUNT; i++) w->timers.entry[i].seconds = 0, w->timers.entry[i].calls = 0;
}

const pal_timing *pal_work_timing(const pal_work *w) { return w->timers.entry; }
