/* SPDX-License-Identifier: MIT */
/* Small recorded cases that are part of the program; the build makes the list from tests/golden
 * (cmake/BuiltinCases.cmake). */
#ifndef PAL_CLI_BUILTIN_CASES_H
#define PAL_CLI_BUILTIN_CASES_H

#include <stddef.h>

typedef struct builtin_case {
    const char *name; /* NULL ends the list */
    const unsigned char *bytes;
    size_t size;
} builtin_case;

extern const builtin_case builtin_cases[];

#endif
