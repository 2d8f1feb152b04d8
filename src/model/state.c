/* SPDX-License-Identifier: MIT */
/* Recurrent state: one block of floats with a convolution window and a memory per layer, then the caches of layers that
 * attend; and its file. */
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

enum { FILE_VERSION = 3, FIXED_VERSION = 2, MAX_CONTEXT = 1 << 24, MAX_MORE = 64 << 20 };
/* Tokens that a sequence of a model without attention may count: as many again can follow without an overflow. */
static const int64_t MAX_POSITION = INT64_MAX / 2;
static const char magic[8] = { 'P', 'A', 'L', 'S', 'T', 'A', 'T', 'E' };

/* All fields are little-endian, as every machine this runs on is. Version 3 is written of models that attend: of their
 * caches it has the tokens that exist, where versions 1 and 2 have the whole context. */
typedef struct {
    char magic[8];
    uint32_t version, pending; /* pending: id + 1; 0: none */
    uint64_t fingerprint;
    int64_t position, context;
    uint64_t floats, checksum;
    uint64_t more; /* bytes after the floats; version 1 has neither this field nor such bytes */
} state_header;
static const size_t header_bytes_1 = offsetof(state_header, more);

static size_t line_of(size_t floats) { return (floats + 15) & ~(size_t)15; }

/* The first mixer of a layer, for its memory; false: it has no memory, or no mixer at all. */
static bool plan_of(const pal_model *m, int layer, pal_mixer_plan *plan) {
    const pal_block_spec *block = pal_model_block(&m->config, layer);
    if (block->mixers) pal_mixer_plan_make(plan, &m->config, &block->mixer[0], &m->layers[layer]);
    return block->mixers && plan->rule;
}

static bool shape_of(const pal_model *m, int layer, int context, pal_memory_shape *shape) {
    pal_mixer_plan plan;
    if (!plan_of(m, layer, &plan)) return false;
    *shape = pal_mixer_shape(&plan, 1, 1, NULL, context);
    return true;
}

/* A cache as 2 key_heads strips, keys then values, of `context` rows each. Every layer has at most one. */
typedef struct {
    bool beside; /* of the second mixer */
    size_t strips, width;
} cache;

static bool cache_of(const pal_model_config *c, int layer, cache *out) {
    const pal_block_spec *block = pal_model_block(c, layer);
    for (int k = 0; k < block->mixers; k++) {
        const pal_mixer_spec *m = &block->mixer[k];
        if (!pal_config_kinds[m->kind].attends) continue;
        *out = (cache){ .beside = k > 0, .strips = 2 * (size_t)m->key_heads, .width = (size_t)m->dk };
        return true;
    }
    return false;
}

/* Floats of all fixed parts; offsets may be NULL. */
static size_t layout_fixed(const pal_model *m, size_t *conv_window_at, size_t *memory_at) {
    size_t at = 0;
    for (int i = 0; i < m->config.layers; i++) {
        const pal_block_spec *block = pal_model_block(&m->config, i);
        pal_mixer_plan plan;
        if (conv_window_at) conv_window_at[i] = memory_at[i] = at;
        if (!block->mixers) continue;
        pal_mixer_plan_make(&plan, &m->config, &block->mixer[0], &m->layers[i]);
        at += line_of(pal_mixer_window_floats(&plan));
        if (plan.program != PAL_MIXER_GATED) continue;
        const pal_memory_shape shape = pal_mixer_shape(&plan, 1, 1, NULL, 0);
        if (memory_at) memory_at[i] = at;
        at += line_of(plan.rule->state_floats(&shape));
    }
    return at;
}

static size_t strip_floats(const cache *k, int context) { return (size_t)context * k->width; }

/* Offsets in floats; returns how many there are in all. */
static size_t layout(pal_state *s) {
    const pal_model_config *c = &s->model->config;
    size_t at = s->fixed = layout_fixed(s->model, s->conv_window_at, s->memory_at);
    for (int i = 0; i < c->layers; i++) {
        cache k;
        s->beside_at[i] = at;
        if (!cache_of(c, i, &k)) continue;
        if (!k.beside) s->memory_at[i] = at;
        at += line_of(k.strips * strip_floats(&k, s->context));
    }
    return at;
}

size_t pal_state_bytes(const pal_model *m, int context) {
    size_t floats = layout_fixed(m, NULL, NULL);
    cache k;
    for (int i = 0; i < m->config.layers; i++)
        if (cache_of(&m->config, i, &k)) floats += line_of(k.strips * strip_floats(&k, context));
    return floats * sizeof(float);
}

size_t pal_state_used_floats(const pal_model *m, int64_t position) {
    size_t floats = layout_fixed(m, NULL, NULL);
    cache k;
    for (int i = 0; i < m->config.layers; i++)
        if (cache_of(&m->config, i, &k)) floats += k.strips * (size_t)position * k.width;
    return floats;
}

pal_status pal_state_new(pal_state **out, const pal_model *m, int context, pal_error *err) {
    pal_status st;
    void *block;
    const size_t layers = (size_t)m->config.layers;
    const bool grows = pal_model_grows(&m->config);
    *out = NULL;
    if (grows && (context < 1 || context > MAX_CONTEXT))
        return pal_fail(err, PAL_E_ARGUMENT, "a state for %d tokens of context: expected 1 to %d", context,
                        MAX_CONTEXT);
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_state), "a state", err))) return st;
    pal_state *s = block;
    s->model = m;
    s->context = grows ? context : 0;
    if ((st = pal_alloc_named(&block, 3 * layers, sizeof(size_t), "a state", err))) goto failed;
    s->conv_window_at = block;
    s->memory_at = s->conv_window_at + layers;
    s->beside_at = s->memory_at + layers;
    s->floats = layout(s);
    if (!(s->data = pal_alloc_unset(s->floats, sizeof(float)))) {
        st = pal_fail(err, PAL_E_MEMORY, "out of memory: a state (%zu x %zu bytes)", s->floats, sizeof(float));
        goto failed;
    }
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
    if (!l->rule || !(l->rule->inputs & PAL_INPUT_IP)) return;
    const int heads = pal_model_memory(&s->model->config, layer)->heads;
    for (int h = 0; h < heads; h++) Ip[h] = expf(l->w[PAL_W_IP_LOG][h]);
}

void pal_state_reset(pal_state *s) {
    memset(s->data, 0, s->fixed * sizeof *s->data);
    s->position = 0;
    s->pending = -1;
    for (int i = 0; i < s->model->config.layers; i++) {
        float Ip[1 << 12];
        pal_memory_inputs in;
        pal_memory_shape shape;
        const pal_memory_rule *rule = s->model->layers[i].rule;
        if (!rule || rule->keeps_tokens || !shape_of(s->model, i, 0, &shape)) continue;
        with_parameters(s, i, Ip, &in);
        rule->reset(&shape, &in, s->data + s->memory_at[i]);
    }
}

/* Where strip `strip` of layer i's cache begins. */
static float *strip_of(const pal_state *s, int i, const cache *k, size_t strip) {
    return s->data + (k->beside ? s->beside_at[i] : s->memory_at[i]) + strip * strip_floats(k, s->context);
}

/* Copies the fixed part, and of every cache the tokens that exist, to and from one row of floats. */
static void pack(const pal_state *s, float *to) {
    cache k;
    memcpy(to, s->data, s->fixed * sizeof *to);
    to += s->fixed;
    for (int i = 0; i < s->model->config.layers; i++) {
        if (!cache_of(&s->model->config, i, &k)) continue;
        const size_t n = (size_t)s->position * k.width;
        for (size_t strip = 0; strip < k.strips; strip++, to += n)
            memcpy(to, strip_of(s, i, &k, strip), n * sizeof *to);
    }
}

static void unpack(pal_state *s, const float *from) {
    cache k;
    memcpy(s->data, from, s->fixed * sizeof *from);
    from += s->fixed;
    for (int i = 0; i < s->model->config.layers; i++) {
        if (!cache_of(&s->model->config, i, &k)) continue;
        const size_t n = (size_t)s->position * k.width;
        for (size_t strip = 0; strip < k.strips; strip++, from += n)
            memcpy(strip_of(s, i, &k, strip), from, n * sizeof *from);
    }
}

pal_status pal_state_copy(pal_state *to, const pal_state *from, pal_error *err) {
    cache k;
    if (to->model != from->model || (to->floats > to->fixed && to->context < from->position))
        return pal_fail(err, PAL_E_ARGUMENT,
                        "a state can be copied only to one of the same model whose context holds its %lld tokens",
                        (long long)from->position);
    memcpy(to->data, from->data, from->fixed * sizeof *to->data);
    for (int i = 0; i < to->model->config.layers; i++) {
        if (!cache_of(&to->model->config, i, &k)) continue;
        for (size_t strip = 0; strip < k.strips; strip++)
            memcpy(strip_of(to, i, &k, strip), strip_of(from, i, &k, strip),
                   (size_t)from->position * k.width * sizeof *to->data);
    }
    to->position = from->position;
    to->pending = from->pending;
    return PAL_OK;
}

static bool all_finite(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

bool pal_state_is_finite(const pal_state *s) {
    cache k;
    bool finite = all_finite(s->data, s->fixed);
    for (int i = 0; i < s->model->config.layers && finite; i++) {
        if (!cache_of(&s->model->config, i, &k)) continue;
        for (size_t strip = 0; strip < k.strips && finite; strip++)
            finite = all_finite(strip_of(s, i, &k, strip), (size_t)s->position * k.width);
    }
    return finite;
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
    pal_memory_shape shape;
    if (layer < 0 || layer >= s->model->config.layers || part < 0 || part > 1) return NULL;
    if (!shape_of(s->model, layer, s->context, &shape)) return NULL;
    const pal_memory_rule *rule = s->model->layers[layer].rule;
    if (rule->parts[part] && floats) *floats = rule->part_floats(&shape, part);
    return rule->parts[part];
}

/* Rows of tokens that do not exist yet become zeros. */
static void clear_unused(const pal_state *s, const pal_memory_shape *shape, float *const parts[2]) {
    const int widths[2] = { shape->dk, shape->dv };
    const size_t context = (size_t)shape->context, used = (size_t)s->position;
    for (int part = 0; part < 2; part++) {
        const size_t width = (size_t)widths[part];
        for (size_t h = 0; parts[part] && h < (size_t)shape->key_heads; h++)
            memset(parts[part] + (h * context + used) * width, 0, (context - used) * width * sizeof(float));
    }
}

pal_status pal_state_export(const pal_state *s, int layer, float *part0, float *part1, pal_error *err) {
    float Ip[1 << 12];
    pal_memory_inputs in;
    pal_memory_shape shape;
    if (layer < 0 || layer >= s->model->config.layers)
        return pal_fail(err, PAL_E_ARGUMENT, "layer %d: the model has %d", layer, s->model->config.layers);
    if (!shape_of(s->model, layer, s->context, &shape))
        return pal_fail(err, PAL_E_ARGUMENT, "layer %d has no memory", layer);
    float *const parts[2] = { part0, part1 };
    with_parameters(s, layer, Ip, &in);
    const pal_memory_rule *rule = s->model->layers[layer].rule;
    rule->export(&shape, &in, parts, s->data + s->memory_at[layer]);
    if (rule->keeps_tokens) clear_unused(s, &shape, parts);
    return PAL_OK;
}

pal_status pal_state_export_head(const pal_state *s, int layer, int head, float *mean, float *importance,
                                 pal_error *err) {
    const pal_model_config *c = &s->model->config;
    const pal_mixer_spec *memory = layer >= 0 && layer < c->layers ? pal_model_memory(c, layer) : NULL;
    pal_memory_shape shape;
    if (layer >= 0 && layer < c->layers && !memory)
        return pal_fail(err, PAL_E_ARGUMENT, "layer %d has no memory of keys by values: its rule is %s", layer,
                        pal_model_layer_rule(c, layer));
    if (!memory)
        return pal_fail(err, PAL_E_ARGUMENT, "head %d of layer %d: the model has %d layers", head, layer, c->layers);
    if (head < 0 || head >= memory->heads)
        return pal_fail(err, PAL_E_ARGUMENT, "head %d of layer %d: the layer has %d heads", head, layer, memory->heads);
    const pal_memory_rule *rule = s->model->layers[layer].rule;
    shape_of(s->model, layer, s->context, &shape);
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
        const bool grows = states[i]->floats > states[i]->fixed;
        if (states[i]->model != m) return pal_fail(err, PAL_E_ARGUMENT, "state %d belongs to another model", i);
        for (int j = 0; j < i; j++)
            if (states[j] == states[i] && !(borrows && borrowed[j]))
                return pal_fail(err, PAL_E_ARGUMENT, "sequences %d and %d share one state", j, i);
        if (borrows && grows)
            return pal_fail(err, PAL_E_ARGUMENT, "sequence %d borrows its state, but attention's has to grow", i);
        const int more = cu_seqlens ? cu_seqlens[i + 1] - cu_seqlens[i] : 1;
        if (grows && more > states[i]->context - states[i]->position)
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

static pal_status write_file(const state_header *header, const float *data, const void *more, const char *path,
                             pal_error *err) {
    pal_writer w;
    const pal_status st = pal_writer_open(&w, path, err);
    if (st) return st;
    if (fwrite(header, sizeof *header, 1, w.stream) != 1 ||
        fwrite(data, sizeof *data, header->floats, w.stream) != header->floats ||
        (header->more && fwrite(more, 1, header->more, w.stream) != header->more)) {
        const int why = errno;
        pal_writer_drop(&w);
        return pal_fail(err, PAL_E_IO, "%s: cannot write: %s", path, strerror(why));
    }
    return pal_writer_commit(&w, err);
}

pal_status pal_state_save_with(const pal_state *s, const void *more, size_t size, const char *path, pal_error *err) {
    const bool grows = s->floats > s->fixed;
    state_header header = { .version = grows ? FILE_VERSION : FIXED_VERSION,
                            .fingerprint = pal_model_fingerprint(s->model),
                            .position = s->position,
                            .pending = (uint32_t)(s->pending + 1),
                            .context = s->context,
                            .floats = grows ? pal_state_used_floats(s->model, s->position) : s->floats,
                            .more = size };
    void *packed = NULL;
    if (grows) {
        const pal_status st = pal_alloc_named(&packed, header.floats, sizeof(float), "a state's file", err);
        if (st) return st;
        pack(s, packed);
    }
    const float *data = grows ? packed : s->data;
    memcpy(header.magic, magic, sizeof magic);
    header.checksum = checksum_of(&header, data, more);
    const pal_status st = write_file(&header, data, more, path, err);
    pal_free(packed);
    return st;
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
    const bool whole = header->version < FILE_VERSION; /* caches with room for the whole context */
    if (whole && header->context != s->context)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: the state was made for %lld tokens of context, this one for %d", path,
                        (long long)header->context, s->context);
    const int64_t most = s->floats > s->fixed ? s->context : MAX_POSITION;
    if (header->position < 0 || header->position > most)
        return pal_fail(err, PAL_E_FORMAT, "%s: the state has %lld tokens, expected 0 to %lld", path,
                        (long long)header->position, (long long)most);
    if (header->pending > (uint32_t)s->model->config.vocab)
        return pal_fail(err, PAL_E_FORMAT, "%s: the token that comes next has id %lld, the vocabulary has 0 to %d",
                        path, (long long)header->pending - 1, s->model->config.vocab - 1);
    const size_t floats = whole ? s->floats : pal_state_used_floats(s->model, header->position);
    const size_t expected = size_of(*start, floats, header->more);
    if (header->floats != floats || map->size != expected)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, expected %zu", path, map->size, expected);
    const float *data = (const float *)(const void *)(map->data + *start);
    if (header->checksum != checksum_of(header, data, data + floats))
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
        const float *data = (const float *)(const void *)(map.data + start);
        s->position = header.position;
        s->pending = (int32_t)header.pending - 1;
        if (header.version < FILE_VERSION) memcpy(s->data, data, s->floats * sizeof *s->data);
        else unpack(s, data);
        *size = (size_t)header.more;
        if (*size) memcpy(*more, data + header.floats, *size);
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
