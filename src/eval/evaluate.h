/* SPDX-License-Identifier: MIT */
/* What measuring by one call and the program's measuring share. */
#ifndef PAL_EVAL_EVALUATE_H
#define PAL_EVAL_EVALUATE_H

#include "palimpsa/evaluate.h"

enum { PAL_EVAL_ATTENTION = 4096, PAL_EVAL_REQUEST = 2048, PAL_EVAL_CONTEXT = 1 << 24 /* at most */ };

/* The context of the training that a checkpoint comes from; 0 where none is known. */
pal_status pal_eval_trained_context(const pal_model *model, int *context, pal_error *err);

#endif
