/* SPDX-License-Identifier: MIT */
#include "format/gguf_writer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/context.h"
#include "base/directory.h"
#include "base/half.h"
#include "base/io.h"
#include "base/map.h"
#include "base/parallel.h"
#include "format/audit.h"
#include "format/gguf.h"
#include "format/gguf_values.h"
#include "format/model_writer.h"

enum { ALIGNMENT = 32, CONTEXT = 1 << 20, PIECE = 1 << 18 /* values at once */, ENCODED = 1 << 13 /* by a thread */ };

typedef struct {
    char name[64];
    const pal_block_format *format;
    int rank;
    int64_t dims[4]; /* fastest first */
    size_t offset, bytes;
    bool decay;
} entry;

typedef struct {
    const char *path;
    const pal_source *source;
    const pal_gguf_contents *contents;
    pal_writer w;
    entry *entries;
    size_t data;            /* bytes, padded */
    float *values, *stored; /* (PIECE) as they are, and as they are read back */
    unsigned char *packed;
    pal_go_on_fn *progress;
    void *user;
    size_t written; /* of the data */
    pal_error *err;
} writer;

static void put(writer *w, const void *bytes, size_t size) { /* failures are met at the commit */
    if (size) fwrite(bytes, 1, size, w->w.stream);
}

static void put_number(writer *w, uint64_t x, int bytes) {
    unsigned char out[8];
    for (int i = 0; i < bytes; i++) out[i] = (unsigned char)(x >> (8 * i));
    put(w, out, (size_t)bytes);
}

static void put_string(writer *w, const char *text) {
    put_number(w, strlen(text), 8);
    put(w, text, strlen(text));
}

static void pair_u32(writer *w, const char *key, uint32_t value) {
    put_string(w, key);
    put_number(w, PAL_GGUF_U32, 4);
    put_number(w, value, 4);
}

static void pair_string(writer *w, const char *key, const char *value) {
    put_string(w, key);
    put_number(w, PAL_GGUF_STRING, 4);
    put_string(w, value);
}

/* A number, a switch or a list of whole numbers. */
static void pair_json(writer *w, const char *key, const json_t *value) {
    const bool real = json_is_real(value), list = json_is_array(value);
    put_string(w, key);
    put_number(w,
               list                     ? PAL_GGUF_ARRAY
               : real                   ? PAL_GGUF_F32
               : json_is_boolean(value) ? PAL_GGUF_BOOL
                                        : PAL_GGUF_U32,
               4);
    if (list) {
        put_number(w, PAL_GGUF_I32, 4);
        put_number(w, json_array_size(value), 8);
        for (size_t i = 0; i < json_array_size(value); i++)
            put_number(w, (uint64_t)json_integer_value(json_array_get(value, i)), 4);
    } else if (json_is_boolean(value)) {
        put_number(w, json_is_true(value), 1);
    } else {
        put_number(w, real ? pal_f32_bits((float)json_real_value(value)) : (uint64_t)json_integer_value(value), 4);
    }
}

/* Mamba2 has names and shapes of its own in these files. */
static pal_status mamba2_entry(const writer *w, entry *e, const pal_tensor *t) {
    bool matrix;
    if (!pal_gguf_name_of(e->name, &matrix, &e->decay, t->name))
        return pal_fail(w->err, PAL_E_UNSUPPORTED, "%s: tensor '%s' has no place in a GGUF of Mamba2", w->path,
                        t->name);
    const char *last = strrchr(e->name, '.');
    if (e->rank == 3) { /* [channels, 1, taps] loses the 1 */
        e->dims[1] = e->dims[2];
        e->rank = 2;
    } else if (strcmp(last, ".ssm_a") == 0 || strcmp(last, ".ssm_d") == 0) { /* one row a head */
        e->dims[1] = e->dims[0], e->dims[0] = 1;
        e->rank = 2;
    } else if (strstr(e->name, ".ssm_norm.")) {
        e->dims[0] /= w->contents->groups, e->dims[1] = w->contents->groups;
        e->rank = 2;
    }
    return PAL_OK;
}

static pal_status plan_entry(writer *w, entry *e, const pal_tensor *t, pal_dtype type) {
    e->format = pal_block_format_of(type);
    e->rank = t->rank;
    for (int i = 0; i < t->rank; i++) e->dims[i] = t->shape[t->rank - 1 - i];
    if (!w->contents->config && !w->contents->family) {
        const pal_status st = mamba2_entry(w, e, t);
        if (st) return st;
    } else if (strlen(t->name) >= sizeof e->name || t->rank > 4) {
        return pal_fail(w->err, PAL_E_UNSUPPORTED,
                        "%s: tensor '%s' is too long a name, or has too many dimensions, for a "
                        "GGUF file",
                        w->path, t->name);
    } else {
        strcpy(e->name, t->name);
    }
    e->bytes = t->count / e->format->values * e->format->bytes;
    e->offset = w->data;
    w->data = (w->data + e->bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    return PAL_OK;
}

/* general.file_type: what the largest matrix of a block is, in GGUF's own numbering. */
static uint32_t file_type(const writer *w) {
    static const struct {
        pal_dtype type;
        uint32_t file;
    } types[] = { { PAL_F32, 0 },   { PAL_F16, 1 },   { PAL_Q4_0, 2 },    { PAL_Q4_1, 3 },    { PAL_Q8_0, 7 },
                  { PAL_Q5_0, 8 },  { PAL_Q5_1, 9 },  { PAL_Q2_K, 10 },   { PAL_Q3_K, 12 },   { PAL_Q4_K, 15 },
                  { PAL_Q5_K, 17 }, { PAL_Q6_K, 18 }, { PAL_IQ4_NL, 25 }, { PAL_IQ4_XS, 30 }, { PAL_BF16, 32 } };
    const entry *largest = NULL;
    size_t most = 0;
    for (size_t i = 0; i < w->contents->count; i++) {
        const entry *e = &w->entries[i];
        const bool outer = strstr(e->name, "embd") || strstr(e->name, "embedding") || strstr(e->name, "output.") ||
                           strstr(e->name, "lm_head");
        if (!outer && w->contents->tensors[i]->count > most) most = w->contents->tensors[i]->count, largest = e;
    }
    for (size_t k = 0; largest && k < PAL_COUNT(types); k++)
        if (types[k].type == largest->format->type) return types[k].file;
    return 0;
}

static void write_mamba2_pairs(writer *w) {
    const pal_gguf_contents *p = w->contents;
    const float eps = (float)p->eps;
    const bool padded = p->vocab != p->vocab_rows;
    pair_u32(w, "mamba2.context_length", CONTEXT);
    pair_u32(w, "mamba2.embedding_length", (uint32_t)p->hidden);
    pair_u32(w, "mamba2.block_count", (uint32_t)p->layers);
    pair_u32(w, "mamba2.feed_forward_length", 0);
    pair_u32(w, "mamba2.attention.head_count", 0);
    pair_u32(w, "mamba2.vocab_size", (uint32_t)p->vocab_rows);
    pair_u32(w, "mamba2.ssm.conv_kernel", (uint32_t)p->conv);
    pair_u32(w, "mamba2.ssm.inner_size", (uint32_t)p->inner);
    pair_u32(w, "mamba2.ssm.state_size", (uint32_t)p->state);
    pair_u32(w, "mamba2.ssm.time_step_rank", (uint32_t)p->heads);
    pair_u32(w, "mamba2.ssm.group_count", (uint32_t)p->groups);
    put_string(w, "mamba2.attention.layer_norm_rms_epsilon");
    put_number(w, PAL_GGUF_F32, 4);
    put_number(w, pal_f32_bits(eps), 4);
    if (padded) pair_u32(w, "palimpsa.unpadded_vocab_size", (uint32_t)p->vocab);
}

static void write_family_pairs(writer *w) {
    const pal_gguf_contents *p = w->contents;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)p->family, key, value) {
        char full[128];
        snprintf(full, sizeof full, "%s.%s", p->architecture, key);
        pair_json(w, full, value);
    }
    if (p->vocab != p->vocab_rows) pair_u32(w, "palimpsa.unpadded_vocab_size", (uint32_t)p->vocab);
}

static void write_head(writer *w) {
    const pal_gguf_contents *p = w->contents;
    const size_t padded = p->vocab != p->vocab_rows;
    const size_t general = 5, own = p->config ? 1 : p->family ? json_object_size(p->family) + padded : 12 + padded;
    put(w, "GGUF", 4);
    put_number(w, 3, 4);
    put_number(w, p->count, 8);
    put_number(w, p->pair_count + general + own, 8);
    pair_string(w, "general.architecture", p->architecture);
    pair_string(w, "general.name", p->name);
    pair_u32(w, "general.alignment", ALIGNMENT);
    pair_u32(w, "general.quantization_version", 2);
    pair_u32(w, "general.file_type", file_type(w));
    if (p->config) pair_string(w, "palimpsa.config", p->config);
    else if (p->family) write_family_pairs(w);
    else write_mamba2_pairs(w);
    put(w, p->pairs, p->pairs_size);
    for (size_t i = 0; i < p->count; i++) {
        const entry *e = &w->entries[i];
        put_string(w, e->name);
        put_number(w, (uint64_t)e->rank, 4);
        for (int d = 0; d < e->rank; d++) put_number(w, (uint64_t)e->dims[d], 8);
        put_number(w, e->format->ggml, 4);
        put_number(w, e->offset, 8);
    }
}

static void pad(writer *w, size_t to) {
    static const unsigned char zeroes[ALIGNMENT];
    put(w, zeroes, to);
}

static pal_status advance(writer *w, size_t bytes) {
    w->written += bytes;
    if (ferror(w->w.stream))
        return pal_fail(w->err, PAL_E_IO, "%s: cannot write: %s", w->path, strerror(errno ? errno : EIO));
    if (w->progress && !w->progress(w->user, w->written, w->data))
        return pal_fail(w->err, PAL_STOPPED, "%s: interrupted; nothing was written", w->path);
    return PAL_OK;
}

/* The bytes to write, where the source has them already; a decay only a GGUF file has as it shall be. */
static const unsigned char *ready_bytes(const writer *w, const entry *e, const pal_tensor *t) {
    if (strcmp(e->format->name, pal_source_stored(w->source, t)) != 0) return NULL;
    return e->decay ? pal_source_gguf_bytes(w->source, t) : t->data;
}

typedef struct {
    const pal_block_format *format;
    const float *values;
    unsigned char *packed;
} encode_job;

static void encode_task(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const encode_job *job = arg;
    pal_blocks_encode(job->format, job->values + begin, end - begin,
                      job->packed + begin / job->format->values * job->format->bytes);
}

/* From values to packed, by way of stored. */
static void make_packed(writer *w, const entry *e, size_t n, pal_audit *audit) {
    encode_job job = { .format = e->format, .values = w->values, .packed = w->packed };
    if (e->decay) {
        for (size_t i = 0; i < n; i++) w->stored[i] = -expf(w->values[i]);
        pal_audit_values(audit, w->values, w->stored, n);
        memcpy(w->values, w->stored, n * sizeof *w->values);
    }
    if (w->contents->cx) pal_parallel_ranges(w->contents->cx, n, ENCODED, encode_task, &job);
    else encode_task(&job, 0, n, 0);
    if (e->decay) return; /* stored as F32 */
    pal_values_decode(e->format->type, w->packed, 0, n, w->stored);
    pal_audit_values(audit, w->values, w->stored, n);
}

static pal_status write_tensor(writer *w, const entry *e, const pal_tensor *t) {
    pal_status st;
    if ((st = pal_source_check(w->source, t, w->err))) return st;
    const unsigned char *ready = ready_bytes(w, e, t);
    pal_audit audit = { 0 };
    for (size_t at = 0; at < t->count; at += PIECE) {
        const size_t n = t->count - at < PIECE ? t->count - at : PIECE;
        const size_t bytes = n * e->format->bytes / e->format->values;
        if ((st = pal_source_read(w->source, t, at, n, w->values, w->err))) return st;
        if (ready) {
            put(w, ready + at / e->format->values * e->format->bytes, bytes);
            pal_audit_values(&audit, w->values, w->values, n);
        } else {
            make_packed(w, e, n, &audit);
            put(w, w->packed, bytes);
        }
        if ((st = advance(w, bytes))) return st;
    }
    pad(w, (ALIGNMENT - e->bytes % ALIGNMENT) % ALIGNMENT);
    pal_audit_warn(&audit, w->source->path, t->name, e->format->name);
    return PAL_OK;
}

static pal_status write_all(writer *w) {
    pal_status st;
    errno = 0;
    write_head(w);
    const long head = ftell(w->w.stream);
    if (head < 0 || fflush(w->w.stream) != 0)
        return pal_fail(w->err, PAL_E_IO, "%s: cannot write: %s", w->path, strerror(errno));
    const size_t begin = ((size_t)head + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (!pal_io_reserve(w->w.file->fd, begin + w->data))
        return pal_fail(w->err, PAL_E_IO, "%s: no room for %zu bytes: %s", w->path, begin + w->data, strerror(errno));
    pad(w, begin - (size_t)head);
    for (size_t i = 0; i < w->contents->count; i++)
        if ((st = write_tensor(w, &w->entries[i], w->contents->tensors[i]))) return st;
    return PAL_OK;
}

pal_status pal_gguf_write(const char *path, const pal_source *source, const pal_gguf_contents *contents,
                          pal_go_on_fn *progress, void *user, pal_error *err) {
    writer w = { .path = path, .source = source, .contents = contents, .progress = progress, .user = user, .err = err };
    pal_status st;
    if ((st = pal_target_is_free(path, false, err))) return st;
    w.entries = pal_alloc(contents->count + 1, sizeof *w.entries);
    w.values = pal_alloc(PIECE, sizeof *w.values);
    w.stored = pal_alloc(PIECE, sizeof *w.stored);
    w.packed = pal_alloc(PIECE, sizeof(float));
    if (!w.entries || !w.values || !w.stored || !w.packed)
        st = pal_fail(err, PAL_E_MEMORY, "out of memory while writing %s", path);
    for (size_t i = 0; i < contents->count && !st; i++)
        st = plan_entry(&w, &w.entries[i], contents->tensors[i], contents->types[i]);
    if (!st) pal_make_parents(path);
    if (!st) st = pal_writer_open(&w.w, path, err);
    if (!st) {
        w.w.fresh = true;
        st = write_all(&w);
        if (!st) st = pal_writer_commit(&w.w, err);
        pal_writer_drop(&w.w);
    }
    pal_free(w.entries);
    pal_free(w.values);
    pal_free(w.stored);
    pal_free(w.packed);
    return st;
}
