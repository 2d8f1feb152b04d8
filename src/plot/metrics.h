/* SPDX-License-Identifier: MIT */
/* A run's metrics.jsonl: one JSON object per logged step. Lines that are not an object with a step are skipped and
 * counted (a torn last line, which a killed run leaves, is not even counted), keys we do not know are ignored, and when
 * steps go back, as after resuming from an older checkpoint, the later lines win. */
#ifndef PAL_PLOT_METRICS_H
#define PAL_PLOT_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "palimpsa/status.h"

/* In the order of the file's keys, see metrics.c. Lists (one number per layer) become the mean of their finite numbers.
 */
typedef enum pal_metric {
    PAL_METRIC_STEP,
    PAL_METRIC_LOSS,
    PAL_METRIC_VALID_LOSS,
    PAL_METRIC_ACCURACY,
    PAL_METRIC_VALID_ACCURACY,
    PAL_METRIC_LR,
    PAL_METRIC_GRAD_NORM,
    PAL_METRIC_TOKENS,
    PAL_METRIC_TOKENS_PER_S,
    PAL_METRIC_N_T,
    PAL_METRIC_RATIO,
    PAL_METRIC_B_SCALE,
    PAL_METRIC_PERPLEXITY, /* of the validation text, per token and per word */
    PAL_METRIC_WORD_PERPLEXITY,
    PAL_METRIC_SECONDS, /* since the start; where the file has none, added up from tokens and tokens_per_s */
    PAL_METRIC_STAGE,   /* from 0; absent where there is one */
    PAL_METRICS
} pal_metric;

typedef struct pal_metrics {
    size_t count;
    double *column[PAL_METRICS]; /* (count) each; NaN where absent or null */
    uint32_t *present;           /* (count) bit m: line has metric m */
    size_t skipped;              /* lines that could not be used */
} pal_metrics;

/* Fails when the file cannot be read or has no usable line. A file that is still being written is fine. */
pal_status pal_metrics_read(pal_metrics *metrics, const char *path, pal_error *err);
void pal_metrics_free(pal_metrics *metrics);

/* What readers are made of. A file's text, ended by a zero; room for rows; one more row (those of a later or equal step
 * go); a metric by its key, or -1. */
pal_status pal_metrics_text(const char *path, char **text, size_t *size, pal_error *err);
pal_status pal_metrics_room(pal_metrics *metrics, size_t rows, const char *path, pal_error *err);
void pal_metrics_add(pal_metrics *metrics, const double value[PAL_METRICS], uint32_t present);
int pal_metric_find(const char *key);

static inline bool pal_metrics_has(const pal_metrics *m, size_t row, pal_metric metric) {
    return m->present[row] >> metric & 1;
}

#endif
