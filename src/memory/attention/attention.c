/* SPDX-License-Identifier: MIT */
/* Attention as a memory rule: the cache, and the cut into items. The arithmetic is in attention_ref.c and, for vectors,
 * in attention_simd.inc.
 *
 * A state is the exported cache itself: keys (key_heads, context, dk), then values (key_heads, context, dv); or it lies
 * in pages (paged.h), where its numbers may be of another type, as which all are then read. Backward serves runs that
 * start with an empty cache; gradients into a cache are not offered. */
#include "memory/attention/attention.h"

#include <string.h>

#include "base/blocks.h"
#include "base/parallel.h"
#include "memory/items.h"
#include "memory/rule.h"

PAL_VARIANTS(attention_forward)
PAL_VARIANTS(attention_backward)
PAL_VARIANTS(attention_step)

size_t pal_attention_scratch_floats(int dk, int dv, int tokens, pal_memory_pass pass) {
    const size_t keys = ((size_t)dk + 15) / 16 * 16, values = ((size_t)dv + 15) / 16 * 16;
    const size_t block = PAL_ATTENTION_BLOCK;
    return block * (4 * keys + 5 * values + 2 * block + 3) + (pass == PAL_BACKWARD ? (size_t)tokens * keys : 0);
}

static size_t part_floats(const pal_memory_shape *s, int part) {
    return (size_t)s->key_heads * (size_t)s->context * (size_t)(part == 0 ? s->dk : s->dv);
}
static size_t state_floats(const pal_memory_shape *s) { return part_floats(s, 0) + part_floats(s, 1); }
static size_t saved_floats(const pal_memory_shape *s) { return (size_t)s->tokens * (size_t)s->heads; }

/* No sequence can be longer: the others have a token each. Sizes must not depend on where the sequences end. */
static int longest(const pal_memory_shape *s) { return s->tokens - s->sequences + 1; }

/* Backward: partial dk and dv when several slots share a key head, then each thread's own area. */
static int slots_of(const pal_memory_shape *s) { return pal_items_slots(s, s->heads / s->key_heads); }
static size_t partial_floats(const pal_memory_shape *s, int width) {
    return pal_items_partial_floats(s, slots_of(s), width);
}
static size_t area_floats(const pal_memory_shape *s, pal_memory_pass pass) {
    return pal_attention_scratch_floats(s->dk, s->dv, pass == PAL_BACKWARD ? longest(s) : 1, pass);
}

static size_t scratch_bytes(const pal_context *cx, const pal_memory_shape *s, pal_memory_pass pass) {
    const size_t own = (size_t)pal_context_threads(cx) * area_floats(s, pass);
    return (own + (pass == PAL_BACKWARD ? partial_floats(s, s->dk) + partial_floats(s, s->dv) : 0)) * sizeof(float);
}

static void reset(const pal_memory_shape *s, const pal_memory_inputs *in, float *state) {
    (void)in;
    memset(state, 0, state_floats(s) * sizeof *state);
}
static void import(const pal_memory_shape *s, const pal_memory_inputs *in, const float *const parts[2], float *state) {
    (void)in;
    memcpy(state, parts[0], part_floats(s, 0) * sizeof *state);
    memcpy(state + part_floats(s, 0), parts[1], part_floats(s, 1) * sizeof *state);
}
static void export(const pal_memory_shape *s, const pal_memory_inputs *in, float *const parts[2], const float *state) {
    (void)in;
    if (parts[0]) memcpy(parts[0], state, part_floats(s, 0) * sizeof *state);
    if (parts[1]) memcpy(parts[1], state + part_floats(s, 0), part_floats(s, 1) * sizeof *state);
}

enum { FEW = 4 }; /* tokens of which each takes less time by itself than a block of queries */

typedef struct {
    const pal_memory_run *run;
    pal_attention_forward_fn *kernel; /* all three have this type */
    pal_attention_forward_fn *single; /* forward: the kernel of step, for few tokens after many */
    bool step;
    int slots, parts;       /* step: the heads that share keys are cut into so many items */
    float *areas, *dk, *dv; /* scratch: an area per thread; partial sums, NULL with one slot */
    size_t area;
} attention_job;

static int past_of(const pal_memory_run *run, int n) {
    return run->past && !pal_memory_starts_fresh(run) ? run->past[n] : 0;
}

/* Bytes of a row of so many numbers. */
static size_t row_bytes(const pal_paged *paged, size_t width) {
    const pal_block_format *format = pal_block_format_of(paged->type);
    return width / format->values * format->bytes;
}

/* Tokens begin .. end of the inputs to the pages of sequence n. */
static void append_pages(const pal_memory_run *run, size_t n, size_t head, size_t begin, size_t end) {
    const pal_memory_shape *s = &run->shape;
    const pal_paged *paged = &run->paged[n];
    const pal_block_format *format = pal_block_format_of(paged->type);
    const size_t dk = (size_t)s->dk, dv = (size_t)s->dv, past = (size_t)past_of(run, (int)n);
    const size_t k_row = row_bytes(paged, dk), v_row = row_bytes(paged, dv);
    for (size_t t = begin; t < end; t++) {
        const size_t at = past + t - begin, row = at % PAL_PAGE_TOKENS;
        unsigned char *k = paged->pages[at / PAL_PAGE_TOKENS]->data + paged->at;
        unsigned char *v = k + (size_t)s->key_heads * PAL_PAGE_TOKENS * k_row;
        pal_blocks_encode(format, run->in.k.data + t * run->in.k.stride + head * dk, dk,
                          k + (head * PAL_PAGE_TOKENS + row) * k_row);
        pal_blocks_encode(format, run->in.v.data + t * run->in.v.stride + head * dv, dv,
                          v + (head * PAL_PAGE_TOKENS + row) * v_row);
    }
}

static void append_task(void *arg, size_t index, int thread) {
    (void)thread;
    const attention_job *job = arg;
    const pal_memory_run *run = job->run;
    const pal_memory_shape *s = &run->shape;
    const size_t n = index / (size_t)s->key_heads, head = index % (size_t)s->key_heads, context = (size_t)s->context;
    const size_t dk = (size_t)s->dk, dv = (size_t)s->dv, past = (size_t)past_of(run, (int)n);
    const size_t begin = job->step ? n : (size_t)s->cu_seqlens[n],
                 end = job->step ? n + 1 : (size_t)s->cu_seqlens[n + 1];
    if (run->paged) {
        append_pages(run, n, head, begin, end);
        return;
    }
    float *k = run->state[n] + (head * context + past) * dk;
    float *v = run->state[n] + part_floats(s, 0) + (head * context + past) * dv;
    for (size_t t = begin; t < end; t++, k += dk, v += dv) {
        memcpy(k, run->in.k.data + t * run->in.k.stride + head * dk, dk * sizeof *k);
        memcpy(v, run->in.v.data + t * run->in.v.stride + head * dv, dv * sizeof *v);
    }
}

/* The part of a run that queries `token` .. of sequence n, head h need; its first token is `start`. */
static pal_attention_rows rows_at(const pal_memory_run *run, int n, int h, size_t start, size_t token) {
    const pal_memory_shape *s = &run->shape;
    const size_t dk = (size_t)s->dk, dv = (size_t)s->dv, key_head = pal_memory_key_head(s, (size_t)h);
    const int past = past_of(run, n);
    pal_attention_rows rows = {
        .first = past + (int)(token - start),
        .dk = s->dk,
        .dv = s->dv,
        .scale = run->in.scale,
        .q = pal_const_view_at(run->in.q, token, (size_t)h * dk),
        .k = pal_const_view_at(run->in.k, start, key_head * dk),
        .v = pal_const_view_at(run->in.v, start, key_head * dv),
        .y = pal_view_at(run->y, token, (size_t)h * dv),
    };
    if (run->paged && (past || run->paged[n].type != PAL_F32)) {
        const pal_paged *paged = &run->paged[n];
        rows.pages = paged->pages;
        rows.type = paged->type;
        rows.k_row = row_bytes(paged, dk);
        rows.v_row = row_bytes(paged, dv);
        rows.k_at = paged->at + key_head * PAL_PAGE_TOKENS * rows.k_row;
        rows.v_at = paged->at + PAL_PAGE_TOKENS * ((size_t)s->key_heads * rows.k_row + key_head * rows.v_row);
    } else if (past) { /* then the keys are not all among the inputs, but all of them are in the cache by now */
        rows.k = (pal_const_view){ run->state[n] + key_head * (size_t)s->context * dk, dk };
        rows.v = (pal_const_view){ run->state[n] + part_floats(s, 0) + key_head * (size_t)s->context * dv, dv };
    }
    if (run->saved && s->cu_seqlens)
        rows.lse = pal_view_at((pal_view){ run->saved, (size_t)s->heads }, token, (size_t)h);
    return rows;
}

/* Queries begin .. end of a token, of those that share a key head: the cache is read once for all of them. */
static void token_queries(const attention_job *job, pal_attention_forward_fn *kernel, size_t start, size_t token, int n,
                          int key_head, int begin, int end, int thread) {
    const pal_memory_shape *s = &job->run->shape;
    const int group = s->heads / s->key_heads,
              apart = s->tiled ? s->key_heads : 1; /* heads from one query to the next */
    for (int u = begin; u < end; u += PAL_ATTENTION_BLOCK) {
        const int h = s->tiled ? key_head + u * s->key_heads : key_head * group + u;
        pal_attention_rows rows = rows_at(job->run, n, h, start, token);
        rows.queries = end - u < PAL_ATTENTION_BLOCK ? end - u : PAL_ATTENTION_BLOCK;
        rows.q.stride = (size_t)apart * (size_t)s->dk;
        rows.y.stride = (size_t)apart * (size_t)s->dv;
        rows.lse.data = NULL;
        rows.scratch = job->areas + (size_t)thread * job->area;
        kernel(&rows);
    }
}

static void forward_task(void *arg, size_t index, int thread) {
    const attention_job *job = arg;
    const pal_memory_shape *s = &job->run->shape;
    const size_t piece = index / (size_t)s->heads;
    const int h = (int)(index % (size_t)s->heads), n = pal_items_sequence(s, PAL_ATTENTION_BLOCK, piece);
    const size_t start = (size_t)s->cu_seqlens[n], end = (size_t)s->cu_seqlens[n + 1];
    const size_t token = start + (piece - pal_items_first(s, PAL_ATTENTION_BLOCK, n)) * PAL_ATTENTION_BLOCK;
    if (token >= end) return;
    pal_attention_rows rows = rows_at(job->run, n, h, start, token);
    if (past_of(job->run, n) && end - token <= FEW &&
        !job->run->saved) { /* heads that share keys share the tokens out */
        const int group = s->heads / s->key_heads, own = s->tiled ? h / s->key_heads : h % group;
        const int key_head = s->tiled ? h % s->key_heads : h / group;
        for (size_t t = token + (size_t)own; t < end; t += (size_t)group)
            token_queries(job, job->single, start, t, n, key_head, 0, group, thread);
        return;
    }
    rows.queries = end - token < PAL_ATTENTION_BLOCK ? (int)(end - token) : PAL_ATTENTION_BLOCK;
    rows.scratch = job->areas + (size_t)thread * job->area;
    job->kernel(&rows);
}

static void forward(const pal_context *cx, const pal_memory_run *run) {
    const pal_memory_shape *s = &run->shape;
    attention_job job = { .run = run,
                          .kernel = PAL_PICK(cx, attention_forward),
                          .single = PAL_PICK(cx, attention_step),
                          .areas = run->scratch,
                          .area = area_floats(s, PAL_FORWARD) };
    if (run->state) pal_parallel_for(cx, (size_t)s->sequences * (size_t)s->key_heads, append_task, &job);
    pal_parallel_for(cx, pal_items_pieces(s, PAL_ATTENTION_BLOCK) * (size_t)s->heads, forward_task, &job);
}

static void step_task(void *arg, size_t index, int thread) {
    const attention_job *job = arg;
    const pal_memory_shape *s = &job->run->shape;
    const int part = (int)(index % (size_t)job->parts), row = (int)(index / (size_t)job->parts);
    const int n = row / s->key_heads, key_head = row % s->key_heads, group = s->heads / s->key_heads;
    const int begin = pal_items_unit(group, job->parts, part), end = pal_items_unit(group, job->parts, part + 1);
    token_queries(job, job->kernel, (size_t)n, (size_t)n, n, key_head, begin, end, thread);
}

/* Heads that share keys are one item, which reads them once, unless threads would be left without one. A head's numbers
 * do not depend on the others of its item. */
static int parts_of(const pal_context *cx, const pal_memory_shape *s) {
    const int items = s->sequences * s->key_heads, group = s->heads / s->key_heads;
    const int wanted = (pal_context_threads(cx) + items - 1) / items;
    return wanted < group ? wanted : group;
}

static void step(const pal_context *cx, const pal_memory_run *run) {
    const pal_memory_shape *s = &run->shape;
    attention_job job = { .run = run,
                          .kernel = PAL_PICK(cx, attention_step),
                          .step = true,
                          .parts = parts_of(cx, s),
                          .areas = run->scratch,
                          .area = area_floats(s, PAL_STEP) };
    /* One row each: waking the threads would cost more. */
    for (size_t i = 0; i < (size_t)s->sequences * (size_t)s->key_heads; i++) append_task(&job, i, 0);
    pal_parallel_for(cx, (size_t)s->sequences * (size_t)s->key_heads * (size_t)job.parts, step_task, &job);
}

static void backward_task(void *arg, size_t index, int thread) {
    const attention_job *job = arg;
    const pal_memory_run *run = job->run;
    const pal_memory_shape *s = &run->shape;
    const size_t dk = (size_t)s->dk, dv = (size_t)s->dv, channels = (size_t)s->key_heads;
    const int slot = (int)(index % (size_t)job->slots), row = (int)(index / (size_t)job->slots);
    const int n = row / s->key_heads, key_head = row % s->key_heads, group = s->heads / s->key_heads;
    const size_t start = (size_t)s->cu_seqlens[n], before = (size_t)slot * (size_t)s->tokens * channels;
    const int begin = pal_items_unit(group, job->slots, slot), end = pal_items_unit(group, job->slots, slot + 1);
    for (int u = begin; u < end; u++) {
        const int h = key_head * group + u;
        pal_attention_rows rows = rows_at(run, n, h, start, start);
        rows.queries = s->cu_seqlens[n + 1] - s->cu_seqlens[n];
        rows.dy = pal_const_view_at(run->dy, start, (size_t)h * dv);
        rows.dq = pal_view_at(run->grad.q, start, (size_t)h * dk);
        const pal_view dk_rows = job->dk ? (pal_view){ job->dk + before * dk, channels * dk } : run->grad.k;
        const pal_view dv_rows = job->dv ? (pal_view){ job->dv + before * dv, channels * dv } : run->grad.v;
        rows.dk_rows = pal_view_at(dk_rows, start, (size_t)key_head * dk);
        rows.dv_rows = pal_view_at(dv_rows, start, (size_t)key_head * dv);
        rows.add = u > begin;
        rows.scratch = job->areas + (size_t)thread * job->area;
        job->kernel(&rows);
    }
}

static void backward(const pal_context *cx, const pal_memory_run *run) {
    const pal_memory_shape *s = &run->shape;
    attention_job job = { .run = run,
                          .kernel = PAL_PICK(cx, attention_backward),
                          .slots = slots_of(s),
                          .area = area_floats(s, PAL_BACKWARD) };
    const size_t keys = partial_floats(s, s->dk), values = partial_floats(s, s->dv);
    if (keys) {
        job.dk = run->scratch;
        job.dv = job.dk + keys;
    }
    job.areas = (float *)run->scratch + keys + values;
    pal_parallel_for(cx, (size_t)s->sequences * (size_t)s->key_heads * (size_t)job.slots, backward_task, &job);
    if (keys && run->grad.k.data) pal_items_sum(cx, job.dk, job.slots, s->tokens, s->key_heads * s->dk, run->grad.k);
    if (keys && run->grad.v.data) pal_items_sum(cx, job.dv, job.slots, s->tokens, s->key_heads * s->dv, run->grad.v);
}

const pal_memory_rule pal_rule_attention = {
    .name = "attention",
    .summary = "causal softmax attention with grouped heads; its memory is a cache of keys and values",
    .inputs = PAL_INPUT_Q | PAL_INPUT_K | PAL_INPUT_V,
    .keeps_tokens = true,
    .parts = { "K", "V" },
    .part_floats = part_floats,
    .state_floats = state_floats,
    .saved_floats = saved_floats,
    .scratch_bytes = scratch_bytes,
    .reset = reset,
    .import = import,
    .export = export,
    .forward = forward,
    .backward = backward,
    .step = step,
};
