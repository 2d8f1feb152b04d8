/* SPDX-License-Identifier: MIT */
#include "support/support.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

bool test_short(void) { return getenv("PALIMPSA_TEST_SHORT") != NULL; }

int test_cases(int few, int many) { return getenv("PALIMPSA_TEST_LONG") ? many : test_short() ? (few + 4) / 5 : few; }

const char *test_emulator(void) { return getenv("PALIMPSA_TEST_EMULATOR"); }

pal_context *test_context(int threads, const char *cpu) {
    pal_context *cx;
    OK(pal_context_new(&cx, threads, cpu, err));
    return cx;
}

pal_cpu_level test_level_after(pal_cpu_level level) {
    do level++;
    while (level < PAL_CPU_LEVELS && !pal_cpu_runs(level));
    return level;
}

static size_t guarded_bytes(size_t n) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (n * sizeof(float) + page - 1) / page * page;
}

float *test_guarded(size_t n) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = guarded_bytes(n);
    char *block = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(block != MAP_FAILED);
    assert_int_equal(mprotect(block + bytes, page, PROT_NONE), 0);
    float *x = (float *)(void *)(block + bytes) - n;
    for (size_t i = 0; i < n; i++) x[i] = NAN;
    return x;
}

void test_guarded_free(float *x, size_t n) {
    const size_t bytes = guarded_bytes(n);
    munmap((char *)(x + n) - bytes, bytes + (size_t)sysconf(_SC_PAGESIZE));
}

void test_fill(float *x, size_t n, pal_rng *rng, double lo, double hi) {
    for (size_t i = 0; i < n; i++) x[i] = (float)(lo + (hi - lo) * pal_rng_uniform(rng));
}

void test_fill_normal(float *x, size_t n, pal_rng *rng, double deviation) {
    for (size_t i = 0; i < n; i++) x[i] = (float)(deviation * pal_rng_normal(rng));
}

double test_nmax_f64(const float *x, const double *ref, size_t n) {
    double worst = 0, scale = 0;
    for (size_t i = 0; i < n; i++) {
        const double diff = fabs((double)x[i] - ref[i]);
        if (!(diff <= worst)) worst = isnan(diff) ? INFINITY : diff;
        scale = fmax(scale, fabs(ref[i]));
    }
    return scale > 0 ? worst / scale : worst;
}

double test_largest(const float *x, size_t n) {
    float largest = 0; /* no double: gcc 12 fails to vectorise a largest double among floats for ARM64 */
    for (size_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(x[i]));
    return (double)largest;
}

double test_nmax(const float *x, const float *ref, size_t n) {
    double worst = 0, scale = 0;
    for (size_t i = 0; i < n; i++) {
        const double diff = fabs((double)x[i] - (double)ref[i]);
        if (!(diff <= worst)) worst = isnan(diff) ? INFINITY : diff;
        scale = fmax(scale, fabs((double)ref[i]));
    }
    return scale > 0 ? worst / scale : worst;
}

void test_near(const char *what, const float *x, const float *ref, size_t n, double accept) {
    const double found = test_nmax(x, ref, n);
    if (!(found <= accept)) fail_msg("%s: error %.3g, accepted %.3g", what, found, accept);
}

void test_same_bits(const char *what, const float *x, const float *ref, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&x[i], &ref[i], sizeof x[i]) != 0)
            fail_msg("%s: element %zu is %.9g, expected exactly %.9g", what, i, (double)x[i], (double)ref[i]);
}
