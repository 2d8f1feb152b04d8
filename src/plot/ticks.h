/* SPDX-License-Identifier: MIT */
/* Where an axis gets its numbers, and how they are written. */
#ifndef PAL_PLOT_TICKS_H
#define PAL_PLOT_TICKS_H

#include <stdbool.h>
#include <stddef.h>

enum { PAL_TICKS_MAX = 32, PAL_TICK_TEXT = 48 };

typedef struct pal_ticks {
    int count;
    double at[PAL_TICKS_MAX]; /* increasing, within the range */
    char text[PAL_TICKS_MAX][PAL_TICK_TEXT];
    int minor_count; /* between them, without text; log axes only */
    double minor[128];
} pal_ticks;

/* Values beyond this are taken for infinite: sums and differences of what remains stay finite. */
#define PAL_PLOT_HUGE 1e300

/* A range to show lo .. hi: never empty, with room around a single value. On a log axis lo and hi are positive. */
void pal_range_widen(double *lo, double *hi, bool log);

/* About `wanted` ticks (2 .. PAL_TICKS_MAX-2) at round numbers of lo .. hi, lo < hi, all texts different. */
void pal_ticks_linear(pal_ticks *ticks, double lo, double hi, int wanted);
/* 0 < lo < hi: powers of ten, with 2 and 5 times them when there are few; linear ticks when there is not even one. */
void pal_ticks_log(pal_ticks *ticks, double lo, double hi, int wanted);

/* 0 < lo < hi: powers of two from 1 on; as a log axis otherwise where there are fewer than two. */
void pal_ticks_doubling(pal_ticks *ticks, double lo, double hi, int wanted);

/* A single number for tables and legends: 4 significant digits, "3.2k", "1.5M", "2×10⁻⁵"; "–" for NaN. */
void pal_number_text(char *text, size_t size, double value);

#endif
