/* SPDX-License-Identifier: MIT */
/* One recorded case of `palimpsa selftest`: a file with inputs, expected outputs and gradients of one operation. A runner
 * computes what it can from the inputs and hands every result to check(), which looks for the expected tensor. */
#ifndef PAL_SELFTEST_H
#define PAL_SELFTEST_H

#include "palimpsa/palimpsa.h"

typedef struct selftest_case {
    const pal_context *cx;
    const char *path;            /* for messages */
    const char *op;              /* metadata "op" of the file */
    const pal_safetensors *file; /* borrowed */
    /* Compares one result with the file's tensor of that name ("out.y", "grad.x"); a file without it is not checked. */
    void (*check)(struct selftest_case *c, const char *tensor, const float *value, size_t count);
    void *user; /* check's own */

    /* Set by the runner when the case could not be run: error.text says why. PAL_E_UNSUPPORTED: well formed, but not
     * offered by this build. */
    pal_status status;
    pal_error error;
} selftest_case;

/* Runs one building-block case. Returns 1 if the op is known (look at status then), else 0. */
int selftest_prim(selftest_case *c);

#endif
