/* SPDX-License-Identifier: MIT */
/* Makes the memory rules' plain C reference, which is written for float, one for double: every file is compiled with
 * this one before it, so that gradients can be checked by finite differences. What comes from the system is included
 * first, as it is. */
#ifndef PALIMPSA_DOUBLE_H
#define PALIMPSA_DOUBLE_H

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define float  double
#define expf   exp
#define expm1f expm1
#define logf   log
#define fabsf  fabs

#endif
