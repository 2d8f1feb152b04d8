/* SPDX-License-Identifier: MIT */
/* Counter-based random numbers (Philox4x32-10): number i of stream s under a seed is a pure function of (seed, s, i),
 * so any thread may produce any part of a stream and the result is the same for any number of threads. */
#ifndef PAL_BASE_RANDOM_H
#define PAL_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "palimpsa/context.h"

/* Block i of a stream: numbers 4i .. 4i+3. */
void pal_random_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4]);

/* A cursor over one stream, for code that draws one number after another. */
typedef struct pal_rng {
    uint64_t seed, stream, next; /* next: index of the next 32-bit number */
    uint32_t buffer[4];
} pal_rng;

static inline pal_rng pal_rng_at(uint64_t seed, uint64_t stream) { return (pal_rng){ .seed = seed, .stream = stream }; }
uint32_t pal_rng_u32(pal_rng *rng);
uint32_t pal_rng_below(pal_rng *rng, uint32_t n); /* uniform in 0 .. n-1, n >= 1, without bias */
double pal_rng_uniform(pal_rng *rng);             /* in [0, 1), 53 bits */
double pal_rng_normal(pal_rng *rng);              /* Box-Muller; two uniforms a number */

/* x[i] from number i of the stream, in parallel. Uniform on (lo, hi); normal with mean 0. */
void pal_fill_uniform(const pal_context *cx, float *x, size_t n, uint64_t seed, uint64_t stream, double lo, double hi);
void pal_fill_normal(const pal_context *cx, float *x, size_t n, uint64_t seed, uint64_t stream, double deviation);

#endif
