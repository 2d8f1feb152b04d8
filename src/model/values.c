/* SPDX-License-Identifier: MIT */
/* What is done to every weight of a model, in whatever type it is stored: reading values, the check for NaN, the
 * fingerprint, and another type. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/half.h"
#include "base/log.h"
#include "base/parallel.h"
#include "model/on_device.h"

enum { PIECE = 4096 }; /* values decoded at once: whole blocks, and whole rounds of the hash */

void pal_weight_read(const pal_weight *w, size_t first, size_t count, float *to) {
    pal_values_decode(w->type, w->data, first, count, to);
}

size_t pal_weight_bytes(const pal_weight *w) { return w->count / pal_dtype_values(w->type) * pal_dtype_size(w->type); }

/* What rows get that do not fill the blocks of `type`. */
static pal_dtype finer(pal_dtype type) {
    return type == PAL_Q4_K ? PAL_Q5_0 : type == PAL_Q5_K || type == PAL_Q6_K ? PAL_Q8_0 : PAL_F16;
}

pal_dtype pal_weight_type_in(const pal_weight *w, pal_dtype type) {
    if (!w->quantisable) return PAL_F32;
    const bool outer = strcmp(w->group, "embedding") == 0 || strcmp(w->group, "head") == 0;
    if (outer && (type == PAL_Q4_0 || type == PAL_Q5_0 || type == PAL_Q4_K || type == PAL_Q5_K)) type = PAL_Q6_K;
    while (!pal_matrix_fits(type, (size_t)w->shape[1])) type = finer(type);
    return type;
}

typedef struct {
    const pal_weight *w;
    unsigned char *found; /* one byte a block of work */
    size_t block;         /* values, whole blocks of the type */
} nan_job;

static bool holds_nan(const pal_weight *w, size_t begin, size_t end) {
    const size_t n = end - begin;
    unsigned bad = 0;
    if (w->type == PAL_F32) {
        const float *x = (const float *)w->data + begin;
        for (size_t i = 0; i < n; i++) bad |= (pal_f32_bits(x[i]) & 0x7fffffffu) > 0x7f800000u;
    } else if (w->type == PAL_F16 || w->type == PAL_BF16) {
        const uint16_t *x = (const uint16_t *)w->data + begin;
        const unsigned infinite = w->type == PAL_F16 ? 0x7c00u : 0x7f80u;
        for (size_t i = 0; i < n; i++) bad |= (x[i] & 0x7fffu) > infinite;
    } else {
        const pal_block_format *format = pal_block_format_of(w->type);
        const unsigned char *blocks = (const unsigned char *)w->data + begin / format->values * format->bytes;
        bad = !pal_blocks_finite(format, blocks, n);
    }
    return bad;
}

static void nan_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const nan_job *job = arg;
    if (holds_nan(job->w, begin, end)) job->found[begin / job->block] = 1;
}

void pal_weights_warn_of_nan(const pal_model *m, const pal_context *cx) {
    enum { BLOCKS = 256, LEAST = 65536 };
    for (size_t i = 0; i < m->table.count; i++) {
        const pal_weight *w = &m->table.entries[i].view;
        unsigned char found[BLOCKS] = { 0 }, any = 0;
        nan_job job = { .w = w, .found = found, .block = (w->count / BLOCKS / PIECE + 1) * PIECE };
        if (job.block < LEAST) job.block = LEAST;
        pal_parallel_ranges(cx, w->count, job.block, nan_task, &job);
        for (int b = 0; b < BLOCKS; b++) any |= found[b];
        if (any && pal_dtype_values(w->type) > 1)
            pal_warn("%s: tensor '%s' has scales that are NaN or infinite", m->source.path, w->name);
        else if (any) pal_warn("%s: tensor '%s' holds NaN", m->source.path, w->name);
    }
}

/* Taken at the first question; two threads that ask at once get the same number. */
struct pal_fingerprint {
    atomic_bool known;
    _Atomic uint64_t value;
};

pal_status pal_fingerprint_keep(pal_model *m, pal_error *err) {
    void *block;
    if (m->use != PAL_FOR_INFERENCE) return PAL_OK; /* training changes the weights */
    const pal_status st = pal_alloc_named(&block, 1, sizeof *m->fingerprint, "a fingerprint", err);
    if (!st) m->fingerprint = block;
    return st;
}

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* Whole rounds of 8 floats into 4 lanes: independent, so that the processor overlaps them. */
static void hash_rounds(uint64_t lane[4], const float *x, size_t n) {
    for (size_t i = 0; i < n; i += 8)
        for (int l = 0; l < 4; l++) {
            uint64_t word;
            memcpy(&word, x + i + 2 * l, sizeof word);
            lane[l] = mix(lane[l], word);
        }
}

static uint64_t hash_end(uint64_t lane[4], const float *x, size_t n) {
    const size_t whole = n & ~(size_t)7;
    hash_rounds(lane, x, whole);
    for (size_t i = whole; i < n; i++) lane[0] = mix(lane[0], pal_f32_bits(x[i]));
    return mix(mix(mix(lane[0], lane[1]), lane[2]), lane[3]);
}

uint64_t pal_hash_floats(uint64_t seed, const float *x, size_t n) {
    uint64_t lane[4] = { seed, seed ^ 1, seed ^ 2, seed ^ 3 };
    return hash_end(lane, x, n);
}

/* Of the values: plain numbers compute the same in every type that holds them. With blocks activations are rounded, so
 * that the same values, decoded, are another model. */
static uint64_t hash_weight(uint64_t seed, const pal_weight *w) {
    if (pal_dtype_values(w->type) > 1)
        for (const char *c = pal_dtype_name(w->type); *c; c++) seed = mix(seed, (unsigned char)*c);
    uint64_t lane[4] = { seed, seed ^ 1, seed ^ 2, seed ^ 3 };
    float x[PIECE];
    size_t at = 0;
    if (w->type == PAL_F32) return hash_end(lane, w->data, w->count);
    for (; w->count - at > PIECE; at += PIECE) {
        pal_weight_read(w, at, PIECE, x);
        hash_rounds(lane, x, PIECE);
    }
    pal_weight_read(w, at, w->count - at, x);
    return hash_end(lane, x, w->count - at);
}

static uint64_t mix_reals(uint64_t hash, const double *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint64_t word;
        memcpy(&word, &x[i], sizeof word);
        hash = mix(hash, word);
    }
    return hash;
}

/* Of a model whose layers are all alike: what decides and shows neither in names nor in shapes of weights. */
static uint64_t mix_mixer(uint64_t hash, const pal_model_config *c) {
    const pal_mixer_spec *m = pal_config_mixer_of(c);
    const double reals[] = { c->norm_eps,    c->rope_theta, m->dt_low,        m->dt_high,
                             m->norm_groups, m->key_heads,  m->mesa_tolerance };
    /* Exact solving leaves fingerprints as they were before there was a choice. */
    hash = mix_reals(hash, reals, PAL_COUNT(reals) - (m->mesa_tolerance > 0 ? 0 : 1));
    return m->softplus_rate ? mix(hash, 1) : hash;
}

/* Of a list of blocks: every number of it. A field that is 0 by default and comes later is mixed in only where it is
 * not 0, so that fingerprints stay. */
static uint64_t mix_blocks(uint64_t hash, const pal_model_config *c) {
    const double whole[] = { c->norm_eps, c->rope_theta, c->embedding_scale, c->logit_scale, c->blocks };
    hash = mix_reals(hash, whole, PAL_COUNT(whole));
    for (int b = 0; b < c->blocks; b++) {
        const pal_block_spec *block = &c->block[b];
        const double one[] = { block->mixers, block->form, block->mlp, block->gate_scale, block->down_scale };
        hash = mix_reals(hash, one, PAL_COUNT(one));
        for (int k = 0; k < block->mixers; k++) {
            const pal_mixer_spec *m = &block->mixer[k];
            const double numbers[] = { m->kind,      m->heads,         m->key_heads, m->dk,          m->dv,
                                       m->conv,      m->tiled,         m->norm,      m->norm_groups, m->dt_low,
                                       m->dt_high,   m->scale,         m->rotary,    m->qk_norm,     m->out_gate,
                                       m->out_scale, m->mesa_tolerance };
            if (m->softplus_rate) hash = mix(hash, 1);
            hash = mix_reals(mix_reals(hash, numbers, PAL_COUNT(numbers)), m->in_scale, PAL_COUNT(m->in_scale));
        }
    }
    for (int i = 0; i < c->layers; i++) hash = mix(hash, c->layer_block[i]);
    return hash;
}

static uint64_t take_fingerprint(const pal_model *m) {
    uint64_t hash = 0x70616c696d707361u;
    for (int i = 0; i < m->config.layers; i++)
        for (const char *c = pal_model_layer_rule(&m->config, i); *c; c++) hash = mix(hash, (unsigned char)*c);
    hash = m->config.hybrid ? mix_blocks(hash, &m->config) : mix_mixer(hash, &m->config);
    const pal_weight_table *table = m->viewed ? &m->viewed->table : &m->table;
    for (size_t i = 0; i < table->count; i++) {
        const pal_weight *w = &table->entries[i].view;
        if (w->unused) continue;
        for (const char *c = w->name; *c; c++) hash = mix(hash, (unsigned char)*c);
        hash = hash_weight(mix(hash, w->count), w);
    }
    return hash;
}

uint64_t pal_model_fingerprint(const pal_model *m) {
    struct pal_fingerprint *f = m->fingerprint;
    if (f && atomic_load(&f->known)) return atomic_load(&f->value);
    const uint64_t hash = take_fingerprint(m);
    if (f) {
        atomic_store(&f->value, hash);
        atomic_store(&f->known, true);
    }
    return hash;
}

typedef struct {
    const pal_weight *from;
    const pal_block_format *format;
    unsigned char *to;
} retype_job;

static void retype_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const retype_job *job = arg;
    float x[PIECE];
    for (size_t at = begin; at < end; at += PIECE) {
        const size_t n = end - at < PIECE ? end - at : PIECE;
        pal_weight_read(job->from, at, n, x);
        pal_blocks_encode(job->format, x, n, job->to + at / job->format->values * job->format->bytes);
    }
}

/* What a weight becomes, and where that goes. */
typedef struct {
    pal_dtype type; /* PAL_DTYPES: it stays as it is */
    size_t at;
} target;

/* Weights that one product reads together stay neighbours when they are of one type. Returns all bytes. */
static size_t place(const pal_model *m, target *targets) {
    size_t used = 0;
    for (size_t i = 0; i < m->table.count; i++) {
        const pal_weight_entry *e = &m->table.entries[i];
        const pal_dtype to = targets[i].type;
        if (to == PAL_DTYPES) continue;
        const size_t line = !e->adjacent ? 64 : to == PAL_F32 ? sizeof(float) : sizeof(uint16_t);
        used = (used + line - 1) / line * line;
        targets[i].at = used;
        used += e->view.count / pal_dtype_values(to) * pal_dtype_size(to);
    }
    return used;
}

/* The weights in memory of their own: *bytes, which is the caller's. */
static pal_status retype(pal_model *m, target *targets, void **bytes, const pal_context *cx, pal_error *err) {
    const pal_status st = pal_alloc_named(bytes, place(m, targets), 1, "weights", err);
    for (size_t i = 0; i < m->table.count && !st; i++) {
        pal_weight *w = &m->table.entries[i].view;
        if (targets[i].type == PAL_DTYPES) continue;
        retype_job job = { .from = w,
                           .format = pal_block_format_of(targets[i].type),
                           .to = (unsigned char *)*bytes + targets[i].at };
        pal_parallel_ranges(cx, w->count, 16 * PIECE, retype_task, &job);
        w->type = targets[i].type;
        w->data = job.to;
    }
    return st;
}

pal_status pal_model_retype(pal_model *m, pal_dtype type, const pal_context *cx, pal_error *err) {
    pal_status st;
    void *block, *bytes;
    const pal_block_format *format = pal_block_format_of(type);
    if (m->use != PAL_FOR_INFERENCE || !format || !format->encode)
        return pal_fail(err, PAL_E_ARGUMENT, "only a model for inference gets another type, and one that it can run");
    if ((st = pal_alloc_named(&block, m->table.count, sizeof(target), "the list of weights", err))) return st;
    target *targets = block;
    for (size_t i = 0; i < m->table.count; i++) {
        pal_weight *w = &m->table.entries[i].view;
        targets[i].type = w->stored = pal_weight_type_in(w, type);
    }
    st = retype(m, targets, &bytes, cx, err);
    pal_free(targets);
    if (st) return st;
    pal_free(m->parameters);
    pal_free(m->retyped);
    pal_free(m->fingerprint);
    m->parameters = NULL;
    m->fingerprint = NULL;
    m->retyped = bytes;
    pal_model_bind(m);
    if ((st = pal_model_move(m, cx, err))) return st;
    return pal_fingerprint_keep(m, err);
}

/* "Q2_K and Q3_K" */
static void name_types(char out[96], const bool found[PAL_DTYPES]) {
    size_t at = 0;
    int left = 0;
    for (int t = 0; t < PAL_DTYPES; t++) left += found[t];
    for (int t = 0, n = 0; t < PAL_DTYPES; t++) {
        if (!found[t]) continue;
        const char *between = n == 0 ? "" : n + 1 == left ? " and " : ", ";
        at += (size_t)snprintf(out + at, 96 - at, "%s%s", between, pal_dtype_name((pal_dtype)t));
        n++;
    }
}

pal_status pal_model_hold_read_types(pal_model *m, const pal_context *cx, pal_error *err) {
    pal_status st;
    void *block;
    bool found[PAL_DTYPES] = { false };
    char types[96];
    size_t count = 0;
    if ((st = pal_alloc_named(&block, m->table.count, sizeof(target), "the list of weights", err))) return st;
    target *targets = block;
    for (size_t i = 0; i < m->table.count; i++) {
        const pal_weight *w = &m->table.entries[i].view;
        const bool reads = pal_block_format_of(w->type)->encode == NULL;
        targets[i].type = reads ? PAL_Q8_0 : PAL_DTYPES;
        count += reads;
        found[w->type] |= reads;
    }
    if (count) st = retype(m, targets, &m->retyped, cx, err);
    if (count && !st) {
        name_types(types, found);
        pal_warn("%s: models do not compute with %s; %zu matrices are held as Q8_0 in %zu MiB of RAM", m->source.path,
                 types, count, place(m, targets) / 1048576 + 1);
    }
    pal_free(targets);
    return st;
}
