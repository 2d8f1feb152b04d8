/* SPDX-License-Identifier: MIT */
/* y[r,o] = (y[r,o] +) sum_i x[r,i] w[o,i] for rows r that step, where reading w is most of the time there is: w is read
 * as it is stored, once for every 8 rows and from memory once for all.
 *
 * With F32, F16 and BF16 the sum is in f32. With blocks (Q8_0, Q4_0, Q5_0, Q4_K, Q5_K, Q6_K) each run of 32 values of x
 * is first rounded to 15 bits with its own scale: x[i] becomes d q[i], d = max|x| / 16256, and products are taken
 * in whole numbers. A run whose values are not all finite becomes NaN.
 *
 * Every output is one sum in an order that depends on w alone: a row gives the same bits alone and among any others,
 * for any number of threads. Variants differ from the reference only in rounding. Any sizes whose blocks are whole; y
 * overlaps nothing. */
#ifndef PAL_KERNELS_MATVEC_H
#define PAL_KERNELS_MATVEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/context.h"
#include "palimpsa/matrix.h"

typedef struct pal_matvec_args {
    const pal_matrix *w; /* (out, in) */
    int rows;
    const float *x; /* (rows, in), rows ldx apart */
    size_t ldx;
    bool add;
    float *y; /* (rows, out), rows ldy apart */
    size_t ldy;
    void *scratch; /* pal_matvec_scratch_bytes(), on 64 bytes; F32, F16 and BF16 need none */
} pal_matvec_args;

void pal_matvec(const pal_context *cx, const pal_matvec_args *a);

/* Enough for any type with up to so many rows and columns. */
size_t pal_matvec_scratch_bytes(int rows, int columns);

/* Rows of x as blocks of 32 values with a scale each. Rows that are computed together stand together: a group of 8, 4,
 * 2 or 1 rows (pal_matvec_group) whose first row is r has its values from q[r * in] on, and what meets the first block
 * of w comes first, row by row, then what meets the second; the other arrays are cut alike. */
enum {
    PAL_ROUNDED = 32,
    PAL_ROUNDED_MOST = 127 * 128, /* the largest q */
    PAL_MATVEC_AHEAD = 1024       /* bytes of w that are fetched before they are needed */
};
#define PAL_ROUNDED_ZERO 1e-30f /* a run without a larger value is all zero */
typedef struct pal_rounded_rows {
    int16_t *q;  /* 32 a block, as pal_rounded_put() lays them down */
    float *d;    /* 1 a block */
    float *sums; /* d times the sum of q, 1 a block */
} pal_rounded_rows;

/* Value i of the block q. x86 multiplies words: value i is the i-th, except for Q6_K the second and the third eight
 * change places. ARM64 multiplies bytes: q = 128 high + low, 32 bytes `high`, -127 .. 127, before 32 `low`, 0 .. 127.
 */
#if PAL_ARM64
static inline void pal_rounded_put(pal_dtype type, int16_t *q, size_t i, int value) {
    (void)type;
    const int low = value & 127;
    ((int8_t *)q)[i] = (int8_t)((value - low) / 128), ((int8_t *)q)[PAL_ROUNDED + i] = (int8_t)low;
}
static inline int pal_rounded_get(pal_dtype type, const int16_t *q, size_t i) {
    (void)type;
    return 128 * ((const int8_t *)q)[i] + ((const int8_t *)q)[PAL_ROUNDED + i];
}
#else
static inline size_t pal_rounded_at(pal_dtype type, size_t i) {
    return type == PAL_Q6_K ? (i & 7) | (i & 8) << 1 | (i & 16) >> 1 : i;
}
static inline void pal_rounded_put(pal_dtype type, int16_t *q, size_t i, int value) {
    q[pal_rounded_at(type, i)] = (int16_t)value;
}
static inline int pal_rounded_get(pal_dtype type, const int16_t *q, size_t i) { return q[pal_rounded_at(type, i)]; }
#endif

/* The size of the group of rows that begins at `row`: 8 as long as there are so many, then 2, then 1. */
static inline size_t pal_matvec_group(size_t rows, size_t row) {
    const size_t left = rows - row;
    return left >= 8 ? 8 : left >= 2 ? 2 : 1;
}
/* The place of block `block` of row k in the group of `size` rows that begins at `row`. */
static inline size_t pal_matvec_place_of(const pal_matrix *w, size_t row, size_t size, size_t k, size_t block) {
    const size_t unit = pal_dtype_values(w->type) / PAL_ROUNDED;
    return row * (size_t)w->columns / PAL_ROUNDED + (block / unit * size + k) * unit + block % unit;
}

/* The kernels after, one for each type: outputs begin .. end-1 of all rows. x is `rounded` for blocks, else a->x. */
typedef struct pal_matvec_job {
    const pal_matvec_args *a;
    pal_rounded_rows rounded;
} pal_matvec_job;
typedef void pal_matvec_fn(const pal_matvec_job *job, size_t begin, size_t end);

#define PAL_MATVEC_TYPES(X) \
    X(f32, PAL_F32)         \
    X(f16, PAL_F16)         \
    X(bf16, PAL_BF16)       \
    X(q8_0, PAL_Q8_0)       \
    X(q4_0, PAL_Q4_0)       \
    X(q5_0, PAL_Q5_0)       \
    X(q4_k, PAL_Q4_K)       \
    X(q5_k, PAL_Q5_K)       \
    X(q6_k, PAL_Q6_K)

#define PAL_MATVEC_DECLARE(name, type)            \
    typedef pal_matvec_fn pal_matvec_##name##_fn; \
    PAL_DECLARE_VARIANTS(matvec_##name)
PAL_MATVEC_TYPES(PAL_MATVEC_DECLARE)
#undef PAL_MATVEC_DECLARE

/* Values and bytes of a block, where the type is a constant after inlining (pal_dtype_values, pal_dtype_size). */
static inline size_t pal_matvec_values(pal_dtype type) {
    return type == PAL_Q8_0 || type == PAL_Q4_0 || type == PAL_Q5_0 ? 32 : 256;
}
static inline size_t pal_matvec_bytes(pal_dtype type) {
    switch ((int)type) {
    case PAL_Q8_0: return 34;
    case PAL_Q4_0: return 18;
    case PAL_Q5_0: return 22;
    case PAL_Q4_K: return 144;
    case PAL_Q5_K: return 176;
    default: return 210; /* Q6_K */
    }
}

/* The list of a type's kernels. */
const pal_variant *pal_matvec_variants(pal_dtype type);

/* Rounding: rows begin .. end-1 of x, whole groups, into their places. */
typedef void pal_matvec_round_fn(const pal_matvec_args *a, const pal_rounded_rows *to, size_t begin, size_t end);
PAL_DECLARE_VARIANTS(matvec_round)
/* All rows of x, in a->scratch. */
pal_rounded_rows pal_matvec_round(const pal_context *cx, const pal_matvec_args *a);

/* The arrays of `rows` rows in scratch. */
pal_rounded_rows pal_matvec_place(void *scratch, size_t rows, size_t in);

#endif
