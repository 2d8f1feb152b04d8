/* SPDX-License-Identifier: MIT */
/* Row kernels described once each: their arrays by name, how to run them, and which outputs may lie on which inputs, so
 * that a claim is written once over all of them. Gradients are named "d" + what they belong to. */
#ifndef PAL_TEST_ROW_OPS_H
#define PAL_TEST_ROW_OPS_H

#include "support/support.h"

typedef enum {
    ROW_IN,
    ROW_PARAM,
    ROW_UPSTREAM,
    ROW_OUT,
    ROW_GRAD,
    ROW_SUM
} row_role; /* SUM: gradient of a parameter, added to */
typedef struct row_array {
    const char *name;
    row_role role;
    size_t rows, width, stride;
    float *data, *block; /* block: as allocated; data may be lent another array's rows, or NULL: left out */
} row_array;

typedef struct row_op row_op;
typedef struct row_kind {
    const char *name;
    void (*make)(row_op *o, size_t rows, int width);
    void (*run)(row_op *o,
                const pal_context *cx); /* forward where there is an output, backward where there is a gradient */
    const char *on[6][2];               /* outputs that may lie on inputs */
    int smallest;                       /* width */
    bool norm, labelled;                /* labelled: numbers are labels of the rows */
    bool no_differences;                /* a term of its gradient is not a function of x */
    void (*backward_from_output)(row_op *o,
                                 const pal_context *cx); /* for kinds whose backward reads y: that pass alone */
} row_kind;

extern const row_kind row_kinds[];
extern const size_t row_kind_count;

enum { ROW_ARRAYS = 16, ROW_TOKENS = 2048 };
struct row_op {
    const row_kind *kind;
    pal_rng rng;
    row_array arrays[ROW_ARRAYS];
    int count;
    size_t rows;
    int groups, width, sequences; /* sequences 0: rows are independent */
    int cu_seqlens[ROW_TOKENS + 1], numbers[ROW_TOKENS];
};

/* Inputs random, outputs NaN, sums 1 (so that "added to" shows). Rows are up to three floats further apart than they
 * are wide, with NaN between them; the last one ends at a guard page. */
row_op *row_op_new(const row_kind *kind, size_t rows, int width, uint64_t seed);
row_op *row_op_copy(row_op *o); /* the same op with the same numbers */
void row_op_free(row_op *o);

row_array *row_array_named(row_op *o, const char *name); /* or NULL */
size_t row_array_floats(const row_array *a);             /* with the gaps between rows */
bool row_array_is_result(const row_array *a);

#endif
