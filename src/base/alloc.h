/* SPDX-License-Identifier: MIT */
/* The library's only way to the heap. Blocks are 64-byte aligned and zeroed; allocations are counted, so that a test
 * can prove that a loop makes none, and can be made to fail, so that a test can walk every out-of-memory path. */
#ifndef PAL_BASE_ALLOC_H
#define PAL_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "palimpsa/status.h"

/* NULL when memory is short or n*size overflows. Free with pal_free (NULL is fine). */
void *pal_alloc(size_t n, size_t size);
/* The same without zeros: pages that are never touched take no RAM. */
void *pal_alloc_unset(size_t n, size_t size);
void pal_free(void *block);
/* pal_alloc with a sentence: "out of memory for <what> (N x SIZE bytes)". */
pal_status pal_alloc_named(void **out, size_t n, size_t size, const char *what, pal_error *err);
char *pal_strdup(const char *text);

uint64_t pal_alloc_count(void); /* allocations since the process started */
/* For tests. The countdown-th allocation from now fails, and every later one; 0: never. */
void pal_alloc_fail_at(uint64_t countdown);
void pal_alloc_fail_once(uint64_t countdown); /* that one only */
/* Counts an allocation that is not made here, such as jansson's, and says whether it has to fail. */
bool pal_alloc_refused(void);

#endif
