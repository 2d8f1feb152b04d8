/* SPDX-License-Identifier: MIT */
/* A model's life: made, opened, saved, closed. */
#include "model/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/directory.h"
#include "format/families/family.h"
#include "format/model_dir.h"
#include "model/on_device.h"

/* A list of complaints that ends in "and N more" where the sentence gets too long. */
typedef struct {
    char text[800];
    size_t used, left_out, count;
} complaints;

static void complain(complaints *c, const char *format, ...) PAL_PRINTF(2, 3);
static void complain(complaints *c, const char *format, ...) {
    char line[400];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    c->count++;
    const size_t length = strlen(line) + 2;
    if (c->left_out || c->used + length >= sizeof c->text - 1) {
        c->left_out++;
        return;
    }
    c->used += (size_t)snprintf(c->text + c->used, sizeof c->text - c->used, "%s%s", c->used ? "; " : "", line);
}

static void shape_text(char out[64], int rank, const int64_t *shape) {
    size_t at = 0;
    out[at++] = '[';
    for (int i = 0; i < rank && at < 56; i++) {
        const int n = snprintf(out + at, 60 - at, "%s%lld", i ? "," : "", (long long)shape[i]);
        at += n > 0 ? (size_t)n : 0;
        if (at > 60) at = 60;
    }
    snprintf(out + at, 64 - at, "]");
}

static bool same_shape(const pal_tensor *t, const pal_weight *w) {
    if (t->rank != w->rank) return false;
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] != w->shape[i]) return false;
    return true;
}

static bool is_float(pal_dtype dtype) { return dtype == PAL_F64 || pal_block_format_of(dtype); }

static const pal_weight_entry *find_entry(const pal_weight_table *table, const char *name) {
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->entries[i].view.name, name) == 0) return &table->entries[i];
    return NULL;
}

/* Whether two tensors hold the same numbers, in whatever dtypes: by their bytes where both lie there as they are, else
 * value by value. */
static pal_status same_values(const pal_source *source, const pal_tensor *a, const pal_tensor *b, bool *same,
                              pal_error *err) {
    enum { PIECE = 256 };
    float x[PIECE], y[PIECE];
    pal_status st;
    *same = a->count == b->count && a->rank == b->rank;
    for (int i = 0; *same && i < a->rank; i++) *same = a->shape[i] == b->shape[i];
    if (!*same || (a->data && a->data == b->data && a->dtype == b->dtype)) return PAL_OK;
    if ((st = pal_source_check(source, a, err)) || (st = pal_source_check(source, b, err))) return st;
    if (a->data && b->data && a->dtype == b->dtype) {
        *same = memcmp(a->data, b->data, pal_tensor_bytes(a)) == 0;
        return PAL_OK;
    }
    for (size_t i = 0; i < a->count && *same; i += PIECE) {
        const size_t n = a->count - i < PIECE ? a->count - i : PIECE;
        if ((st = pal_source_read(source, a, i, n, x, err)) || (st = pal_source_read(source, b, i, n, y, err)))
            return st;
        *same = memcmp(x, y, n * sizeof *x) == 0;
    }
    return PAL_OK;
}

/* known: one byte a tensor of the source, set for those that the table expects. */
static void compare_table(const pal_model *m, complaints *list, unsigned char *known) {
    char expected[64], found[64];
    for (size_t i = 0; i < m->table.count; i++) {
        const pal_weight_entry *e = &m->table.entries[i];
        const pal_tensor *t = pal_source_find(&m->source, e->view.name);
        if (t) known[t - m->source.tensors] = 1;
        shape_text(expected, e->view.rank, e->view.shape);
        if (!t) {
            if (!e->optional) complain(list, "'%s' %s is missing", e->view.name, expected);
        } else if (!same_shape(t, &e->view)) {
            shape_text(found, t->rank, t->shape);
            complain(list, "'%s' is %s, the configuration makes it %s", pal_source_name(&m->source, t), found,
                     expected);
        } else if (!is_float(t->dtype)) {
            complain(list, "'%s' has dtype %s, expected floating point numbers", e->view.name,
                     pal_dtype_name(t->dtype));
        }
    }
}

/* Everything missing, unexpected or misshapen, in one sentence. */
static pal_status compare_tensors(const pal_model *m, pal_error *err) {
    complaints list = { .used = 0 };
    void *block;
    pal_status st = pal_alloc_named(&block, m->source.count, 1, "the list of tensors", err);
    if (st) return st;
    unsigned char *known = block;
    compare_table(m, &list, known);
    const pal_tensor *head = m->config.tied ? pal_source_find(&m->source, "lm_head.weight") : NULL;
    if (head) known[head - m->source.tensors] = 1;
    for (size_t i = 0; i < m->source.count; i++)
        if (!known[i]) complain(&list, "'%.120s' is unexpected", pal_source_name(&m->source, &m->source.tensors[i]));
    pal_free(known);
    if (head) {
        const pal_tensor *embedding = pal_source_find(&m->source, pal_config_embedding_name(&m->config));
        bool same = false;
        if (embedding) {
            if ((st = same_values(&m->source, head, embedding, &same, err))) return st;
            if (!same)
                complain(&list, "'lm_head.weight' differs from the embedding, to which the configuration ties it");
        }
    }
    if (!list.count) return PAL_OK;
    if (list.left_out)
        return pal_fail(err, PAL_E_FORMAT, "%s: %s; and %zu more", m->source.path, list.text, list.left_out);
    return pal_fail(err, PAL_E_FORMAT, "%s: %s", m->source.path, list.text);
}

void pal_model_bind_to(const pal_model *m, pal_model_layers *to, const void *const *data, float *gradients) {
    for (size_t i = 0; i < m->table.count; i++) {
        const pal_weight_entry *e = &m->table.entries[i];
        const void *at = data ? data[i] : e->view.data;
        pal_layer *layer = e->view.layer < 0 ? &to->outer
                           : e->beside       ? &to->beside[e->view.layer]
                                             : &to->layers[e->view.layer];
        if (e->view.quantisable)
            layer->m[e->id] = pal_matrix_of(e->view.type, at, (int)e->view.shape[0], (int)e->view.shape[1]);
        else layer->w[e->id] = at;
        layer->d[e->id] = gradients && !e->view.unused && !e->kept ? gradients + e->view.offset : NULL;
        layer->trains = gradients != NULL;
    }
    if (m->config.tied) {
        to->outer.m[PAL_W_HEAD] = to->outer.m[PAL_W_EMBEDDING];
        to->outer.d[PAL_W_HEAD] = to->outer.d[PAL_W_EMBEDDING];
    }
}

void pal_model_bind(pal_model *m) {
    pal_model_layers own = { m->outer, m->layers, m->beside };
    pal_model_bind_to(m, &own, NULL, m->gradients);
    m->outer = own.outer;
}

/* The memory rule of a layer's k-th mixer; one without heads has none. */
static pal_status find_rule(const pal_model *m, int layer, int k, const pal_memory_rule **rule, pal_error *err) {
    const pal_mixer_spec *mixer = &pal_model_block(&m->config, layer)->mixer[k];
    const char *name = pal_mixer_rule(&m->config, mixer, layer);
    *rule = pal_memory_find(name);
    if (!*rule && !pal_config_kinds[mixer->kind].headless)
        return pal_fail(err, PAL_E_UNSUPPORTED, "memory rule '%s' is not in this build", name);
    return PAL_OK;
}

pal_status pal_model_make_layers(pal_model *m, pal_error *err) {
    const size_t layers = (size_t)m->config.layers;
    pal_status st = pal_alloc_named((void **)&m->layers, layers, sizeof *m->layers, "a model's layers", err);
    for (int i = 0; i < m->config.layers && !st; i++) {
        const pal_block_spec *block = pal_model_block(&m->config, i);
        if (block->mixers) st = find_rule(m, i, 0, &m->layers[i].rule, err);
        if (block->mixers < 2 || st) continue;
        if (!m->beside) st = pal_alloc_named((void **)&m->beside, layers, sizeof *m->beside, "a model's layers", err);
        if (!st) st = find_rule(m, i, 1, &m->beside[i].rule, err);
    }
    return st ? st : pal_pages_new(&m->pages, &m->config, err);
}

/* Backward adds up what neighbouring heads want of the key head that they share. */
static pal_status refuse_tiled(const pal_model_config *c, pal_error *err) {
    for (int b = 0; b < c->blocks; b++)
        for (int k = 0; k < c->block[b].mixers; k++)
            if (c->block[b].mixer[k].tiled)
                return pal_fail(err, PAL_E_ARGUMENT,
                                "heads that are tiled over key heads only run: such a model is not trained");
    return PAL_OK;
}

static pal_status prepare(pal_model *m, pal_keep_gate_fn *keep_gate, pal_error *err) {
    pal_status st = m->use == PAL_FOR_TRAINING ? refuse_tiled(&m->config, err) : PAL_OK;
    if (!st) st = pal_weights_list(&m->table, &m->config, keep_gate, m, err);
    return st ? st : pal_model_make_layers(m, err);
}

static pal_status allocate_gradients(pal_model *m, pal_error *err) {
    void *block;
    const pal_status st = pal_alloc_named(&block, m->table.flat, sizeof(float), "gradients", err);
    if (!st) m->gradients = block;
    return st;
}

pal_status pal_model_new_unloaded(pal_model **out, const pal_model_config *config, pal_model_use use, pal_error *err) {
    pal_status st;
    void *block;
    *out = NULL;
    if ((st = pal_model_config_check(config, err))) return st;
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_model), "a model", err))) return st;
    pal_model *m = block;
    m->config = *config;
    m->use = use;
    if ((st = prepare(m, NULL, err))) pal_model_close(m);
    else *out = m;
    return st;
}

pal_status pal_model_new(pal_model **out, const pal_model_config *config, uint64_t seed, pal_model_use use,
                         const pal_context *cx, pal_error *err) {
    pal_model *m;
    void *block;
    pal_status st = pal_model_new_unloaded(&m, config, use, err);
    *out = NULL;
    if (st) return st;
    if ((st = pal_alloc_named(&block, m->table.flat, sizeof(float), "weights", err))) goto failed;
    m->parameters = block;
    if (use == PAL_FOR_TRAINING && (st = allocate_gradients(m, err))) goto failed;
    if ((st = pal_fingerprint_keep(m, err))) goto failed;
    pal_weights_init(&m->table, config, cx, seed, m->parameters);
    for (size_t i = 0; i < m->table.count; i++)
        m->table.entries[i].view.data = m->parameters + m->table.entries[i].view.offset;
    pal_model_bind(m);
    if ((st = pal_model_move(m, cx, err))) goto failed;
    *out = m;
    return PAL_OK;
failed:
    pal_model_close(m);
    return st;
}

static const pal_tensor *find_shape(const void *source, const char *name) { return pal_source_find(source, name); }

bool pal_model_file_has_gate(const void *model, int layer) {
    const pal_model *m = model;
    static const char *const gate[] = { "b_rank_proj.weight", "b_proj.weight", "b_scale", "Ip_log" };
    const pal_mixer_spec *memory = pal_model_memory(&m->config, layer);
    char name[160];
    for (size_t i = 0; memory && i < PAL_COUNT(gate); i++) {
        snprintf(name, sizeof name, "%s%d.%s%s", pal_config_layers_prefix(&m->config), layer,
                 pal_config_mixer_prefix(&m->config, memory), gate[i]);
        if (pal_source_find(&m->source, name)) return true;
    }
    return false;
}

/* Matrices that are not trained are read where the file has them, when they are aligned. Those in a type that products
 * do not read are mapped until pal_model_hold_read_types. */
static bool stays_mapped(const pal_model *m, const pal_weight_entry *e, const pal_tensor *t) {
    const pal_weight *w = &e->view;
    const pal_block_format *format = t ? pal_block_format_of(t->dtype) : NULL;
    const size_t aligned = t && t->dtype == PAL_F32 ? sizeof(float) : sizeof(uint16_t);
    return (m->use == PAL_FOR_INFERENCE || e->kept) && w->quantisable && format && t->data &&
           (size_t)w->shape[1] % format->values == 0 && (uintptr_t)t->data % aligned == 0;
}

/* Training takes floats; what was rounded to blocks would only seem to be trained on. */
static pal_status refuse_blocks(const pal_model *m, pal_error *err) {
    for (size_t i = 0; i < m->source.count; i++) {
        const pal_tensor *t = &m->source.tensors[i];
        if (pal_dtype_values(t->dtype) > 1)
            return pal_fail(err, PAL_E_ARGUMENT,
                            "%s: '%s' is %s, and quantised models are not trained; convert it to F32 first",
                            m->source.path, t->name, pal_dtype_name(t->dtype));
    }
    return PAL_OK;
}

/* Places what is copied after the first `flat` floats: what has a gradient, or what has none. Returns the end. */
static size_t place(pal_model *m, bool kept, size_t flat) {
    for (size_t i = 0; i < m->table.count; i++) {
        pal_weight_entry *e = &m->table.entries[i];
        if (e->kept != kept || stays_mapped(m, e, pal_source_find(&m->source, e->view.name))) continue;
        if (!e->adjacent || !i || e[-1].kept != kept) flat = (flat + 15) & ~(size_t)15;
        e->view.offset = flat;
        flat += e->view.count;
    }
    return flat;
}

static pal_status load(pal_model *m, const pal_context *cx, pal_error *err) {
    pal_status st;
    void *block;
    if (m->use == PAL_FOR_TRAINING && (st = refuse_blocks(m, err))) return st;
    m->table.flat = (place(m, false, 0) + 15) & ~(size_t)15;
    if ((st = pal_alloc_named(&block, place(m, true, m->table.flat), sizeof(float), "weights", err))) return st;
    m->parameters = block;
    if (m->use == PAL_FOR_TRAINING && (st = allocate_gradients(m, err))) return st;
    for (size_t i = 0; i < m->table.count; i++) {
        pal_weight_entry *e = &m->table.entries[i];
        const pal_tensor *t = pal_source_find(&m->source, e->view.name);
        if (stays_mapped(m, e, t)) {
            if ((st = pal_source_check(&m->source, t, err))) return st;
            e->view.type = e->view.stored = t->dtype;
            e->view.data = t->data;
            continue;
        }
        float *x = m->parameters + e->view.offset;
        e->view.data = x;
        if (!t) pal_weight_init_one(e, &m->config, cx, 0, x); /* part of an importance gate that nothing reads */
        else if ((st = pal_source_read(&m->source, t, 0, t->count, x, err))) return st;
    }
    if ((st = pal_fingerprint_keep(m, err))) return st;
    pal_weights_warn_of_nan(m, cx);
    if ((st = pal_model_hold_read_types(m, cx, err))) return st;
    pal_model_bind(m);
    return pal_model_move(m, cx, err);
}

static void keep_others(pal_model *m, pal_trains_fn *trains, const void *user) {
    m->lowest = m->config.layers;
    for (size_t i = 0; i < m->table.count; i++) {
        pal_weight_entry *e = &m->table.entries[i];
        e->kept = e->view.unused || !trains(user, &e->view);
        e->view.frozen |= e->kept;
        if (e->kept) continue;
        const int layer = e->id == PAL_W_EMBEDDING ? 0 : e->view.layer;
        if (layer >= 0 && layer < m->lowest) m->lowest = layer;
    }
}

pal_status pal_config_of_source(pal_model_config *out, const pal_source *source, pal_error *err) {
    const pal_shapes shapes = { .find = find_shape, .source = source };
    char path[4200];
    snprintf(path, sizeof path, "%s%s", source->path, source->one_file ? "" : "/config.json");
    return pal_config_read(out, source->config, &shapes, path, err);
}

pal_status pal_model_open_unloaded(pal_model **out, const char *path, pal_model_use use, pal_error *err) {
    pal_status st;
    void *block;
    *out = NULL;
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_model), "a model", err))) return st;
    pal_model *m = block;
    m->use = use;
    if (use == PAL_FOR_INFERENCE) st = pal_source_open(&m->source, path, err);
    else st = pal_source_open_grouped(&m->source, path, err);
    if (st) {
        st = pal_model_not_opened(path, st, err);
        goto failed;
    }
    if ((st = pal_config_of_source(&m->config, &m->source, err))) goto failed;
    if ((st = prepare(m, pal_model_file_has_gate, err))) goto failed;
    if ((st = compare_tensors(m, err))) goto failed;
    *out = m;
    return PAL_OK;
failed:
    pal_model_close(m);
    return st;
}

static pal_status open_loaded(pal_model **out, const char *path, pal_model_use use, pal_trains_fn *trains,
                              const void *user, const pal_context *cx, pal_error *err) {
    pal_status st = pal_model_open_unloaded(out, path, use, err);
    if (st) return st;
    if (trains) keep_others(*out, trains, user);
    if ((st = load(*out, cx, err))) {
        pal_model_close(*out);
        *out = NULL;
    }
    return st;
}

pal_status pal_model_open(pal_model **out, const char *directory, pal_model_use use, const pal_context *cx,
                          pal_error *err) {
    return open_loaded(out, directory, use, NULL, NULL, cx, err);
}

pal_status pal_model_open_partly(pal_model **out, const char *path, pal_trains_fn *trains, const void *user,
                                 const pal_context *cx, pal_error *err) {
    return open_loaded(out, path, PAL_FOR_TRAINING, trains, user, cx, err);
}

pal_status pal_model_read_config(pal_model_config *out, const char *path, pal_error *err) {
    pal_source source;
    pal_status st;
    const size_t length = strlen(path);
    if (length > 5 && strcmp(path + length - 5, ".json") == 0) {
        json_t *root;
        if ((st = pal_json_read(&root, path, err))) return st;
        const pal_family *family = pal_family_of(root);
        json_t *blocks = NULL;
        if (family) st = pal_family_read(&blocks, family, root, path, err);
        if (!st) st = pal_config_read(out, blocks ? blocks : root, NULL, path, err);
        json_decref(blocks);
        json_decref(root);
        return st;
    }
    if ((st = pal_source_open(&source, path, err))) return st;
    st = pal_config_of_source(out, &source, err);
    pal_source_close(&source);
    return st;
}

void pal_model_close(pal_model *m) {
    if (!m) return;
    pal_model_leave(m);
    pal_free(m->parameters);
    pal_free(m->retyped);
    pal_free(m->fingerprint);
    pal_free(m->gradients);
    pal_free(m->layers);
    pal_free(m->beside);
    pal_pages_free(m->pages);
    pal_weights_release(&m->table);
    pal_source_close(&m->source);
    pal_free(m);
}

static void convert_weight(unsigned char *to, const pal_weight *w, pal_dtype dtype) {
    enum { PIECE = 4096 };
    const pal_block_format *format = pal_block_format_of(dtype);
    float x[PIECE];
    for (size_t at = 0; at < w->count; at += PIECE) {
        const size_t n = w->count - at < PIECE ? w->count - at : PIECE;
        pal_weight_read(w, at, n, x);
        pal_blocks_encode(format, x, n, to + at * format->bytes);
    }
}

/* F32 keeps what training left alone as it was read. */
static pal_dtype saved_type(const pal_weight_entry *e, pal_dtype dtype) {
    return e->kept && dtype == PAL_F32 ? e->view.type : dtype;
}

pal_status pal_model_save(const pal_model *m, const char *directory, pal_dtype dtype, pal_error *err) {
    static const char *const metadata[] = { "format", "pt", NULL };
    char path[4200];
    pal_status st;
    void *block = NULL;
    unsigned char *converted = NULL;
    json_t *config = NULL;
    if (dtype != PAL_F32 && dtype != PAL_BF16 && dtype != PAL_F16)
        return pal_fail(err, PAL_E_ARGUMENT, "models are saved as F32, BF16 or F16, not %s",
                        dtype < PAL_DTYPES ? pal_dtype_name(dtype) : "this dtype");
    if ((st = pal_path(path, sizeof path, err, "%s/model.safetensors", directory))) return st;
    if ((st = pal_make_directory(directory, err))) return st;
    /* state-spaces files hold the head although it is the embedding; others leave a tied head out. */
    const bool twice = m->config.official && m->config.tied;
    if ((st = pal_alloc_named(&block, m->table.count + 1, sizeof(pal_tensor), "the list of tensors", err))) goto done;
    pal_tensor *tensors = block;
    size_t count = 0;
    size_t other = 0; /* values that are not of this dtype yet */
    for (size_t i = 0; i < m->table.count; i++)
        if (m->table.entries[i].view.type != saved_type(&m->table.entries[i], dtype))
            other += m->table.entries[i].view.count;
    if (other) {
        void *bytes;
        if ((st = pal_alloc_named(&bytes, other, pal_dtype_size(dtype), "converted weights", err))) goto done;
        converted = bytes;
    }
    unsigned char *next = converted;
    for (size_t i = 0; i < m->table.count; i++) {
        const pal_weight_entry *e = &m->table.entries[i];
        pal_tensor t = { .name = e->view.name,
                         .dtype = saved_type(e, dtype),
                         .rank = e->view.rank,
                         .count = e->view.count,
                         .data = e->view.data };
        memcpy(t.shape, e->view.shape, sizeof e->view.shape);
        if (e->view.type != t.dtype) {
            convert_weight(next, &e->view, dtype);
            t.data = next;
            next += t.count * pal_dtype_size(dtype);
        }
        tensors[count++] = t;
        if (twice && e->id == PAL_W_EMBEDDING) {
            t.name = "lm_head.weight";
            tensors[count++] = t;
        }
    }
    if ((st = pal_safetensors_write(path, tensors, count, metadata, err))) goto done;
    config = pal_config_write(&m->config, m->source.config);
    snprintf(path, sizeof path, "%s/config.json", directory); /* shorter */
    st = config ? pal_json_write(path, config, err) : pal_fail(err, PAL_E_MEMORY, "out of memory for writing %s", path);
done:
    json_decref(config);
    pal_free(converted);
    pal_free(block);
    return st;
}

const pal_model_config *pal_model_config_of(const pal_model *m) { return &m->config; }
size_t pal_model_weight_count(const pal_model *m) { return m->table.count; }
const pal_weight *pal_model_weight(const pal_model *m, size_t index) {
    return index < m->table.count ? &m->table.entries[index].view : NULL;
}
const pal_weight *pal_model_find_weight(const pal_model *m, const char *name) {
    const pal_weight_entry *e = find_entry(&m->table, name);
    return e ? &e->view : NULL;
}
size_t pal_model_parameters(const pal_model *m) { return m->table.parameters; }
size_t pal_model_flat(const pal_model *m) { return m->use == PAL_FOR_TRAINING ? m->table.flat : 0; }
float *pal_model_flat_parameters(pal_model *m) { return m->use == PAL_FOR_TRAINING ? m->parameters : NULL; }
float *pal_model_flat_gradients(pal_model *m) { return m->gradients; }
