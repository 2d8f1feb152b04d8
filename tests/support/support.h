/* SPDX-License-Identifier: MIT */
/* What tests share: cmocka in the order it wants, numbers, guarded buffers and comparisons that no NaN can pass. */
#ifndef PAL_TEST_SUPPORT_H
#define PAL_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef __clang_analyzer__ /* it does not know that cmocka leaves a test where an assertion fails */
#undef assert_true
#undef assert_false
#undef assert_null
#undef assert_non_null
#undef assert_int_equal
#undef assert_int_not_equal
#undef fail
#define assert_true(c) ((c) ? (void)0 : abort())
#define assert_false(c) ((c) ? abort() : (void)0)
#define assert_null(p) assert_false(p)
#define assert_non_null(p) assert_true(p)
#define assert_int_equal(a, b) assert_true(cast_to_largest_integral_type(a) == cast_to_largest_integral_type(b))
#define assert_int_not_equal(a, b) assert_false(cast_to_largest_integral_type(a) == cast_to_largest_integral_type(b))
#define fail() abort()
#endif

#include "base/context.h"
#include "base/random.h"
#include "palimpsa/palimpsa.h"

/* A call that must succeed, written with `err` as its pal_error: OK(pal_tokenizer_open(&tok, "bytes", err)); fails the
 * test with the call and the error's sentence. */
#define OK(call)                                                    \
    do {                                                            \
        pal_error err_;                                             \
        pal_error *err = &err_;                                     \
        if ((call) != PAL_OK) fail_msg("%s: %s", #call, err_.text); \
    } while (0)

/* Whether PALIMPSA_TEST_SHORT is set: under an emulator a fifth of the random cases. */
bool test_short(void);
/* Number of cases: few (a fifth of them under an emulator), or many when PALIMPSA_TEST_LONG is set. */
int test_cases(int few, int many);

/* What runs programs of this build, from PALIMPSA_TEST_EMULATOR; NULL: this machine itself. */
const char *test_emulator(void);

/* A context or a failed test. cpu NULL: the best there is. */
pal_context *test_context(int threads, const char *cpu);

/* n floats that end exactly at an inaccessible page, filled with NaN: an overrun crashes, an unwritten output shows. */
float *test_guarded(size_t n);
void test_guarded_free(float *block, size_t n);

void test_fill(float *x, size_t n, pal_rng *rng, double lo, double hi);
void test_fill_normal(float *x, size_t n, pal_rng *rng, double deviation);

double test_largest(const float *x, size_t n); /* max|x| */

/* max|x - ref| / max|ref| (absolute when ref is all zero); infinite when any x is NaN. */
double test_nmax(const float *x, const float *ref, size_t n);
double test_nmax_f64(const float *x, const double *ref, size_t n);

/* Fails with a sentence that names `what` unless nmax <= accept. */
void test_near(const char *what, const float *x, const float *ref, size_t n, double accept);
void test_same_bits(const char *what, const float *x, const float *ref, size_t n);

/* For each CPU level this machine runs: for (TEST_LEVELS(level)) */
#define TEST_LEVELS(level)             \
    pal_cpu_level level = PAL_CPU_REF; \
    level < PAL_CPU_LEVELS;            \
    level = test_level_after(level)
pal_cpu_level test_level_after(pal_cpu_level level);

#endif
