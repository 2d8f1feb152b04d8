/* SPDX-License-Identifier: MIT */
/* What a pal_context holds, and how a kernel's variants are listed and chosen. */
#ifndef PAL_BASE_CONTEXT_H
#define PAL_BASE_CONTEXT_H

#include "palimpsa/context.h"

#if defined(__x86_64__)
#define PAL_X86_64 1
#else
#define PAL_X86_64 0
#endif

struct pal_context {
    int threads;
    pal_cpu_level level;
};

/* Every kernel has one list of variants, weakest first, whose entry 0 is the plain C reference; an entry with fn NULL
 * ends it. Dispatch, tests and benchmarks all walk this list. */
typedef void pal_fn(void);
typedef struct pal_variant {
    pal_cpu_level need;
    pal_fn *fn;
} pal_variant;

#define PAL_VARIANT(level, function) { level, (pal_fn *)(function) }
#if PAL_X86_64
#define PAL_VARIANT_X86(level, function) PAL_VARIANT(level, function),
#else
#define PAL_VARIANT_X86(level, function)
#endif
#define PAL_VARIANTS_END { PAL_CPU_REF, NULL }

pal_fn *pal_variant_best(const pal_variant *list, pal_cpu_level have);

/* PAL_PICK(cx, rmsnorm_rows)(arguments...) calls the best variant that cx allows. */
#define PAL_PICK(cx, op) ((pal_##op##_fn *)pal_variant_best(pal_##op##_variants, (cx)->level))

#define PAL_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
