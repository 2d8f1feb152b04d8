/* SPDX-License-Identifier: MIT */
/* Longhorn as a memory rule: sizes, layouts, and the cut into items. The arithmetic is in longhorn_ref.c and, for
 * vectors, in longhorn_simd.inc. */
#include "memory/longhorn/longhorn.h"

#include <string.h>

#include "base/parallel.h"
#include "memory/change/change.h"
#include "memory/items.h"
#include "memory/rule.h"

PAL_VARIANTS(longhorn_forward)
PAL_VARIANTS(longhorn_backward)
PAL_VARIANTS(longhorn_step)

size_t pal_longhorn_scratch_floats(pal_cpu_level level, int dk, int width) {
    const size_t chunk = PAL_LONGHORN_CHUNK, keys = ((size_t)dk + 15) / 16 * 16,
                 values = ((size_t)width + 15) / 16 * 16;
    if (level == PAL_CPU_REF) return (chunk + 2) * keys * values; /* every memory of a chunk, and a gradient */
    return chunk * (5 * keys + 6 * values) + 2 * keys * values + (chunk + 1) * 8 * 16;
}

static size_t head_floats(const pal_memory_shape *s) { return (size_t)s->dk * (size_t)s->dv; }
static size_t state_floats(const pal_memory_shape *s) { return (size_t)s->heads * head_floats(s); }
static size_t part_floats(const pal_memory_shape *s, int part) { return part == 0 ? state_floats(s) : 0; }
static size_t saved_floats(const pal_memory_shape *s) {
    return pal_items_pieces(s, PAL_LONGHORN_CHUNK) * state_floats(s);
}

static int blocks_of(const pal_memory_shape *s) { return (s->dv + PAL_LONGHORN_BLOCK - 1) / PAL_LONGHORN_BLOCK; }

/* Backward: partial dq and dk when several slots share a key head, then each thread's own area. */
static int slots_of(const pal_memory_shape *s) { return pal_items_slots(s, s->heads / s->key_heads * blocks_of(s)); }
static size_t partial_floats(const pal_memory_shape *s) { return pal_items_partial_floats(s, slots_of(s), s->dk); }

static size_t scratch_bytes(const pal_context *cx, const pal_memory_shape *s, pal_memory_pass pass) {
    if (pass == PAL_STEP) return 0;
    const size_t own = (size_t)pal_context_threads(cx) *
                       pal_longhorn_scratch_floats(pal_context_level(cx), s->dk, PAL_LONGHORN_BLOCK);
    return (own + (pass == PAL_BACKWARD ? 2 * partial_floats(s) : 0)) * sizeof(float);
}

static void reset(const pal_memory_shape *s, const pal_memory_inputs *in, float *state) {
    (void)in;
    memset(state, 0, state_floats(s) * sizeof *state);
}

static void import(const pal_memory_shape *s, const pal_memory_inputs *in, const float *const parts[2], float *state) {
    (void)in;
    const size_t dk = (size_t)s->dk, dv = (size_t)s->dv;
    for (size_t h = 0; h < (size_t)s->heads; h++)
        for (size_t i = 0; i < dv; i++)
            for (size_t j = 0; j < dk; j++) state[(h * dk + j) * dv + i] = parts[0][(h * dv + i) * dk + j];
}

static void export(const pal_memory_shape *s, const pal_memory_inputs *in, float *const parts[2], const float *state) {
    (void)in;
    const size_t dk = (size_t)s->dk, dv = (size_t)s->dv;
    for (size_t h = 0; h < (size_t)s->heads && parts[0]; h++)
        for (size_t i = 0; i < dv; i++)
            for (size_t j = 0; j < dk; j++) parts[0][(h * dv + i) * dk + j] = state[(h * dk + j) * dv + i];
}

static void compare(const pal_context *cx, const pal_memory_shape *s, const float *before, const float *after,
                    pal_memory_change *change) {
    PAL_PICK(cx, change_plain)(before, after, head_floats(s), change);
}

/* What every pass needs of sequence n, head h, block of values c. */
static pal_longhorn_block block_at(const pal_memory_run *run, size_t token, int n, int h, int c) {
    const pal_memory_shape *s = &run->shape;
    const size_t key = pal_memory_key_head(s, (size_t)h) * (size_t)s->dk;
    const int first = c * PAL_LONGHORN_BLOCK, left = s->dv - first;
    const size_t value = (size_t)h * (size_t)s->dv + (size_t)first;
    float *memory = run->state ? run->state[n] + (size_t)h * head_floats(s) + first : NULL;
    return (pal_longhorn_block){
        .dk = s->dk,
        .width = left < PAL_LONGHORN_BLOCK ? left : PAL_LONGHORN_BLOCK,
        .scale = run->in.scale,
        .q = pal_const_view_at(run->in.q, token, key),
        .k = pal_const_view_at(run->in.k, token, key),
        .v = pal_const_view_at(run->in.v, token, value),
        .b = pal_const_view_at(run->in.b, token, value),
        .y = pal_view_at(run->y, token, value),
        .initial = pal_memory_starts_fresh(run) ? NULL : memory,
        .final = pal_memory_borrows(run, n) ? NULL : memory,
        .row = (size_t)s->dv,
    };
}

static pal_longhorn_block sequence_block(const pal_memory_run *run, int n, int h, int c) {
    const pal_memory_shape *s = &run->shape;
    pal_longhorn_block block = block_at(run, (size_t)s->cu_seqlens[n], n, h, c);
    block.tokens = s->cu_seqlens[n + 1] - s->cu_seqlens[n];
    block.between = state_floats(s);
    if (run->saved)
        block.saved = run->saved + pal_items_first(s, PAL_LONGHORN_CHUNK, n) * block.between +
                      (size_t)h * head_floats(s) + (size_t)c * PAL_LONGHORN_BLOCK;
    return block;
}

typedef struct {
    const pal_memory_run *run;
    pal_longhorn_forward_fn *kernel; /* all three have this type */
    int blocks, slots;
    float *areas, *dq, *dk; /* scratch: an area per thread; partial sums, NULL with one slot */
    size_t area;
} longhorn_job;

static void forward_task(void *arg, size_t index, int thread) {
    const longhorn_job *job = arg;
    const int c = (int)(index % (size_t)job->blocks), row = (int)(index / (size_t)job->blocks),
              heads = job->run->shape.heads;
    pal_longhorn_block block = sequence_block(job->run, row / heads, row % heads, c);
    block.scratch = job->areas + (size_t)thread * job->area;
    job->kernel(&block);
}

static void forward(const pal_context *cx, const pal_memory_run *run) {
    const pal_memory_shape *s = &run->shape;
    longhorn_job job = { .run = run,
                         .kernel = PAL_PICK(cx, longhorn_forward),
                         .blocks = blocks_of(s),
                         .areas = run->scratch,
                         .area = pal_longhorn_scratch_floats(pal_context_level(cx), s->dk, PAL_LONGHORN_BLOCK) };
    pal_parallel_for(cx, (size_t)s->sequences * (size_t)s->heads * (size_t)job.blocks, forward_task, &job);
}

static void step_task(void *arg, size_t index, int thread) {
    (void)thread;
    const longhorn_job *job = arg;
    const pal_memory_shape *s = &job->run->shape;
    const int c = (int)(index % (size_t)job->blocks), row = (int)(index / (size_t)job->blocks);
    pal_longhorn_block block = block_at(job->run, (size_t)(row / s->heads), row / s->heads, row % s->heads, c);
    block.tokens = 1;
    for (size_t j = 0; j < (size_t)s->dk && job->run->fresh; j++)
        memset(block.final + j * block.row, 0, (size_t)block.width * sizeof(float));
    job->kernel(&block);
}

static void step(const pal_context *cx, const pal_memory_run *run) {
    const pal_memory_shape *s = &run->shape;
    longhorn_job job = { .run = run, .kernel = PAL_PICK(cx, longhorn_step), .blocks = blocks_of(s) };
    pal_parallel_for(cx, (size_t)s->sequences * (size_t)s->heads * (size_t)job.blocks, step_task, &job);
}

static void backward_task(void *arg, size_t index, int thread) {
    const longhorn_job *job = arg;
    const pal_memory_run *run = job->run;
    const pal_memory_shape *s = &run->shape;
    const int slot = (int)(index % (size_t)job->slots), row = (int)(index / (size_t)job->slots);
    const int n = row / s->key_heads, key_head = row % s->key_heads, group = s->heads / s->key_heads;
    const int units = group * job->blocks;
    const size_t token = (size_t)s->cu_seqlens[n], key = (size_t)key_head * (size_t)s->dk,
                 channels = (size_t)s->key_heads * (size_t)s->dk;
    const size_t before = (size_t)slot * (size_t)s->tokens * channels;
    const int begin = pal_items_unit(units, job->slots, slot), end = pal_items_unit(units, job->slots, slot + 1);
    for (int u = begin; u < end; u++) {
        const int h = key_head * group + u / job->blocks, c = u % job->blocks;
        pal_longhorn_block block = sequence_block(run, n, h, c);
        const size_t value = (size_t)h * (size_t)s->dv + (size_t)c * PAL_LONGHORN_BLOCK;
        const size_t part = (size_t)n * state_floats(s) + value * (size_t)s->dk;
        block.dy = pal_const_view_at(run->dy, token, value);
        block.dfinal = run->dfinal[0] ? run->dfinal[0] + part : NULL;
        block.dinitial = run->grad.initial[0] ? run->grad.initial[0] + part : NULL;
        block.dv = pal_view_at(run->grad.v, token, value);
        block.db = pal_view_at(run->grad.b, token, value);
        const pal_view dq = job->dq ? (pal_view){ job->dq + before, channels } : run->grad.q;
        const pal_view dk = job->dk ? (pal_view){ job->dk + before, channels } : run->grad.k;
        block.dq = pal_view_at(dq, token, key);
        block.dk_rows = pal_view_at(dk, token, key);
        block.add = u > begin;
        block.scratch = job->areas + (size_t)thread * job->area;
        job->kernel(&block);
    }
}

static void backward(const pal_context *cx, const pal_memory_run *run) {
    const pal_memory_shape *s = &run->shape;
    longhorn_job job = { .run = run,
                         .kernel = PAL_PICK(cx, longhorn_backward),
                         .blocks = blocks_of(s),
                         .slots = slots_of(s),
                         .area = pal_longhorn_scratch_floats(pal_context_level(cx), s->dk, PAL_LONGHORN_BLOCK) };
    const size_t partial = partial_floats(s);
    if (partial) {
        job.dq = run->scratch;
        job.dk = job.dq + partial;
    }
    job.areas = (float *)run->scratch + 2 * partial;
    pal_parallel_for(cx, (size_t)s->sequences * (size_t)s->key_heads * (size_t)job.slots, backward_task, &job);
    if (partial && run->grad.q.data) pal_items_sum(cx, job.dq, job.slots, s->tokens, s->key_heads * s->dk, run->grad.q);
    if (partial && run->grad.k.data) pal_items_sum(cx, job.dk, job.slots, s->tokens, s->key_heads * s->dk, run->grad.k);
}

const pal_memory_rule pal_rule_longhorn = {
    .name = "longhorn",
    .summary = "Longhorn: online regression with a closed-form step size per value",
    .inputs = PAL_INPUT_Q | PAL_INPUT_K | PAL_INPUT_V | PAL_INPUT_B,
    .parts = { "S", NULL },
    .part_floats = part_floats,
    .state_floats = state_floats,
    .saved_floats = saved_floats,
    .scratch_bytes = scratch_bytes,
    .reset = reset,
    .import = import,
    .export = export,
    .compare = compare,
    .forward = forward,
    .backward = backward,
    .step = step,
};
