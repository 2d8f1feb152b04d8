/* SPDX-License-Identifier: MIT */
#include "base/context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/device.h"
#include "base/log.h"
#include "base/processors.h"
#include "base/signal_stack.h"

#if PAL_X86_64
#include <cpuid.h>
#elif PAL_ARM64
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

enum { MAX_THREADS = 1024 };

enum { UNUSED_FEATURES = PAL_HAS_AVX_VNNI | PAL_HAS_AVX512_BF16 };

static const struct {
    const char *name;
    unsigned least, most; /* features that the level needs, and that it may use where they are */
} levels[PAL_CPU_LEVELS] = {
    [PAL_CPU_REF] = { "ref", 0, 0 },
    [PAL_CPU_AVX2] = { "avx2", PAL_NEEDS_avx2, PAL_NEEDS_avx2 },
    [PAL_CPU_AVX512] = { "avx512", PAL_NEEDS_avx512, ~(unsigned)UNUSED_FEATURES },
    [PAL_CPU_NEON] = { "neon", PAL_NEEDS_neon, ~(unsigned)UNUSED_FEATURES },
    [PAL_CPU_SIMD128] = { "simd128", PAL_NEEDS_simd128, PAL_NEEDS_simd128 },
};

const char *pal_cpu_level_name(pal_cpu_level level) { return levels[level].name; }

const char *pal_cpu_feature_name(int bit) {
    static const char *const names[PAL_CPU_FEATURES] = { "avx2",     "f16c",        "avx512", "avx512-vnni",
                                                         "avx-vnni", "avx512-bf16", "neon",   "dotprod",
                                                         "simd128" };
    return names[bit];
}

#if PAL_X86_64
/* Which register files the operating system saves on a task switch (XCR0). */
static unsigned long long saved_state(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (unsigned long long)high << 32 | low;
}

unsigned pal_cpu_features(void) {
    unsigned a, b, c, d, a1 = 0, b1, c1, d1, found = 0;
    const unsigned fma_osxsave_avx = 1u << 12 | 1u << 27 | 1u << 28, f16c = 1u << 29;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & fma_osxsave_avx) != fma_osxsave_avx) return 0;
    if (c & f16c) found |= PAL_HAS_F16C;
    const unsigned long long saved = saved_state();
    if ((saved & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (a >= 1) __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1);
    const unsigned f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
    if (b & 1u << 5) found |= PAL_HAS_AVX2;
    if (a1 & 1u << 4) found |= PAL_HAS_AVX_VNNI;
#ifdef PAL_WIDE_EMULATION
    found |= PAL_HAS_AVX512 | PAL_HAS_AVX512_VNNI; /* compiled for AVX2 with portable 16-wide vectors */
#endif
    if ((b & f_dq_bw_vl) != f_dq_bw_vl || (saved & 0xe6) != 0xe6) return found;
    found |= PAL_HAS_AVX512;
    if (c & 1u << 11) found |= PAL_HAS_AVX512_VNNI;
    if (a1 & 1u << 5) found |= PAL_HAS_AVX512_BF16;
    return found;
}
#elif PAL_ARM64
unsigned pal_cpu_features(void) {
    const unsigned long found = getauxval(AT_HWCAP);
    return (found & HWCAP_ASIMD ? PAL_HAS_NEON : 0u) | (found & HWCAP_ASIMDDP ? PAL_HAS_DOTPROD : 0u);
}
#elif PAL_WASM
unsigned pal_cpu_features(void) { return PAL_HAS_SIMD128; }
#else
unsigned pal_cpu_features(void) { return 0; }
#endif

bool pal_cpu_runs(pal_cpu_level level) { return !(levels[level].least & ~pal_cpu_features()); }

pal_cpu_level pal_cpu_detect(void) {
    pal_cpu_level level = PAL_CPU_LEVELS - 1;
    while (!pal_cpu_runs(level)) level--;
    return level;
}

pal_fn *pal_variant_best(const pal_variant *list, unsigned have) {
    pal_fn *best = list->fn;
    for (; list->fn; list++)
        if (!(list->need & ~have)) best = list->fn;
    return best;
}

static pal_status choose_level(pal_cpu_level *out, const char *name, pal_error *err) {
    const pal_cpu_level have = pal_cpu_detect();
    if (!name) name = getenv("PALIMPSA_CPU");
    if (!name || !*name) {
        *out = have;
        return PAL_OK;
    }
    for (int i = 0; i < PAL_CPU_LEVELS; i++) {
        if (strcmp(name, levels[i].name) != 0) continue;
        if (!pal_cpu_runs((pal_cpu_level)i))
            return pal_fail(err, PAL_E_UNSUPPORTED, "cpu level '%s': this machine supports '%s' at most", name,
                            levels[have].name);
        *out = (pal_cpu_level)i;
        return PAL_OK;
    }
    return pal_fail(err, PAL_E_ARGUMENT, "cpu level '%s': expected ref, avx2, avx512, neon or simd128", name);
}

static pal_status choose_threads(int *out, int threads, pal_error *err) {
    const char *text = getenv("PALIMPSA_THREADS");
    long wanted = threads;
    if (!threads && text && *text) {
        char *end;
        errno = 0;
        wanted = strtol(text, &end, 10);
        if (errno || *end || wanted < 1)
            return pal_fail(err, PAL_E_ARGUMENT, "PALIMPSA_THREADS is '%s': expected a number from 1 to %d", text,
                            MAX_THREADS);
    } else if (!threads) {
        wanted = pal_processors();
        if (wanted > MAX_THREADS) wanted = MAX_THREADS;
    }
    if (wanted < 1 || wanted > MAX_THREADS)
        return pal_fail(err, PAL_E_ARGUMENT, "%ld threads: expected 1 to %d", wanted, MAX_THREADS);
    if (wanted > 4L * pal_processors())
        pal_warn("%ld threads share %d processors and will wait for each other", wanted, pal_processors());
    *out = (int)wanted;
    return PAL_OK;
}

pal_status pal_context_new(pal_context **out, int threads, const char *cpu, pal_error *err) {
    pal_context made = { 0 };
    pal_status st;
    *out = NULL;
    if ((st = choose_threads(&made.threads, threads, err))) return st;
    if ((st = choose_level(&made.level, cpu, err))) return st;
    made.features = pal_cpu_features() & levels[made.level].most;
    void *block;
    if ((st = pal_alloc_named(&block, 1, sizeof made, "a context", err))) return st;
    *out = block;
    **out = made;
    pal_give_signal_stack();
    return PAL_OK;
}

void pal_context_free(pal_context *cx) {
    if (cx && cx->device) cx->device->ops->close(cx->device);
    pal_free(cx);
}
int pal_context_threads(const pal_context *cx) { return cx->threads; }
pal_cpu_level pal_context_level(const pal_context *cx) { return cx->level; }
unsigned pal_context_features(const pal_context *cx) { return cx->features; }
