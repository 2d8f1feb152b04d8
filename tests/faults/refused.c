/* SPDX-License-Identifier: MIT */
/* Linked with --wrap: allocations that the library and the program make themselves, next to pal_alloc, are counted and
 * refused as pal_alloc's are. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *block, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *block, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);

void *__wrap_malloc(size_t size) { return pal_alloc_refused() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t n, size_t size) { return pal_alloc_refused() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *block, size_t size) { return pal_alloc_refused() ? NULL : __real_realloc(block, size); }
char *__wrap_strdup(const char *text) { return pal_alloc_refused() ? NULL : __real_strdup(text); }
char *__wrap_strndup(const char *text, size_t size) { return pal_alloc_refused() ? NULL : __real_strndup(text, size); }
