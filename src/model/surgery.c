/* SPDX-License-Identifier: MIT */
#include "model/surgery.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/random.h"
#include "model/model.h"

/* The memory that an importance gate can be added to; NULL: the layer has none. */
static const pal_mixer_spec *memory_of(const pal_model_config *c, int layer) {
    const pal_mixer_spec *m = pal_model_memory(c, layer);
    return m && pal_mixer_may_gate(m) ? m : NULL;
}

/* Other rules are left as they are. */
static bool is_plain(const pal_model_config *c, int layer) {
    const pal_mixer_spec *m = memory_of(c, layer);
    return m && strcmp(pal_mixer_rule(c, m, layer), "gla") == 0 &&
           (strcmp(m->rule, "palimpsa") == 0 || strcmp(m->rule, "gla") == 0);
}

static pal_status check_kind(const pal_model_config *c, pal_error *err) {
    char kind[64];
    int plain = 0, memories = 0;
    const char *other = NULL;
    pal_model_describe(c, kind);
    for (int i = 0; i < c->layers; i++) {
        const pal_mixer_spec *m = memory_of(c, i);
        plain += is_plain(c, i);
        memories += m != NULL;
        if (m && strcmp(m->rule, "palimpsa") != 0 && strcmp(m->rule, "gla") != 0) other = m->rule;
    }
    if (!memories)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: only Mamba2 and Palimpsa layers can become metaplastic", kind);
    if (plain) return PAL_OK;
    if (other)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: metaplasticity takes the place of plain layers, not of rule '%s'",
                        kind, other);
    return pal_fail(err, PAL_E_ARGUMENT, "%s: every layer %sis metaplastic already", kind,
                    memories < c->layers ? "with such a memory " : "");
}

bool pal_surgery_needs_windows(const char *choice) { return strncmp(choice, "top:", 4) == 0; }

/* A whole number from 0 up that ends where `text` ends or at a comma. */
static bool parse_number(const char **text, int *value) {
    char *end;
    if (**text < '0' || **text > '9') return false;
    errno = 0;
    const long x = strtol(*text, &end, 10);
    if (errno || x > 1 << 30 || (*end && *end != ',')) return false;
    *value = (int)x;
    *text = end;
    return true;
}

static pal_status choose_top(bool *layers, const char *choice, const pal_model_config *c, const pal_windows *w,
                             pal_error *err) {
    const char *at = choice + 4;
    int wanted, plain = 0;
    if (!parse_number(&at, &wanted) || *at || wanted < 1)
        return pal_fail(err, PAL_E_ARGUMENT, "layers '%.60s': expected top:K with K of at least 1", choice);
    for (int i = 0; i < c->layers; i++) plain += is_plain(c, i);
    if (wanted > plain)
        return pal_fail(err, PAL_E_ARGUMENT, "layers '%.60s': the model has %d plain layer%s", choice, plain,
                        plain == 1 ? "" : "s");
    for (int r = 0; r < c->layers && wanted; r++)
        if (is_plain(c, w->order[r])) layers[w->order[r]] = true, wanted--;
    return PAL_OK;
}

static pal_status choose_listed(bool *layers, const char *choice, const pal_model_config *c, pal_error *err) {
    for (const char *at = choice;; at++) {
        int layer;
        if (!parse_number(&at, &layer))
            return pal_fail(err, PAL_E_ARGUMENT,
                            "layers '%.60s': expected top:K, all, or layer numbers separated by commas", choice);
        if (layer >= c->layers)
            return pal_fail(err, PAL_E_ARGUMENT, "layers '%.60s': the model has layers 0 to %d", choice, c->layers - 1);
        if (layers[layer])
            return pal_fail(err, PAL_E_ARGUMENT, "layers '%.60s': layer %d is there twice", choice, layer);
        if (!memory_of(c, layer))
            return pal_fail(err, PAL_E_ARGUMENT,
                            "layers '%.60s': layer %d has no memory of Mamba2 or Palimpsa; its rule is %s", choice,
                            layer, pal_model_layer_rule(c, layer));
        if (!is_plain(c, layer))
            return pal_fail(err, PAL_E_ARGUMENT, "layers '%.60s': layer %d is metaplastic already", choice, layer);
        layers[layer] = true;
        if (!*at) return PAL_OK;
    }
}

pal_status pal_surgery_choose(bool layers[PAL_MAX_LAYERS], const char *choice, const pal_model_config *c,
                              const pal_windows *windows, pal_error *err) {
    pal_status st;
    for (int i = 0; i < PAL_MAX_LAYERS; i++) layers[i] = false;
    if ((st = check_kind(c, err))) return st;
    if (pal_surgery_needs_windows(choice)) return choose_top(layers, choice, c, windows, err);
    if (strcmp(choice, "all") != 0) return choose_listed(layers, choice, c, err);
    for (int i = 0; i < c->layers; i++) layers[i] = is_plain(c, i);
    return PAL_OK;
}

pal_status pal_surgery_choosable(const char *choice, const pal_model_config *config, pal_error *err) {
    bool layers[PAL_MAX_LAYERS];
    int order[PAL_MAX_LAYERS];
    for (int i = 0; i < config->layers; i++) order[i] = i;
    const pal_windows any = { .layers = config->layers, .order = order };
    return pal_surgery_choose(layers, choice, config, &any, err);
}

pal_status pal_surgery_config(pal_model_config *out, const pal_model_config *from, const pal_surgery *s,
                              pal_error *err) {
    pal_status st;
    if ((st = check_kind(from, err))) return st;
    if (!isfinite(s->low) || !isfinite(s->high) || s->low > s->high)
        return pal_fail(err, PAL_E_ARGUMENT, "b_scale from %g to %g: expected two numbers, the lower one first", s->low,
                        s->high);
    *out = *from;
    for (int i = 0; i < from->layers; i++) {
        const pal_mixer_spec *m = memory_of(from, i);
        const bool on = m && strcmp(pal_mixer_rule(from, m, i), "palimpsa") == 0;
        if (on && s->rank && s->rank != m->rank)
            return pal_fail(err, PAL_E_ARGUMENT, "rank %d: layer %d is metaplastic already, with rank %d", s->rank, i,
                            m->rank);
        out->metaplastic[i] = s->layers[i] || on;
    }
    for (int i = 0; i < PAL_MAX_LAYERS; i++)
        if (s->layers[i] && (i >= from->layers || !is_plain(from, i)))
            return pal_fail(err, PAL_E_ARGUMENT, "layer %d is not a plain layer of the model", i);
    out->official = false;
    out->metaplasticity = true;
    out->finetuning = true;
    out->listed = true;
    for (int b = 0; b < out->blocks; b++) {
        pal_mixer_spec *m = &out->block[b].mixer[0];
        if (!out->block[b].mixers || !pal_mixer_may_gate(m)) continue;
        if (strcmp(m->rule, "gla") == 0) strcpy(m->rule, "palimpsa");
        if (s->rank || m->rank < 1) m->rank = s->rank ? s->rank : (out->hidden + 15) / 16;
    }
    return pal_model_config_check(out, err);
}

typedef struct {
    const pal_source *source;
    const pal_model_config *from, *to;
    const pal_surgery *surgery;
    pal_weight_table table;
    pal_tensor *tensors; /* as written, one a row of the table */
} operation;

static const pal_tensor *tensor_of(const operation *op, const pal_weight_entry *e) {
    return pal_source_find(op->source, e->id == PAL_W_EMBEDDING ? pal_config_embedding_name(op->from) : e->view.name);
}

static bool is_new(const operation *op, const pal_weight_entry *e) {
    return e->view.layer >= 0 && op->surgery->layers[e->view.layer] && strcmp(e->view.group, "importance") == 0;
}

static pal_dtype stored_dtype(const operation *op, const pal_tensor *t) {
    if (op->surgery->convert) return op->surgery->dtype;
    return t && t->data && pal_dtype_values(t->dtype) == 1 ? t->dtype : PAL_F32;
}

/* Gates that nothing reads stay as they are, whatever is there of them; a model has one rank for all gates. */
static pal_status keep_unread_gates(operation *op, pal_error *err) {
    size_t kept = 0;
    for (size_t i = 0; i < op->table.count; i++) {
        const pal_weight_entry *e = &op->table.entries[i];
        if (e->optional && !tensor_of(op, e)) continue;
        const pal_mixer_spec *to = e->optional ? pal_model_memory(op->to, e->view.layer) : NULL,
                             *from = e->optional ? pal_model_memory(op->from, e->view.layer) : NULL;
        if (e->optional && to->rank != from->rank)
            return pal_fail(err, PAL_E_ARGUMENT,
                            "rank %d: layer %d keeps an importance gate of rank %d, which nothing reads; leave the "
                            "rank as it is, or make all layers metaplastic",
                            to->rank, e->view.layer, from->rank);
        op->table.entries[kept++] = *e;
    }
    op->table.count = kept;
    return PAL_OK;
}

static void announce(operation *op) {
    pal_dtype usual = stored_dtype(op, pal_source_find(op->source, pal_config_embedding_name(op->from)));
    if (usual == PAL_F64) usual = PAL_F32; /* new numbers are made in single precision */
    for (size_t i = 0; i < op->table.count; i++) {
        const pal_weight_entry *e = &op->table.entries[i];
        pal_tensor *t = &op->tensors[i];
        *t = (pal_tensor){ .name = e->view.name, .rank = e->view.rank, .count = e->view.count };
        memcpy(t->shape, e->view.shape, sizeof e->view.shape);
        t->dtype = is_new(op, e) ? usual : stored_dtype(op, tensor_of(op, e));
    }
}

static pal_status put_new(const operation *op, pal_model_writer *w, size_t i, const pal_context *cx, pal_error *err) {
    const pal_weight_entry *e = &op->table.entries[i];
    const pal_surgery *s = op->surgery;
    void *block;
    pal_status st = pal_alloc_named(&block, e->view.count, sizeof(float), "an importance gate", err);
    if (st) return st;
    if (e->init == PAL_INIT_B_SCALE)
        pal_fill_uniform(cx, block, e->view.count, s->seed, pal_weight_stream(e->view.name), s->low, s->high);
    else pal_weight_init_one(e, op->to, cx, s->seed, block);
    st = pal_model_writer_put_f32(w, i, block, e->view.count, err);
    pal_free(block);
    return st;
}

static pal_status put_all(const operation *op, pal_model_writer *w, const pal_context *cx, pal_error *err) {
    const pal_surgery *s = op->surgery;
    size_t done = 0, total = 0;
    pal_status st = PAL_OK;
    for (size_t i = 0; i < op->table.count; i++) total += op->tensors[i].count * pal_dtype_size(op->tensors[i].dtype);
    for (size_t i = 0; i < op->table.count && !st; i++) {
        const pal_weight_entry *e = &op->table.entries[i];
        if (is_new(op, e)) st = put_new(op, w, i, cx, err);
        else st = pal_model_writer_copy(w, i, op->source, tensor_of(op, e), err);
        done += op->tensors[i].count * pal_dtype_size(op->tensors[i].dtype);
        if (!st && s->go_on && !s->go_on(s->user, done, total))
            st = pal_fail(err, PAL_STOPPED, "interrupted; nothing was written");
    }
    return st;
}

pal_status pal_surgery_write(pal_model_writer **out, const char *directory, const pal_model *from,
                             const pal_surgery *surgery, const pal_context *cx, pal_error *err) {
    pal_model_config to;
    operation op = { .source = &from->source, .from = &from->config, .to = &to, .surgery = surgery };
    json_t *json = NULL;
    pal_status st;
    *out = NULL;
    if ((st = pal_surgery_config(&to, &from->config, surgery, err))) return st;
    st = pal_weights_list(&op.table, &to, pal_model_file_has_gate, from, err);
    if (!st) st = keep_unread_gates(&op, err);
    if (!st) st = pal_alloc_named((void **)&op.tensors, op.table.count, sizeof *op.tensors, "a list of tensors", err);
    if (!st) {
        announce(&op);
        st = pal_model_writer_open(out, directory, op.tensors, op.table.count, err);
    }
    if (!st) st = put_all(&op, *out, cx, err);
    if (!st && !(json = pal_config_write_from(&to, &from->config, from->source.config)))
        st = pal_fail(err, PAL_E_MEMORY, "out of memory for writing %s", directory);
    if (!st) st = pal_model_writer_finish(*out, json, err);
    json_decref(json);
    pal_free(op.tensors);
    pal_weights_release(&op.table);
    if (st) {
        pal_model_writer_drop(*out);
        *out = NULL;
    }
    return st;
}
