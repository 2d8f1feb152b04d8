/* SPDX-License-Identifier: MIT */
#include "train/optimiser.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "format/safetensors_header.h"
#include "kernels/optimiser/adamw.h"

/* Neighbours in the flat buffers that are updated alike, and where their moments are. */
typedef struct {
    size_t begin, end, at;
    double rate, decay;
} update_range;

typedef struct {
    bool trained;
    double rate, decay;
} weight_setting;

struct pal_optimiser {
    pal_optimiser_options options;
    const pal_exchange *exchange; /* NULL: one process */
    size_t flat, own;             /* floats in all, and of this rank's slices */
    size_t trainable, weights, ranges;
    int64_t updates;
    float *m, *v; /* (own) slice after slice */
    weight_setting *settings;
    update_range *range;
    double *sums;
};

/* Calls each entry of a comma-separated list; text is cut in place. */
typedef pal_status entry_fn(pal_optimiser *o, const pal_model *model, char *entry, pal_error *err);

static pal_status each_entry(pal_optimiser *o, const pal_model *model, const char *list, entry_fn *fn, pal_error *err) {
    if (!list || !*list) return PAL_OK;
    char *text = pal_strdup(list), *rest = text;
    if (!text) return pal_fail(err, PAL_E_MEMORY, "out of memory for a list of patterns");
    pal_status st = PAL_OK;
    for (char *entry; !st && (entry = strsep(&rest, ","));)
        if (*entry) st = fn(o, model, entry, err);
    pal_free(text);
    return st;
}

static bool matches(const char *pattern, const pal_weight *w) {
    return strcmp(pattern, w->group) == 0 || fnmatch(pattern, w->name, 0) == 0;
}

/* Whether any entry of a comma-separated list matches. */
static bool listed(const char *list, const pal_weight *w) {
    char entry[512];
    for (const char *at = list; at && *at;) {
        const size_t n = strcspn(at, ",");
        snprintf(entry, sizeof entry, "%.*s", n < sizeof entry ? (int)n : 0, at);
        if (*entry && matches(entry, w)) return true;
        at += n + (at[n] == ',');
    }
    return false;
}

bool pal_optimiser_trains(const void *options, const pal_weight *w) {
    const pal_optimiser_options *o = options;
    if (o->train_only && *o->train_only && !listed(o->train_only, w)) return false;
    return !w->frozen && !w->unused && !listed(o->freeze, w);
}

static pal_status unmatched(const char *what, const char *pattern, pal_error *err) {
    return pal_fail(err, PAL_E_ARGUMENT, "%s '%s': no weight of this model matches", what, pattern);
}

static pal_status freeze_entry(pal_optimiser *o, const pal_model *model, char *pattern, pal_error *err) {
    bool found = false;
    for (size_t i = 0; i < o->weights; i++)
        if (matches(pattern, pal_model_weight(model, i))) o->settings[i].trained = false, found = true;
    return found ? PAL_OK : unmatched("weights to freeze", pattern, err);
}

/* Marks with a negative rate what stays; everything else is frozen afterwards. */
static pal_status keep_entry(pal_optimiser *o, const pal_model *model, char *pattern, pal_error *err) {
    bool found = false;
    for (size_t i = 0; i < o->weights; i++)
        if (matches(pattern, pal_model_weight(model, i))) o->settings[i].rate = -1, found = true;
    return found ? PAL_OK : unmatched("weights to train alone", pattern, err);
}

static pal_status rate_entry(pal_optimiser *o, const pal_model *model, char *entry, pal_error *err) {
    char *equals = strrchr(entry, '='), *end;
    const double factor = equals ? strtod(equals + 1, &end) : 0;
    if (!equals || end == equals + 1 || *end || !isfinite(factor) || factor < 0)
        return pal_fail(err, PAL_E_ARGUMENT, "learning-rate factor '%s': expected PATTERN=NUMBER with a number >= 0",
                        entry);
    *equals = '\0';
    bool found = false;
    for (size_t i = 0; i < o->weights; i++)
        if (matches(entry, pal_model_weight(model, i))) o->settings[i].rate = factor, found = true;
    return found ? PAL_OK : unmatched("learning-rate factor of", entry, err);
}

static pal_status choose_settings(pal_optimiser *o, const pal_model *model, pal_error *err) {
    pal_status st;
    for (size_t i = 0; i < o->weights; i++) {
        const pal_weight *w = pal_model_weight(model, i);
        const bool decays = !o->options.decay_matrices || (w->decay && w->rank > 1);
        o->settings[i] = (weight_setting){ .trained = !w->frozen && !w->unused,
                                           .rate = 1,
                                           .decay = decays ? o->options.weight_decay : 0 };
    }
    if (o->options.train_only && *o->options.train_only) {
        if ((st = each_entry(o, model, o->options.train_only, keep_entry, err))) return st;
        for (size_t i = 0; i < o->weights; i++) {
            if (o->settings[i].rate > 0) o->settings[i].trained = false;
            o->settings[i].rate = 1;
        }
    }
    if ((st = each_entry(o, model, o->options.freeze, freeze_entry, err))) return st;
    return each_entry(o, model, o->options.rates, rate_entry, err);
}

static bool same_update(const update_range *r, const weight_setting *s) {
    return r->rate == s->rate && r->decay == s->decay;
}

/* Weights are listed in the order of their offsets; gaps between them are zero and stay zero under any update. */
static void make_ranges(pal_optimiser *o, const pal_model *model) {
    bool joins = false;
    for (size_t i = 0; i < o->weights; i++) {
        const pal_weight *w = pal_model_weight(model, i);
        const weight_setting *s = &o->settings[i];
        if (!s->trained) {
            joins = false;
            continue;
        }
        o->trainable += w->count;
        if (joins && same_update(&o->range[o->ranges - 1], s)) o->range[o->ranges - 1].end = w->offset + w->count;
        else
            o->range[o->ranges++] =
                (update_range){ .begin = w->offset, .end = w->offset + w->count, .rate = s->rate, .decay = s->decay };
        joins = true;
    }
}

static size_t slices(const pal_optimiser *o) { return o->exchange ? pal_exchange_slices(o->exchange) : 1; }

static pal_flat_slice slice(const pal_optimiser *o, size_t i, int rank) {
    return o->exchange ? pal_exchange_slice(o->exchange, i, rank) : (pal_flat_slice){ 0, o->flat };
}

static int own_rank(const pal_optimiser *o) { return o->exchange ? pal_exchange_comm(o->exchange)->rank : 0; }

/* What two stretches have in common; empty where they have nothing. */
static pal_flat_slice overlap(size_t begin, size_t end, pal_flat_slice s) {
    const size_t first = begin > s.begin ? begin : s.begin, last = end < s.end ? end : s.end;
    return (pal_flat_slice){ first, last > first ? last : first };
}

/* Leaves of the ranges what lies in this rank's slices. */
static void cut_ranges(pal_optimiser *o) {
    update_range *all = o->range + slices(o); /* room for as many cuts as there are slices lies before them */
    const size_t count = o->ranges;
    size_t n = 0, r = 0, at = 0;
    memmove(all, o->range, count * sizeof *all);
    for (size_t i = 0; i < slices(o); i++) {
        const pal_flat_slice s = slice(o, i, own_rank(o));
        while (r < count && all[r].end <= s.begin) r++;
        for (size_t k = r; k < count && all[k].begin < s.end; k++) {
            const pal_flat_slice both = overlap(all[k].begin, all[k].end, s);
            const double rate = all[k].rate, decay = all[k].decay;
            if (both.begin < both.end)
                o->range[n++] = (update_range){ both.begin, both.end, at + both.begin - s.begin, rate, decay };
        }
        at += s.end - s.begin;
    }
    o->ranges = n;
}

static pal_status allocate(pal_optimiser *o, pal_error *err) {
    pal_status st;
    for (size_t i = 0; i < slices(o); i++) o->own += slice(o, i, own_rank(o)).end - slice(o, i, own_rank(o)).begin;
    if ((st = pal_alloc_named((void **)&o->m, o->own, sizeof *o->m, "the optimiser's first moments", err))) return st;
    if ((st = pal_alloc_named((void **)&o->v, o->own, sizeof *o->v, "the optimiser's second moments", err))) return st;
    if ((st = pal_alloc_named((void **)&o->settings, o->weights, sizeof *o->settings, "the optimiser", err))) return st;
    if ((st = pal_alloc_named((void **)&o->range, o->weights + slices(o), sizeof *o->range, "the optimiser", err)))
        return st;
    return pal_alloc_named((void **)&o->sums, pal_sum_squares_blocks(o->flat), sizeof *o->sums, "the gradient's norm",
                           err);
}

static pal_status make(pal_optimiser **out, const pal_model *model, const pal_optimiser_options *options,
                       const pal_exchange *exchange, size_t flat, pal_error *err) {
    pal_optimiser *o;
    pal_status st;
    *out = NULL;
    if ((st = pal_alloc_named((void **)&o, 1, sizeof *o, "the optimiser", err))) return st;
    o->options = *options;
    o->exchange = exchange;
    o->flat = flat;
    o->weights = pal_model_weight_count(model);
    if ((st = allocate(o, err)) || (st = choose_settings(o, model, err))) {
        pal_optimiser_free(o);
        return st;
    }
    make_ranges(o, model);
    if (flat) cut_ranges(o);
    if (!o->trainable) {
        pal_optimiser_free(o);
        return pal_fail(err, PAL_E_ARGUMENT, "every weight is frozen: there is nothing to train");
    }
    *out = o;
    return PAL_OK;
}

pal_status pal_optimiser_new(pal_optimiser **out, const pal_model *model, const pal_optimiser_options *options,
                             const pal_exchange *exchange, pal_error *err) {
    return make(out, model, options, exchange, pal_model_flat(model), err);
}

pal_status pal_optimiser_check(const pal_model *model, const pal_optimiser_options *options, pal_error *err) {
    pal_optimiser *o;
    const pal_status st = make(&o, model, options, NULL, 0, err);
    pal_optimiser_free(o);
    return st;
}

void pal_optimiser_free(pal_optimiser *o) {
    if (!o) return;
    pal_free(o->m), pal_free(o->v), pal_free(o->settings), pal_free(o->range), pal_free(o->sums);
    pal_free(o);
}

size_t pal_optimiser_moment_bytes(const pal_optimiser *o) { return 2 * o->own * sizeof(float); }
size_t pal_optimiser_trainable(const pal_optimiser *o) { return o->trainable; }

double pal_optimiser_squares(const pal_optimiser *o, const pal_model *model, const pal_context *cx) {
    const float *g = pal_model_flat_gradients((pal_model *)model); /* read only */
    double squares = 0;
    for (size_t i = 0; i < o->ranges; i++)
        squares += pal_sum_squares(cx, g + o->range[i].begin, o->range[i].end - o->range[i].begin, o->sums);
    return squares;
}

double pal_optimiser_apply(pal_optimiser *o, pal_model *model, const pal_context *cx, double squares, double scale,
                           double rate) {
    const float *g = pal_model_flat_gradients(model);
    float *p = pal_model_flat_parameters(model);
    const double norm = scale * sqrt(squares);
    if (!isfinite(norm)) return norm;
    o->updates++;
    for (size_t i = 0; i < o->ranges; i++) {
        const update_range *r = &o->range[i];
        const pal_adamw_step step = { .lr = rate * r->rate,
                                      .beta1 = o->options.beta1,
                                      .beta2 = o->options.beta2,
                                      .eps = o->options.eps,
                                      .weight_decay = r->decay,
                                      .factor = scale * pal_clip_factor(norm, o->options.clip),
                                      .step = o->updates };
        (o->options.bf16 ? pal_adamw_bf16 : pal_adamw)(cx, &step, p + r->begin, o->m + r->at, o->v + r->at,
                                                       g + r->begin, r->end - r->begin);
    }
    return norm;
}

double pal_optimiser_step(pal_optimiser *o, pal_model *model, const pal_context *cx, double scale, double rate) {
    return pal_optimiser_apply(o, model, cx, pal_optimiser_squares(o, model, cx), scale, rate);
}

void pal_optimiser_reset(pal_optimiser *o) {
    memset(o->m, 0, o->own * sizeof *o->m);
    memset(o->v, 0, o->own * sizeof *o->v);
    o->updates = 0;
}

/* The two moments of weight i as tensors; names are made into the caller's buffers. */
enum { NAME = 512 };
static void moment_name(char name[NAME], char moment, const pal_weight *w) {
    snprintf(name, NAME, "%c.%s", moment, w->name);
}

/* The moments of one weight between their owners and `all`, a flat buffer of rank 0. */
typedef enum { TO_ROOT, TO_OWNERS } direction;

static pal_status move_moments(const pal_optimiser *o, float *moments, const pal_weight *w, float *all, direction way,
                               pal_error *err) {
    const pal_comm *c = pal_exchange_comm(o->exchange);
    pal_status st = PAL_OK;
    size_t at = 0; /* of this rank's slice i among its moments */
    for (size_t i = 0; i < slices(o) && !st; i++) {
        for (int r = 0; r < c->size && !st; r++) {
            const pal_flat_slice both = overlap(w->offset, w->offset + w->count, slice(o, i, r));
            const size_t bytes = (both.end - both.begin) * sizeof(float);
            if (!bytes) continue;
            float *mine = moments + at + both.begin - slice(o, i, r).begin;
            if (r == 0 && c->rank == 0) /* its own */
                memcpy(way == TO_ROOT ? all + both.begin : mine, way == TO_ROOT ? mine : all + both.begin, bytes);
            else
                st = pal_comm_move(c, way == TO_ROOT ? r : 0, way == TO_ROOT ? 0 : r,
                                   pal_comm_is_root(c) ? all + both.begin : mine, bytes, err);
        }
        at += slice(o, i, own_rank(o)).end - slice(o, i, own_rank(o)).begin;
    }
    return st;
}

static bool shared(const pal_optimiser *o) { return o->exchange && pal_exchange_comm(o->exchange)->size > 1; }

typedef struct {
    const pal_optimiser *o;
    pal_model *model;
} fetching;

/* The tensor's name begins with the moment's. */
static pal_status fetch_moments(void *user, const pal_tensor *t, const void **data, pal_error *err) {
    const fetching *f = user;
    const pal_weight *w = pal_model_find_weight(f->model, t->name + 2);
    float *moments = t->name[0] == 'v' ? f->o->v : f->o->m, *all = pal_model_flat_gradients(f->model);
    *data = (shared(f->o) ? all : moments) + w->offset;
    return shared(f->o) ? move_moments(f->o, moments, w, all, TO_ROOT, err) : PAL_OK;
}

pal_status pal_optimiser_save(const pal_optimiser *o, pal_model *model, const char *path, pal_error *err) {
    pal_tensor *tensors = pal_alloc(2 * o->weights, sizeof *tensors);
    char(*names)[NAME] = pal_alloc(2 * o->weights, sizeof *names);
    pal_status st;
    size_t n = 0;
    if (!tensors || !names) {
        st = pal_fail(err, PAL_E_MEMORY, "%s: out of memory while writing it", path);
        goto done;
    }
    for (size_t i = 0; i < o->weights; i++) {
        if (!o->settings[i].trained) continue;
        const pal_weight *w = pal_model_weight(model, i);
        for (int which = 0; which < 2; which++, n++) {
            moment_name(names[n], which ? 'v' : 'm', w);
            tensors[n] = (pal_tensor){ .name = names[n], .dtype = PAL_F32, .rank = w->rank, .count = w->count };
            for (int d = 0; d < w->rank; d++) tensors[n].shape[d] = w->shape[d];
        }
    }
    char updates[32];
    snprintf(updates, sizeof updates, "%lld", (long long)o->updates);
    const char *const metadata[] = { "format", "pt", "updates", updates, NULL };
    fetching f = { o, model };
    st = pal_safetensors_write_fetched(own_rank(o) == 0 ? path : NULL, tensors, n, metadata, fetch_moments, &f, err);
done:
    pal_free(tensors);
    pal_free(names);
    return st;
}

/* The count of updates that a file's metadata holds. */
static pal_status read_updates(const pal_safetensors *file, const char *path, int64_t *out, pal_error *err) {
    const char *updates = pal_safetensors_metadata(file, "updates");
    char *end;
    errno = 0;
    *out = updates ? strtoll(updates, &end, 10) : -1;
    if (updates && *updates && !errno && !*end && *out >= 0 && *out <= PAL_MOST_COUNT) return PAL_OK;
    return pal_fail(err, PAL_E_FORMAT, "%s: its metadata has no valid count of updates", path);
}

static pal_status read_moments(const pal_safetensors *file, const char *path, char moment, const pal_weight *w,
                               float *to, pal_error *err) {
    char name[NAME];
    moment_name(name, moment, w);
    const pal_tensor *t = pal_safetensors_find(file, name);
    if (!t || t->dtype != PAL_F32 || t->count != w->count)
        return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' is missing or does not have %zu numbers", path, name,
                        w->count);
    return pal_tensor_to_f32(t, to, err);
}

pal_status pal_optimiser_load(pal_optimiser *o, pal_model *model, const char *path, pal_error *err) {
    pal_safetensors *file = NULL;
    const bool reads = own_rank(o) == 0;
    float *all = pal_model_flat_gradients(model);
    pal_status st = reads ? pal_safetensors_open(&file, path, err) : PAL_OK;
    if (st) return st;
    if (reads) st = read_updates(file, path, &o->updates, err);
    if (!st && shared(o)) st = pal_comm_broadcast(pal_exchange_comm(o->exchange), &o->updates, sizeof o->updates, err);
    for (size_t i = 0; !st && i < o->weights; i++) {
        if (!o->settings[i].trained) continue;
        const pal_weight *w = pal_model_weight(model, i);
        for (int which = 0; !st && which < 2; which++) {
            float *moments = which ? o->v : o->m;
            if (reads)
                st = read_moments(file, path, which ? 'v' : 'm', w, (shared(o) ? all : moments) + w->offset, err);
            if (!st && shared(o)) st = move_moments(o, moments, w, all, TO_OWNERS, err);
        }
    }
    if (file) pal_safetensors_close(file);
    return st;
}
