/* SPDX-License-Identifier: MIT */
/* Results files of evaluations as a figure. */
#ifndef PAL_CLI_PLOT_RESULTS_H
#define PAL_CLI_PLOT_RESULTS_H

#include "cli.h"
#include "plot/runs.h"

bool plot_is_results(const char *path); /* by its name: .json */
/* Prints a sentence and returns an exit code. Of the options: title, theme and size. */
int plot_results(const char *const *paths, int count, const pal_runs_options *options, const char *out);

#endif
