/* SPDX-License-Identifier: MIT */
/* Learning rate as a pure function of the update's number, so that a resumed run needs nothing but that number. */
#ifndef PAL_TRAIN_SCHEDULE_H
#define PAL_TRAIN_SCHEDULE_H

#include <stdint.h>

#include "palimpsa/status.h"

typedef enum pal_schedule_kind {
    PAL_SCHEDULE_CONSTANT,
    PAL_SCHEDULE_COSINE,      /* falls with every update */
    PAL_SCHEDULE_COSINE_EPOCH /* the same curve, stepped once per epoch */
} pal_schedule_kind;

typedef struct pal_schedule {
    pal_schedule_kind kind;
    double peak, floor; /* floor: fraction of peak that a cosine ends at */
    int64_t warmup;     /* updates of linear rise to the peak, before the rest; 0: none */
    int64_t total;      /* updates in all */
    int64_t epoch;      /* updates in an epoch (COSINE_EPOCH) */
} pal_schedule;

/* Rate of update number `step`, the first being 0. */
double pal_schedule_rate(const pal_schedule *schedule, int64_t step);

/* "constant", "cosine", "cosine-epoch". */
pal_status pal_schedule_parse(pal_schedule_kind *out, const char *name, pal_error *err);

#endif
