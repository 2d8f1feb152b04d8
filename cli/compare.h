/* SPDX-License-Identifier: MIT */
/* Models of a sweep compared over seeds: what `palimpsa compare` reads, computes and draws. */
#ifndef PAL_CLI_COMPARE_H
#define PAL_CLI_COMPARE_H

#include "base/statistics.h"
#include "sweep.h"

/* A curve's columns that are looked at, as in DIR/curves. */
typedef enum { CURVE_STEP, CURVE_LOSS, CURVE_TRAIN_ACCURACY, CURVE_WINDOW, CURVE_RATIO, CURVE_COLUMNS } curve_column;
typedef struct {
    size_t count;
    double *column[CURVE_COLUMNS]; /* (count) each, NaN where the file has none; NULL: no curve */
} run_curve;

typedef struct {
    const char *folder;
    int models, seeds, stages;
    char model[SWEEP_ENTRIES][256], rate[SWEEP_ENTRIES][64], seed[SWEEP_ENTRIES][64];
    int length[SWEEP_STAGES], pairs[SWEEP_STAGES];
    double accuracy[SWEEP_ENTRIES][SWEEP_STAGES][SWEEP_ENTRIES]; /* model, stage, seed; NaN: not there */
    run_curve curve[SWEEP_ENTRIES][SWEEP_ENTRIES];               /* model, seed */
    bool curves;                                                 /* every run has one */
    const char *column;                                          /* compared instead of the accuracy, or NULL */
    word_list endpoint; /* lengths whose mean is compared; empty: the last stage */
} comparison;

/* A - B, paired by seed: at the endpoint, or (slope) how it changes with each doubling of the length. */
typedef struct {
    const char *text;
    int a, b;
    bool slope;
    double value[SWEEP_ENTRIES]; /* (count) */
    int count, ahead;            /* ahead: seeds in which A is above B */
    double mean, p, adjusted;
    pal_interval interval, t_interval;
} contrast;

/* compare_read.c. rate: only rows at this one, or NULL: each model has one. Rows of the same model, stage and seed
 * (branches on several data seeds) are averaged. */
int compare_read(comparison *c, const char *folder, const char *rate);
void compare_free(comparison *c);
/* Differences of accuracy at a stage, of the seeds that both have; returns their number. */
int compare_differences(const comparison *c, int a, int b, int stage, double out[SWEEP_ENTRIES]);
/* The same of the mean over the stages of the endpoint. */
int compare_endpoints(const comparison *c, int a, int b, double out[SWEEP_ENTRIES]);
bool compare_at_endpoint(const comparison *c, int stage);
/* Accuracies of the seeds that are there. */
int compare_accuracies(const comparison *c, int model, int stage, double out[SWEEP_ENTRIES]);
/* Whether a run's logged training accuracy ever exceeds a level. */
bool compare_passes(const comparison *c, int model, int seed, double level);
/* The first update at which the logged training accuracy exceeds a level, or the last one without. time and happened
 * have room for SWEEP_ENTRIES. */
pal_times compare_times(const comparison *c, int model, double level, double *time, bool *happened);

/* compare_figures.c: kind is length, differences, survival or dynamics; title may be NULL. */
int compare_draw(const comparison *c, const contrast *contrasts, int count, const char *kind, double level,
                 const char *title, const char *path);

#endif
