/* SPDX-License-Identifier: MIT */
/* Recurrent state: one block of floats with a convolution window and a memory per layer, and pages with the keys and
 * values of layers that attend. */
#include "model/state.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "layers/mixer.h"
#include "model/on_device.h"

enum { MAX_CONTEXT = 1 << 24 };

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

size_t pal_state_bytes(const pal_model *m, int context) {
    const size_t pages = m->pages ? pal_pages_of(context) * m->pages->bytes : 0;
    return layout_fixed(m, NULL, NULL) * sizeof(float) + pages;
}

size_t pal_model_page_bytes(const pal_model *m) {
    return m->pages ? atomic_load(&m->pages->count) * m->pages->bytes : 0;
}

pal_status pal_model_keep_as(pal_model *m, pal_dtype type, pal_error *err) {
    if (m->on && type != PAL_F32)
        return pal_fail(err, PAL_E_UNSUPPORTED, "keys and values in %s: a device keeps them as F32",
                        pal_dtype_name(type));
    return m->pages ? pal_pages_set_type(m->pages, type, err) : PAL_OK;
}

pal_dtype pal_model_kept_as(const pal_model *m) { return m->pages ? m->pages->type : PAL_F32; }

/* The rule's parameters of one layer, on the stack: heads are few, and only Ip matters to a state. */
static void with_parameters(const pal_state *s, int layer, float Ip[1 << 12], pal_memory_inputs *in) {
    const pal_layer *l = &s->model->layers[layer];
    *in = (pal_memory_inputs){ .Ip = Ip };
    if (!l->rule || !(l->rule->inputs & PAL_INPUT_IP)) return;
    const int heads = pal_model_memory(&s->model->config, layer)->heads;
    for (int h = 0; h < heads; h++) Ip[h] = expf(l->w[PAL_W_IP_LOG][h]);
}

/* The fixed part of a state that has seen nothing. */
static void fill_fixed(const pal_state *s, float *data) {
    memset(data, 0, s->fixed * sizeof *data);
    for (int i = 0; i < s->model->config.layers; i++) {
        float Ip[1 << 12];
        pal_memory_inputs in;
        pal_memory_shape shape;
        const pal_memory_rule *rule = s->model->layers[i].rule;
        if (!rule || rule->keeps_tokens || !shape_of(s->model, i, 0, &shape)) continue;
        with_parameters(s, i, Ip, &in);
        rule->reset(&shape, &in, data + s->memory_at[i]);
    }
}

/* Room on the device, and what a reset sends there. */
static pal_status allocate_there(pal_state *s, pal_error *err) {
    const pal_pages *pages = s->model->pages;
    const size_t of_token = pages ? pages->bytes / PAL_PAGE_TOKENS : 0;
    const size_t bytes = s->fixed * sizeof(float) + of_token * (size_t)s->context;
    void *block;
    pal_status st = s->device->ops->alloc(s->device, &block, bytes, "a state", err);
    if (st) return st;
    s->data = block;
    if ((st = pal_alloc_named(&block, s->fixed, sizeof(float), "a state", err))) return st;
    s->start = block;
    fill_fixed(s, s->start);
    return PAL_OK;
}

static pal_status allocate_here(pal_state *s, pal_error *err) {
    void *block;
    if (!(s->data = pal_alloc_unset(s->fixed, sizeof(float))))
        return pal_fail(err, PAL_E_MEMORY, "out of memory: a state (%zu x %zu bytes)", s->fixed, sizeof(float));
    if (!s->model->pages) return PAL_OK;
    const pal_status st = pal_alloc_named(&block, pal_pages_of(s->context), sizeof(pal_page *), "a state", err);
    if (!st) s->pages = block;
    return st;
}

static pal_status make(pal_state **out, const pal_model *m, int context, pal_device *device, pal_error *err) {
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
    if ((st = pal_alloc_named(&block, 2 * layers, sizeof(size_t), "a state", err))) goto failed;
    s->conv_window_at = block;
    s->memory_at = s->conv_window_at + layers;
    s->fixed = layout_fixed(m, s->conv_window_at, s->memory_at);
    s->device = device;
    if ((st = device ? allocate_there(s, err) : allocate_here(s, err))) goto failed;
    pal_state_reset(s);
    *out = s;
    return PAL_OK;
failed:
    pal_state_free(s);
    return st;
}

pal_status pal_state_new(pal_state **out, const pal_model *m, int context, pal_error *err) {
    return make(out, m, context, pal_model_device(m), err);
}
pal_status pal_state_new_on_host(pal_state **out, const pal_model *m, int context, pal_error *err) {
    return make(out, m, context, NULL, err);
}

/* Leaves all pages but the first `keep`. */
static void drop_pages(pal_state *s, size_t keep) {
    while (s->held > keep) pal_page_leave(s->model->pages, s->pages[--s->held]);
}

void pal_state_free(pal_state *s) {
    if (!s) return;
    drop_pages(s, 0);
    pal_free(s->pages);
    pal_free(s->conv_window_at);
    if (s->device) s->device->ops->free(s->device, s->data);
    else pal_free(s->data);
    pal_free(s->start);
    pal_free(s);
}

void pal_state_reset(pal_state *s) {
    if (s->device) s->device->ops->upload(s->device, s->data, s->start, s->fixed * sizeof *s->data);
    else fill_fixed(s, s->data);
    drop_pages(s, 0);
    s->position = 0;
    s->pending = -1;
}

/* The page that tokens are appended to next may be other states' too: they keep it, and this one gets a copy. */
static pal_status own_last_page(pal_state *s, pal_error *err) {
    const size_t last = pal_pages_of(s->position);
    if (s->position % PAL_PAGE_TOKENS == 0 || atomic_load(&s->pages[last - 1]->users) == 1) return PAL_OK;
    pal_page *old = s->pages[last - 1], *own = pal_page_new(s->model->pages);
    if (!own)
        return pal_fail(err, PAL_E_MEMORY, "out of memory: %zu bytes of keys and values", s->model->pages->bytes);
    memcpy(own->data, old->data, s->model->pages->bytes);
    s->pages[last - 1] = own;
    pal_page_leave(s->model->pages, old);
    return PAL_OK;
}

pal_status pal_state_make_room(pal_state *s, int tokens, pal_error *err) {
    if (!s->pages) return PAL_OK;
    drop_pages(s, pal_pages_of(s->position)); /* that a run which failed had asked for */
    const pal_status st = own_last_page(s, err);
    if (st) return st;
    while (s->held < pal_pages_of(s->position + tokens)) {
        pal_page *page = pal_page_new(s->model->pages);
        if (!page)
            return pal_fail(err, PAL_E_MEMORY, "out of memory: %zu bytes of keys and values", s->model->pages->bytes);
        s->pages[s->held++] = page;
    }
    return PAL_OK;
}

pal_status pal_state_new_pages(pal_state *s, int64_t tokens, pal_error *err) {
    const size_t wanted = s->pages ? pal_pages_of(tokens) : 0;
    pal_page **list;
    size_t made = 0;
    if (!s->pages) return PAL_OK;
    pal_status st = pal_alloc_named((void **)&list, wanted, sizeof *list, "a state", err);
    if (st) return st;
    while (made < wanted && (list[made] = pal_page_new(s->model->pages))) made++;
    if (made < wanted) {
        while (made) pal_page_leave(s->model->pages, list[--made]);
        st = pal_fail(err, PAL_E_MEMORY, "out of memory: %zu bytes of keys and values",
                      wanted * s->model->pages->bytes);
    } else {
        drop_pages(s, 0);
        memcpy(s->pages, list, wanted * sizeof *list);
        s->held = wanted;
    }
    pal_free(list);
    return st;
}

/* Keys and values of the tokens that exist, from device to device. */
static void copy_caches(pal_state *to, const pal_state *from) {
    const pal_pages *pages = to->model->pages;
    for (int i = 0; pages && i < pages->layers; i++)
        for (size_t strip = 0; strip < pages->of[i].strips; strip++)
            to->device->ops->copy(to->device, pal_state_cache(to, i, strip), pal_state_cache(from, i, strip),
                                  (size_t)from->position * pages->of[i].width);
}

/* Every row of keys and values of `host`, to or from the device that has the state. */
static void move_rows(const pal_state *s, const pal_state *host, bool there) {
    const pal_pages *pages = s->model->pages;
    const pal_device_ops *ops = s->device->ops;
    for (int i = 0; pages && i < pages->layers; i++)
        for (size_t strip = 0; strip < pages->of[i].strips; strip++)
            for (int64_t t = 0; t < host->position; t += PAL_PAGE_TOKENS) {
                const pal_cache *k = &pages->of[i];
                const int64_t left = host->position - t, rows = left < PAL_PAGE_TOKENS ? left : PAL_PAGE_TOKENS;
                unsigned char *paged = pal_page_row(host->pages[t / PAL_PAGE_TOKENS], k, strip, t);
                float *own = pal_state_cache(s, i, strip) + (size_t)t * k->width;
                if (there) ops->upload(s->device, own, paged, (size_t)rows * k->row);
                else ops->download(s->device, paged, own, (size_t)rows * k->row);
            }
}

pal_status pal_state_bring(const pal_state *s, pal_state **out, pal_error *err) {
    pal_status st = pal_state_new_on_host(out, s->model, s->context, err);
    if (st) return st;
    if ((st = pal_state_new_pages(*out, s->position, err))) {
        pal_state_free(*out);
        *out = NULL;
        return st;
    }
    (*out)->position = s->position;
    (*out)->pending = s->pending;
    s->device->ops->download(s->device, (*out)->data, s->data, s->fixed * sizeof *s->data);
    move_rows(s, *out, false);
    return PAL_OK;
}

void pal_state_send(pal_state *s, const pal_state *host) {
    s->position = host->position;
    s->pending = host->pending;
    s->device->ops->upload(s->device, s->data, host->data, s->fixed * sizeof *s->data);
    move_rows(s, host, true);
}

pal_status pal_state_copy(pal_state *to, const pal_state *from, pal_error *err) {
    if (to->model != from->model || (to->model->pages && to->context < from->position))
        return pal_fail(err, PAL_E_ARGUMENT,
                        "a state can be copied only to one of the same model whose context holds its %lld tokens",
                        (long long)from->position);
    if (to == from) return PAL_OK;
    if (to->device) {
        to->device->ops->copy(to->device, to->data, from->data, from->fixed);
        copy_caches(to, from);
    } else {
        memcpy(to->data, from->data, from->fixed * sizeof *to->data);
    }
    drop_pages(to, 0);
    for (size_t used = to->pages ? pal_pages_of(from->position) : 0; to->held < used; to->held++) {
        to->pages[to->held] = from->pages[to->held];
        pal_page_share(to->pages[to->held]);
    }
    to->position = from->position;
    to->pending = from->pending;
    return PAL_OK;
}

void pal_state_row(const pal_state *s, int layer, size_t strip, int64_t token, float *to) {
    const pal_cache *k = &s->model->pages->of[layer];
    pal_blocks_decode(pal_block_format_of(s->model->pages->type),
                      pal_page_row(s->pages[token / PAL_PAGE_TOKENS], k, strip, token), k->width, to);
}

static bool all_finite(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

static bool page_is_finite(const pal_state *s, size_t page) {
    const pal_pages *pages = s->model->pages;
    const int64_t left = s->position - (int64_t)page * PAL_PAGE_TOKENS;
    const size_t rows = left < PAL_PAGE_TOKENS ? (size_t)left : PAL_PAGE_TOKENS;
    for (int i = 0; i < pages->layers; i++)
        for (size_t strip = 0; strip < pages->of[i].strips; strip++)
            if (!pal_blocks_finite(pal_block_format_of(pages->type),
                                   pal_page_row(s->pages[page], &pages->of[i], strip, 0), rows * pages->of[i].width))
                return false;
    return true;
}

bool pal_state_is_finite(const pal_state *s) {
    if (s->device) {
        pal_state *host;
        if (pal_state_bring(s, &host, NULL)) return false;
        const bool right = pal_state_is_finite(host);
        pal_state_free(host);
        return right;
    }
    bool finite = all_finite(s->data, s->fixed);
    for (size_t page = 0; finite && s->pages && page < pal_pages_of(s->position); page++)
        finite = page_is_finite(s, page);
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

/* The parts of a layer that keeps tokens, (key_heads, context, width); zeros where there is no token yet. */
static void export_tokens(const pal_state *s, int layer, float *const parts[2]) {
    const pal_cache *k = &s->model->pages->of[layer];
    const size_t context = (size_t)s->context, heads = k->strips / 2;
    for (size_t part = 0; part < 2; part++)
        for (size_t h = 0; parts[part] && h < heads; h++) {
            float *to = parts[part] + h * context * k->width;
            for (int64_t t = 0; t < s->position; t++, to += k->width)
                pal_state_row(s, layer, part * heads + h, t, to);
            memset(to, 0, (context - (size_t)s->position) * k->width * sizeof *to);
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
    if (s->device) {
        pal_state *host;
        pal_status st = pal_state_bring(s, &host, err);
        if (st) return st;
        st = pal_state_export(host, layer, part0, part1, err);
        pal_state_free(host);
        return st;
    }
    float *const parts[2] = { part0, part1 };
    const pal_memory_rule *rule = s->model->layers[layer].rule;
    if (rule->keeps_tokens) {
        export_tokens(s, layer, parts);
        return PAL_OK;
    }
    with_parameters(s, layer, Ip, &in);
    rule->export(&shape, &in, parts, s->data + s->memory_at[layer]);
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
    if (s->device) {
        pal_state *host;
        pal_status st = pal_state_bring(s, &host, err);
        if (st) return st;
        st = pal_state_export_head(host, layer, head, mean, importance, err);
        pal_state_free(host);
        return st;
    }
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
        const bool grows = m->pages != NULL;
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
