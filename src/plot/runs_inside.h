/* SPDX-License-Identifier: MIT */
/* Inside the plot room: what runs.c reads and groups, and compare.c turns into figures. */
#ifndef PAL_PLOT_RUNS_INSIDE_H
#define PAL_PLOT_RUNS_INSIDE_H

#include <jansson.h>

#include "plot/metrics.h"
#include "plot/runs.h"

enum { PAL_RUN_LABEL = 160 };

typedef struct pal_run {
    char *directory; /* of a run in a table: its name there */
    json_t *config;  /* NULL: none */
    char *signature; /* config without seeds, in one spelling; the directory when there is no config */
    size_t group;
    pal_metrics metrics;
} pal_run;

typedef struct pal_run_group {
    char label[PAL_RUN_LABEL];
    size_t first, count; /* first of its runs, how many */
} pal_run_group;

/* What figures point to: a list of blocks, freed together. */
typedef struct pal_run_block {
    struct pal_run_block *next;
    void *data;
} pal_run_block;

struct pal_runs {
    pal_run *runs;
    pal_run_group *groups;
    size_t count, group_count;
    pal_run_block *blocks;
    bool by_position; /* losses by position in a text instead of curves of a training */
};

/* n elements that live as long as runs. */
pal_status pal_runs_keep(pal_runs *runs, void **out, size_t n, size_t size, pal_error *err);
const char *pal_base_name(const char *path);

#endif
