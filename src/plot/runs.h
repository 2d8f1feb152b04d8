/* SPDX-License-Identifier: MIT */
/* Comparing run directories, and runs kept in tables (table.h). Runs whose config.json differs in nothing but the seed
 * form a group; a group is shown as the mean over its runs with one standard deviation as an interval. */
#ifndef PAL_PLOT_RUNS_H
#define PAL_PLOT_RUNS_H

#include <jansson.h>

#include "plot/figure.h"

typedef enum pal_runs_x { PAL_X_STEP, PAL_X_TOKENS, PAL_X_TIME } pal_runs_x;

typedef struct pal_runs_options {
    pal_runs_x x;
    int smooth;        /* moving average over this many logged points, centred; 0 or 1: none */
    bool log_y;        /* losses, windows and ratios on log axes */
    bool dynamics;     /* memory window, metaplasticity ratio and loss, one above another, instead of the comparison */
    const char *title; /* NULL: one that suits */
    pal_theme theme;
    int width, height; /* 0: suits the panels */
    double scale;      /* PNG pixels per CSS pixel; 0: 2 */
    /* The command that made a run, for a report, to be freed; NULL, or returns NULL: unknown. */
    char *(*command)(const json_t *config, const char *directory);
} pal_runs_options;

typedef struct pal_runs pal_runs;

/* Run directories, or tables of several runs. */
pal_status pal_runs_open(pal_runs **out, const char *const *paths, size_t count, pal_error *err);
void pal_runs_free(pal_runs *runs);
size_t pal_runs_count(const pal_runs *runs);
size_t pal_runs_groups(const pal_runs *runs);
size_t pal_runs_skipped(const pal_runs *runs); /* lines of metrics that could not be used */

/* The figure of options->dynamics, or the comparison: loss, accuracy (where there is one), learning rate. What it
 * points to belongs to `runs` and lasts until it is freed. */
pal_status pal_runs_figure(pal_runs *runs, const pal_runs_options *options, pal_figure *figure, pal_error *err);

/* To path, whose ending says what: .svg, .png or .html (a report with a table of runs, and the dynamics when logged).
 */
pal_status pal_runs_write(pal_runs *runs, const pal_runs_options *options, const char *path, pal_error *err);
/* Refuses an ending that pal_runs_write does not know. */
pal_status pal_runs_check_path(const char *path, pal_error *err);

/* A model's name as in the paper ("palimpsa-d" is "Palimpsa-D"); other names are returned as they are. */
const char *pal_model_label(const char *name);
/* Its colour, the same in every figure: by the name or the label that it begins with, followed by no letter
 * ("palimpsa-d", "Palimpsa-D, lr 1e-3"). -1: a model that has none of its own. */
int pal_model_colour(const char *name);
/* Colours for `count` models in one figure: their own where they have one; the others, and further variants of a model,
 * get what is left, so that no two look the same. */
void pal_model_colours(const char *const *names, size_t count, int *colours);

#endif
