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

/* Instruction sets, weakest first. Each one's kernels are checked against PAL_CPU_REF, which is plain C. */
typedef enum pal_cpu_level { PAL_CPU_REF = 0, PAL_CPU_AVX2, PAL_CPU_AVX512, PAL_CPU_LEVELS } pal_cpu_level;

/* threads: 0 takes PALIMPSA_THREADS, else all processors this process may use.
 * cpu: "ref", "avx2", "avx512"; NULL takes PALIMPSA_CPU, else the best that processor and operating system support.
 * A level that this machine cannot run is refused. */
PAL_API pal_status pal_context_new(pal_context **out, int threads, const char *cpu, pal_error *err);
PAL_API void pal_context_free(pal_context *cx);

PAL_API int pal_context_threads(const pal_context *cx);
PAL_API pal_cpu_level pal_context_level(const pal_context *cx);

/* What the machine can do, and the name of a level. */
PAL_API pal_cpu_level pal_cpu_detect(void);
PAL_API const char *pal_cpu_level_name(pal_cpu_level level);

#ifdef __cplusplus
}
#endif
#endif
