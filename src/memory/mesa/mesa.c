/* SPDX-License-Identifier: MIT */
/* Mesa as a memory rule: sizes, layouts, and the cut into items. The arithmetic is in mesa_ref.c and, for vectors, in
 * mesa_simd.inc. */
#include "memory/mesa/mesa.h"

#include <assert.h>
#include <string.h>

#include "base/parallel.h"
#include "memory/change/change.h"
#include "memory/items.h"
#include "memory/rule.h"

PAL_VARIANTS(mesa_forward)
PAL_VARIANTS(mesa_backward)
PAL_VARIANTS(mesa_step)

size_t pal_mesa_scratch_floats(pal_cpu_level level, int dk, int dv, pal_memory_pass pass) {
    const size_t chunk = PAL_MESA_CHUNK, keys = ((size_t)dk + 15) / 16 * 16, values = ((size_t)dv + 15) / 16 * 16;
    if (level == PAL_CPU_REF) { /* a system in doubles; backward keeps every memory of a chunk, and a gradient */
        return 2 * keys * keys + 16 * keys + (pass == PAL_BACKWARD ? chunk + 2 : 1) * keys * (keys + values);
    }
    const size_t lanes = 16;
    return lanes * (keys * (keys + 1) / 2 + 6 * keys + 8 * (chunk + 1) + chunk) + chunk * (7 * keys + 3 * values + 2) +
           keys * (3 * keys + 2 * values);
}

static size_t head_floats(const pal_memory_shape *s) { return (size_t)s->dk * ((size_t)s->dk + (size_t)s->dv); }
static size_t state_floats(const pal_memory_shape *s) { return (size_t)s->heads * head_floats(s); }
static size_t part_floats(const pal_memory_shape *s, int part) {
    return (size_t)s->heads * (size_t)s->dk * (size_t)(part == 0 ? s->dk : s->dv);
}

/* Saved: the solution x of every token and head, then the memories at chunk starts. */
static size_t solution_floats(const pal_memory_shape *s) {
    return (size_t)s->tokens * (size_t)s->heads * (size_t)s->dk;
}
static size_t saved_floats(const pal_memory_shape *s) {
    return solution_floats(s) + pal_items_pieces(s, PAL_MESA_CHUNK) * state_floats(s);
}

/* Backward: every sequence's share of dlam, partial dq and dk when several slots share a key head, an area per thread.
 */
static int slots_of(const pal_memory_shape *s) { return pal_items_slots(s, s->heads / s->key_heads); }
static size_t partial_floats(const pal_memory_shape *s) { return pal_items_partial_floats(s, slots_of(s), s->dk); }
static size_t lam_doubles(const pal_memory_shape *s) {
    return ((size_t)s->sequences * (size_t)s->heads * (size_t)s->dk + 7) / 8 * 8;
}

static size_t scratch_bytes(const pal_context *cx, const pal_memory_shape *s, pal_memory_pass pass) {
    const size_t own = (size_t)pal_context_threads(cx) *
                       pal_mesa_scratch_floats(pal_context_level(cx), s->dk, s->dv, pass);
    if (pass != PAL_BACKWARD) return own * sizeof(float);
    return lam_doubles(s) * sizeof(double) + (2 * partial_floats(s) + own) * sizeof(float);
}

static void reset(const pal_memory_shape *s, const pal_memory_inputs *in, float *state) {
    (void)in;
    memset(state, 0, state_floats(s) * sizeof *state);
}

static void import(const pal_memory_shape *s, const pal_memory_inputs *in, const float *const parts[2], float *state) {
    (void)in;
    const size_t dk = (size_t)s->dk, dv = (size_t)s->dv;
    for (size_t h = 0; h < (size_t)s->heads; h++) {
        float *H = state + h * head_floats(s), *G = H + dk * dk;
        memcpy(H, parts[0] + h * dk * dk, dk * dk * sizeof *H);
        for (size_t i = 0; i < dv; i++)
            for (size_t j = 0; j < dk; j++) G[j * dv + i] = parts[1][(h * dv + i) * dk + j];
    }
}

static void export(const pal_memory_shape *s, const pal_memory_inputs *in, float *const parts[2], const float *state) {
    (void)in;
    const size_t dk = (size_t)s->dk, dv = (size_t)s->dv;
    for (size_t h = 0; h < (size_t)s->heads; h++) {
        const float *H = state + h * head_floats(s), *G = H + dk * dk;
        if (parts[0]) memcpy(parts[0] + h * dk * dk, H, dk * dk * sizeof *H);
        for (size_t i = 0; i < dv && parts[1]; i++)
            for (size_t j = 0; j < dk; j++) parts[1][(h * dv + i) * dk + j] = G[j * dv + i];
    }
}

static void compare(const pal_context *cx, const pal_memory_shape *s, const float *before, const float *after,
                    pal_memory_change *change) {
    const size_t H = (size_t)s->dk * (size_t)s->dk;
    PAL_PICK(cx, change_plain)(before + H, after + H, (size_t)s->dk * (size_t)s->dv, change);
}

/* What every pass needs of sequence n, head h. */
static pal_mesa_head head_at(const pal_memory_run *run, size_t token, int n, int h) {
    const pal_memory_shape *s = &run->shape;
    const size_t key = pal_memory_key_head(s, (size_t)h) * (size_t)s->dk, value = (size_t)h * (size_t)s->dv;
    float *memory = run->state ? run->state[n] + (size_t)h * head_floats(s) : NULL;
    return (pal_mesa_head){
        .tokens = 1,
        .dk = s->dk,
        .dv = s->dv,
        .scale = run->in.scale,
        .tolerance = run->in.mesa_tolerance,
        .q = pal_const_view_at(run->in.q, token, key),
        .k = pal_const_view_at(run->in.k, token, key),
        .v = pal_const_view_at(run->in.v, token, value),
        .beta = pal_const_view_at(run->in.beta, token, (size_t)h),
        .g = pal_const_view_at(run->in.g, token, (size_t)h),
        .lam = run->in.lam + (size_t)h * (size_t)s->dk,
        .y = pal_view_at(run->y, token, value),
        .initial = pal_memory_starts_fresh(run) ? NULL : memory,
        .final = pal_memory_borrows(run, n) ? NULL : memory,
    };
}

static pal_mesa_head sequence_head(const pal_memory_run *run, int n, int h) {
    const pal_memory_shape *s = &run->shape;
    const size_t token = (size_t)s->cu_seqlens[n];
    pal_mesa_head head = head_at(run, token, n, h);
    head.tokens = s->cu_seqlens[n + 1] - s->cu_seqlens[n];
    head.between = state_floats(s);
    if (run->saved) {
        const pal_view x = { run->saved, (size_t)s->heads * (size_t)s->dk };
        head.x = pal_view_at(x, token, (size_t)h * (size_t)s->dk);
        head.saved = run->saved + solution_floats(s) + pal_items_first(s, PAL_MESA_CHUNK, n) * head.between +
                     (size_t)h * head_floats(s);
    }
    return head;
}

typedef struct {
    const pal_memory_run *run;
    pal_mesa_forward_fn *forward;
    pal_mesa_backward_fn *backward;
    pal_mesa_step_fn *step;
    int slots;
    double *dlam;
    float *areas, *dq, *dk; /* scratch: an area per thread; partial sums, NULL with one slot */
    size_t area;
} mesa_job;

static void forward_task(void *arg, size_t index, int thread) {
    const mesa_job *job = arg;
    const int row = (int)index, heads = job->run->shape.heads;
    pal_mesa_head head = sequence_head(job->run, row / heads, row % heads);
    head.scratch = job->areas + (size_t)thread * job->area;
    job->forward(&head);
}

static void forward(const pal_context *cx, const pal_memory_run *run) {
    const pal_memory_shape *s = &run->shape;
    mesa_job job = { .run = run,
                     .forward = PAL_PICK(cx, mesa_forward),
                     .areas = run->scratch,
                     .area = pal_mesa_scratch_floats(pal_context_level(cx), s->dk, s->dv, PAL_FORWARD) };
    pal_parallel_for(cx, (size_t)s->sequences * (size_t)s->heads, forward_task, &job);
}

/* The solver works on several heads at once, one in each lane of a vector. */
static void step_task(void *arg, size_t begin, size_t end, int thread) {
    const mesa_job *job = arg;
    const pal_memory_run *run = job->run;
    pal_mesa_head heads[PAL_MESA_STEPS];
    for (size_t row = begin; row < end; row++) {
        const int n = (int)row / run->shape.heads, h = (int)row % run->shape.heads;
        pal_mesa_head *head = &heads[row - begin];
        *head = head_at(run, (size_t)n, n, h);
        head->scratch = job->areas + (size_t)thread * job->area;
        assert(head->final); /* a step is made in its own memory */
        if (run->fresh) memset(head->final, 0, head_floats(&run->shape) * sizeof(float));
    }
    job->step(heads, (int)(end - begin));
}

static void step(const pal_context *cx, const pal_memory_run *run) {
    const pal_memory_shape *s = &run->shape;
    mesa_job job = { .run = run,
                     .step = PAL_PICK(cx, mesa_step),
                     .areas = run->scratch,
                     .area = pal_mesa_scratch_floats(pal_context_level(cx), s->dk, s->dv, PAL_STEP) };
    pal_parallel_ranges(cx, (size_t)s->sequences * (size_t)s->heads, PAL_MESA_STEPS, step_task, &job);
}

static void backward_task(void *arg, size_t index, int thread) {
    const mesa_job *job = arg;
    const pal_memory_run *run = job->run;
    const pal_memory_shape *s = &run->shape;
    const size_t dk = (size_t)s->dk, dv = (size_t)s->dv;
    const int slot = (int)(index % (size_t)job->slots), row = (int)(index / (size_t)job->slots);
    const int n = row / s->key_heads, key_head = row % s->key_heads, group = s->heads / s->key_heads;
    const size_t token = (size_t)s->cu_seqlens[n], channels = (size_t)s->key_heads * dk;
    const size_t before = (size_t)slot * (size_t)s->tokens * channels;
    const int begin = pal_items_unit(group, job->slots, slot), end = pal_items_unit(group, job->slots, slot + 1);
    for (int u = begin; u < end; u++) {
        const int h = key_head * group + u;
        const size_t place = (size_t)n * (size_t)s->heads + (size_t)h;
        pal_mesa_head head = sequence_head(run, n, h);
        head.dy = pal_const_view_at(run->dy, token, (size_t)h * dv);
        head.dfinal_H = run->dfinal[0] ? run->dfinal[0] + place * dk * dk : NULL;
        head.dfinal_G = run->dfinal[1] ? run->dfinal[1] + place * dk * dv : NULL;
        head.dinitial_H = run->grad.initial[0] ? run->grad.initial[0] + place * dk * dk : NULL;
        head.dinitial_G = run->grad.initial[1] ? run->grad.initial[1] + place * dk * dv : NULL;
        head.dv_rows = pal_view_at(run->grad.v, token, (size_t)h * dv);
        head.dbeta = pal_view_at(run->grad.beta, token, (size_t)h);
        head.dg = pal_view_at(run->grad.g, token, (size_t)h);
        const pal_view dq = job->dq ? (pal_view){ job->dq + before, channels } : run->grad.q;
        const pal_view dk_rows = job->dk ? (pal_view){ job->dk + before, channels } : run->grad.k;
        head.dq = pal_view_at(dq, token, (size_t)key_head * dk);
        head.dk_rows = pal_view_at(dk_rows, token, (size_t)key_head * dk);
        head.add = u > begin;
        head.dlam = job->dlam + place * dk;
        head.scratch = job->areas + (size_t)thread * job->area;
        job->backward(&head);
    }
}

static void backward(const pal_context *cx, const pal_memory_run *run) {
    const pal_memory_shape *s = &run->shape;
    mesa_job job = { .run = run,
                     .backward = PAL_PICK(cx, mesa_backward),
                     .slots = slots_of(s),
                     .dlam = run->scratch,
                     .area = pal_mesa_scratch_floats(pal_context_level(cx), s->dk, s->dv, PAL_BACKWARD) };
    const size_t partial = partial_floats(s), parameters = (size_t)s->heads * (size_t)s->dk;
    float *rest = (float *)(void *)(job.dlam + lam_doubles(s));
    if (partial) {
        job.dq = rest;
        job.dk = rest + partial;
    }
    job.areas = rest + 2 * partial;
    pal_parallel_for(cx, (size_t)s->sequences * (size_t)s->key_heads * (size_t)job.slots, backward_task, &job);
    if (partial && run->grad.q.data) pal_items_sum(cx, job.dq, job.slots, s->tokens, s->key_heads * s->dk, run->grad.q);
    if (partial && run->grad.k.data) pal_items_sum(cx, job.dk, job.slots, s->tokens, s->key_heads * s->dk, run->grad.k);
    for (size_t p = 0; p < parameters && run->grad.lam; p++) {
        double sum = 0;
        for (size_t n = 0; n < (size_t)s->sequences; n++) sum += job.dlam[n * parameters + p];
        run->grad.lam[p] += (float)sum;
    }
}

const pal_memory_rule pal_rule_mesa = {
    .name = "mesa",
    .summary = "Mesa: ridge regression on everything seen, solved exactly or by conjugate gradient at every token",
    .inputs = PAL_INPUT_Q | PAL_INPUT_K | PAL_INPUT_V | PAL_INPUT_G | PAL_INPUT_BETA | PAL_INPUT_LAM,
    .parts = { "H", "G" },
    .mean = 1,
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
