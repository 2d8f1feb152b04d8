/* SPDX-License-Identifier: MIT */
/* A model's weights on a device: a buffer for each layer, in which weights lie next to each other as on the host, and
 * layers that point to them. The host's weights stay as they are, for files and fingerprints. */
#include "model/on_device.h"

#include "base/alloc.h"
#include "memory/rule.h"

static pal_status refuse_rule(const pal_model *m, const pal_device *device, int layer, const pal_memory_rule *rule,
                              pal_error *err) {
    if (!rule || device->ops->runs_rule(device, rule)) return PAL_OK;
    return pal_fail(err, PAL_E_UNSUPPORTED, "%s: layer %d has the memory rule '%s', for which a device has no kernels",
                    m->source.path ? m->source.path : "this model", layer, pal_memory_name(rule));
}

/* One sentence when the device has no kernels for something that the model needs. */
static pal_status refuse(const pal_model *m, const pal_device *device, pal_error *err) {
    pal_status st = PAL_OK;
    for (int i = 0; i < m->config.layers && !st; i++) {
        st = refuse_rule(m, device, i, m->layers[i].rule, err);
        if (!st && m->beside) st = refuse_rule(m, device, i, m->beside[i].rule, err);
    }
    for (size_t i = 0; i < m->table.count && !st; i++) {
        const pal_weight *w = &m->table.entries[i].view;
        if (w->quantisable && !device->ops->runs_type(device, w->type))
            st = pal_fail(err, PAL_E_UNSUPPORTED, "'%s' is %s, for which a device has no kernels", w->name,
                          pal_dtype_name(w->type));
    }
    return st;
}

/* Where weights of one layer begin in its buffer; *bytes of all. */
static void place(const pal_model *m, int layer, size_t *at, size_t *bytes) {
    *bytes = 0;
    for (size_t i = 0; i < m->table.count; i++) {
        const pal_weight_entry *e = &m->table.entries[i];
        if (e->view.layer != layer) continue;
        const size_t line = !e->adjacent ? 64 : e->view.type == PAL_F32 ? sizeof(float) : sizeof(uint16_t);
        at[i] = (*bytes + line - 1) / line * line;
        *bytes = at[i] + pal_weight_bytes(&e->view);
    }
}

static pal_status upload_layer(const pal_model *m, pal_model_on *on, int layer, size_t *at, const void **data,
                               pal_error *err) {
    size_t bytes;
    void *buffer;
    place(m, layer, at, &bytes);
    if (!bytes) return PAL_OK;
    const pal_status st = on->device->ops->alloc(on->device, &buffer, bytes, "weights", err);
    if (st) return st;
    on->buffers[layer + 1] = buffer;
    for (size_t i = 0; i < m->table.count; i++) {
        const pal_weight *w = &m->table.entries[i].view;
        if (w->layer != layer) continue;
        data[i] = (char *)buffer + at[i];
        on->device->ops->upload(on->device, (char *)buffer + at[i], w->data, pal_weight_bytes(w));
    }
    return PAL_OK;
}

static pal_status upload(const pal_model *m, pal_model_on *on, const pal_context *cx, pal_error *err) {
    void *places, *data;
    pal_status st = pal_alloc_named(&places, m->table.count, sizeof(size_t), "weights", err);
    if (st) return st;
    st = pal_alloc_named(&data, m->table.count, sizeof(void *), "weights", err);
    for (int i = -1; i < m->config.layers && !st; i++) st = upload_layer(m, on, i, places, data, err);
    if (!st && !(st = pal_device_check(cx, err))) pal_model_bind_to(m, &on->layers, data, NULL);
    pal_free(data);
    pal_free(places);
    return st;
}

static pal_status allocate(const pal_model *m, pal_model_on **out, pal_device *device, pal_error *err) {
    const size_t layers = (size_t)m->config.layers;
    void *block;
    pal_status st = pal_alloc_named(&block, 1, sizeof **out, "a model", err);
    if (st) return st;
    pal_model_on *on = *out = block;
    on->device = device;
    on->layers.outer.rule = m->outer.rule;
    if ((st = pal_alloc_named(&block, layers + 1, sizeof(void *), "a model", err))) return st;
    on->buffers = block;
    if ((st = pal_alloc_named(&block, layers, sizeof(pal_layer), "a model", err))) return st;
    on->layers.layers = block;
    for (size_t i = 0; i < layers; i++) on->layers.layers[i].rule = m->layers[i].rule;
    if (!m->beside) return PAL_OK;
    if ((st = pal_alloc_named(&block, layers, sizeof(pal_layer), "a model", err))) return st;
    on->layers.beside = block;
    for (size_t i = 0; i < layers; i++) on->layers.beside[i].rule = m->beside[i].rule;
    return PAL_OK;
}

pal_status pal_model_move(pal_model *m, const pal_context *cx, pal_error *err) {
    pal_status st;
    pal_model_leave(m);
    if (!cx->device) return PAL_OK;
    if (m->use == PAL_FOR_TRAINING) return pal_fail(err, PAL_E_UNSUPPORTED, "models are not trained on a device yet");
    if ((st = refuse(m, cx->device, err))) return st;
    if (!(st = allocate(m, &m->on, cx->device, err))) st = upload(m, m->on, cx, err);
    if (st) pal_model_leave(m);
    return st;
}

void pal_model_leave(pal_model *m) {
    pal_model_on *on = m->on;
    if (!on) return;
    for (int i = 0; on->buffers && i <= m->config.layers; i++) on->device->ops->free(on->device, on->buffers[i]);
    pal_free(on->buffers);
    pal_free(on->layers.layers);
    pal_free(on->layers.beside);
    pal_free(on);
    m->on = NULL;
}
