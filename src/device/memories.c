/* SPDX-License-Identifier: MIT */
/* Memory rules on a device. A state lies there as it does for the CPU's kernels, so that files and copies are the same.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "device/opencl.h"
#include "memory/palimpsa/palimpsa.h"
#include "memory/rule.h"

enum { RV = 4, RK = 4, FRESH = 1, STATE = 2, SAVE = 4, VARIANCE = 8, MOST_STATES = 1024 }; /* as in memory.cl */

typedef enum { GLA, PALIMPSA, DELTA, ATTENTION, NO_KERNELS } rule_kind; /* the first three as in memory.cl */

/* Which kernels a rule has, and what they are built with. */
typedef struct {
    const char *name, *options;
    rule_kind kind;
} known_rule;

static const known_rule *find(const pal_memory_rule *rule) {
    static const known_rule known[] = {
        { "palimpsa", "", PALIMPSA },   { "gla", "", GLA },   { "attention", "", ATTENTION },
        { "delta", "", DELTA },         { "gdn", "", DELTA }, { "gdn_app", " -DUNDECAYED=1", DELTA },
        { "kda", " -DKEYED=1", DELTA },
    };
    for (size_t i = 0; i < PAL_COUNT(known); i++)
        if (strcmp(rule->name, known[i].name) == 0) return &known[i];
    return NULL;
}

static rule_kind kind_of(const pal_memory_rule *rule) {
    const known_rule *known = find(rule);
    return known ? known->kind : NO_KERNELS;
}

bool pal_cl_runs_rule(const pal_device *device, const pal_memory_rule *rule) {
    (void)device;
    return kind_of(rule) != NO_KERNELS;
}

/* What memory.cl takes by value. */
typedef struct {
    int dk, dv, heads, key_heads, tiled;
    int tk, blocks;
    int row, head;
    int sq, sk, sv, sb, st, sy, syv;
    int first, chunk;
    int flags;
    float scale;
} shape;

/* Sequences first .. first+count-1 of a run, whose states lie in one buffer. */
typedef struct {
    int first, count, begin, end; /* tokens */
    const int *cu;
    const void *base;
    const uint64_t *at; /* NULL: no states */
} stretch;

/* How a group is cut. */
typedef struct {
    int vb, batch, items;
    size_t local;
    char options[64];
} cut;

static size_t local_bytes(rule_kind kind, int tk, int vb, int batch, bool variance) {
    const size_t keys = (size_t)tk * RK, VB = (size_t)vb, tokens = (size_t)batch;
    const size_t corrections = kind == DELTA ? (size_t)tk * VB + VB + tokens + tokens * keys : 0;
    return (tokens * (2 * keys + 2 * VB + 2) + tokens * (size_t)tk * VB * (variance ? 2 : 1) + corrections) *
           sizeof(float);
}

/* As many values as work-items and local memory allow; false: this device has too little of either. */
static bool cut_for(const pal_opencl *d, const known_rule *rule, int tk, bool variance, cut *c) {
    const int most = d->info.group < 256 ? d->info.group : 256;
    for (c->vb = 16; c->vb >= RV; c->vb /= 2) {
        c->items = c->vb / RV * tk;
        for (c->batch = 8; c->items <= most && c->batch; c->batch /= 2) {
            c->local = local_bytes(rule->kind, tk, c->vb, c->batch, variance);
            if (c->local > d->info.local) continue;
            snprintf(c->options, sizeof c->options, "-DRULE=%d -DVB=%d -DBATCH=%d%s", (int)rule->kind, c->vb, c->batch,
                     rule->options);
            return true;
        }
    }
    return false;
}

static int stride_of(pal_const_view view) { return (int)view.stride; }

static void remember(pal_opencl *d, const pal_memory_rule *rule, const pal_memory_run *run, const stretch *x) {
    const pal_memory_shape *s = &run->shape;
    const pal_memory_inputs *in = &run->in;
    const bool importance = kind_of(rule) == PALIMPSA, fresh = !x->at;
    const bool delta = kind_of(rule) == DELTA;
    const pal_const_view forget = importance                    ? in->dt
                                  : rule->inputs & PAL_INPUT_GK ? in->gk
                                  : rule->inputs & PAL_INPUT_G  ? in->g
                                                                : (pal_const_view){ 0 },
                         gate = importance ? in->b
                                : delta    ? in->beta
                                           : (pal_const_view){ 0 },
                         y = { run->y.data, run->y.stride }, y_var = { run->y_var.data, run->y_var.stride };
    const size_t head = rule->state_floats(s) / (size_t)s->heads, N = (size_t)x->count;
    const size_t rows = importance ? pal_palimpsa_rows(s->dk) : (size_t)s->dk;
    shape by_value = { .dk = s->dk,
                       .dv = s->dv,
                       .heads = s->heads,
                       .key_heads = s->key_heads,
                       .tiled = s->tiled,
                       .tk = (s->dk + RK - 1) / RK,
                       .row = (int)(head / rows),
                       .head = (int)head,
                       .sq = stride_of(in->q),
                       .sk = stride_of(in->k),
                       .sv = stride_of(in->v),
                       .sb = stride_of(gate),
                       .st = stride_of(forget),
                       .sy = stride_of(y),
                       .syv = stride_of(y_var),
                       .first = x->first,
                       .chunk = PAL_PALIMPSA_CHUNK,
                       .flags = (fresh ? FRESH : STATE) | (run->saved ? SAVE : 0) | (y_var.data ? VARIANCE : 0),
                       .scale = in->scale };
    cut c;
    if (!cut_for(d, find(rule), by_value.tk, y_var.data != NULL, &c)) {
        pal_cl_broke(d, "memories of so many keys need larger groups, or more local memory", -54);
        return;
    }
    by_value.blocks = (s->dv + c.vb - 1) / c.vb;
    const size_t groups = (size_t)by_value.blocks * N;
    pal_cl_launch(d, "memory", c.options, "remember", (pal_cl_groups){ groups, (size_t)s->heads, c.items },
                  "svvvvvpplpllpvvm", &by_value, sizeof by_value, in->q, in->k, in->v, gate, forget,
                  importance ? in->A : NULL, importance ? in->Ip : NULL, x->cu, (N + 1) * sizeof(int), x->base, x->at,
                  N * sizeof *x->at, run->borrowed ? run->borrowed + x->first : NULL, N * sizeof(bool), run->saved, y,
                  y_var, c.local);
}

/* The default memory with its padding. */
static void start_afresh(pal_opencl *d, const pal_memory_rule *rule, const pal_memory_run *run, const stretch *x) {
    const bool importance = kind_of(rule) == PALIMPSA;
    const size_t floats = rule->state_floats(&run->shape), n = floats * (size_t)x->count;
    pal_cl_launch(d, "memory", importance ? "-DRULE=1 -DVB=16 -DBATCH=8" : "-DRULE=0 -DVB=16 -DBATCH=8", "start_afresh",
                  pal_cl_items(n), "plpuui", x->base, x->at, (size_t)x->count * sizeof *x->at,
                  importance ? run->in.Ip : NULL, n, floats, (int)(floats / (size_t)run->shape.heads));
}

/* What attention.cl takes by value. */
typedef struct {
    int dk, dv, heads, key_heads, tiled, context, first;
    float scale;
} attention_shape;

static void attend(pal_opencl *d, const pal_memory_run *run, const stretch *x) {
    enum { CHANNELS = 8 };
    const pal_memory_shape *s = &run->shape;
    const pal_memory_inputs *in = &run->in;
    const attention_shape by_value = {
        s->dk, s->dv, s->heads, s->key_heads, s->tiled, s->context, x->first, in->scale
    };
    const size_t N = (size_t)x->count, tokens = (size_t)(x->end - x->begin), line = PAL_CL_ITEMS * sizeof(float);
    const int *past = run->past && !pal_memory_starts_fresh(run) ? run->past + x->first : NULL;
    if (s->dv > CHANNELS * PAL_CL_ITEMS) {
        pal_cl_broke(d, "attention of more than 512 values a head", -54);
        return;
    }
    if (x->at) {
        const size_t n = tokens * (size_t)s->key_heads * (size_t)(s->dk + s->dv);
        pal_cl_launch(d, "attention", "", "append", pal_cl_items(n), "svvllpluii", &by_value, sizeof by_value, in->k,
                      in->v, x->cu, (N + 1) * sizeof(int), past, N * sizeof(int), x->base, x->at, N * sizeof *x->at, n,
                      x->begin, x->count);
    }
    const pal_const_view y = { run->y.data, run->y.stride };
    pal_cl_launch(d, "attention", "", "attend", (pal_cl_groups){ tokens, (size_t)s->heads, PAL_CL_ITEMS },
                  "svvvvpllpliimmm", &by_value, sizeof by_value, in->q, in->k, in->v, y, run->saved, x->cu,
                  (N + 1) * sizeof(int), past, N * sizeof(int), x->base, x->at, N * sizeof *x->at, x->begin, x->count,
                  (size_t)s->dk * sizeof(float), line, line);
}

void pal_cl_memory(pal_device *device, const pal_memory_rule *rule, const pal_memory_run *run, int pass) {
    pal_opencl *d = pal_opencl_of(device);
    const bool step = pass == PAL_STEP;
    const pal_memory_shape *s = &run->shape;
    uint64_t at[MOST_STATES];
    for (int first = 0, count; first < s->sequences; first += count) {
        const int most = s->sequences - first < MOST_STATES ? s->sequences : first + MOST_STATES;
        stretch x = { .first = first, .cu = step ? NULL : s->cu_seqlens + first };
        count = run->state ? pal_cl_run_of(d, run->state, first, most, at, &x.base) : s->sequences;
        if (!count) return;
        x.count = count;
        x.begin = step ? first : s->cu_seqlens[first];
        x.end = step ? first + count : s->cu_seqlens[first + count];
        x.at = run->state ? at : NULL;
        if (kind_of(rule) == ATTENTION) {
            attend(d, run, &x);
            continue;
        }
        if (run->fresh && run->state) start_afresh(d, rule, run, &x);
        remember(d, rule, run, &x);
    }
}
