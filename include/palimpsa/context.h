/* SPDX-License-Identifier: MIT */
/* A context holds what a computation needs to know about the machine: how many threads to use and which instruction
 * set. It has no other state, so one context may serve any number of calls, one at a time per calling thread. */
#ifndef PALIMPSA_CONTEXT_H
#define PALIMPSA_CONTEXT_H

#include "palimpsa/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pal_context pal_context;

/* Extensions of the instruction set, as bits of a set. A kernel's variant names those it needs. */
typedef enum pal_cpu_feature {
    PAL_HAS_AVX2 = 1 << 0, /* with FMA */
    PAL_HAS_F16C = 1 << 1,
    PAL_HAS_AVX512 = 1 << 2, /* F, BW, DQ and VL */
    PAL_HAS_AVX512_VNNI = 1 << 3,
    PAL_HAS_AVX_VNNI = 1 << 4,    /* found and named, not used */
    PAL_HAS_AVX512_BF16 = 1 << 5, /* found and named, not used */
    PAL_HAS_NEON = 1 << 6,
    PAL_HAS_DOTPROD = 1 << 7, /* ARM's dot products of bytes */
    PAL_HAS_SIMD128 = 1 << 8, /* WebAssembly's */
    PAL_CPU_FEATURES = 9
} pal_cpu_feature;

/* Words for sets of features, weakest first for each kind of processor: AVX2 and AVX-512 are x86-64's, NEON is ARM64's,
 * SIMD128 is WebAssembly's.
 * Each one's kernels are checked against PAL_CPU_REF, which is plain C. */
typedef enum pal_cpu_level {
    PAL_CPU_REF = 0,
    PAL_CPU_AVX2,
    PAL_CPU_AVX512,
    PAL_CPU_NEON,
    PAL_CPU_SIMD128,
    PAL_CPU_LEVELS
} pal_cpu_level;

/* threads: 0 takes PALIMPSA_THREADS, else all processors this process may use (affinity, and a container's limit).
 * cpu: "ref", "avx2", "avx512", "neon", "simd128"; NULL takes PALIMPSA_CPU, else the best that processor and operating
 * system support. A level that this machine cannot run is refused. */
PAL_API pal_status pal_context_new(pal_context **out, int threads, const char *cpu, pal_error *err);
PAL_API void pal_context_free(pal_context *cx);

PAL_API int pal_context_threads(const pal_context *cx);
PAL_API pal_cpu_level pal_context_level(const pal_context *cx);

PAL_API unsigned pal_context_features(const pal_context *cx); /* that its kernels may use */

/* What the machine can do, and the name of a level. */
PAL_API pal_cpu_level pal_cpu_detect(void);
PAL_API const char *pal_cpu_level_name(pal_cpu_level level);
/* Everything that processor and operating system support, and the name of bit 0 .. PAL_CPU_FEATURES-1. */
PAL_API unsigned pal_cpu_features(void);
PAL_API const char *pal_cpu_feature_name(int bit);

#ifdef __cplusplus
}
#endif
#endif
