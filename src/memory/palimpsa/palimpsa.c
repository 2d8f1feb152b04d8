/* SPDX-License-Identifier: MIT */
/* The Palimpsa rule: sizes, the default memory, import and export, and the cut of a run into items. An item is a block
 * of values of one head of one sequence; items share nothing but the gradients of keys and decays, which are summed
 * over them in a fixed order. */
#include "memory/palimpsa/palimpsa.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "memory/change/change.h"

enum {
    MANY_UNITS = 16
}; /* independent (sequence, key head) pairs that keep threads busy without cutting them further */

static size_t round_up(size_t n) { return (n + 15) / 16 * 16; } /* floats to whole cache lines */
static size_t row_floats(int dv) { return pal_palimpsa_groups(dv) * 2 * PAL_PALIMPSA_GROUP; }
static size_t head_floats(const pal_memory_shape *s) { return pal_palimpsa_rows(s->dk) * row_floats(s->dv); }

static size_t part_floats(const pal_memory_shape *s, int part) {
    return part == 0 || part == 1 ? (size_t)s->heads * (size_t)s->dv * (size_t)s->dk : 0;
}
static size_t state_floats(const pal_memory_shape *s) { return (size_t)s->heads * head_floats(s); }

/* Chunk c of sequence n is kept in slot cu[n]/CHUNK + n + c: unique, without a table. */
static size_t saved_slots(const pal_memory_shape *s) {
    return (size_t)(s->tokens / PAL_PALIMPSA_CHUNK) + (size_t)s->sequences;
}
static size_t saved_floats(const pal_memory_shape *s) { return saved_slots(s) * state_floats(s); }

/* One head's memory at its default: mu = 0, I = Ip. floats is a number of whole groups. */
static void fill_default(float *row, size_t floats, float Ip) {
    for (size_t at = 0; at < floats; at += 2 * PAL_PALIMPSA_GROUP)
        for (int i = 0; i < PAL_PALIMPSA_GROUP; i++)
            row[at + (size_t)i] = 0, row[at + PAL_PALIMPSA_GROUP + (size_t)i] = Ip;
}

static void reset(const pal_memory_shape *s, const pal_memory_inputs *in, float *state) {
    for (int h = 0; h < s->heads; h++) fill_default(state + (size_t)h * head_floats(s), head_floats(s), in->Ip[h]);
}

static void import(const pal_memory_shape *s, const pal_memory_inputs *in, const float *const parts[2], float *state) {
    reset(s, in, state);
    size_t from = 0;
    for (int h = 0; h < s->heads; h++)
        for (size_t i = 0; i < (size_t)s->dv; i++)
            for (size_t j = 0; j < (size_t)s->dk; j++, from++) {
                float *M = state + (size_t)h * head_floats(s) + pal_palimpsa_at(row_floats(s->dv), i, j);
                M[PAL_PALIMPSA_GROUP] = parts[1][from];
                M[0] = parts[0][from] * parts[1][from];
            }
}

static void export(const pal_memory_shape *s, const pal_memory_inputs *in, float *const parts[2], const float *state) {
    (void)in;
    size_t to = 0;
    for (int h = 0; h < s->heads; h++)
        for (size_t i = 0; i < (size_t)s->dv; i++)
            for (size_t j = 0; j < (size_t)s->dk; j++, to++) {
                const float *M = state + (size_t)h * head_floats(s) + pal_palimpsa_at(row_floats(s->dv), i, j);
                if (parts[0]) parts[0][to] = M[0] / M[PAL_PALIMPSA_GROUP];
                if (parts[1]) parts[1][to] = M[PAL_PALIMPSA_GROUP];
            }
}

static void compare(const pal_context *cx, const pal_memory_shape *s, const float *before, const float *after,
                    pal_memory_change *change) {
    const size_t row = row_floats(s->dv), elements = (size_t)s->dv * (size_t)s->dk;
    PAL_PICK(cx, change_paired)(before, after, row, s->dk, s->dv, change);
    const size_t distance = pal_change_sample_distance(elements);
    for (size_t e = 0; e < elements; e += distance)
        change->sample[change->samples++] = after[pal_palimpsa_at(row, e % (size_t)s->dv, e / (size_t)s->dv) +
                                                  PAL_PALIMPSA_GROUP];
}

static void foresee(const pal_context *cx, const pal_memory_run *run, pal_memory_change *change) {
    const pal_memory_shape *s = &run->shape;
    const size_t row = row_floats(s->dv), dv = (size_t)s->dv, elements = dv * (size_t)s->dk;
    const float lost = expm1f(-run->in.A[0] * run->in.dt.data[0]), fresh = -lost * run->in.Ip[0];
    const float *k = run->in.k.data, *b = run->in.b.data;
    const pal_change_token token = {
        .dk = s->dk, .dv = s->dv, .lost = lost, .fresh = fresh, .k = k, .v = run->in.v.data, .b = b
    };
    PAL_PICK(cx, change_paired_ahead)(&token, run->state[0], row, change);
    const size_t distance = pal_change_sample_distance(elements);
    for (size_t e = 0; e < elements; e += distance) {
        const size_t i = e % dv, j = e / dv;
        const float I = run->state[0][pal_palimpsa_at(row, i, j) + PAL_PALIMPSA_GROUP];
        change->sample[change->samples++] = (1 + lost) * I + fresh + b[i] * (k[j] * k[j]);
    }
}

/* How a run is cut, and where its scratch lies. */
typedef struct {
    const pal_memory_run *run;
    pal_fn *kernel, *forward;
    int blocks;          /* of values in a head */
    bool partial;        /* backward: every item has key and decay gradients of its own, summed afterwards */
    size_t kernel_bytes; /* scratch of one kernel call */
    size_t block_floats; /* a memory of one item */
    char *threads;
    size_t thread_bytes;
    float *dq, *dk, *ddt; /* partial: (T, H*blocks, dk) twice, (T, H*blocks) */
    double *sums;         /* backward: (N, H, blocks, 2) gradients of A and Ip */
} job;

static size_t plan(job *j, const pal_context *cx, const pal_memory_shape *s, pal_memory_pass pass, char *scratch) {
    const int values = s->dv < PAL_PALIMPSA_BLOCK ? s->dv : PAL_PALIMPSA_BLOCK;
    const size_t groups = pal_palimpsa_groups(s->dv), per_block = PAL_PALIMPSA_BLOCK / PAL_PALIMPSA_GROUP;
    const size_t T = (size_t)s->tokens;
    j->blocks = (int)((groups + per_block - 1) / per_block);
    j->partial = pass == PAL_BACKWARD && (j->blocks > 1 || s->heads > s->key_heads) &&
                 (long long)s->sequences * s->key_heads < MANY_UNITS;
    j->kernel_bytes = round_up((pal_palimpsa_scratch(s->dk, pass == PAL_STEP ? s->dv : values, pass) + 3) / 4) * 4;
    if (pass == PAL_BACKWARD) { /* which runs forward too, to meet the gradient of a final memory */
        const size_t forward = round_up((pal_palimpsa_scratch(s->dk, values, PAL_FORWARD) + 3) / 4) * 4;
        if (forward > j->kernel_bytes) j->kernel_bytes = forward;
    }
    j->block_floats = pass == PAL_STEP ? 0 : pal_palimpsa_rows(s->dk) * row_floats(values);
    const size_t dropped_y = pass == PAL_BACKWARD ? (size_t)PAL_PALIMPSA_CHUNK * PAL_PALIMPSA_BLOCK : 0;
    const size_t memories = pass == PAL_BACKWARD ? 2 : 1;
    j->thread_bytes = j->kernel_bytes + (memories * j->block_floats + dropped_y) * sizeof(float);

    size_t used = (size_t)cx->threads * j->thread_bytes;
    const size_t items = (size_t)s->heads * (size_t)j->blocks;
    const size_t key_floats = j->partial ? round_up(T * items * (size_t)s->dk) : 0,
                 dt_floats = j->partial ? round_up(T * items) : 0;
    j->threads = scratch;
    if (scratch) {
        j->dq = (float *)(void *)(scratch + used);
        j->dk = j->dq + key_floats;
        j->ddt = j->dk + key_floats;
        j->sums = (double *)(void *)(j->ddt + dt_floats);
    }
    used += (2 * key_floats + dt_floats) * sizeof(float);
    /* While items are partial, room for as many sequences as could be: a plan may look at fewer than come. */
    const size_t sequences = j->partial ? (MANY_UNITS - 1) / (size_t)s->key_heads : (size_t)s->sequences;
    if (pass == PAL_BACKWARD) used += sequences * items * 2 * sizeof(double);
    return (used + 63) / 64 * 64;
}

static size_t scratch_bytes(const pal_context *cx, const pal_memory_shape *s, pal_memory_pass pass) {
    job j = { 0 };
    return plan(&j, cx, s, pass, NULL);
}

/* What forward, backward and step have in common. first is the sequence's first token. */
static pal_palimpsa_item item_of(const job *jb, int n, int h, int block, size_t first, int length) {
    const pal_memory_run *run = jb->run;
    const pal_memory_shape *s = &run->shape;
    const size_t groups = pal_palimpsa_groups(s->dv), blocks = (size_t)jb->blocks;
    const size_t group = (size_t)block * groups / blocks, past = (size_t)(block + 1) * groups / blocks;
    const size_t value = group * PAL_PALIMPSA_GROUP, end = past * PAL_PALIMPSA_GROUP;
    const size_t key = pal_memory_key_head(s, (size_t)h) * (size_t)s->dk, out = (size_t)h * (size_t)s->dv + value;
    pal_palimpsa_item it = {
        .dk = s->dk,
        .values = (int)((end < (size_t)s->dv ? end : (size_t)s->dv) - value),
        .length = length,
        .A = run->in.A[h],
        .Ip = run->in.Ip[h],
        .scale = run->in.scale,
        .q = pal_const_view_at(run->in.q, first, key),
        .k = pal_const_view_at(run->in.k, first, key),
        .v = pal_const_view_at(run->in.v, first, out),
        .b = pal_const_view_at(run->in.b, first, out),
        .dt = pal_const_view_at(run->in.dt, first, (size_t)h),
        .y = pal_view_at(run->y, first, out),
        .y_var = pal_view_at(run->y_var, first, out),
    };
    const size_t in_head = group * 2 * PAL_PALIMPSA_GROUP;
    if (run->state) {
        it.state = run->state[n] + (size_t)h * head_floats(s) + in_head;
        it.row = row_floats(s->dv);
    }
    if (run->saved && s->cu_seqlens) {
        const size_t slot = (size_t)(s->cu_seqlens[n] / PAL_PALIMPSA_CHUNK) + (size_t)n;
        it.saved = run->saved + slot * state_floats(s) + (size_t)h * head_floats(s) + in_head;
        it.saved_row = row_floats(s->dv);
        it.saved_chunk = state_floats(s);
    }
    return it;
}

static float *thread_memory(const job *jb, int thread, size_t which) {
    return (float *)(void *)(jb->threads + (size_t)thread * jb->thread_bytes + jb->kernel_bytes) +
           which * jb->block_floats;
}
static void *thread_scratch(const job *jb, int thread) { return jb->threads + (size_t)thread * jb->thread_bytes; }

static void copy_rows(float *to, size_t to_row, const float *from, size_t from_row, const pal_palimpsa_item *it) {
    for (size_t j = 0; j < pal_palimpsa_rows(it->dk); j++)
        memcpy(to + j * to_row, from + j * from_row, row_floats(it->values) * sizeof *to);
}

static void forward_task(void *arg, size_t index, int thread) {
    const job *jb = arg;
    const pal_memory_run *run = jb->run;
    const int block = (int)(index % (size_t)jb->blocks);
    const int h = (int)(index / (size_t)jb->blocks % (size_t)run->shape.heads),
              n = (int)(index / (size_t)jb->blocks / (size_t)run->shape.heads);
    const int first = run->shape.cu_seqlens[n], length = run->shape.cu_seqlens[n + 1] - first;
    pal_palimpsa_item it = item_of(jb, n, h, block, (size_t)first, length);
    const float *given = it.state;
    const size_t given_row = it.row;
    const bool borrows = given && pal_memory_borrows(run, n);
    if (!given || borrows) it.state = thread_memory(jb, thread, 0), it.row = row_floats(it.values);
    float *start = it.saved ? it.saved : it.state;
    const size_t row = it.saved ? it.saved_row : it.row;
    if (pal_memory_starts_fresh(run)) {
        for (size_t j = 0; j < pal_palimpsa_rows(it.dk); j++)
            fill_default(start + j * row, row_floats(it.values), it.Ip);
    } else if (it.saved || borrows) {
        copy_rows(start, row, given, given_row, &it);
    }
    ((pal_palimpsa_forward_fn *)jb->kernel)(&it, thread_scratch(jb, thread));
}

static void forward(const pal_context *cx, const pal_memory_run *run) {
    job jb = { .run = run, .kernel = pal_variant_best(pal_palimpsa_forward_variants, cx->features) };
    plan(&jb, cx, &run->shape, PAL_FORWARD, run->scratch);
    pal_parallel_for(cx, (size_t)run->shape.sequences * (size_t)run->shape.heads * (size_t)jb.blocks, forward_task,
                     &jb);
}

static void step_task(void *arg, size_t index, int thread) {
    const job *jb = arg;
    const pal_memory_run *run = jb->run;
    const int block = (int)(index % (size_t)jb->blocks);
    const int h = (int)(index / (size_t)jb->blocks % (size_t)run->shape.heads),
              n = (int)(index / (size_t)jb->blocks / (size_t)run->shape.heads);
    pal_palimpsa_item it = item_of(jb, n, h, block, (size_t)n, 1);
    it.saved = NULL;
    assert(it.state); /* a step is made in its own memory */
    if (run->fresh)
        for (size_t j = 0; j < pal_palimpsa_rows(it.dk); j++)
            fill_default(it.state + j * it.row, row_floats(it.values), it.Ip);
    if (run->before_head) run->before_head(run->before_head_user, n, h);
    ((pal_palimpsa_step_fn *)jb->kernel)(&it, thread_scratch(jb, thread));
}

static void step(const pal_context *cx, const pal_memory_run *run) {
    job jb = { .run = run, .kernel = pal_variant_best(pal_palimpsa_step_variants, cx->features) };
    const size_t heads = (size_t)run->shape.sequences * (size_t)run->shape.heads;
    plan(&jb, cx, &run->shape, PAL_STEP, run->scratch);
    if (heads >= MANY_UNITS || run->before_head)
        jb.blocks = 1; /* whole rows stream best; values do not meet, so the results are the same */
    pal_parallel_for(cx, heads * (size_t)jb.blocks, step_task, &jb);
}

/* Element (i, j) of an item in an exported part of N memories. */
static size_t exported(const pal_memory_shape *s, int n, int h, size_t value, size_t i, size_t j) {
    return (((size_t)n * (size_t)s->heads + (size_t)h) * (size_t)s->dv + value + i) * (size_t)s->dk + j;
}

/* The adjoint of the last memory: dM = dmu/I, dI = dI_T - dmu M/I^2. The memory itself is made again from its last
 * chunk. */
static void begin_adjoint(const job *jb, const pal_palimpsa_item *it, int n, int h, size_t value, int thread) {
    const pal_memory_run *run = jb->run;
    memset(it->state, 0, jb->block_floats * sizeof *it->state);
    if (!run->dfinal[0] && !run->dfinal[1]) return;
    const int chunk = (it->length - 1) / PAL_PALIMPSA_CHUNK;
    const size_t from = (size_t)chunk * PAL_PALIMPSA_CHUNK;
    pal_palimpsa_item last = *it;
    last.q = pal_const_view_at(it->q, from, 0), last.k = pal_const_view_at(it->k, from, 0);
    last.v = pal_const_view_at(it->v, from, 0), last.b = pal_const_view_at(it->b, from, 0),
    last.dt = pal_const_view_at(it->dt, from, 0);
    last.length = it->length - (int)from;
    last.saved = NULL;
    last.state = thread_memory(jb, thread, 1);
    last.y = (pal_view){ thread_memory(jb, thread, 2), PAL_PALIMPSA_BLOCK };
    last.y_var.data = NULL;
    assert(it->saved); /* by forward, for every backward */
    copy_rows(last.state, last.row, it->saved + (size_t)chunk * it->saved_chunk, it->saved_row, it);
    ((pal_palimpsa_forward_fn *)jb->forward)(&last, thread_scratch(jb, thread));
    for (size_t i = 0; i < (size_t)it->values; i++)
        for (size_t j = 0; j < (size_t)it->dk; j++) {
            const size_t at = pal_palimpsa_at(it->row, i, j), e = exported(&run->shape, n, h, value, i, j);
            const float dmu = run->dfinal[0] ? run->dfinal[0][e] : 0, dI = run->dfinal[1] ? run->dfinal[1][e] : 0;
            const float I = last.state[at + PAL_PALIMPSA_GROUP], mu = last.state[at] / I;
            it->state[at] = dmu / I;
            it->state[at + PAL_PALIMPSA_GROUP] = dI - dmu / I * mu;
        }
}

/* What is left at the start: dmu0 = dM I0, dI0 = dM mu0 + dI; from the default memory, I0 = Ip takes all of dI. */
static void end_adjoint(const job *jb, const pal_palimpsa_item *it, int n, int h, size_t value) {
    const pal_memory_run *run = jb->run;
    const bool fresh = pal_memory_starts_fresh(run) || (run->before && !run->before[n]);
    double prior = 0;
    for (size_t i = 0; i < (size_t)it->values; i++)
        for (size_t j = 0; j < (size_t)it->dk; j++) {
            const float *adjoint = it->state + pal_palimpsa_at(it->row, i, j);
            const float *start = it->saved + pal_palimpsa_at(it->saved_row, i, j);
            const float dM = adjoint[0], dI = adjoint[PAL_PALIMPSA_GROUP], I = start[PAL_PALIMPSA_GROUP];
            const size_t e = exported(&run->shape, n, h, value, i, j);
            if (fresh) prior += (double)dI;
            if (run->grad.initial[0]) run->grad.initial[0][e] = dM * I;
            if (run->grad.initial[1]) run->grad.initial[1][e] = dM * (start[0] / I) + dI;
        }
    it->dparameters[1] += prior;
}

static void backward_item(const job *jb, int n, int h, int block, int thread) {
    const pal_memory_run *run = jb->run;
    const pal_memory_shape *s = &run->shape;
    const int first = s->cu_seqlens[n], length = s->cu_seqlens[n + 1] - first, group = s->heads / s->key_heads;
    const size_t token = (size_t)first, column = (size_t)h * (size_t)jb->blocks + (size_t)block;
    const size_t value = (size_t)block * pal_palimpsa_groups(s->dv) / (size_t)jb->blocks * PAL_PALIMPSA_GROUP;
    pal_palimpsa_item it = item_of(jb, n, h, block, token, length);
    it.state = thread_memory(jb, thread, 0);
    it.row = row_floats(it.values);
    const size_t out = (size_t)h * (size_t)s->dv + value;
    it.dy = pal_const_view_at(run->dy, token, out);
    it.dy_var = pal_const_view_at(run->dy_var, token, out);
    it.dv = pal_view_at(run->grad.v, token, out);
    it.db = pal_view_at(run->grad.b, token, out);
    if (jb->partial) {
        const size_t columns = (size_t)s->heads * (size_t)jb->blocks, dk = (size_t)s->dk;
        if (run->grad.q.data) it.dq = pal_view_at((pal_view){ jb->dq, columns * dk }, token, column * dk);
        if (run->grad.k.data) it.dk_ = pal_view_at((pal_view){ jb->dk, columns * dk }, token, column * dk);
        if (run->grad.dt.data) it.ddt = pal_view_at((pal_view){ jb->ddt, columns }, token, column);
    } else {
        const size_t key = (size_t)(h / group) * (size_t)s->dk;
        it.dq = pal_view_at(run->grad.q, token, key);
        it.dk_ = pal_view_at(run->grad.k, token, key);
        it.ddt = pal_view_at(run->grad.dt, token, (size_t)h);
        it.add_keys = h % group > 0 || block > 0;
        it.add_dt = block > 0;
    }
    it.dparameters = jb->sums + 2 * ((size_t)n * (size_t)s->heads * (size_t)jb->blocks + column);
    begin_adjoint(jb, &it, n, h, value, thread);
    ((pal_palimpsa_backward_fn *)jb->kernel)(&it, thread_scratch(jb, thread));
    end_adjoint(jb, &it, n, h, value);
}

static void backward_item_task(void *arg, size_t index, int thread) {
    const job *jb = arg;
    const size_t heads = (size_t)jb->run->shape.heads, blocks = (size_t)jb->blocks;
    backward_item(jb, (int)(index / blocks / heads), (int)(index / blocks % heads), (int)(index % blocks), thread);
}

/* All items that share a key head of a sequence, one after another. */
static void backward_unit_task(void *arg, size_t index, int thread) {
    const job *jb = arg;
    const pal_memory_shape *s = &jb->run->shape;
    const int group = s->heads / s->key_heads, key_head = (int)(index % (size_t)s->key_heads),
              n = (int)(index / (size_t)s->key_heads);
    for (int h = key_head * group; h < (key_head + 1) * group; h++)
        for (int block = 0; block < jb->blocks; block++) backward_item(jb, n, h, block, thread);
}

/* The partial gradients of one token, summed in the order in which backward_unit_task adds them. */
static void sum_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const job *jb = arg;
    const pal_memory_run *run = jb->run;
    const pal_memory_shape *s = &run->shape;
    const size_t blocks = (size_t)jb->blocks, columns = (size_t)s->heads * blocks, dk = (size_t)s->dk;
    const size_t shared = columns / (size_t)s->key_heads;
    const struct {
        float *from;
        pal_view to;
    } keys[] = { { jb->dq, run->grad.q }, { jb->dk, run->grad.k } };
    for (size_t t = begin; t < end; t++) {
        for (size_t w = 0; w < PAL_COUNT(keys); w++) {
            if (!keys[w].to.data) continue;
            for (size_t g = 0; g < (size_t)s->key_heads; g++) {
                const float *from = keys[w].from + (t * columns + g * shared) * dk;
                float *to = keys[w].to.data + t * keys[w].to.stride + g * dk;
                memcpy(to, from, dk * sizeof *to);
                for (size_t c = 1; c < shared; c++)
                    for (size_t j = 0; j < dk; j++) to[j] += from[c * dk + j];
            }
        }
        if (!run->grad.dt.data) continue;
        for (size_t h = 0; h < (size_t)s->heads; h++) {
            float sum = jb->ddt[t * columns + h * blocks];
            for (size_t c = 1; c < blocks; c++) sum += jb->ddt[t * columns + h * blocks + c];
            run->grad.dt.data[t * run->grad.dt.stride + h] = sum;
        }
    }
}

static void backward(const pal_context *cx, const pal_memory_run *run) {
    const pal_memory_shape *s = &run->shape;
    job jb = { .run = run,
               .kernel = pal_variant_best(pal_palimpsa_backward_variants, cx->features),
               .forward = pal_variant_best(pal_palimpsa_forward_variants, cx->features) };
    plan(&jb, cx, s, PAL_BACKWARD, run->scratch);
    const size_t columns = (size_t)s->heads * (size_t)jb.blocks;
    if (jb.partial) {
        pal_parallel_for(cx, (size_t)s->sequences * columns, backward_item_task, &jb);
        pal_parallel_ranges(cx, (size_t)s->tokens, 16, sum_task, &jb);
    } else {
        pal_parallel_for(cx, (size_t)s->sequences * (size_t)s->key_heads, backward_unit_task, &jb);
    }
    for (size_t h = 0; h < (size_t)s->heads; h++) {
        double dA = 0, dIp = 0;
        for (size_t n = 0; n < (size_t)s->sequences; n++)
            for (size_t c = 0; c < (size_t)jb.blocks; c++) {
                const double *sum = jb.sums + 2 * (n * columns + h * (size_t)jb.blocks + c);
                dA += sum[0], dIp += sum[1];
            }
        if (run->grad.A) run->grad.A[h] += (float)dA;
        if (run->grad.Ip) run->grad.Ip[h] += (float)dIp;
    }
}

size_t pal_palimpsa_scratch(int dk, int values, pal_memory_pass pass) {
    size_t most = pal_palimpsa_scratch_ref(dk, values, pass);
#if PAL_X86_64
    const size_t narrow = pal_palimpsa_scratch_avx2(dk, values, pass),
                 wide = pal_palimpsa_scratch_avx512(dk, values, pass);
    if (narrow > most) most = narrow;
    if (wide > most) most = wide;
#elif PAL_ARM64
    const size_t neon = pal_palimpsa_scratch_neon(dk, values, pass);
    if (neon > most) most = neon;
#elif PAL_WASM
    const size_t simd128 = pal_palimpsa_scratch_simd128(dk, values, pass);
    if (simd128 > most) most = simd128;
#endif
    return most;
}

PAL_VARIANTS(palimpsa_forward)
PAL_VARIANTS(palimpsa_backward)
PAL_VARIANTS(palimpsa_step)
PAL_VARIANTS(palimpsa_bound)

int pal_palimpsa_bound_width(pal_cpu_level level) {
    return level == PAL_CPU_AVX512 ? 16 : level == PAL_CPU_AVX2 ? 8 : level == PAL_CPU_REF ? 1 : 4;
}

const pal_memory_rule pal_rule_palimpsa = {
    .name = "palimpsa",
    .summary = "Bayesian metaplastic memory: a mean and an importance for every pair of value and key",
    .inputs = PAL_INPUT_Q | PAL_INPUT_K | PAL_INPUT_V | PAL_INPUT_B | PAL_INPUT_DT | PAL_INPUT_A | PAL_INPUT_IP,
    .has_variance = true,
    .has_importance = true,
    .parts = { "mu", "I" },
    .part_floats = part_floats,
    .state_floats = state_floats,
    .saved_floats = saved_floats,
    .scratch_bytes = scratch_bytes,
    .reset = reset,
    .import = import,
    .export = export,
    .compare = compare,
    .foresee = foresee,
    .forward = forward,
    .backward = backward,
    .step = step,
};
