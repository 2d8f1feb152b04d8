/* SPDX-License-Identifier: MIT */
/* What a pal_context holds, and how a kernel's variants are listed and chosen. */
#ifndef PAL_BASE_CONTEXT_H
#define PAL_BASE_CONTEXT_H

#include <stdbool.h>

#include "palimpsa/context.h"

#if defined(__x86_64__) && !defined(PAL_PLAIN) /* PAL_PLAIN: references alone, whatever the processor */
#define PAL_X86_64 1
#else
#define PAL_X86_64 0
#endif
#if defined(__aarch64__)
#define PAL_ARM64 1
#else
#define PAL_ARM64 0
#endif
#if defined(__wasm_simd128__)
#define PAL_WASM 1
#else
#define PAL_WASM 0
#endif

struct pal_context {
    int threads;
    pal_cpu_level level; /* the word, and what it allows here */
    unsigned features;
    struct pal_device *device; /* base/device.h; NULL: the CPU computes */
};

/* Every kernel has one list of variants, weakest first, whose entry 0 is the plain C reference; an entry with fn NULL
 * ends it. Dispatch, tests and benchmarks all walk this list. */
typedef void pal_fn(void);
typedef struct pal_variant {
    unsigned need; /* set of pal_cpu_feature */
    pal_fn *fn;
} pal_variant;

/* What files are compiled for, by the end of their names (CMakeLists.txt). */
enum {
    PAL_NEEDS_ref = 0,
    PAL_NEEDS_avx2 = PAL_HAS_AVX2 | PAL_HAS_F16C,
    PAL_NEEDS_avx512 = PAL_NEEDS_avx2 | PAL_HAS_AVX512,
    PAL_NEEDS_avx512vnni = PAL_NEEDS_avx512 | PAL_HAS_AVX512_VNNI,
    PAL_NEEDS_neon = PAL_HAS_NEON,
    PAL_NEEDS_neondot = PAL_NEEDS_neon | PAL_HAS_DOTPROD,
    PAL_NEEDS_simd128 = PAL_HAS_SIMD128
};

#define PAL_VARIANT(isa, op) { PAL_NEEDS_##isa, (pal_fn *)pal_##op##_##isa },
#if PAL_X86_64
#define PAL_VARIANT_X86(isa, op) PAL_VARIANT(isa, op)
#else
#define PAL_VARIANT_X86(isa, op)
#endif
#if PAL_ARM64
#define PAL_VARIANT_ARM(isa, op) PAL_VARIANT(isa, op)
#else
#define PAL_VARIANT_ARM(isa, op)
#endif
#if PAL_WASM
#define PAL_VARIANT_WASM(isa, op) PAL_VARIANT(isa, op)
#else
#define PAL_VARIANT_WASM(isa, op)
#endif
#define PAL_VARIANTS_END \
    { 0, NULL }

/* An op whose functions are pal_OP_ref, pal_OP_avx2 and so on, all of type pal_OP_fn. Which of them there are, its list
 * says. */
#define PAL_DECLARE_VARIANTS(op)                    \
    extern const pal_variant pal_##op##_variants[]; \
    pal_##op##_fn pal_##op##_ref, pal_##op##_avx2, pal_##op##_avx512, pal_##op##_avx512vnni, pal_##op##_neon, \
        pal_##op##_neondot, pal_##op##_simd128;
/* The list of most ops; of those whose vectors have 8 floats on every x86-64; of those that multiply blocks. */
#define PAL_VARIANTS(op)                                                                           \
    const pal_variant pal_##op##_variants[] = { PAL_VARIANT(ref, op) PAL_VARIANT_X86(avx2, op)     \
                                                    PAL_VARIANT_X86(avx512, op)                    \
                                                        PAL_VARIANT_ARM(neon, op)                  \
                                                            PAL_VARIANT_WASM(simd128, op) PAL_VARIANTS_END };
#define PAL_VARIANTS_AVX2(op)                                                                  \
    const pal_variant pal_##op##_variants[] = { PAL_VARIANT(ref, op) PAL_VARIANT_X86(avx2, op) \
                                                    PAL_VARIANT_ARM(neon, op) PAL_VARIANTS_END };
#define PAL_VARIANTS_BLOCKS(op)                                                                                   \
    const pal_variant pal_##op##_variants[] = { PAL_VARIANT(ref, op) PAL_VARIANT_X86(avx2, op)                    \
                                                    PAL_VARIANT_X86(avx512vnni, op) PAL_VARIANT_ARM(neon, op)     \
                                                        PAL_VARIANT_ARM(neondot, op) PAL_VARIANTS_END };

/* Whether this machine runs a level's kernels. */
bool pal_cpu_runs(pal_cpu_level level);

pal_fn *pal_variant_best(const pal_variant *list, unsigned have);

/* PAL_PICK(cx, rmsnorm_rows)(arguments...) calls the best variant that cx allows. */
#define PAL_PICK(cx, op) ((pal_##op##_fn *)pal_variant_best(pal_##op##_variants, (cx)->features))

#define PAL_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
