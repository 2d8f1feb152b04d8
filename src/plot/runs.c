/* SPDX-License-Identifier: MIT */
/* Reading run directories: metrics, configurations, groups and the labels that distinguish them. */
#include "plot/runs.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "format/json.h"
#include "plot/runs_inside.h"
#include "plot/table.h"

pal_status pal_runs_keep(pal_runs *r, void **out, size_t n, size_t size, pal_error *err) {
    pal_run_block *b;
    pal_status st = pal_alloc_named((void **)&b, 1, sizeof *b, "a figure", err);
    if (st) return st;
    if ((st = pal_alloc_named(&b->data, n ? n : 1, size, "a figure", err))) {
        pal_free(b);
        return st;
    }
    b->next = r->blocks;
    r->blocks = b;
    *out = b->data;
    return PAL_OK;
}

const char *pal_base_name(const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    return path + begin;
}

static char *join(const char *directory, const char *name) {
    const size_t size = strlen(directory) + strlen(name) + 2;
    char *path = pal_alloc(size, 1);
    if (path)
        snprintf(path, size, "%s%s%s", directory, directory[0] && directory[strlen(directory) - 1] == '/' ? "" : "/",
                 name);
    return path;
}

static void drop_seeds(json_t *config) {
    const char *key;
    json_t *value;
    void *next;
    json_object_del(config, "seed");
    json_object_foreach_safe(config, next, key, value) if (json_is_object(value)) drop_seeds(value);
}

/* Only for labels: a run without a configuration is shown under its directory's name. False: no memory. */
static bool read_config(pal_run *r, const char *path, const char *directory) {
    bool starved;
    char *text = NULL;
    r->config = pal_json_load(path, 0, NULL, &starved);
    if (!json_is_object(r->config)) {
        json_decref(r->config);
        r->config = NULL;
    }
    json_t *copy = r->config ? pal_json_copy(r->config) : NULL;
    if (copy) {
        drop_seeds(copy);
        text = pal_json_dumps(copy, JSON_SORT_KEYS | JSON_COMPACT);
    }
    if (!starved && !text == !r->config) r->signature = pal_strdup(text ? text : directory);
    free(text);
    json_decref(copy);
    return r->signature != NULL;
}

static pal_status open_run(pal_run *r, const char *directory, pal_error *err) {
    pal_status st = PAL_OK;
    char *metrics = join(directory, "metrics.jsonl"), *config = join(directory, "config.json");
    r->directory = pal_strdup(directory);
    if (!metrics || !config || !r->directory)
        st = pal_fail(err, PAL_E_MEMORY, "out of memory while reading %s", directory);
    if (!st) st = pal_metrics_read(&r->metrics, metrics, err);
    if (!st && !read_config(r, config, directory))
        st = pal_fail(err, PAL_E_MEMORY, "out of memory while reading %s", directory);
    pal_free(metrics);
    pal_free(config);
    return st;
}

/* Scalars of a configuration by dotted path. */
static void flatten(json_t *flat, const json_t *config, const char *prefix) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)config, key, value) {
        char path[PAL_RUN_LABEL];
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (json_is_object(value)) flatten(flat, value, path);
        else if (!json_is_array(value)) pal_json_set(flat, path, json_incref(value));
    }
}

/* An ablation is a lighter shade of its model's hue. The last colour of the palette, grey, is the Transformer's. */
static const struct {
    const char *name, *label;
    int colour;
} models[] = {
    { "palimpsa-d", "Palimpsa-D", 0 },         { "palimpsa-d-wo-meta", "Palimpsa-D w/o Meta", 4 },
    { "palimpsa-m", "Palimpsa-M", 1 },         { "palimpsa-m-wo-meta", "Palimpsa-M w/o Meta", 5 },
    { "gated-deltanet", "Gated DeltaNet", 2 }, { "transformer", "Transformer++", 6 },
};
enum { MODELS = sizeof models / sizeof models[0] };

const char *pal_model_label(const char *name) {
    for (size_t i = 0; i < MODELS; i++)
        if (strcmp(models[i].name, name) == 0) return models[i].label;
    return name;
}

static size_t begins(const char *text, const char *start) {
    const size_t n = strlen(start);
    return strncmp(text, start, n) == 0 && !isalnum((unsigned char)text[n]) ? n : 0;
}

int pal_model_colour(const char *name) {
    size_t longest = 0;
    int colour = -1;
    for (size_t i = 0; i < MODELS; i++) {
        const size_t by_name = begins(name, models[i].name), by_label = begins(name, models[i].label);
        const size_t n = by_name > by_label ? by_name : by_label;
        const char *rest = name + n;
        const bool rule = memchr(rest, ':', strcspn(rest, " ")) ||
                          (strncmp(rest, " (", 2) == 0 && isalpha((unsigned char)rest[2]));
        if (rule) continue; /* a different rule on its backbone */
        if (n > longest) longest = n, colour = models[i].colour;
    }
    return colour;
}

void pal_model_colours(const char *const *names, size_t count, int *colours) {
    int used[PAL_COLOURS] = { 0 };
    for (size_t i = 0; i < count; i++) {
        const int own = pal_model_colour(names[i]);
        colours[i] = own < 0 ? -1 : own + PAL_COLOURS * used[own]; /* the same hue with other dashes */
        if (own >= 0) used[own]++;
    }
    for (size_t i = 0; i < count; i++) {
        if (colours[i] >= 0) continue;
        int least = 3; /* the one hue that no model owns */
        for (int c = 0; c < PAL_COLOURS; c++)
            if (used[c] < used[least]) least = c;
        colours[i] = least + PAL_COLOURS * used[least]++;
    }
}

static void model_name(char label[PAL_RUN_LABEL], const pal_run *r) {
    const json_t *model = r->config ? json_object_get(r->config, "model") : NULL;
    if (json_is_object(model))
        model = json_object_get(model, "name") ? json_object_get(model, "name") : json_object_get(model, "model_type");
    if (!model && r->config) model = json_object_get(r->config, "model_type");
    const char *name = json_string_value(model);
    snprintf(label, PAL_RUN_LABEL, "%.100s", pal_model_label(pal_base_name(name && *name ? name : r->directory)));
    if (label[0] && label[strlen(label) - 1] == '/') label[strlen(label) - 1] = '\0';
    const char *rule = r->config ? json_string_value(json_object_get(r->config, "rule")) : NULL;
    if (rule && *rule && name) snprintf(label + strlen(label), PAL_RUN_LABEL - strlen(label), " (%.40s)", rule);
}

static void append(char label[PAL_RUN_LABEL], const char *key, const json_t *value) {
    char number[64];
    const char *text = json_is_true(value)     ? "on"
                       : json_is_false(value)  ? "off"
                       : json_is_string(value) ? json_string_value(value)
                                               : number;
    if (json_is_number(value)) snprintf(number, sizeof number, "%.6g", json_number_value(value));
    else if (!value || json_is_null(value)) snprintf(number, sizeof number, "default");
    const char *dot = strrchr(key, '.');
    snprintf(label + strlen(label), PAL_RUN_LABEL - strlen(label), ", %.30s %.30s", dot ? dot + 1 : key, text);
}

/* Groups of one name get what distinguishes them: the settings that differ, or their directories. */
static pal_status tell_apart(pal_runs *r, pal_error *err) {
    json_t *names = json_object(); /* name: list of groups */
    for (size_t g = 0; g < r->group_count; g++) {
        if (!json_object_get(names, r->groups[g].label)) pal_json_set(names, r->groups[g].label, json_array());
        pal_json_append(json_object_get(names, r->groups[g].label), json_integer((json_int_t)g));
    }
    const char *name;
    json_t *same;
    json_object_foreach(names, name, same) {
        if (json_array_size(same) < 2) continue;
        json_t *all = json_object(), *settings = json_array();
        for (size_t i = 0; i < json_array_size(same); i++) {
            const pal_run *first = &r->runs[r->groups[json_integer_value(json_array_get(same, i))].first];
            json_t *flat = json_object(), *copy = first->config ? pal_json_copy(first->config) : json_object();
            drop_seeds(copy);
            flatten(flat, copy, "");
            pal_json_update(all, json_incref(flat));
            pal_json_append(settings, flat);
            json_decref(copy);
        }
        const char *differing[3] = { 0 }, *key;
        size_t count = 0;
        json_t *value;
        json_object_foreach(all, key, value) {
            bool differs = false;
            for (size_t i = 0; i < json_array_size(settings); i++)
                differs |= !json_equal(json_object_get(json_array_get(settings, i), key), value);
            if (differs && count++ < 3) differing[count - 1] = key;
        }
        for (size_t i = 0; i < json_array_size(same); i++) {
            pal_run_group *g = &r->groups[json_integer_value(json_array_get(same, i))];
            for (size_t k = 0; k < count && count <= 3; k++)
                append(g->label, differing[k], json_object_get(json_array_get(settings, i), differing[k]));
            if (count == 0 || count > 3)
                snprintf(g->label + strlen(g->label), PAL_RUN_LABEL - strlen(g->label), ", %.60s",
                         pal_base_name(r->runs[g->first].directory));
        }
        json_decref(all);
        json_decref(settings);
    }
    names = pal_json_whole(names);
    if (!names) return pal_fail(err, PAL_E_MEMORY, "out of memory while naming the runs");
    json_decref(names);
    return PAL_OK;
}

/* Every run of a table, from r->runs[r->count] on. */
static pal_status take_table(pal_runs *r, pal_table *t, const char *path, pal_error *err) {
    for (size_t i = 0; i < t->count; i++) {
        pal_run *now = &r->runs[r->count++];
        now->directory = pal_strdup(t->names[i]);
        now->signature = pal_strdup(t->names[i]);
        now->metrics = t->metrics[i];
        t->metrics[i] = (pal_metrics){ 0 };
        if (!now->directory || !now->signature)
            return pal_fail(err, PAL_E_MEMORY, "out of memory while reading %s", path);
    }
    return PAL_OK;
}

static pal_status grow(pal_runs *r, size_t more, pal_error *err) {
    pal_run *runs;
    const pal_status st = pal_alloc_named((void **)&runs, r->count + more, sizeof *runs, "runs", err);
    if (st) return st;
    if (r->count) memcpy(runs, r->runs, r->count * sizeof *runs);
    pal_free(r->runs);
    r->runs = runs;
    return PAL_OK;
}

static pal_status open_one(pal_runs *r, const char *path, pal_error *err) {
    pal_status st;
    if (!pal_is_table(path)) return (st = grow(r, 1, err)) ? st : open_run(&r->runs[r->count++], path, err);
    pal_table table;
    if ((st = pal_table_read(&table, path, err))) return st;
    if (!(st = grow(r, table.count, err))) st = take_table(r, &table, path, err);
    r->by_position |= table.by_position;
    pal_table_free(&table);
    return st;
}

pal_status pal_runs_open(pal_runs **out, const char *const *paths, size_t count, pal_error *err) {
    pal_runs *r;
    *out = NULL;
    pal_status st = pal_alloc_named((void **)&r, 1, sizeof *r, "runs", err);
    if (st) return st;
    for (size_t i = 0; i < count; i++) {
        const bool by_position = r->by_position;
        if ((st = open_one(r, paths[i], err))) goto done;
        if (i && r->by_position != by_position) {
            st = pal_fail(err, PAL_E_ARGUMENT, "%s: losses by position cannot be drawn with those of a training",
                          paths[i]);
            goto done;
        }
    }
    if ((st = pal_alloc_named((void **)&r->groups, r->count ? r->count : 1, sizeof *r->groups, "runs", err))) goto done;
    for (size_t i = 0; i < r->count; i++) {
        pal_run *now = &r->runs[i];
        for (now->group = 0; now->group < r->group_count; now->group++)
            if (strcmp(r->runs[r->groups[now->group].first].signature, now->signature) == 0) break;
        if (now->group == r->group_count) {
            r->groups[r->group_count++] = (pal_run_group){ .first = i };
            model_name(r->groups[now->group].label, now);
        }
        r->groups[now->group].count++;
    }
    if ((st = tell_apart(r, err))) goto done;
    *out = r;
    r = NULL;
done:
    pal_runs_free(r);
    return st;
}

void pal_runs_free(pal_runs *r) {
    if (!r) return;
    for (size_t i = 0; r->runs && i < r->count; i++) {
        json_decref(r->runs[i].config);
        pal_free(r->runs[i].signature);
        pal_free(r->runs[i].directory);
        pal_metrics_free(&r->runs[i].metrics);
    }
    while (r->blocks) {
        pal_run_block *b = r->blocks;
        r->blocks = b->next;
        pal_free(b->data);
        pal_free(b);
    }
    pal_free(r->runs);
    pal_free(r->groups);
    pal_free(r);
}

size_t pal_runs_count(const pal_runs *r) { return r->count; }

size_t pal_runs_groups(const pal_runs *r) { return r->group_count; }

size_t pal_runs_skipped(const pal_runs *r) {
    size_t skipped = 0;
    for (size_t i = 0; i < r->count; i++) skipped += r->runs[i].metrics.skipped;
    return skipped;
}
