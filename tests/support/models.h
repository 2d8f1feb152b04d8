/* SPDX-License-Identifier: MIT */
/* Small models of every kind, for tests that run them. */
#ifndef PAL_TEST_MODELS_H
#define PAL_TEST_MODELS_H

#include "palimpsa/palimpsa.h"

typedef struct test_kind {
    const char *name, *preset, *task, *rule;
    int hybrid; /* only layer 1 is metaplastic */
    double mesa_tolerance;
    bool softplus_rate;
    int heads, head_dim, mlp;           /* 0: as in the other kinds */
    void (*blocks)(pal_model_config *); /* a list of blocks instead of a preset */
} test_kind;

extern const test_kind test_kinds[];
extern const size_t test_kind_count;
const test_kind *test_kind_named(const char *name); /* or a failed test */

enum { TEST_VOCAB = 29 }; /* tokens of every kind */

/* Two or three layers, 16 to 32 channels; odd sizes where the kind allows them. Weights are made livelier than
 * initial ones, so that a wrong term shows. */
pal_model_config test_model_config(const test_kind *kind);
pal_model *test_model(const test_kind *kind, pal_model_use use, const pal_context *cx);

/* A model that runs. */
typedef struct runner {
    pal_context *cx;
    pal_model *model;
    pal_work *work;
    const char *name;
    size_t rows; /* logits a token */
} runner;
runner test_runner(size_t kind, pal_model_use use, pal_work_options options); /* of test_kinds, with 2 threads */
void test_runner_free(runner *r);

void test_ids(int32_t *ids, int n, int vocab, uint64_t seed);
/* Logits of the last of n tokens, which are one sequence. */
void test_last_logits(const pal_model *model, const pal_context *cx, const int32_t *ids, int n, float *out);

#endif
