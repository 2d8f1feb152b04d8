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

#define PAL_VARIANT(level, function) \
    { level, (pal_fn *)(function) }
#if PAL_X86_64
#define PAL_VARIANT_X86(level, function) PAL_VARIANT(level, function),
#else
#define PAL_VARIANT_X86(level, function)
#endif
#define PAL_VARIANTS_END \
    { PAL_CPU_REF, NULL }

/* An op whose functions are pal_OP_ref, pal_OP_avx2 and pal_OP_avx512, all of type pal_OP_fn. */
#define PAL_DECLARE_VARIANTS(op)                    \
    extern const pal_variant pal_##op##_variants[]; \
    pal_##op##_fn pal_##op##_ref, pal_##op##_avx2, pal_##op##_avx512;
/* Its list. */
#define PAL_VARIANTS(op)                                                                               \
    const pal_variant pal_##op##_variants[] = { PAL_VARIANT(PAL_CPU_REF, pal_##op##_ref),              \
                                                PAL_VARIANT_X86(PAL_CPU_AVX2, pal_##op##_avx2)         \
                                                    PAL_VARIANT_X86(PAL_CPU_AVX512, pal_##op##_avx512) \
                                                        PAL_VARIANTS_END };

pal_fn *pal_variant_best(const pal_variant *list, pal_cpu_level have);

/* PAL_PICK(cx, rmsnorm_rows)(arguments...) calls the best variant that cx allows. */
#define PAL_PICK(cx, op) ((pal_##op##_fn *)pal_variant_best(pal_##op##_variants, (cx)->level))

#define PAL_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
