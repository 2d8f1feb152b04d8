/* SPDX-License-Identifier: MIT */
#include "recorded_memory.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static const char *name_of(const pal_memory_rule *rule, int field) {
    return 1u << field == PAL_INPUT_B && strcmp(rule->name, "longhorn") == 0 ? "beta"
                                                                             : pal_memory_input_list[field].name;
}

const char *recorded_memory_name(const pal_memory_rule *rule, unsigned input) {
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++)
        if (input == 1u << i) return name_of(rule, i);
    return NULL;
}

/* Rounding may add T * 2^-24 over a sequence of T tokens. */
double recorded_memory_accept(const recorded_memory *m, const char *name) {
    const bool palimpsa = strcmp(m->rule->name, "palimpsa") == 0;
    double accept = 1e-5;
    if (strncmp(name, "out.", 4) == 0) accept = palimpsa ? 2e-5 : 5e-6;
    else if (palimpsa && strcmp(name, "grad.A") == 0) accept = 3e-4;
    else if (palimpsa && (strcmp(name, "grad.dt") == 0 || strcmp(name, "grad.Ip") == 0)) accept = 5e-5;
    return accept + m->longest * 0x1p-24;
}

static pal_status take(recorded_memory *m, void **out, size_t n, size_t size, pal_error *err) {
    const pal_status st = pal_alloc_named(out, n, size, "a recorded case", err);
    if (!st) m->blocks[m->block_count++] = *out;
    return st;
}

/* The tensor "in.NAME" with so many elements; NULL if the file does not have it. */
static pal_status read_tensor(recorded_memory *m, const pal_safetensors *file, const char *name, size_t count,
                              const float **out, pal_error *err) {
    char full[64];
    snprintf(full, sizeof full, "in.%s", name);
    const pal_tensor *t = pal_safetensors_find(file, full);
    void *block;
    pal_status st;
    *out = NULL;
    if (!t) return PAL_OK;
    if (t->count != count)
        return pal_fail(err, PAL_E_FORMAT, "%s has %zu elements, expected %zu", full, t->count, count);
    if ((st = take(m, &block, count, sizeof(float), err))) return st;
    *out = block;
    return pal_tensor_to_f32(t, block, err);
}

static pal_status read_required(recorded_memory *m, const pal_safetensors *file, const char *name, size_t count,
                                const float **out, pal_error *err) {
    const pal_status st = read_tensor(m, file, name, count, out, err);
    return st || *out ? st : pal_fail(err, PAL_E_FORMAT, "in.%s is missing", name);
}

static pal_status find_shape(const pal_safetensors *file, const char *name, const pal_tensor **out, pal_error *err) {
    const pal_tensor *t = *out = pal_safetensors_find(file, name);
    if (!t) return pal_fail(err, PAL_E_FORMAT, "%s is missing", name);
    if (t->rank != 4) return pal_fail(err, PAL_E_FORMAT, "%s has %d dimensions, expected 4", name, t->rank);
    return PAL_OK;
}

static int64_t integer_at(const pal_tensor *t, size_t i) {
    int64_t wide;
    int32_t narrow;
    if (t->dtype == PAL_I64) { /* copied: a file's data may lie anywhere */
        memcpy(&wide, (const char *)t->data + i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)t->data + i * sizeof narrow, sizeof narrow);
    return narrow;
}

static pal_status read_sequences(recorded_memory *m, const pal_safetensors *file, int batch, int length,
                                 pal_error *err) {
    const pal_tensor *packed = pal_safetensors_find(file, "in.cu_seqlens");
    const int tokens = m->shape.tokens;
    void *block;
    pal_status st;
    if (packed && ((packed->dtype != PAL_I64 && packed->dtype != PAL_I32) || packed->rank != 1 || packed->count < 2 ||
                   packed->count > (size_t)tokens + 1 || batch != 1))
        return pal_fail(err, PAL_E_FORMAT, "in.cu_seqlens must be 2 or more I64 or I32 numbers and the batch 1");
    m->shape.sequences = packed ? (int)packed->count - 1 : batch;
    if ((st = take(m, &block, (size_t)m->shape.sequences + 1, sizeof(int), err))) return st;
    int *cu = block;
    for (int n = 0; n <= m->shape.sequences; n++) {
        const int64_t at = packed ? integer_at(packed, (size_t)n) : (int64_t)n * length;
        if (at < 0 || at > tokens)
            return pal_fail(err, PAL_E_FORMAT, "in.cu_seqlens[%d] is %lld, the case has %d tokens", n, (long long)at,
                            tokens);
        cu[n] = (int)at;
        if (n && cu[n] - cu[n - 1] > m->longest) m->longest = cu[n] - cu[n - 1];
    }
    m->shape.cu_seqlens = cu;
    return PAL_OK;
}

static pal_status read_shape(recorded_memory *m, const pal_safetensors *file, pal_error *err) {
    const pal_tensor *q, *v;
    pal_status st;
    if ((st = find_shape(file, "in.q", &q, err)) || (st = find_shape(file, "in.v", &v, err))) return st;
    const int64_t *s = q->shape;
    if (s[0] < 1 || s[1] < 1 || s[2] < 1 || s[3] < 1 || v->shape[3] < 1 || q->count > INT32_MAX || v->count > INT32_MAX)
        return pal_fail(err, PAL_E_FORMAT, "in.q and in.v must be [B,T,H,D] with every size at least 1");
    if (memcmp(v->shape, s, 3 * sizeof *s) != 0)
        return pal_fail(err, PAL_E_FORMAT,
                        "in.v is for %lld x %lld tokens and %lld heads, in.q for %lld x %lld and %lld",
                        (long long)v->shape[0], (long long)v->shape[1], (long long)v->shape[2], (long long)s[0],
                        (long long)s[1], (long long)s[2]);
    m->shape = (pal_memory_shape){ .tokens = (int)(s[0] * s[1]),
                                   .heads = (int)s[2],
                                   .key_heads = (int)s[2],
                                   .dk = (int)s[3],
                                   .dv = (int)v->shape[3] };
    return read_sequences(m, file, (int)s[0], (int)s[1], err);
}

static pal_status read_inputs(recorded_memory *m, const pal_safetensors *file, pal_error *err) {
    const pal_memory_shape *s = &m->shape;
    const float *x;
    pal_status st;
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
        if (!(m->rule->inputs & 1u << i)) continue;
        char *field = (char *)&m->in + pal_memory_input_list[i].input;
        const size_t channels = (size_t)pal_memory_channels(m->rule, s, 1u << i);
        if (pal_memory_input_list[i].parameter) {
            if ((st = read_required(m, file, name_of(m->rule, i), channels, (const float **)field, err))) return st;
        } else {
            if ((st = read_required(m, file, name_of(m->rule, i), (size_t)s->tokens * channels, &x, err))) return st;
            *(pal_const_view *)field = (pal_const_view){ x, channels };
        }
    }
    if ((st = read_required(m, file, "scale", 1, &x, err))) return st;
    m->in.scale = *x;
    return PAL_OK;
}

/* Gradients from above and the memory's start. */
static pal_status read_ends(recorded_memory *m, const pal_safetensors *file, pal_error *err) {
    const size_t outputs = (size_t)m->shape.tokens * (size_t)m->shape.heads * (size_t)m->shape.dv;
    pal_status st;
    if ((st = read_tensor(m, file, "dy", outputs, &m->dy, err))) return st;
    if (m->rule->has_variance && (st = read_tensor(m, file, "dy_var", outputs, &m->dy_var, err))) return st;
    for (int p = 0; p < 2 && m->rule->parts[p]; p++) {
        const size_t count = (size_t)m->shape.sequences * m->rule->part_floats(&m->shape, p);
        char name[32];
        snprintf(name, sizeof name, "d%s_T", m->rule->parts[p]);
        if ((st = read_tensor(m, file, name, count, &m->dfinal[p], err))) return st;
        snprintf(name, sizeof name, "%s0", m->rule->parts[p]);
        if ((st = read_tensor(m, file, name, count, &m->initial[p], err))) return st;
    }
    if (m->rule->parts[1] && !m->initial[0] != !m->initial[1])
        return pal_fail(err, PAL_E_FORMAT, "an initial memory needs every part of '%s'", m->rule->name);
    return PAL_OK;
}

pal_status recorded_memory_read(recorded_memory *out, const pal_memory_rule *rule, const pal_safetensors *file,
                                pal_error *err) {
    pal_status st;
    *out = (recorded_memory){ .rule = rule };
    if ((st = read_shape(out, file, err)) || (st = read_inputs(out, file, err))) return st;
    return read_ends(out, file, err);
}

void recorded_memory_free(recorded_memory *m) {
    for (int i = 0; i < m->block_count; i++) pal_free(m->blocks[i]);
    m->block_count = 0;
}
