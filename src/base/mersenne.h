/* SPDX-License-Identifier: MIT */
/* MT19937 with Python's ways of drawing from it: for numbers that must equal those of programs written in Python. Our
 * own random numbers are those of random.h. */
#ifndef PAL_BASE_MERSENNE_H
#define PAL_BASE_MERSENNE_H

#include <stddef.h>
#include <stdint.h>

#include "palimpsa/status.h"

typedef struct pal_mersenne {
    uint32_t state[624];
    int next;
} pal_mersenne;

void pal_mersenne_seed(pal_mersenne *m, uint32_t seed);       /* random.Random(seed) */
void pal_mersenne_seed_plain(pal_mersenne *m, uint32_t seed); /* numpy.random.seed(seed) */
uint32_t pal_mersenne_u32(pal_mersenne *m);
double pal_mersenne_double(pal_mersenne *m);              /* random(): 53 bits in [0, 1) */
uint32_t pal_mersenne_below(pal_mersenne *m, uint32_t n); /* randrange(n), n >= 1 */
void pal_mersenne_shuffle(pal_mersenne *m, uint32_t *x, size_t n);
/* random.sample(range(n), k), k <= n. */
pal_status pal_mersenne_sample(pal_mersenne *m, uint32_t n, uint32_t k, uint32_t *out, pal_error *err);

#endif
