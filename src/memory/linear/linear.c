/* SPDX-License-Identifier: MIT */
/* Layout and driver of the rules with one matrix per head. An item is (sequence, head, block of values) and walks its
 * sequence chunk by chunk. Values do not meet in the memory, so a block of them is a smaller head: with few heads this
 * gives threads something to do, at the price of repeating what depends on keys alone. */
#include "memory/linear/linear.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/parallel.h"
#include "memory/change/change.h"

enum {
    PAD = 16,         /* floats: a row starts on a cache line, and no vector is wider */
    ENOUGH_ITEMS = 4, /* fewer (sequence, head) pairs than this are cut into blocks of values */
    NARROWEST_BLOCK = 32,
    STEP_FLOATS = 16384, /* state per item of a step: less does not pay for handing it to a thread */
    REDUCE_TOKENS = 16,
};

static size_t padded(int dv) { return ((size_t)dv + PAD - 1) / PAD * PAD; }
static size_t head_floats(const pal_memory_shape *s) { return (size_t)s->dk * padded(s->dv); }
static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

size_t pal_linear_part_floats(const pal_memory_shape *s, int part) {
    return part == 0 ? (size_t)s->heads * (size_t)s->dv * (size_t)s->dk : 0;
}
size_t pal_linear_state_floats(const pal_memory_shape *s) { return (size_t)s->heads * head_floats(s); }

/* A longer chunk does more work inside itself and less on the memory, and saves fewer memories. Half the length is
 * faster up to heads of 64 x 128 (medians 1-17% for gla, 9-21% for gdn) and not beyond; a quarter is no clear gain and
 * saves twice as much. */
static int chunk_tokens(const pal_memory_shape *s) {
    return s->dk * s->dv <= 8192 ? PAL_LINEAR_CHUNK / 2 : PAL_LINEAR_CHUNK;
}

/* Sequence n's chunks start at this one. Some numbers are skipped: that way a chunk's place follows from its sequence.
 */
static size_t first_chunk(const pal_memory_shape *s, int n) {
    return (size_t)s->cu_seqlens[n] / (size_t)chunk_tokens(s) + (size_t)n;
}
size_t pal_linear_saved_floats(const pal_memory_shape *s) {
    return ((size_t)s->tokens / (size_t)chunk_tokens(s) + (size_t)s->sequences) * pal_linear_state_floats(s);
}

void pal_linear_reset(const pal_memory_shape *s, const pal_memory_inputs *in, float *state) {
    (void)in;
    memset(state, 0, pal_linear_state_floats(s) * sizeof *state);
}

/* S (dk, ld) from its transpose (dv, dk), and back. */
static void from_exported(int dk, int dv, const float *part, float *S, size_t ld) {
    for (int j = 0; j < dk; j++)
        for (int i = 0; i < dv; i++) S[(size_t)j * ld + (size_t)i] = part[(size_t)i * (size_t)dk + (size_t)j];
}
static void to_exported(int dk, int dv, float *part, const float *S, size_t ld) {
    for (int i = 0; i < dv; i++)
        for (int j = 0; j < dk; j++) part[(size_t)i * (size_t)dk + (size_t)j] = S[(size_t)j * ld + (size_t)i];
}

void pal_linear_import(const pal_memory_shape *s, const pal_memory_inputs *in, const float *const parts[2],
                       float *state) {
    pal_linear_reset(s, in, state);
    for (size_t h = 0; h < (size_t)s->heads; h++)
        from_exported(s->dk, s->dv, parts[0] + h * (size_t)s->dv * (size_t)s->dk, state + h * head_floats(s),
                      padded(s->dv));
}
void pal_linear_export(const pal_memory_shape *s, const pal_memory_inputs *in, float *const parts[2],
                       const float *state) {
    (void)in;
    for (size_t h = 0; h < (size_t)s->heads && parts[0]; h++)
        to_exported(s->dk, s->dv, parts[0] + h * (size_t)s->dv * (size_t)s->dk, state + h * head_floats(s),
                    padded(s->dv));
}

void pal_linear_compare(const pal_context *cx, const pal_memory_shape *s, const float *before, const float *after,
                        pal_memory_change *change) {
    PAL_PICK(cx, change_plain)(before, after, head_floats(s), change);
}

void pal_linear_foresee(const pal_context *cx, const pal_memory_run *run, pal_memory_change *change) {
    const pal_change_token token = { .dk = run->shape.dk,
                                     .dv = run->shape.dv,
                                     .lost = expm1f(run->in.g.data[0]),
                                     .k = run->in.k.data,
                                     .v = run->in.v.data };
    PAL_PICK(cx, change_plain_ahead)(&token, run->state[0], padded(run->shape.dv), change);
}

/* Which values an item has. Depends on the shape alone, never on threads. */
static size_t blocks_of(const pal_memory_shape *s) {
    const size_t pairs = (size_t)s->sequences * (size_t)s->heads;
    const size_t wanted = (ENOUGH_ITEMS + pairs - 1) / pairs, most = padded(s->dv) / NARROWEST_BLOCK;
    return wanted < most ? wanted : most ? most : 1;
}
static size_t block_width(const pal_memory_shape *s) {
    const size_t lines = padded(s->dv) / PAD, blocks = blocks_of(s);
    return (lines + blocks - 1) / blocks * PAD;
}

/* What one call works with; scratch is cut up here and only here. */
typedef struct {
    const pal_linear_kernels *kernels;
    const pal_memory_run *run;
    pal_fn *kernel;
    size_t blocks, width; /* blocks of `width` values; the last may have fewer */
    int chunk;
    size_t kernel_floats;
    float *kernel_scratch; /* (threads, kernel_floats) */
    float *state;          /* (threads, dk, width) a memory that nobody keeps, or the gradient of one */
    float *unwanted;       /* (threads, chunk, dk + width + 2) gradients that nobody asked for */
    float *dq, *dk;        /* (T, H, blocks, dk) gradients before their sum over blocks and heads of a group; or NULL */
    float *dg, *dbeta;     /* (T, H, blocks) */
} linear_job;

static bool sums_parts(const linear_job *job) {
    return job->blocks > 1 || job->run->shape.heads != job->run->shape.key_heads;
}

static void layout(linear_job *job, pal_arena *arena, const pal_context *cx, const pal_memory_shape *s,
                   pal_memory_pass pass) {
    const size_t threads = (size_t)pal_context_threads(cx), dk = (size_t)s->dk;
    job->blocks = blocks_of(s);
    job->width = block_width(s);
    job->blocks = (padded(s->dv) + job->width - 1) / job->width;
    if (pass == PAL_STEP) return;
    job->chunk = chunk_tokens(s);
    job->kernel_floats = (job->kernels->scratch_floats(cx->level, pass, job->chunk, s->dk,
                                                       (int)smaller(job->width, (size_t)s->dv)) +
                          PAD - 1) /
                         PAD * PAD;
    job->kernel_scratch = pal_take(arena, threads * job->kernel_floats, sizeof(float));
    job->state = pal_take(arena, threads * dk * job->width, sizeof(float));
    if (pass == PAL_FORWARD) return;
    job->unwanted = pal_take(arena, threads * (size_t)job->chunk * (dk + job->width + 2), sizeof(float));
    if (job->blocks == 1 && s->heads == s->key_heads) return;
    const size_t parts = (size_t)s->tokens * (size_t)s->heads * job->blocks;
    job->dq = pal_take(arena, parts * dk, sizeof(float));
    job->dk = pal_take(arena, parts * dk, sizeof(float));
    job->dg = pal_take(arena, parts, sizeof(float));
    job->dbeta = pal_take(arena, parts, sizeof(float));
}

size_t pal_linear_scratch_bytes(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_shape *s,
                                pal_memory_pass pass) {
    linear_job job = { .kernels = kernels };
    pal_arena arena = { 0 };
    layout(&job, &arena, cx, s, pass);
    return arena.used;
}

static linear_job job_of(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_run *run,
                         pal_memory_pass pass) {
    linear_job job = { .kernels = kernels, .run = run };
    pal_arena arena = { .base = run->scratch, .capacity = pal_linear_scratch_bytes(kernels, cx, &run->shape, pass) };
    layout(&job, &arena, cx, &run->shape, pass);
    assert(!arena.bad);
    job.kernel = pal_variant_best(pass == PAL_FORWARD    ? kernels->forward
                                  : pass == PAL_BACKWARD ? kernels->backward
                                                         : kernels->step,
                                  cx->features);
    return job;
}

typedef struct {
    int n; /* sequence */
    size_t h, block;
    size_t v0; /* first value of the block */
    int dv;    /* values in it */
} linear_item;

static linear_item item_at(const linear_job *job, size_t index) {
    const pal_memory_shape *s = &job->run->shape;
    const size_t pair = index / job->blocks, block = index % job->blocks, v0 = block * job->width;
    return (linear_item){ .n = (int)(pair / (size_t)s->heads),
                          .h = pair % (size_t)s->heads,
                          .block = block,
                          .v0 = v0,
                          .dv = (int)smaller(job->width, (size_t)s->dv - v0) };
}
static size_t items_of(const linear_job *job) {
    return (size_t)job->run->shape.sequences * (size_t)job->run->shape.heads * job->blocks;
}

static pal_linear_chunk chunk_at(const linear_job *job, const linear_item *item, size_t token, int n) {
    const pal_memory_shape *s = &job->run->shape;
    const pal_memory_inputs *in = &job->run->in;
    const pal_const_view none = { NULL, 0 };
    const size_t key = pal_memory_key_head(s, item->h) * (size_t)s->dk;
    return (pal_linear_chunk){
        .n = n,
        .dk = s->dk,
        .dv = item->dv,
        .scale = in->scale,
        .q = pal_const_view_at(in->q, token, key),
        .k = pal_const_view_at(in->k, token, key),
        .v = pal_const_view_at(in->v, token, item->h * (size_t)s->dv + item->v0),
        .g = job->kernels->inputs & PAL_INPUT_G ? pal_const_view_at(in->g, token, item->h) : none,
        .beta = job->kernels->inputs & PAL_INPUT_BETA ? pal_const_view_at(in->beta, token, item->h) : none,
        .undecayed = job->kernels->undecayed,
    };
}

static void copy_rows(int count, size_t width, float *to, size_t to_ld, const float *from, size_t from_ld) {
    for (size_t j = 0; j < (size_t)count; j++) memcpy(to + j * to_ld, from + j * from_ld, width * sizeof *to);
}
static void zero_rows(int count, size_t width, float *to, size_t ld) {
    for (size_t j = 0; j < (size_t)count; j++) memset(to + j * ld, 0, width * sizeof *to);
}

static float *saved_at(const linear_job *job, const linear_item *item, size_t chunk) {
    const pal_memory_shape *s = &job->run->shape;
    return job->run->saved + (chunk * (size_t)s->heads + item->h) * head_floats(s) + item->v0;
}

static void forward_item(void *arg, size_t index, int thread) {
    const linear_job *job = arg;
    const pal_memory_run *run = job->run;
    const pal_memory_shape *s = &run->shape;
    const linear_item item = item_at(job, index);
    const size_t dvp = padded(s->dv), width = smaller(job->width, dvp - item.v0);
    const bool borrows = pal_memory_borrows(run, item.n), own = run->state && !borrows;
    const size_t ld = own ? dvp : job->width;
    float *given = run->state ? run->state[item.n] + item.h * head_floats(s) + item.v0 : NULL;
    float *S = own ? given : job->state + (size_t)thread * (size_t)s->dk * job->width;
    if (pal_memory_starts_fresh(run)) zero_rows(s->dk, width, S, ld);
    else if (borrows) copy_rows(s->dk, width, S, ld, given, dvp);
    const int end = s->cu_seqlens[item.n + 1];
    size_t number = first_chunk(s, item.n);
    for (int t = s->cu_seqlens[item.n]; t < end; t += job->chunk, number++) {
        pal_linear_chunk c = chunk_at(job, &item, (size_t)t, end - t < job->chunk ? end - t : job->chunk);
        c.ends = !own && t + job->chunk >= end;
        const pal_view y = pal_view_at(run->y, (size_t)t, item.h * (size_t)s->dv + item.v0);
        if (run->saved) copy_rows(s->dk, width, saved_at(job, &item, number), dvp, S, ld);
        ((pal_linear_forward_fn *)job->kernel)(&c, S, ld, y, job->kernel_scratch + (size_t)thread * job->kernel_floats);
    }
}

void pal_linear_forward(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_run *run) {
    linear_job job = job_of(kernels, cx, run, PAL_FORWARD);
    pal_parallel_for(cx, items_of(&job), forward_item, &job);
}

/* Where a chunk's gradients go: to the caller, to be summed first, or nowhere. */
static pal_linear_gradients gradients_at(const linear_job *job, const linear_item *item, size_t token, int thread) {
    const pal_memory_shape *s = &job->run->shape;
    const pal_memory_gradients *grad = &job->run->grad;
    const size_t dk = (size_t)s->dk, chunk = (size_t)job->chunk, parts = (size_t)s->heads * job->blocks;
    float *unwanted = job->unwanted + (size_t)thread * chunk * (dk + job->width + 2);
    pal_linear_gradients to = {
        .q = { unwanted, dk },
        .k = { unwanted, dk },
        .v = { unwanted + chunk * dk, job->width },
        .g = { unwanted + chunk * (dk + job->width), 1 },
        .beta = { unwanted + chunk * (dk + job->width + 1), 1 },
    };
    if (grad->v.data) to.v = pal_view_at(grad->v, token, item->h * (size_t)s->dv + item->v0);
    if (sums_parts(job)) {
        const size_t part = item->h * job->blocks + item->block;
        to.q = (pal_view){ job->dq + (token * parts + part) * dk, parts * dk };
        to.k = (pal_view){ job->dk + (token * parts + part) * dk, parts * dk };
        to.g = (pal_view){ job->dg + token * parts + part, parts };
        to.beta = (pal_view){ job->dbeta + token * parts + part, parts };
        return to;
    }
    if (grad->q.data) to.q = pal_view_at(grad->q, token, item->h * dk);
    if (grad->k.data) to.k = pal_view_at(grad->k, token, item->h * dk);
    if (grad->g.data) to.g = pal_view_at(grad->g, token, item->h);
    if (grad->beta.data) to.beta = pal_view_at(grad->beta, token, item->h);
    return to;
}

static void backward_item(void *arg, size_t index, int thread) {
    const linear_job *job = arg;
    const pal_memory_run *run = job->run;
    const pal_memory_shape *s = &run->shape;
    const linear_item item = item_at(job, index);
    const size_t dvp = padded(s->dv), ld = job->width;
    const size_t part = (((size_t)item.n * (size_t)s->heads + item.h) * (size_t)s->dv + item.v0) * (size_t)s->dk;
    float *dS = job->state + (size_t)thread * (size_t)s->dk * ld;
    zero_rows(s->dk, ld, dS, ld);
    if (run->dfinal[0]) from_exported(s->dk, item.dv, run->dfinal[0] + part, dS, ld);
    const int begin = s->cu_seqlens[item.n], end = s->cu_seqlens[item.n + 1];
    for (int i = (end - begin - 1) / job->chunk; i >= 0; i--) {
        const int t = begin + i * job->chunk;
        const pal_linear_chunk c = chunk_at(job, &item, (size_t)t, end - t < job->chunk ? end - t : job->chunk);
        const pal_linear_gradients grad = gradients_at(job, &item, (size_t)t, thread);
        const pal_const_view dy = pal_const_view_at(run->dy, (size_t)t, item.h * (size_t)s->dv + item.v0);
        const float *S = saved_at(job, &item, first_chunk(s, item.n) + (size_t)i);
        float *scratch = job->kernel_scratch + (size_t)thread * job->kernel_floats;
        ((pal_linear_backward_fn *)job->kernel)(&c, S, dvp, dS, ld, dy, &grad, scratch);
    }
    if (run->grad.initial[0]) to_exported(s->dk, item.dv, run->grad.initial[0] + part, dS, ld);
}

/* to[c] = sum over p of from[p][c], in order. */
static void sum_parts(float *to, const float *from, size_t count, size_t channels) {
    memcpy(to, from, channels * sizeof *to);
    for (size_t p = 1; p < count; p++)
        for (size_t c = 0; c < channels; c++) to[c] += from[p * channels + c];
}

static void reduce_tokens(void *arg, size_t begin, size_t end, int thread) {
    const linear_job *job = arg;
    const pal_memory_shape *s = &job->run->shape;
    const pal_memory_gradients *grad = &job->run->grad;
    const size_t heads = (size_t)s->heads, groups = (size_t)s->key_heads, dk = (size_t)s->dk;
    const size_t parts = heads * job->blocks, shared = parts / groups;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        for (size_t group = 0; group < groups; group++) {
            const size_t at = (t * parts + group * shared) * dk;
            if (grad->q.data) sum_parts(grad->q.data + t * grad->q.stride + group * dk, job->dq + at, shared, dk);
            if (grad->k.data) sum_parts(grad->k.data + t * grad->k.stride + group * dk, job->dk + at, shared, dk);
        }
        for (size_t h = 0; h < heads; h++) {
            const size_t at = t * parts + h * job->blocks;
            if (grad->g.data && job->kernels->inputs & PAL_INPUT_G)
                sum_parts(grad->g.data + t * grad->g.stride + h, job->dg + at, job->blocks, 1);
            if (grad->beta.data && job->kernels->inputs & PAL_INPUT_BETA)
                sum_parts(grad->beta.data + t * grad->beta.stride + h, job->dbeta + at, job->blocks, 1);
        }
    }
}

void pal_linear_backward(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_run *run) {
    linear_job job = job_of(kernels, cx, run, PAL_BACKWARD);
    pal_parallel_for(cx, items_of(&job), backward_item, &job);
    if (sums_parts(&job)) pal_parallel_ranges(cx, (size_t)run->shape.tokens, REDUCE_TOKENS, reduce_tokens, &job);
}

static void step_items(void *arg, size_t begin, size_t end, int thread) {
    const linear_job *job = arg;
    const pal_memory_run *run = job->run;
    const pal_memory_shape *s = &run->shape;
    (void)thread;
    for (size_t index = begin; index < end; index++) {
        const linear_item item = item_at(job, index);
        const size_t dvp = padded(s->dv), n = (size_t)item.n;
        float *S = run->state[n] + item.h * head_floats(s) + item.v0;
        if (run->fresh) zero_rows(s->dk, smaller(job->width, dvp - item.v0), S, dvp);
        const pal_linear_chunk c = chunk_at(job, &item, n, 1);
        if (run->before_head) run->before_head(run->before_head_user, item.n, (int)item.h);
        ((pal_linear_step_fn *)job->kernel)(&c, S, dvp,
                                            run->y.data + n * run->y.stride + item.h * (size_t)s->dv + item.v0);
    }
}

void pal_linear_step(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_run *run) {
    linear_job job = job_of(kernels, cx, run, PAL_STEP);
    if (run->before_head) job.blocks = 1, job.width = padded(run->shape.dv); /* values do not meet: the same results */
    const size_t floats = (size_t)run->shape.dk * job.width, grain = (STEP_FLOATS + floats - 1) / floats;
    pal_parallel_ranges(cx, items_of(&job), grain, step_items, &job);
}
