/* SPDX-License-Identifier: MIT */
/* Recurrent state: one block of floats with a convolution window and a memory per layer, and its file. */
#include "model/state.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/size.h"
#include "layers/mixer.h"

enum { FILE_VERSION = 2, MAX_CONTEXT = 1 << 24, MAX_MORE = 64 << 20 };
/* Tokens that a sequence of a model without attention may count: as many again can follow without an overflow. */
static const int64_t MAX_POSITION = INT64_MAX / 2;
static const char magic[8] = { 'P', 'A', 'L', 'S', 'T', 'A', 'T', 'E' };

/* All fields are little-endian, as every machine this runs on is. */
typedef struct {
    char magic[8];
    uint32_t version, pending; /* pending: id + 1; 0: none */
    uint64_t fingerprint;
    int64_t position, context;
    uint64_t floats, checksum;
    uint64_t more; /* bytes behind the floats; version 1 has neither this field nor such bytes */
} state_header;
static const size_t header_bytes_1 = offsetof(state_header, more);

static pal_memory_shape shape_of(const pal_model *m, int layer, int context) {
    pal_mixer_plan plan;
    pal_mixer_plan_make(&plan, &m->config, &m->layers[layer]);
    return pal_mixer_shape(&plan, 1, 1, NULL, context);
}

/* Offsets in floats; returns how many there are in all. Either array may be NULL. */
static size_t layout(const pal_model *m, int context, size_t *conv_window_at, size_t *memory_at) {
    size_t at = 0;
    for (int i = 0; i < m->config.layers; i++) {
        pal_mixer_plan plan;
        pal_mixer_plan_make(&plan, &m->config, &m->layers[i]);
        const pal_memory_shape shape = pal_mixer_shape(&plan, 1, 1, NULL, context);
        if (conv_window_at) conv_window_at[i] = at;
        at += (pal_mixer_window_floats(&plan) + 15) & ~(size_t)15;
        if (memory_at) memory_at[i] = at;
        at += (plan.rule->state_floats(&shape) + 15) & ~(size_t)15;
    }
    return at;
}

static bool grows(const pal_model *m) { return m->config.mixer == PAL_MIXER_ATTENTION; }

size_t pal_state_bytes(const pal_model *m, int context) {
    return layout(m, grows(m) ? context : 0, NULL, NULL) * sizeof(float);
}

pal_status pal_state_new(pal_state **out, const pal_model *m, int context, pal_error *err) {
    pal_status st;
    void *block;
    const size_t layers = (size_t)m->config.layers;
    *out = NULL;
    if (grows(m) && (context < 1 || context > MAX_CONTEXT))
        return pal_fail(err, PAL_E_ARGUMENT, "a state for %d tokens of context: expected 1 to %d", context,
                        MAX_CONTEXT);
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_state), "a state", err))) return st;
    pal_state *s = block;
    s->model = m;
    s->context = grows(m) ? context : 0;
    if ((st = pal_alloc_named(&block, 2 * layers, sizeof(size_t), "a state", err))) goto failed;
    s->conv_window_at = block;
    s->memory_at = s->conv_window_at + layers;
    s->floats = layout(m, s->context, s->conv_window_at, s->memory_at);
    if ((st = pal_alloc_named(&block, s->floats, sizeof(float), "a state", err))) goto failed;
    s->data = block;
    pal_state_reset(s);
    *out = s;
    return PAL_OK;
failed:
    pal_state_free(s);
    return st;
}

void pal_state_free(pal_state *s) {
    if (!s) return;
    pal_free(s->conv_window_at);
    pal_free(s->data);
    pal_free(s);
}

/* The rule's parameters of one layer, on the stack: heads are few, and only Ip matters to a state. */
static void with_parameters(const pal_state *s, int layer, float Ip[1 << 12], pal_memory_inputs *in) {
    const pal_layer *l = &s->model->layers[layer];
    *in = (pal_memory_inputs){ .Ip = Ip };
    if (!(l->rule->inputs & PAL_INPUT_IP)) return;
    for (int h = 0; h < s->model->config.heads; h++) Ip[h] = expf(l->w[PAL_W_IP_LOG][h]);
}

void pal_state_reset(pal_state *s) {
    memset(s->data, 0, s->floats * sizeof *s->data);
    s->position = 0;
    s->pending = -1;
    for (int i = 0; i < s->model->config.layers; i++) {
        float Ip[1 << 12];
        pal_memory_inputs in;
        with_parameters(s, i, Ip, &in);
        const pal_memory_shape shape = shape_of(s->model, i, s->context);
        s->model->layers[i].rule->reset(&shape, &in, s->data + s->memory_at[i]);
    }
}

pal_status pal_state_copy(pal_state *to, const pal_state *from, pal_error *err) {
    if (to->model != from->model || to->floats != from->floats)
        return pal_fail(err, PAL_E_ARGUMENT, "a state can be copied only to one of the same model and context");
    memcpy(to->data, from->data, from->floats * sizeof *to->data);
    to->position = from->position;
    to->pending = from->pending;
    return PAL_OK;
}

bool pal_state_is_finite(const pal_state *s) {
    for (size_t i = 0; i < s->floats; i++)
        if (!isfinite(s->data[i])) return false;
    return true;
}

int64_t pal_state_position(const pal_state *s) { return s->position; }

int32_t pal_state_pending(const pal_state *s) { return s->pending; }

pal_status pal_state_set_pending(pal_state *s, int32_t id, pal_error *err) {
    if (id < -1 || id >= s->model->config.vocab)
        return pal_fail(err, PAL_E_ARGUMENT, "a pending token with id %d: the vocabulary has 0 to %d", (int)id,
                        s->model->config.vocab - 1);
    s->pending = id;
    return PAL_OK;
}

const char *pal_state_part(const pal_state *s, int layer, int part, size_t *floats) {
    if (layer < 0 || layer >= s->model->config.layers || part < 0 || part > 1) return NULL;
    const pal_memory_rule *rule = s->model->layers[layer].rule;
    const pal_memory_shape shape = shape_of(s->model, layer, s->context);
    if (rule->parts[part] && floats) *floats = rule->part_floats(&shape, part);
    return rule->parts[part];
}

pal_status pal_state_export(const pal_state *s, int layer, float *part0, float *part1, pal_error *err) {
    float Ip[1 << 12];
    pal_memory_inputs in;
    if (layer < 0 || layer >= s->model->config.layers)
        return pal_fail(err, PAL_E_ARGUMENT, "layer %d: the model has %d", layer, s->model->config.layers);
    float *const parts[2] = { part0, part1 };
    const pal_memory_shape shape = shape_of(s->model, layer, s->context);
    with_parameters(s, layer, Ip, &in);
    s->model->layers[layer].rule->export(&shape, &in, parts, s->data + s->memory_at[layer]);
    return PAL_OK;
}

pal_status pal_state_export_head(const pal_state *s, int layer, int head, float *mean, float *importance,
                                 pal_error *err) {
    const pal_model_config *c = &s->model->config;
    if (layer < 0 || layer >= c->layers || head < 0 || head >= c->heads)
        return pal_fail(err, PAL_E_ARGUMENT, "head %d of layer %d: the model has %d layers of %d heads", head, layer,
                        c->layers, c->heads);
    const pal_memory_rule *rule = s->model->layers[layer].rule;
    if (rule->keeps_tokens)
        return pal_fail(err, PAL_E_ARGUMENT, "layer %d has no memory of keys by values: its rule is %s", layer,
                        rule->name);
    pal_memory_shape shape = shape_of(s->model, layer, s->context);
    shape.heads = shape.key_heads = 1;
    pal_memory_head(rule, &shape, s->data + s->memory_at[layer] + (size_t)head * rule->state_floats(&shape), mean,
                    importance);
    return PAL_OK;
}

pal_status pal_states_check(const pal_model *m, pal_state *const *states, const bool *borrowed, int n,
                            const int *cu_seqlens, pal_error *err) {
    for (int i = 0; i < n; i++) {
        const bool borrows = borrowed && borrowed[i];
        if (!states[i]) return pal_fail(err, PAL_E_ARGUMENT, "state %d is NULL", i);
        if (states[i]->model != m) return pal_fail(err, PAL_E_ARGUMENT, "state %d belongs to another model", i);
        for (int j = 0; j < i; j++)
            if (states[j] == states[i] && !(borrows && borrowed[j]))
                return pal_fail(err, PAL_E_ARGUMENT, "sequences %d and %d share one state", j, i);
        if (borrows && grows(m))
            return pal_fail(err, PAL_E_ARGUMENT, "sequence %d borrows its state, but attention's has to grow", i);
        const int more = cu_seqlens ? cu_seqlens[i + 1] - cu_seqlens[i] : 1;
        if (grows(m) && more > states[i]->context - states[i]->position)
            return pal_fail(err, PAL_E_ARGUMENT,
                            "sequence %d has %lld tokens and gets %d more, but its attention state was made for "
                            "a maximum context of %d",
                            i, (long long)states[i]->position, more, states[i]->context);
    }
    return PAL_OK;
}

/* Of everything but the magic, the version and the checksum itself. */
static uint64_t checksum_of(const state_header *h, const float *data, const void *more) {
    const uint64_t seed = (uint64_t)h->position ^ (uint64_t)h->pending << 32;
    const uint64_t numbers = pal_hash_floats(seed, data, h->floats);
    return h->more ? pal_hash(numbers ^ h->more, more, h->more) : numbers;
}

pal_status pal_state_save_with(const pal_state *s, const void *more, size_t size, const char *path, pal_error *err) {
    pal_writer w;
    state_header header = { .version = FILE_VERSION,
                            .fingerprint = pal_model_fingerprint(s->model),
                            .position = s->position,
                            .pending = (uint32_t)(s->pending + 1),
                            .context = s->context,
                            .floats = s->floats,
                            .more = size };
    memcpy(header.magic, magic, sizeof magic);
    header.checksum = checksum_of(&header, s->data, more);
    const pal_status st = pal_writer_open(&w, path, err);
    if (st) return st;
    if (fwrite(&header, sizeof header, 1, w.stream) != 1 ||
        fwrite(s->data, sizeof *s->data, s->floats, w.stream) != s->floats ||
        (size && fwrite(more, 1, size, w.stream) != size)) {
        const int why = errno;
        pal_writer_drop(&w);
        return pal_fail(err, PAL_E_IO, "%s: cannot write: %s", path, strerror(why));
    }
    return pal_writer_commit(&w, err);
}

pal_status pal_state_save(const pal_state *s, const char *path, pal_error *err) {
    return pal_state_save_with(s, NULL, 0, path, err);
}

/* Fills the header and says where the floats begin. */
static pal_status read_header(const pal_map *map, const char *path, state_header *header, size_t *start,
                              pal_error *err) {
    *header = (state_header){ 0 };
    if (map->size < header_bytes_1)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, a state file has at least %zu", path, map->size,
                        header_bytes_1);
    memcpy(header, map->data, header_bytes_1);
    if (memcmp(header->magic, magic, sizeof magic) != 0)
        return pal_fail(err, PAL_E_FORMAT, "%s: not a state file", path);
    if (header->version < 1 || header->version > FILE_VERSION)
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: state file of version %u, this program reads versions 1 to %d",
                        path, header->version, FILE_VERSION);
    *start = header->version == 1 ? header_bytes_1 : sizeof *header;
    if (map->size < *start)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, a state file has at least %zu", path, map->size, *start);
    memcpy(header, map->data, *start);
    return PAL_OK;
}

static size_t size_of(size_t start, uint64_t floats, uint64_t more) {
    const size_t numbers = floats > SIZE_MAX ? PAL_TOO_LARGE : pal_size_mul((size_t)floats, sizeof(float));
    return pal_size_add(start, pal_size_add(numbers, more > MAX_MORE ? PAL_TOO_LARGE : (size_t)more));
}

pal_status pal_state_peek(pal_state_head *out, const char *path, pal_error *err) {
    pal_map map;
    state_header header;
    size_t start;
    pal_status st = pal_map_open(&map, path, err);
    if (st) return st;
    st = read_header(&map, path, &header, &start, err);
    if (!st && (header.position < 0 || header.position > MAX_POSITION))
        st = pal_fail(err, PAL_E_FORMAT, "%s: the state has %lld tokens, expected 0 to %lld", path,
                      (long long)header.position, (long long)MAX_POSITION);
    const size_t expected = st ? 0 : size_of(start, header.floats, header.more);
    if (!st && map.size != expected)
        st = pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, expected %zu", path, map.size, expected);
    if (!st)
        *out = (pal_state_head){ .fingerprint = header.fingerprint,
                                 .tokens = header.position + (header.pending != 0),
                                 .context = header.context,
                                 .bytes = map.size };
    pal_map_close(&map);
    return st;
}

static pal_status check_file(const pal_state *s, const pal_map *map, const char *path, state_header *header,
                             size_t *start, pal_error *err) {
    const pal_status st = read_header(map, path, header, start, err);
    if (st) return st;
    if (header->fingerprint != pal_model_fingerprint(s->model))
        return pal_fail(err, PAL_E_ARGUMENT,
                        "%s: the state was saved by another model (fingerprint %016llx, this model has %016llx)", path,
                        (unsigned long long)header->fingerprint, (unsigned long long)pal_model_fingerprint(s->model));
    if (header->context != s->context)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: the state was made for %lld tokens of context, this one for %d", path,
                        (long long)header->context, s->context);
    const int64_t most = grows(s->model) ? s->context : MAX_POSITION;
    if (header->position < 0 || header->position > most)
        return pal_fail(err, PAL_E_FORMAT, "%s: the state has %lld tokens, expected 0 to %lld", path,
                        (long long)header->position, (long long)most);
    if (header->pending > (uint32_t)s->model->config.vocab)
        return pal_fail(err, PAL_E_FORMAT, "%s: the token that comes next has id %lld, the vocabulary has 0 to %d",
                        path, (long long)header->pending - 1, s->model->config.vocab - 1);
    const size_t expected = size_of(*start, s->floats, header->more);
    if (header->floats != s->floats || map->size != expected)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, expected %zu", path, map->size, expected);
    const float *data = (const float *)(const void *)(map->data + *start);
    if (header->checksum != checksum_of(header, data, data + s->floats))
        return pal_fail(err, PAL_E_FORMAT, "%s: the checksum does not fit: the file is damaged", path);
    return PAL_OK;
}

pal_status pal_state_load_with(pal_state *s, void **more, size_t *size, const char *path, pal_error *err) {
    pal_map map;
    state_header header;
    size_t start = 0;
    *more = NULL;
    *size = 0;
    pal_status st = pal_map_open(&map, path, err);
    if (st) return st;
    st = check_file(s, &map, path, &header, &start, err);
    if (!st && header.more) st = pal_alloc_named(more, header.more, 1, "what a state's file holds", err);
    if (!st) {
        memcpy(s->data, map.data + start, s->floats * sizeof *s->data);
        s->position = header.position;
        s->pending = (int32_t)header.pending - 1;
        *size = (size_t)header.more;
        if (*size) memcpy(*more, map.data + start + s->floats * sizeof *s->data, *size);
    }
    pal_map_close(&map);
    return st;
}

pal_status pal_state_load(pal_state *s, const char *path, pal_error *err) {
    void *more;
    size_t size;
    const pal_status st = pal_state_load_with(s, &more, &size, path, err);
    pal_free(more);
    return st;
}
