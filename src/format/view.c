/* SPDX-License-Identifier: MIT */
#include "format/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/context.h"
#include "base/size.h"
#include "format/json.h"

enum { NAME = 160, PIECES = 5 };

/* What values become on their way up. */
typedef enum { AS_THEY_ARE, ADD_ONE, TAKE_ONE, LOG_OF_MINUS, MINUS_EXP } change;

/* A run of values of one tensor below. In each period units (of one head) change places, between the order of groups
 * and the tiled one. */
typedef struct {
    const pal_source *from;
    const pal_tensor *tensor;
    size_t first, count;
    change change;
    float scale; /* 0: as they are */
    size_t period, unit, groups, each;
    bool tile;
} piece;

typedef struct {
    piece pieces[PIECES];
    int count;
    const char *ours;
} made;

typedef struct {
    pal_source below; /* of an importing view; closed with it */
    const pal_family *family;
    size_t prefix; /* which of the family's names have */
    bool gguf;
    made *made;
    char *names; /* (tensors, NAME) */
} view;

/* Sizes of one block that parts and orders follow from. */
typedef struct {
    unsigned on;
    int64_t heads, key_heads, dk, dv, norm_groups;
    const json_t *block;
} shape;

static void close_view(void *handle) {
    view *v = handle;
    pal_source_close(&v->below);
    pal_free(v->made);
    pal_free(v->names);
    pal_free(v);
}

static pal_status check_view(void *handle, size_t index, pal_error *err) {
    const made *m = &((const view *)handle)->made[index];
    for (int i = 0; i < m->count; i++) {
        const pal_status st = pal_source_check(m->pieces[i].from, m->pieces[i].tensor, err);
        if (st) return st;
    }
    return PAL_OK;
}

static void apply(const piece *p, float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float v = p->scale != 0 ? x[i] * p->scale : x[i];
        x[i] = p->change == ADD_ONE        ? v + 1
               : p->change == TAKE_ONE     ? v - 1
               : p->change == LOG_OF_MINUS ? logf(-v)
               : p->change == MINUS_EXP    ? -expf(v)
                                           : v;
    }
}

/* Where value `at` of a piece lies among its values below, and how many follow it there in order. */
static size_t place(const piece *p, size_t at, size_t *run) {
    if (!p->unit) {
        *run = p->count - at;
        return at;
    }
    const size_t begin = at / p->period * p->period, unit = (at - begin) / p->unit, inside = (at - begin) % p->unit;
    const size_t from = p->tile ? unit % p->groups * p->each + unit / p->groups
                                : unit % p->each * p->groups + unit / p->each;
    *run = p->unit - inside;
    return begin + from * p->unit + inside;
}

static pal_status read_piece(const piece *p, size_t at, size_t count, float *to, pal_error *err) {
    for (size_t done = 0; done < count;) {
        size_t run;
        const size_t from = place(p, at + done, &run), n = run < count - done ? run : count - done;
        const pal_status st = pal_source_read(p->from, p->tensor, p->first + from, n, to + done, err);
        if (st) return st;
        done += n;
    }
    apply(p, to, count);
    return PAL_OK;
}

static pal_status read_view(const void *handle, size_t index, size_t first, size_t count, float *to, pal_error *err) {
    const made *m = &((const view *)handle)->made[index];
    for (int i = 0; i < m->count && count; i++) {
        const piece *p = &m->pieces[i];
        if (first >= p->count) {
            first -= p->count;
            continue;
        }
        const size_t n = p->count - first < count ? p->count - first : count;
        const pal_status st = read_piece(p, first, n, to, err);
        if (st) return st;
        to += n, count -= n, first = 0;
    }
    return PAL_OK;
}

static const json_t *layer_block(const json_t *config, int layer) {
    const json_t *list = json_object_get(config, "layers");
    return json_array_get(json_object_get(config, "blocks"),
                          (size_t)json_integer_value(json_array_get(list, (size_t)layer)));
}

static int64_t size_in(const json_t *mixer, const char *key) { return json_integer_value(json_object_get(mixer, key)); }

static shape shape_of(const json_t *config, int layer) {
    shape s = { .on = layer < 0 ? PAL_ON_TOP | PAL_ON_MODEL : PAL_ON_LAYER };
    if (layer < 0) return s;
    s.block = layer_block(config, layer);
    const json_t *mixers = json_object_get(s.block, "mixers");
    for (size_t k = 0; k < json_array_size(mixers); k++) {
        const json_t *mixer = json_array_get(mixers, k);
        const char *kind = json_string_value(json_object_get(mixer, "kind"));
        const bool attends = kind && strcmp(kind, "attention") == 0;
        s.on |= attends ? PAL_ON_ATTENTION : PAL_ON_MEMORY;
        if (attends) continue;
        s.heads = size_in(mixer, "heads"), s.key_heads = size_in(mixer, "key_heads");
        s.dk = size_in(mixer, "state_size"), s.dv = size_in(mixer, "head_dim");
        s.norm_groups = size_in(mixer, "norm_groups");
    }
    if (json_object_get(s.block, "mlp")) s.on |= PAL_ON_MLP;
    return s;
}

static int layers_of(const json_t *config) { return (int)json_array_size(json_object_get(config, "layers")); }

/* Begins a view with room for `most` tensors. */
static pal_status begin(pal_source *out, view **made_view, size_t most, pal_error *err) {
    void *block;
    pal_status st = pal_alloc_named(&block, 1, sizeof(view), "a view", err);
    if (st) return st;
    view *v = block;
    const pal_tensor_file file = { .handle = v, .check = check_view, .read = read_view, .close = close_view };
    v->made = pal_alloc(most + 1, sizeof *v->made);
    v->names = pal_alloc(most + 1, NAME);
    if (!v->made || !v->names) st = pal_fail(err, PAL_E_MEMORY, "out of memory for a view of %zu tensors", most);
    else st = pal_source_add_file(out, &file, most, err);
    if (st) close_view(v);
    else *made_view = v;
    return st;
}

/* A single piece whose values are as they lie below needs no copy, where it begins with a block of them. */
static void find_data(pal_tensor *t, const piece *p) {
    const pal_tensor *from = p->tensor;
    const size_t values = pal_dtype_values(from->dtype);
    if (p->unit || p->change != AS_THEY_ARE || p->scale != 0 || !from->data || p->first % values) return;
    t->dtype = from->dtype;
    t->data = (const unsigned char *)from->data + p->first / values * pal_dtype_size(from->dtype);
}

/* Adds a tensor of the view; its rank and shape are set. */
static void add(pal_source *out, view *v, pal_tensor t, const made *m) {
    const size_t index = out->count;
    const piece *p = &m->pieces[0];
    const pal_dtype type = p->tensor->dtype;
    char *name = v->names + index * NAME;
    snprintf(name, NAME, "%s", t.name);
    t.name = name;
    t.count = 0;
    t.dtype = p->change == AS_THEY_ARE && p->scale == 0 && pal_dtype_values(type) == 1 ? type : PAL_F32;
    for (int i = 0; i < m->count; i++) {
        t.count += m->pieces[i].count;
        if (m->pieces[i].tensor->dtype != type) t.dtype = PAL_F32;
    }
    if (m->count == 1) find_data(&t, p);
    v->made[index] = *m;
    pal_source_add(out, &t, index, pal_source_stored(p->from, p->tensor));
    const unsigned char *bytes = pal_source_gguf_bytes(p->from, p->tensor);
    if (t.data && bytes) out->origin[index].bytes = t.data;
    out->origin[index].name = p->tensor->name;
}

/* Puts heads in another order, if the tensor has them and there is more than one to a group. */
static void order_heads(piece *p, const shape *s, pal_tiling tiling, bool tile) {
    if (tiling == PAL_UNTILED || s->heads <= s->key_heads || s->key_heads < 2) return;
    p->groups = (size_t)s->key_heads;
    p->each = (size_t)(s->heads / s->key_heads);
    p->tile = tile;
    p->period = tiling == PAL_TILED_ROWS ? p->count : (size_t)(s->heads * s->dv);
    p->unit = p->period / (size_t)s->heads;
}

/* The rows of a tensor of theirs that are this part; false: it has another number of rows than its parts. */
static bool part_rows(const shape *s, pal_tensor_part part, int64_t rows, int64_t *first, int64_t *count) {
    const int64_t keys = s->key_heads * s->dk, values = s->heads * s->dv;
    *first = 0, *count = rows;
    if (part == PAL_WHOLE) return true;
    if (part == PAL_FIRST_HALF || part == PAL_SECOND_HALF) {
        *count = rows / 2;
        *first = part == PAL_SECOND_HALF ? *count : 0;
        return rows % 2 == 0;
    }
    *count = part == PAL_VALUES ? values : keys;
    *first = part == PAL_VALUES ? 2 * keys : part == PAL_KEYS ? keys : 0;
    return rows == 2 * keys + values;
}

static void name_below(char out[NAME], const view *v, const pal_family_tensor *row, int layer) {
    const char *prefix = v->family->prefixes[v->prefix];
    if (v->gguf && layer >= 0) snprintf(out, NAME, "blk.%d.%s", layer, row->gguf);
    else if (v->gguf) snprintf(out, NAME, "%s", row->gguf);
    else if (layer >= 0) snprintf(out, NAME, "%slayers.%d.%s", prefix, layer, row->hf);
    else snprintf(out, NAME, "%s%s", row->on & PAL_ON_TOP ? "" : prefix, row->hf);
}

static void name_ours(char out[NAME], const pal_family_tensor *row, int layer) {
    if (layer < 0) snprintf(out, NAME, "%s", row->ours);
    else snprintf(out, NAME, "model.layers.%d.%s", layer, row->ours);
}

/* Extents of ours, of `rows` rows of a tensor below. */
static void import_shape(pal_tensor *t, const view *v, const pal_family_tensor *row, int64_t rows) {
    if (!v->gguf || row->form == PAL_FORM_SAME || t->rank != 2) {
        if (t->rank) t->shape[0] = rows;
    } else if (row->form == PAL_FORM_TAPS) {
        t->rank = 3;
        t->shape[2] = t->shape[1], t->shape[1] = 1, t->shape[0] = rows;
    } else {
        t->rank = 1;
        t->shape[0] *= t->shape[1];
    }
}

static pal_status import_one(pal_source *out, view *v, const pal_family_tensor *row, int layer, const shape *s,
                             pal_view_use use, unsigned char *known, pal_error *err) {
    char theirs[NAME], ours[NAME];
    int64_t first, rows;
    name_below(theirs, v, row, layer);
    const pal_tensor *t = pal_source_find(&v->below, theirs);
    if (!t && row->on & PAL_MAY_LACK) return PAL_OK;
    if (!t) return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' is missing", v->below.path, theirs);
    known[t - v->below.tensors] = 1;
    const int64_t all = t->rank ? t->shape[0] : 1;
    if (!part_rows(s, v->gguf ? row->gguf_part : row->part, all, &first, &rows))
        return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' has %lld rows, which is not what its parts have together",
                        v->below.path, theirs, (long long)all);
    const size_t width = all ? t->count / (size_t)all : 0;
    const pal_tensor_op op = v->gguf ? row->gguf_op : row->hf_op;
    made m = { .count = 1 };
    m.pieces[0] = (piece){ .from = &v->below,
                           .tensor = t,
                           .first = (size_t)first * width,
                           .count = (size_t)rows * width,
                           .change = op == PAL_LESS_ONE  ? ADD_ONE
                                     : op == PAL_NEG_EXP ? LOG_OF_MINUS
                                                         : AS_THEY_ARE };
    const bool whole_heads = s->heads > 0 && s->dv > 0 &&
                             (row->tiling == PAL_TILED_ROWS ? m.pieces[0].count % (size_t)s->heads == 0
                                                            : t->rank == 2 && t->shape[1] == s->heads * s->dv);
    if (v->gguf && use == PAL_VIEW_GROUPED && whole_heads) order_heads(&m.pieces[0], s, row->tiling, false);
    pal_tensor made_tensor = *t;
    made_tensor.data = NULL;
    name_ours(ours, row, layer);
    made_tensor.name = ours;
    import_shape(&made_tensor, v, row, rows);
    add(out, v, made_tensor, &m);
    return PAL_OK;
}

static bool is_ignored(const view *v, const char *name, int layers) {
    int layer;
    for (size_t i = 0; i < PAL_COUNT(v->family->ignored); i++) {
        const char *beginning = v->family->ignored[i];
        if (beginning && !v->gguf && strncmp(name, beginning, strlen(beginning)) == 0) return true;
    }
    /* Layers after the last predict several tokens at once. */
    return v->gguf && sscanf(name, "blk.%d.", &layer) == 1 && layer >= layers &&
           json_object_get(json_object_get(v->below.config, "origin"), "mtp_num_hidden_layers");
}

/* Which of its prefixes a family's names have here. */
static size_t find_prefix(const view *v) {
    char name[NAME];
    for (size_t i = 0; i < PAL_COUNT(v->family->prefixes) && v->family->prefixes[i]; i++) {
        snprintf(name, NAME, "%s%s", v->family->prefixes[i], v->family->tensors[0].hf);
        if (pal_source_find(&v->below, name)) return i;
    }
    return 0;
}

static pal_status import_all(pal_source *out, view *v, pal_view_use use, pal_error *err) {
    void *block;
    const int layers = layers_of(out->config);
    pal_status st = pal_alloc_named(&block, v->below.count + 1, 1, "the list of tensors", err);
    if (st) return st;
    unsigned char *known = block;
    for (int layer = -1; layer < layers && !st; layer++) {
        const shape s = shape_of(out->config, layer);
        for (const pal_family_tensor *row = v->family->tensors; row->ours && !st; row++)
            if (row->on & s.on) st = import_one(out, v, row, layer, &s, use, known, err);
    }
    for (size_t i = 0; i < v->below.count && !st; i++) {
        const pal_tensor *t = &v->below.tensors[i];
        if (known[i]) continue;
        if (is_ignored(v, t->name, layers)) {
            out->ignored++;
            out->ignored_bytes += pal_tensor_bytes(t);
        } else {
            st = pal_fail(err, PAL_E_FORMAT, "%s: tensor '%.120s' is unexpected in a model of %s", v->below.path,
                          t->name, v->gguf ? v->family->gguf : v->family->model_types[0]);
        }
    }
    pal_free(known);
    return st;
}

pal_status pal_view_import(pal_source *source, const pal_family *family, bool gguf, pal_view_use use, pal_error *err) {
    pal_source out = { .path = pal_strdup(source->path),
                       .one_file = source->one_file,
                       .config = json_incref(source->config) };
    size_t rows = 0;
    view *v = NULL;
    if (!out.path) {
        pal_source_close(&out);
        return pal_fail(err, PAL_E_MEMORY, "out of memory while opening %s", source->path);
    }
    while (family->tensors[rows].ours) rows++;
    pal_status st = begin(&out, &v, rows * (size_t)(layers_of(source->config) + 1), err);
    if (!st) {
        v->family = family;
        v->gguf = gguf;
        v->below = *source; /* the view owns it from here on */
        *source = (pal_source){ 0 };
        v->prefix = find_prefix(v);
        st = import_all(&out, v, use, err);
    }
    if (!st) st = pal_source_sort(&out, err);
    if (st) pal_source_close(&out);
    else *source = out;
    return st;
}

/* Factors that GGUF files hold inside a weight, from the block; section: of the input projection. */
static double folded(const json_t *config, const shape *s, const char *ours, int section) {
    static const char *const sections[] = { "z", "x", "B", "C", "dt" };
    const json_t *mixers = json_object_get(s->block, "mixers"), *mlp = json_object_get(s->block, "mlp"), *x = NULL;
    const json_t *memory = json_array_get(mixers, 0), *attention = json_array_get(mixers, 1);
    if (strcmp(ours, "model.embeddings.weight") == 0) x = json_object_get(config, "embedding_multiplier");
    else if (strcmp(ours, "lm_head.weight") == 0) x = json_object_get(config, "logits_multiplier");
    else if (strcmp(ours, "mamba.in_proj.weight") == 0)
        x = json_object_get(json_object_get(memory, "in_multipliers"), sections[section]);
    else if (strcmp(ours, "mamba.out_proj.weight") == 0) x = json_object_get(memory, "out_multiplier");
    else if (strcmp(ours, "attn.o_proj.weight") == 0) x = json_object_get(attention, "out_multiplier");
    else if (strcmp(ours, "mlp.gate_proj.weight") == 0) x = json_object_get(mlp, "gate_multiplier");
    else if (strcmp(ours, "mlp.down_proj.weight") == 0) x = json_object_get(mlp, "down_multiplier");
    else if (strcmp(ours, "attn.k_proj.weight") == 0 && (x = json_object_get(attention, "scale")))
        return json_number_value(x) * sqrt((double)size_in(attention, "head_dim")); /* the usual scale stays outside */
    return x ? json_number_value(x) : 1;
}

/* Cuts an input projection into what has factors of its own, and gives every piece its factor. */
static void fold(made *m, const json_t *config, const shape *s, const char *ours) {
    piece *p = &m->pieces[0];
    if (m->count != 1 || !p->count) return;
    if (strcmp(ours, "mamba.in_proj.weight") == 0) {
        const int64_t inner = s->heads * s->dv, keys = s->key_heads * s->dk,
                      rows[5] = { inner, inner, keys, keys, s->heads };
        const size_t width = p->tensor->rank == 2 ? (size_t)p->tensor->shape[1] : 1;
        const piece whole = *p;
        size_t at = 0;
        for (int k = 0; k < 5; k++) {
            m->pieces[k] = whole;
            m->pieces[k].first = at;
            m->pieces[k].count = (size_t)rows[k] * width;
            m->pieces[k].scale = (float)folded(config, s, ours, k);
            at += m->pieces[k].count;
        }
        m->count = 5;
        return;
    }
    const double factor = folded(config, s, ours, 0);
    if (factor != 1) p->scale = (float)factor;
}

/* Extents in a GGUF file, slowest first. */
static void export_shape(pal_tensor *t, const view *v, const pal_family_tensor *row, const shape *s) {
    if (!v->gguf) return;
    if (row->form == PAL_FORM_TAPS && t->rank == 3) {
        t->rank = 2;
        t->shape[1] = t->shape[2];
    } else if (row->form == PAL_FORM_COLUMN) {
        t->rank = 2;
        t->shape[1] = 1;
    } else if (row->form == PAL_FORM_GROUPS && s->norm_groups > 0) {
        t->rank = 2;
        t->shape[1] = t->shape[0] / s->norm_groups;
        t->shape[0] = s->norm_groups;
    }
}

/* One tensor of theirs: this row, and those after it with the same name. */
static void export_one(pal_source *out, view *v, const pal_source *source, const pal_family_tensor *row, int layer,
                       const shape *s) {
    char theirs[NAME], ours[NAME];
    const char *name = v->gguf ? row->gguf : row->hf;
    const bool head = v->gguf && v->family->folds && strcmp(row->ours, "lm_head.weight") == 0;
    pal_tensor t = { 0 };
    made m = { .count = 0 };
    name_below(theirs, v, row, layer);
    for (; row->ours && m.count < PIECES; row++) {
        const char *other = v->gguf ? row->gguf : row->hf;
        if (!other || strcmp(other, name) != 0) break;
        name_ours(ours, row, layer);
        const pal_tensor *from = pal_source_find(source, ours);
        if (!from && head) from = pal_source_find(source, "model.embeddings.weight"); /* tied, with another factor */
        if (!from) continue;
        const pal_tensor_op op = v->gguf ? row->gguf_op : row->hf_op;
        piece *p = &m.pieces[m.count++];
        *p = (piece){ .from = source,
                      .tensor = from,
                      .count = from->count,
                      .change = op == PAL_LESS_ONE  ? TAKE_ONE
                                : op == PAL_NEG_EXP ? MINUS_EXP
                                                    : AS_THEY_ARE };
        if (v->gguf) order_heads(p, s, row->tiling, true);
        if (v->gguf && v->family->folds) fold(&m, out->config, s, row->ours);
        if (t.rank) {
            t.shape[0] += from->shape[0];
            continue;
        }
        t = *from;
        t.data = NULL;
        m.ours = from->name;
        export_shape(&t, v, row, s);
    }
    t.name = theirs;
    if (m.count) add(out, v, t, &m);
}

/* Tensors as they lie below an importing view of the same family, in the same kind of file. */
static void export_below(pal_source *out, view *v, const pal_source *source, const view *importing) {
    const char *prefix = importing->gguf ? "" : v->family->prefixes[importing->prefix];
    for (size_t i = 0; i < importing->below.count; i++) {
        const pal_tensor *t = &importing->below.tensors[i];
        made m = { .count = 1, .pieces = { { .from = &importing->below, .tensor = t, .count = t->count } } };
        for (size_t k = 0; k < source->count && !m.ours; k++)
            if (importing->made[source->origin[k].index].pieces[0].tensor == t) m.ours = source->tensors[k].name;
        if (!m.ours) continue; /* ignored */
        char name[NAME + 32];
        const size_t length = strlen(prefix);
        const bool prefixed = length && strncmp(t->name, prefix, length) == 0;
        snprintf(name, sizeof name, "%s%s", prefixed ? v->family->prefixes[0] : "", t->name + (prefixed ? length : 0));
        pal_tensor copy = *t;
        copy.name = name;
        add(out, v, copy, &m);
    }
}

pal_status pal_view_export(pal_source *out, const pal_source *source, const pal_family *family, bool gguf,
                           pal_error *err) {
    const int layers = layers_of(source->config);
    const view *below = source->file_count == 1 && source->files[0].read == read_view ? source->files[0].handle : NULL;
    size_t rows = 0;
    view *v = NULL;
    *out = (pal_source){ .path = pal_strdup(source->path),
                         .one_file = source->one_file,
                         .config = json_incref(source->config) };
    if (!out->path) return pal_fail(err, PAL_E_MEMORY, "out of memory while opening %s", source->path);
    while (family->tensors[rows].ours) rows++;
    const bool same = below && below->family == family && below->gguf == gguf;
    pal_status st = begin(out, &v, same ? below->below.count : rows * (size_t)(layers + 1), err);
    if (st) return st;
    v->family = family;
    v->gguf = gguf;
    if (same) export_below(out, v, source, below);
    for (int layer = -1; layer < layers && !same; layer++) {
        const shape s = shape_of(source->config, layer);
        const char *previous = "";
        for (const pal_family_tensor *row = family->tensors; row->ours; row++) {
            const char *name = gguf ? row->gguf : row->hf;
            if (!(row->on & s.on) || !name || strcmp(name, previous) == 0) continue;
            export_one(out, v, source, row, layer, &s);
            previous = name;
        }
    }
    return PAL_OK;
}

size_t pal_view_first(const pal_source *source, const pal_tensor *tensor) {
    const size_t i = (size_t)(tensor - source->tensors);
    const pal_tensor_file *file = &source->files[source->origin[i].file];
    return file->read == read_view ? ((const view *)file->handle)->made[source->origin[i].index].pieces[0].first : 0;
}

const char *pal_view_ours(const pal_source *source, size_t index) {
    return ((const view *)source->files[0].handle)->made[index].ours;
}
