/* SPDX-License-Identifier: MIT */
/* Selftest: recorded float64 numbers against what this machine computes. A case is one file of ops/ or one directory of
 * models/; a runner computes every tensor it knows of and hands it to selftest_check, which compares it with the file's
 * tensor of the same name, if there is one. A file of ops/ with an expected tensor that was not computed fails. */
#ifndef PAL_CLI_SELFTEST_H
#define PAL_CLI_SELFTEST_H

#include <stdbool.h>

#include "palimpsa/palimpsa.h"

enum { SELFTEST_BLOCKS = 256 };

typedef struct selftest_case {
    const pal_context *cx;
    const char *path;            /* for messages */
    const char *op;              /* what the file's metadata says it is */
    const pal_safetensors *file; /* inputs and expected tensors (models: expected.safetensors) */

    int checked, failed;
    bool *seen;       /* per tensor of the file: selftest_check compared with it; NULL: not kept */
    bool unsupported; /* this program does not know the operation (yet) */
    bool broken;      /* the case itself cannot be run; error says why */
    pal_error error;

    bool verbose;                  /* prints every tensor, not only those that fail */
    struct json_t *results;        /* where to record, or NULL */
    void *blocks[SELFTEST_BLOCKS]; /* memory that lives as long as the case */
    int block_count;
} selftest_case;

/* Memory for n floats (at least one), zeroed, freed with the case; NULL marks the case broken. */
float *selftest_floats(selftest_case *c, size_t n);
void *selftest_bytes(selftest_case *c, size_t n);

/* A tensor of the file as f32, which must have exactly this many elements. Absent: NULL; wrong size: NULL and broken.
 */
const float *selftest_input(selftest_case *c, const char *name, size_t count);
/* The same, but absence breaks the case. */
const float *selftest_required(selftest_case *c, const char *name, size_t count);
/* A required tensor of this rank, for reading sizes off its shape. */
const pal_tensor *selftest_shape(selftest_case *c, const char *name, int rank);
/* Marks the case broken with a sentence; the first one stays. */
void selftest_break(selftest_case *c, const char *format, ...) PAL_PRINTF(2, 3);

/* Compares with the file's tensor `name` (no such tensor: not checked). how distinguishes several ways to the same
 * numbers
 * ("stepped"), or is NULL. accept is the largest max|x-ref|/max|ref| (absolute where ref is all zero). */
void selftest_check(selftest_case *c, const char *name, const char *how, const float *x, size_t count, double accept);

/* The same of values first .. first+count-1 of the tensor. */
void selftest_check_part(selftest_case *c, const char *name, const char *how, const float *x, size_t first,
                         size_t count, double accept);

/* Fails the case for every expected tensor that nothing was compared with. */
void selftest_unseen(selftest_case *c);

/* For results that are right or wrong: `right` of `all` are as recorded under `name`. */
void selftest_count(selftest_case *c, const char *name, size_t right, size_t all);

/* Runners: true when the operation is theirs, whatever came of it. */
bool selftest_memory(selftest_case *c); /* update rules */
bool selftest_prim(selftest_case *c);   /* building blocks */
/* A directory of models/; opens and closes its own expected.safetensors. */
bool selftest_model(selftest_case *c, const char *directory);

#endif
