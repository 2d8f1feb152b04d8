/* SPDX-License-Identifier: MIT */
/* palimpsa plot results.json...: results files of evaluations, ours or lm-evaluation-harness's, as bars. */
#include "plot_results.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval.h"
#include "format/model_dir.h"
#include "plot/runs.h"

enum { MODELS = 64, GROUPS = 64 };

/* A bar of each model: a metric of a task. */
typedef struct {
    const char *task;
    char metric[48];
    char label[64];
    bool share; /* an accuracy */
} group;

typedef struct {
    json_t *files[MODELS];
    int file_count;
    const json_t *models[MODELS]; /* the object "results" of each; inside the files */
    const char *given[MODELS];    /* their names; inside the files */
    char names[MODELS][64];
    int model_count;
    group groups[GROUPS];
    int group_count;
} drawing;

static const char *name_of(const json_t *root) {
    const char *name = json_string_value(json_object_get(root, "model_name"));
    if (!name) name = json_string_value(json_object_get(json_object_get(root, "config"), "model_args"));
    return name && *name ? name : "model";
}

static int add_model(drawing *d, const char *path, const json_t *root) {
    const json_t *results = json_object_get(root, "results");
    if (!json_is_object(results) || !json_object_size(results))
        return cli_error(CLI_USAGE,
                         "%s: no 'results' of tasks in it; expected what 'palimpsa eval --tasks ... --json "
                         "FILE' or lm-evaluation-harness writes",
                         path);
    if (d->model_count == MODELS) return cli_error(CLI_USAGE, "%s: more than %d models", path, MODELS);
    d->given[d->model_count] = name_of(root);
    d->models[d->model_count++] = results;
    return CLI_OK;
}

static int read_file(drawing *d, const char *path) {
    pal_error err;
    json_t *root;
    int code = CLI_OK;
    if (d->file_count == MODELS) return cli_error(CLI_USAGE, "%s: more than %d files", path, MODELS);
    if (pal_json_read(&root, path, &err)) return cli_fail(&err);
    d->files[d->file_count++] = root;
    if (!json_is_array(root)) return add_model(d, path, root);
    if (!json_array_size(root)) return cli_error(CLI_USAGE, "%s: an empty list, expected results", path);
    for (size_t i = 0; i < json_array_size(root) && !code; i++) code = add_model(d, path, json_array_get(root, i));
    return code;
}

/* The value of a metric, or its standard error; NaN: the file has none. */
static double value_of(const json_t *results, const group *g, const char *suffix) {
    char key[64];
    snprintf(key, sizeof key, "%s%s,none", g->metric, suffix);
    const json_t *value = json_object_get(json_object_get(results, g->task), key);
    return json_is_number(value) ? json_number_value(value) * (g->share ? 100 : 1) : NAN;
}

static const pal_eval_task *find_task(const char *name) {
    return strcmp(name, pal_task_perplexity.name) == 0 ? &pal_task_perplexity : pal_task_find(name);
}

static void add_group(drawing *d, const char *task, const char *metric) {
    group g = { .task = task, .share = strncmp(metric, "acc", 3) == 0 };
    bool has = false;
    snprintf(g.metric, sizeof g.metric, "%s", metric);
    const pal_eval_task *known = find_task(task);
    snprintf(g.label, sizeof g.label, "%s", known ? known->heading : task);
    for (int i = 0; i < d->group_count; i++)
        if (strcmp(d->groups[i].task, task) == 0 && strcmp(d->groups[i].metric, metric) == 0) return;
    for (int m = 0; m < d->model_count; m++) has |= isfinite(value_of(d->models[m], &g, ""));
    if (has && d->group_count < GROUPS) d->groups[d->group_count++] = g;
}

/* The metrics of the paper's table; of other tasks acc_norm, or else acc. */
static void choose_groups(drawing *d) {
    for (int m = 0; m < d->model_count; m++) {
        const char *task;
        json_t *row;
        json_object_foreach((json_t *)(uintptr_t)d->models[m], task, row) {
            const pal_eval_task *known = find_task(task);
            if (known && known->kind == PAL_TASK_LAST_WORD) add_group(d, task, "perplexity");
            if (known) add_group(d, task, pal_metric_name(known->shown));
            else add_group(d, task, json_object_get(row, "acc_norm,none") ? "acc_norm" : "acc");
        }
    }
}

/* A panel of the groups that are accuracies, or of those that are not. */
static pal_panel make_panel(const drawing *d, bool share, const char **labels, pal_bar *bars, const char **names,
                            int *colours) {
    size_t n = 0;
    for (int g = 0; g < d->group_count; g++) {
        if (d->groups[g].share != share) continue;
        for (int m = 0; m < d->model_count; m++)
            bars[n * (size_t)d->model_count + (size_t)m] = (pal_bar){
                .value = value_of(d->models[m], &d->groups[g], ""),
                .error = value_of(d->models[m], &d->groups[g], "_stderr"),
            };
        labels[n++] = d->groups[g].label;
    }
    return (pal_panel){ .kind = PAL_PANEL_BARS,
                        .title = share ? "Accuracy" : "Perplexity",
                        .y = { .label = share ? "percent" : "perplexity", .log = !share },
                        .bars = { .groups = labels,
                                  .group_count = n,
                                  .names = names,
                                  .colours = colours,
                                  .name_count = (size_t)d->model_count,
                                  .bars = bars } };
}

static int draw(const drawing *d, const pal_runs_options *o, const char *out) {
    const char *labels[2][GROUPS], *names[MODELS];
    int colours[MODELS], panels = 0;
    pal_panel panel[2];
    pal_error err;
    pal_bar *bars = calloc(2 * GROUPS * (size_t)d->model_count, sizeof *bars);
    if (!bars) return cli_error(CLI_FAILED, "out of memory for the figure");
    for (int m = 0; m < d->model_count; m++) names[m] = pal_model_label(d->names[m]);
    pal_model_colours(names, (size_t)d->model_count, colours);
    for (int share = 1; share >= 0; share--) {
        panel[panels] = make_panel(d, share, labels[panels], bars + (size_t)panels * GROUPS * (size_t)d->model_count,
                                   names, colours);
        panels += panel[panels].bars.group_count > 0;
    }
    const pal_figure figure = { .title = o->title ? o->title : "Tasks",
                                .panels = panel,
                                .panel_count = panels,
                                .columns = 1,
                                .width = o->width ? o->width : 900,
                                .height = o->height,
                                .theme = o->theme };
    const size_t length = strlen(out);
    const bool png = length > 4 && strcmp(out + length - 4, ".png") == 0;
    const pal_status st = png ? pal_figure_write_png(&figure, o->scale > 0 ? o->scale : 2, out, &err)
                              : pal_figure_write_svg(&figure, out, &err);
    free(bars);
    if (st) return cli_fail_writing(&err);
    printf("wrote %s (%d model%s)\n", out, d->model_count, d->model_count == 1 ? "" : "s");
    return CLI_OK;
}

bool plot_is_results(const char *path) {
    const size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".json") == 0;
}

int plot_results(const char *const *paths, int count, const pal_runs_options *o, const char *out) {
    const char *dot = strrchr(out, '.');
    if (!dot || (strcmp(dot, ".svg") != 0 && strcmp(dot, ".png") != 0))
        return cli_error(CLI_USAGE, "--out: results of tasks are drawn as .svg or .png, found '%s'", out);
    drawing *d = calloc(1, sizeof *d);
    if (!d) return cli_error(CLI_FAILED, "out of memory for the figure");
    int code = CLI_OK;
    for (int i = 0; i < count && !code; i++)
        code = plot_is_results(paths[i])
                   ? read_file(d, paths[i])
                   : cli_error(CLI_USAGE, "%s: run directories and results files do not go into one figure", paths[i]);
    eval_make_labels(d->names, d->given, d->model_count);
    if (!code) choose_groups(d);
    if (!code && !d->group_count)
        code = cli_error(CLI_USAGE, "%s: no accuracy and no perplexity in its results", paths[0]);
    if (!code) code = draw(d, o, out);
    for (int i = 0; i < d->file_count; i++) json_decref(d->files[i]);
    free(d);
    return code;
}
