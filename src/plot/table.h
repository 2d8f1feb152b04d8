/* SPDX-License-Identifier: MIT */
/* Curves of several runs in one CSV file, as results are kept. The first line names the columns: `model`, then `step`
 * (or `position`, for losses by position in a text) and keys of metrics.jsonl. An empty field is a number that was not
 * logged. Unlike metrics.jsonl, which a killed run may leave torn, a table with a line that does not fit is refused. */
#ifndef PAL_PLOT_TABLE_H
#define PAL_PLOT_TABLE_H

#include "plot/metrics.h"

enum { PAL_TABLE_RUNS = 256, PAL_TABLE_NAME = 128 };

typedef struct pal_table {
    size_t count; /* runs, in the order of their first lines */
    char (*names)[PAL_TABLE_NAME];
    pal_metrics *metrics;
    bool by_position; /* `step` holds positions */
} pal_table;

bool pal_is_table(const char *path); /* its name ends in .csv */
pal_status pal_table_read(pal_table *table, const char *path, pal_error *err);
void pal_table_free(pal_table *table);

#endif
