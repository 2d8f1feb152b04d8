/* SPDX-License-Identifier: MIT */
/* Memory windows for people and programs: a ranked table, JSON, and the paper's figure. */
#ifndef PAL_CLI_WINDOWS_VIEW_H
#define PAL_CLI_WINDOWS_VIEW_H

#include <jansson.h>
#include <stdbool.h>

#include "model/windows.h"

void windows_print(const pal_windows *w, const pal_model_config *config, const bool *chosen);
/* layers: [{layer, rule, median_n_t, rank}], rank 1 for the longest window; chosen: layer numbers, rising. */
void windows_json(const pal_windows *w, const pal_model_config *config, const bool *chosen, json_t *to);
/* path ends in .svg or .png and can be written; windows_check_path says so before the work is done. Both return an exit
 * code. */
int windows_check_path(const char *path);
int windows_draw(const pal_windows *w, const bool *chosen, const char *title, const char *path);

#endif
