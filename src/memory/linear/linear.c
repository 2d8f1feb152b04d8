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

static size_t padded(size_t width) { return (width + PAD - 1) / PAD * PAD; }
static size_t matrix_floats(const pal_memory_shape *s) { return (size_t)s->dk * padded((size_t)s->dv); }
static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Numbers in a head's second part as it lies in a state, and as it is exported. */
static size_t carried_floats(const pal_linear_kernels *kernels, const pal_memory_shape *s) {
    switch (kernels->carries) {
    case PAL_CARRIES_ONE: return 1;
    case PAL_CARRIES_KEY: return (size_t)s->dk;
    case PAL_CARRIES_TOKEN: return (size_t)s->dk + (size_t)s->dv;
    case PAL_CARRIES_MATRIX: return matrix_floats(s);
    default: return 0;
    }
}
static bool carries_matrix(const pal_linear_kernels *kernels) { return kernels->carries == PAL_CARRIES_MATRIX; }
static size_t carried_exported(const pal_linear_kernels *kernels, const pal_memory_shape *s) {
    return carries_matrix(kernels) ? (size_t)s->dv * (size_t)s->dk : carried_floats(kernels, s);
}
static size_t head_floats(const pal_linear_kernels *kernels, const pal_memory_shape *s) {
    return matrix_floats(s) + padded(carried_floats(kernels, s));
}

size_t pal_linear_part_floats(const pal_linear_kernels *kernels, const pal_memory_shape *s, int part) {
    const size_t heads = (size_t)s->heads;
    return part == 0 ? heads * (size_t)s->dv * (size_t)s->dk : part == 1 ? heads * carried_exported(kernels, s) : 0;
}
size_t pal_linear_state_floats(const pal_linear_kernels *kernels, const pal_memory_shape *s) {
    return (size_t)s->heads * head_floats(kernels, s);
}

/* A longer chunk saves fewer memories, a shorter one finds them in a nearer cache. */
static int chunk_tokens(const pal_memory_shape *s) {
    return s->dk * s->dv <= 8192 ? PAL_LINEAR_CHUNK / 2 : PAL_LINEAR_CHUNK;
}

/* Sequence n's chunks start at this one. Some numbers are skipped: that way a chunk's place follows from its sequence.
 */
static size_t first_chunk(const pal_memory_shape *s, int n) {
    return (size_t)s->cu_seqlens[n] / (size_t)chunk_tokens(s) + (size_t)n;
}
size_t pal_linear_saved_floats(const pal_linear_kernels *kernels, const pal_memory_shape *s) {
    return ((size_t)s->tokens / (size_t)chunk_tokens(s) + (size_t)s->sequences) * pal_linear_state_floats(kernels, s);
}

/* The default second part: the variance of the prior where a rule has one, or its importance; else zero. */
static void reset_carried(const pal_linear_kernels *kernels, const pal_memory_shape *s, const pal_memory_inputs *in,
                          size_t h, float *carried) {
    memset(carried, 0, padded(carried_floats(kernels, s)) * sizeof *carried);
    for (size_t j = 0; j < carried_floats(kernels, s); j++)
        carried[j] = !(kernels->inputs & PAL_INPUT_IP) ? 0.0f : carries_matrix(kernels) ? in->Ip[h] : 1 / in->Ip[h];
}

void pal_linear_reset(const pal_linear_kernels *kernels, const pal_memory_shape *s, const pal_memory_inputs *in,
                      float *state) {
    memset(state, 0, pal_linear_state_floats(kernels, s) * sizeof *state);
    for (size_t h = 0; h < (size_t)s->heads; h++)
        reset_carried(kernels, s, in, h, state + h * head_floats(kernels, s) + matrix_floats(s));
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

/* The second part from the exported one, and back. */
static void carried_from(const pal_linear_kernels *kernels, const pal_memory_shape *s, const float *part, float padding,
                         float *carried) {
    const size_t floats = carried_floats(kernels, s);
    if (!carries_matrix(kernels)) {
        memcpy(carried, part, floats * sizeof *carried);
        return;
    }
    for (size_t j = 0; j < floats; j++) carried[j] = padding;
    from_exported(s->dk, s->dv, part, carried, padded((size_t)s->dv));
}
static void carried_to(const pal_linear_kernels *kernels, const pal_memory_shape *s, float *part,
                       const float *carried) {
    if (carries_matrix(kernels)) to_exported(s->dk, s->dv, part, carried, padded((size_t)s->dv));
    else memcpy(part, carried, carried_floats(kernels, s) * sizeof *carried);
}

void pal_linear_import(const pal_linear_kernels *kernels, const pal_memory_shape *s, const float *const parts[2],
                       float *state) {
    const size_t carried = carried_exported(kernels, s);
    memset(state, 0, pal_linear_state_floats(kernels, s) * sizeof *state);
    for (size_t h = 0; h < (size_t)s->heads; h++) {
        float *head = state + h * head_floats(kernels, s);
        from_exported(s->dk, s->dv, parts[0] + h * (size_t)s->dv * (size_t)s->dk, head, padded((size_t)s->dv));
        if (carried) carried_from(kernels, s, parts[1] + h * carried, 1, head + matrix_floats(s));
    }
}
void pal_linear_export(const pal_linear_kernels *kernels, const pal_memory_shape *s, float *const parts[2],
                       const float *state) {
    const size_t carried = carried_exported(kernels, s);
    for (size_t h = 0; h < (size_t)s->heads; h++) {
        const float *head = state + h * head_floats(kernels, s);
        if (parts[0])
            to_exported(s->dk, s->dv, parts[0] + h * (size_t)s->dv * (size_t)s->dk, head, padded((size_t)s->dv));
        if (parts[1] && carried) carried_to(kernels, s, parts[1] + h * carried, head + matrix_floats(s));
    }
}

void pal_linear_compare(const pal_context *cx, const pal_memory_shape *s, const float *before, const float *after,
                        pal_memory_change *change) {
    PAL_PICK(cx, change_plain)(before, after, matrix_floats(s), change);
}

void pal_linear_foresee(const pal_context *cx, const pal_memory_run *run, pal_memory_change *change) {
    const pal_change_token token = { .dk = run->shape.dk,
                                     .dv = run->shape.dv,
                                     .lost = expm1f(run->in.g.data[0]),
                                     .k = run->in.k.data,
                                     .v = run->in.v.data };
    PAL_PICK(cx, change_plain_ahead)(&token, run->state[0], padded((size_t)run->shape.dv), change);
}

/* Which values an item has. Depends on the shape alone, never on threads. A second part has one owner, so its rules
 * are not cut. */
static size_t blocks_of(const pal_linear_kernels *kernels, const pal_memory_shape *s) {
    const size_t pairs = (size_t)s->sequences * (size_t)s->heads;
    const size_t wanted = (ENOUGH_ITEMS + pairs - 1) / pairs, most = padded((size_t)s->dv) / NARROWEST_BLOCK;
    if (kernels->carries != PAL_CARRIES_NONE) return 1;
    return wanted < most ? wanted : most ? most : 1;
}

/* What one call works with; scratch is cut up here and only here. */
typedef struct {
    const pal_linear_kernels *kernels;
    const pal_memory_run *run;
    pal_fn *kernel;
    size_t blocks, width; /* blocks of `width` values; the last may have fewer */
    int chunk;
    size_t kernel_floats, unwanted_floats, carried_floats;
    float *kernel_scratch; /* (threads, kernel_floats) */
    float *state;          /* (threads, dk, width) a memory that is not kept, or the gradient of one */
    float *carried;        /* (threads, 2, carried_floats) the same for the second part; and the part itself */
    float *unwanted;       /* (threads, unwanted_floats) gradients without a destination */
    float *parts[PAL_MEMORY_INPUTS];    /* (T, H, blocks, width) gradients before their sum; NULL: not summed */
    float *elements[PAL_MEMORY_INPUTS]; /* (N, H, dk, dv) gradients of parameters before their sum; NULL: no such */
    float *dIp;                         /* (N, H) */
} linear_job;

/* Channels of one head in a token row; of a block in rows of values. */
static size_t row_width(const linear_job *job, const pal_memory_shape *s, int input) {
    switch (pal_memory_input_list[input].width) {
    case PAL_PER_KEY:
    case PAL_PER_OWN_KEY: return (size_t)s->dk;
    case PAL_PER_PAIR: return ((size_t)s->dk + 1) / 2;
    case PAL_PER_VALUE: return job->width;
    default: return 1;
    }
}
static bool reads_rows(const linear_job *job, int input) {
    return job->kernels->inputs & 1u << input && !pal_memory_input_list[input].parameter;
}

static bool reads_elements(const linear_job *job, int input) {
    return job->kernels->inputs & 1u << input && pal_memory_input_list[input].width == PAL_PER_ELEMENT;
}
static float **parameter_gradient(pal_memory_gradients *grad, int input) {
    return (float **)((char *)grad + pal_memory_input_list[input].gradient);
}

static void layout(linear_job *job, pal_arena *arena, const pal_context *cx, const pal_memory_shape *s,
                   pal_memory_pass pass) {
    const size_t threads = (size_t)pal_context_threads(cx), dk = (size_t)s->dk, lines = padded((size_t)s->dv) / PAD;
    job->blocks = blocks_of(job->kernels, s);
    job->width = (lines + job->blocks - 1) / job->blocks * PAD;
    job->blocks = (lines * PAD + job->width - 1) / job->width;
    job->chunk = pass == PAL_STEP ? 1 : chunk_tokens(s);
    job->kernel_floats = padded(
        job->kernels->scratch_floats(job->kernels, cx->level, pass, job->chunk, s->dk,
                                     pass == PAL_STEP ? s->dv : (int)smaller(job->width, (size_t)s->dv)));
    job->kernel_scratch = pal_take(arena, threads * job->kernel_floats, sizeof(float));
    if (pass == PAL_STEP) return;
    job->carried_floats = padded(carried_floats(job->kernels, s));
    job->state = pal_take(arena, threads * dk * job->width, sizeof(float));
    job->carried = pal_take(arena, threads * 2 * job->carried_floats, sizeof(float));
    if (pass == PAL_FORWARD) return;
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++)
        if (reads_rows(job, i)) job->unwanted_floats += (size_t)job->chunk * row_width(job, s, i);
    job->unwanted = pal_take(arena, threads * job->unwanted_floats, sizeof(float));
    job->dIp = pal_take(arena, (size_t)s->sequences * (size_t)s->heads, sizeof(float));
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++)
        if (reads_elements(job, i))
            job->elements[i] = pal_take(arena, (size_t)s->sequences * (size_t)s->heads * dk * (size_t)s->dv,
                                        sizeof(float));
    if (job->blocks == 1 && s->heads == s->key_heads) return;
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++)
        if (reads_rows(job, i) && pal_memory_input_list[i].width != PAL_PER_VALUE)
            job->parts[i] = pal_take(arena, (size_t)s->tokens * (size_t)s->heads * job->blocks * row_width(job, s, i),
                                     sizeof(float));
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

/* Where the item's channels begin in a token row. */
static size_t channel_of(const linear_job *job, const linear_item *item, int input) {
    const pal_memory_shape *s = &job->run->shape;
    switch (pal_memory_input_list[input].width) {
    case PAL_PER_KEY: return pal_memory_key_head(s, item->h) * (size_t)s->dk;
    case PAL_PER_OWN_KEY: return item->h * (size_t)s->dk;
    case PAL_PER_PAIR: return item->h * (((size_t)s->dk + 1) / 2);
    case PAL_PER_VALUE: return item->h * (size_t)s->dv + item->v0;
    default: return item->h;
    }
}

static pal_linear_chunk chunk_at(const linear_job *job, const linear_item *item, size_t token, int n) {
    pal_linear_chunk c = {
        .kernels = job->kernels, .n = n, .dk = job->run->shape.dk, .dv = item->dv, .in = job->run->in
    };
    const size_t head = item->h * (size_t)c.dk * (size_t)job->run->shape.dv;
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
        if (reads_elements(job, i)) *(const float **)((char *)&c.in + pal_memory_input_list[i].input) += head;
        if (pal_memory_input_list[i].parameter) continue;
        pal_const_view *rows = pal_memory_input_rows(&c.in, i);
        *rows = reads_rows(job, i) ? pal_const_view_at(*rows, token, channel_of(job, item, i))
                                   : (pal_const_view){ NULL, 0 };
    }
    return c;
}

static void copy_rows(int count, size_t width, float *to, size_t to_ld, const float *from, size_t from_ld) {
    for (size_t j = 0; j < (size_t)count; j++) memcpy(to + j * to_ld, from + j * from_ld, width * sizeof *to);
}
static void zero_rows(int count, size_t width, float *to, size_t ld) {
    for (size_t j = 0; j < (size_t)count; j++) memset(to + j * ld, 0, width * sizeof *to);
}

static float *head_at(const linear_job *job, const linear_item *item, float *state) {
    return state + item->h * head_floats(job->kernels, &job->run->shape);
}
static float *saved_at(const linear_job *job, const linear_item *item, size_t chunk) {
    return head_at(job, item, job->run->saved + chunk * pal_linear_state_floats(job->kernels, &job->run->shape));
}

static void forward_item(void *arg, size_t index, int thread) {
    const linear_job *job = arg;
    const pal_memory_run *run = job->run;
    const pal_memory_shape *s = &run->shape;
    const linear_item item = item_at(job, index);
    const size_t dvp = padded((size_t)s->dv), width = smaller(job->width, dvp - item.v0),
                 carried = padded(carried_floats(job->kernels, s)) * sizeof(float);
    const bool borrows = pal_memory_borrows(run, item.n), own = run->state && !borrows;
    const size_t ld = own ? dvp : job->width;
    float *given = run->state ? head_at(job, &item, run->state[item.n]) : NULL;
    float *S = own ? given + item.v0 : job->state + (size_t)thread * (size_t)s->dk * job->width;
    float *more = own ? given + matrix_floats(s) : job->carried + (size_t)thread * 2 * job->carried_floats;
    if (pal_memory_starts_fresh(run)) {
        zero_rows(s->dk, width, S, ld);
        if (carried) reset_carried(job->kernels, s, &run->in, item.h, more);
    } else if (borrows) {
        copy_rows(s->dk, width, S, ld, given + item.v0, dvp);
        memcpy(more, given + matrix_floats(s), carried);
    }
    const int end = s->cu_seqlens[item.n + 1];
    size_t number = first_chunk(s, item.n);
    for (int t = s->cu_seqlens[item.n]; t < end; t += job->chunk, number++) {
        pal_linear_chunk c = chunk_at(job, &item, (size_t)t, end - t < job->chunk ? end - t : job->chunk);
        c.ends = !own && t + job->chunk >= end;
        c.carried = more;
        if (run->y_var.data) c.y_var = pal_view_at(run->y_var, (size_t)t, item.h * (size_t)s->dv + item.v0);
        const pal_view y = pal_view_at(run->y, (size_t)t, item.h * (size_t)s->dv + item.v0);
        if (run->saved) {
            float *saved = saved_at(job, &item, number);
            copy_rows(s->dk, width, saved + item.v0, dvp, S, ld);
            memcpy(saved + matrix_floats(s), more, carried);
        }
        ((pal_linear_forward_fn *)job->kernel)(&c, S, ld, y, job->kernel_scratch + (size_t)thread * job->kernel_floats);
    }
}

void pal_linear_forward(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_run *run) {
    linear_job job = job_of(kernels, cx, run, PAL_FORWARD);
    pal_parallel_for(cx, items_of(&job), forward_item, &job);
}

/* Where a chunk's gradients go: to the caller, to be summed first, or nowhere. */
static pal_memory_gradients gradients_at(const linear_job *job, const linear_item *item, size_t token, int thread) {
    const pal_memory_shape *s = &job->run->shape;
    const size_t parts = (size_t)s->heads * job->blocks, part = item->h * job->blocks + item->block;
    float *unwanted = job->unwanted + (size_t)thread * job->unwanted_floats;
    pal_memory_gradients to = { 0 };
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
        if (!reads_rows(job, i)) continue;
        const size_t width = row_width(job, s, i);
        const pal_view asked = *pal_memory_gradient_rows(&job->run->grad, i);
        pal_view *rows = (pal_view *)((char *)&to + pal_memory_input_list[i].gradient);
        if (job->parts[i]) *rows = (pal_view){ job->parts[i] + (token * parts + part) * width, parts * width };
        else if (asked.data) *rows = pal_view_at(asked, token, channel_of(job, item, i));
        else *rows = (pal_view){ unwanted, width };
        unwanted += (size_t)job->chunk * width;
    }
    const size_t head = (size_t)item->n * (size_t)s->heads + item->h, elements = (size_t)s->dk * (size_t)s->dv;
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++)
        if (job->elements[i]) *parameter_gradient(&to, i) = job->elements[i] + head * elements;
    return to;
}

static void backward_item(void *arg, size_t index, int thread) {
    const linear_job *job = arg;
    const pal_memory_run *run = job->run;
    const pal_memory_shape *s = &run->shape;
    const linear_item item = item_at(job, index);
    const size_t dvp = padded((size_t)s->dv), ld = job->width, carried = carried_floats(job->kernels, s),
                 exported = carried_exported(job->kernels, s), elements = (size_t)s->dk * (size_t)s->dv;
    const size_t head = (size_t)item.n * (size_t)s->heads + item.h,
                 part = (head * (size_t)s->dv + item.v0) * (size_t)s->dk;
    float *dS = job->state + (size_t)thread * (size_t)s->dk * ld;
    float *at_start = job->carried + (size_t)thread * 2 * job->carried_floats,
          *dcarried = at_start + job->carried_floats;
    zero_rows(s->dk, ld, dS, ld);
    if (run->dfinal[0]) from_exported(s->dk, item.dv, run->dfinal[0] + part, dS, ld);
    memset(dcarried, 0, carried * sizeof *dcarried);
    if (run->dfinal[1] && carried) carried_from(job->kernels, s, run->dfinal[1] + head * exported, 0, dcarried);
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++)
        if (job->elements[i]) memset(job->elements[i] + head * elements, 0, elements * sizeof(float));
    const int begin = s->cu_seqlens[item.n], end = s->cu_seqlens[item.n + 1];
    for (int i = (end - begin - 1) / job->chunk; i >= 0; i--) {
        const int t = begin + i * job->chunk;
        const float *saved = saved_at(job, &item, first_chunk(s, item.n) + (size_t)i);
        pal_linear_chunk c = chunk_at(job, &item, (size_t)t, end - t < job->chunk ? end - t : job->chunk);
        memcpy(at_start, saved + matrix_floats(s), carried * sizeof *at_start);
        c.carried = at_start;
        c.dcarried = dcarried;
        if (run->dy_var.data) c.dy_var = pal_const_view_at(run->dy_var, (size_t)t, item.h * (size_t)s->dv + item.v0);
        const pal_memory_gradients grad = gradients_at(job, &item, (size_t)t, thread);
        const pal_const_view dy = pal_const_view_at(run->dy, (size_t)t, item.h * (size_t)s->dv + item.v0);
        float *scratch = job->kernel_scratch + (size_t)thread * job->kernel_floats;
        ((pal_linear_backward_fn *)job->kernel)(&c, saved + item.v0, dvp, dS, ld, dy, &grad, scratch);
    }
    if (run->grad.initial[0]) to_exported(s->dk, item.dv, run->grad.initial[0] + part, dS, ld);
    if (run->grad.initial[1] && carried) carried_to(job->kernels, s, run->grad.initial[1] + head * exported, dcarried);
    const bool from_prior = run->before ? !run->before[item.n] : pal_memory_starts_fresh(run);
    job->dIp[head] = 0;
    if (!from_prior || !(job->kernels->inputs & PAL_INPUT_IP)) return;
    double sum = 0;
    for (size_t j = 0; j < carried; j++) sum += (double)dcarried[j];
    const double Ip = (double)run->in.Ip[item.h];
    job->dIp[head] = (float)(carries_matrix(job->kernels) ? sum : -sum / (Ip * Ip));
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
    const size_t parts = (size_t)s->heads * job->blocks;
    (void)thread;
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
        const pal_view to = *pal_memory_gradient_rows(&job->run->grad, i);
        if (!job->parts[i] || !to.data) continue;
        const size_t groups = (size_t)(pal_memory_input_list[i].width == PAL_PER_KEY ? s->key_heads : s->heads),
                     width = row_width(job, s, i), shared = parts / groups;
        for (size_t t = begin; t < end; t++)
            for (size_t group = 0; group < groups; group++)
                sum_parts(to.data + t * to.stride + group * width, job->parts[i] + (t * parts + group * shared) * width,
                          shared, width);
    }
}

void pal_linear_backward(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_run *run) {
    linear_job job = job_of(kernels, cx, run, PAL_BACKWARD);
    const pal_memory_shape *s = &run->shape;
    pal_parallel_for(cx, items_of(&job), backward_item, &job);
    if (job.blocks > 1 || s->heads != s->key_heads)
        pal_parallel_ranges(cx, (size_t)s->tokens, REDUCE_TOKENS, reduce_tokens, &job);
    const size_t all = (size_t)s->heads * (size_t)s->dk * (size_t)s->dv;
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
        float *to = job.elements[i] ? *parameter_gradient((pal_memory_gradients *)&run->grad, i) : NULL;
        for (size_t n = 0; to && n < (size_t)s->sequences; n++)
            for (size_t e = 0; e < all; e++) to[e] += job.elements[i][n * all + e];
    }
    for (size_t h = 0; h < (size_t)s->heads && run->grad.Ip && kernels->inputs & PAL_INPUT_IP; h++)
        for (size_t n = 0; n < (size_t)s->sequences; n++) run->grad.Ip[h] += job.dIp[n * (size_t)s->heads + h];
}

static void step_items(void *arg, size_t begin, size_t end, int thread) {
    const linear_job *job = arg;
    const pal_memory_run *run = job->run;
    const pal_memory_shape *s = &run->shape;
    for (size_t index = begin; index < end; index++) {
        const linear_item item = item_at(job, index);
        const size_t dvp = padded((size_t)s->dv), n = (size_t)item.n;
        float *head = head_at(job, &item, run->state[n]), *S = head + item.v0;
        pal_linear_chunk c = chunk_at(job, &item, n, 1);
        c.carried = head + matrix_floats(s);
        if (run->y_var.data) c.y_var = pal_view_at(run->y_var, n, item.h * (size_t)s->dv + item.v0);
        if (run->fresh) {
            zero_rows(s->dk, smaller(job->width, dvp - item.v0), S, dvp);
            reset_carried(job->kernels, s, &run->in, item.h, c.carried);
        }
        if (run->before_head) run->before_head(run->before_head_user, item.n, (int)item.h);
        ((pal_linear_step_fn *)job->kernel)(&c, S, dvp,
                                            run->y.data + n * run->y.stride + item.h * (size_t)s->dv + item.v0,
                                            job->kernel_scratch + (size_t)thread * job->kernel_floats);
    }
}

void pal_linear_step(const pal_linear_kernels *kernels, const pal_context *cx, const pal_memory_run *run) {
    linear_job job = job_of(kernels, cx, run, PAL_STEP);
    if (run->before_head)
        job.blocks = 1, job.width = padded((size_t)run->shape.dv); /* values do not meet: the same results */
    const size_t floats = (size_t)run->shape.dk * job.width, grain = (STEP_FLOATS + floats - 1) / floats;
    pal_parallel_ranges(cx, items_of(&job), grain, step_items, &job);
}
