/* SPDX-License-Identifier: MIT */
/* A recorded case of a memory rule, as a file of ops/ holds it: read here for `palimpsa selftest` and for the tests of
 * the rules, which compile this file too. */
#ifndef PAL_CLI_RECORDED_MEMORY_H
#define PAL_CLI_RECORDED_MEMORY_H

#include "memory/rule.h"
#include "palimpsa/safetensors.h"

enum { RECORDED_BLOCKS = 24 };

typedef struct recorded_memory {
    const pal_memory_rule *rule;
    pal_memory_shape shape;
    int longest;          /* tokens of the longest sequence */
    pal_memory_inputs in; /* rows lie densely */
    /* Not in every file, then NULL. Of a memory with two parts, both are there or none. */
    const float *dy, *dy_var;            /* (T, H*dv) */
    const float *initial[2], *dfinal[2]; /* (N, part) */
    void *blocks[RECORDED_BLOCKS];
    int block_count;
} recorded_memory;

/* Nothing in the file is trusted; pal_memory_forward() judges the numbers. Release it after a failure as well. */
pal_status recorded_memory_read(recorded_memory *out, const pal_memory_rule *rule, const pal_safetensors *file,
                                pal_error *err);
void recorded_memory_free(recorded_memory *m);

/* What files call an input: its name in pal_memory_inputs, but Longhorn's b, a gate per value channel, is "beta". */
const char *recorded_memory_name(const pal_memory_rule *rule, unsigned input);

/* The largest max|x-ref|/max|ref| of an expected tensor, "out.y" or "grad.A". */
double recorded_memory_accept(const recorded_memory *m, const char *name);

#endif
