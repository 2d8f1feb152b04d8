/* SPDX-License-Identifier: MIT */
/* The clock that durations are measured with. */
#ifndef PAL_BASE_CLOCK_H
#define PAL_BASE_CLOCK_H

#include <time.h>

/* Seconds since some moment in the past; never goes back. */
static inline double pal_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
