/* SPDX-License-Identifier: MIT */
/* Sizes and offsets made of numbers that stand in files: the one way to multiply, add and compare them.
 *
 * What does not fit becomes PAL_TOO_LARGE and stays that: no file has so many bytes, no allocation gives them and no
 * limit allows them, so the one comparison that follows a computation refuses it. Nothing wraps around. */
#ifndef PAL_BASE_SIZE_H
#define PAL_BASE_SIZE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAL_TOO_LARGE SIZE_MAX
#define PAL_TOO_MANY  INT_MAX /* the same for counts that are kept as int */

static inline size_t pal_size_add(size_t a, size_t b) { return a > PAL_TOO_LARGE - b ? PAL_TOO_LARGE : a + b; }

static inline size_t pal_size_mul(size_t a, size_t b) {
    if (a == PAL_TOO_LARGE || b == PAL_TOO_LARGE) return PAL_TOO_LARGE; /* even times 0 */
    return b && a > PAL_TOO_LARGE / b ? PAL_TOO_LARGE : a * b;
}

/* Up to the next multiple of `unit`, which is a power of two. */
static inline size_t pal_size_pad(size_t n, size_t unit) {
    const size_t sum = pal_size_add(n, unit - 1);
    return sum == PAL_TOO_LARGE ? PAL_TOO_LARGE : sum & ~(unit - 1);
}

/* Elements of a shape; PAL_TOO_LARGE where an extent is negative. */
static inline size_t pal_size_of_shape(int rank, const int64_t *shape) {
    size_t n = 1;
    for (int i = 0; i < rank; i++) n = shape[i] < 0 ? PAL_TOO_LARGE : pal_size_mul(n, (size_t)shape[i]);
    return n;
}

/* Whether `bytes` bytes from `at` on lie within `size`. */
static inline bool pal_size_inside(uint64_t at, uint64_t bytes, size_t size) {
    return at <= size && bytes <= size - at;
}

/* A count computed as a real number, without its fraction; PAL_TOO_MANY for what is negative, no number or too large.
 */
static inline int pal_count_of(double x) { return x > -1 && x < PAL_TOO_MANY ? (int)x : PAL_TOO_MANY; }

#endif
