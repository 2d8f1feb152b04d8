/* SPDX-License-Identifier: MIT */
/* metrics.jsonl: one JSON object per logged step. Steps strictly increase, whatever was killed and resumed. */
#ifndef PAL_TRAIN_METRICS_LOG_H
#define PAL_TRAIN_METRICS_LOG_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "palimpsa/status.h"

typedef struct pal_metrics_log {
    FILE *stream;
    char *path;
} pal_metrics_log;

/* Opens for appending after `step`: lines past it, a torn last line and anything that is not an object are dropped. */
pal_status pal_metrics_log_open(pal_metrics_log *m, const char *path, int64_t step, pal_error *err);
/* Writes one line and hands it to the operating system. Takes `line` over. */
pal_status pal_metrics_log_write(pal_metrics_log *m, json_t *line, pal_error *err);
pal_status pal_metrics_log_close(pal_metrics_log *m, pal_error *err); /* fine when zeroed */

#endif
