/* SPDX-License-Identifier: MIT */
/* What measuring memory windows stands on. */
#ifndef PAL_MODEL_WINDOWS_H
#define PAL_MODEL_WINDOWS_H

#include <math.h>

#include "palimpsa/windows.h"

/* N_t of decay A dt >= 0; infinite when nothing is forgotten. */
static inline double pal_window(double decay) { return -1 / expm1(-decay); }

/* The median of n >= 1 numbers, none of them NaN; the mean of the two in the middle when n is even. Sorts x. */
double pal_median(double *x, size_t n);

#endif
