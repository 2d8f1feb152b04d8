/* SPDX-License-Identifier: MIT */
/* Where time went. */
#ifndef PALIMPSA_TIMING_H
#define PALIMPSA_TIMING_H

#include <stddef.h>

typedef struct pal_timing {
    const char *name;
    double seconds;
    size_t calls;
} pal_timing;

#endif
