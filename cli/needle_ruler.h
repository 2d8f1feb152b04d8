/* SPDX-License-Identifier: MIT */
/* The part of `palimpsa needle` that makes RULER's tasks. */
#ifndef PAL_CLI_NEEDLE_RULER_H
#define PAL_CLI_NEEDLE_RULER_H

#include <stdint.h>

typedef struct needle_ruler_options {
    const char *text, *tokenizer, *out; /* text: NULL where no task needs one */
    const char *tasks, *lengths;        /* "all" or names; numbers, with or without k */
    const char *templates, *words, *cuts, *squad, *hotpot;
    int count;
    uint32_t seed;
} needle_ruler_options;
int needle_ruler(const needle_ruler_options *o);

#endif
