/* SPDX-License-Identifier: MIT */
/* What a report of runs says in words. */
#ifndef PAL_PLOT_TOLD_H
#define PAL_PLOT_TOLD_H

#include "plot/report.h"
#include "plot/runs_inside.h"

/* The task that all runs have; of different ones nothing. */
void pal_runs_tell_task(const pal_runs *runs, pal_report *report);
/* From where to where accuracy, losses, windows and ratios went, and whether they are level. */
void pal_runs_tell_outcome(const pal_runs *runs, pal_report *report);
/* Commands, settings and version. */
pal_status pal_runs_tell_origin(pal_runs *runs, const pal_runs_options *options, pal_report *report, pal_error *err);

/* A setting by its key, also one level down; NULL: none. */
const json_t *pal_run_setting(const json_t *config, const char *name);

#endif
