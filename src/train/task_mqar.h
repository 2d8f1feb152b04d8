/* SPDX-License-Identifier: MIT */
/* Multi-query associative recall as a task for the trainer: a curriculum of stages, accuracy on held-out examples. */
#ifndef PAL_TRAIN_TASK_MQAR_H
#define PAL_TRAIN_TASK_MQAR_H

#include "data/mqar.h"
#include "train/trainer.h"

enum { PAL_MQAR_STAGES = 16 };

typedef struct pal_mqar_stage {
    pal_mqar_config data;
    int batch;     /* examples per micro-batch */
    int64_t steps; /* updates */
} pal_mqar_stage;

typedef struct pal_mqar_options {
    int stages;
    pal_mqar_stage stage[PAL_MQAR_STAGES];
    uint64_t seed;
    int64_t examples;      /* training examples in fixed order, gone through again and again; 0: every one is new */
    int64_t test_examples; /* held out */
    int accumulate;
    const pal_comm *comm; /* whose ranks share every batch; NULL: one process */
    pal_asking asking;
} pal_mqar_options;

typedef struct pal_mqar_task pal_mqar_task;
pal_status pal_mqar_task_new(pal_mqar_task **out, const pal_context *cx, const pal_mqar_options *options,
                             pal_task *task, pal_error *err);
void pal_mqar_task_free(pal_mqar_task *task);

/* Updates that go through `examples` once. */
int64_t pal_mqar_epoch_steps(int64_t examples, int batch, int accumulate);

#endif
