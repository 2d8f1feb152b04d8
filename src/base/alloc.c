/* SPDX-License-Identifier: MIT */
#include "base/alloc.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t line = 64, huge_page = 2 << 20; /* bytes */

static atomic_ullong allocations;
static atomic_ullong fail_from;  /* 0: never */
static atomic_ullong fail_until; /* the last that fails */

bool pal_alloc_refused(void) {
    const unsigned long long nth = atomic_fetch_add(&allocations, 1) + 1;
    const unsigned long long from = atomic_load(&fail_from);
    return from && nth >= from && nth <= atomic_load(&fail_until);
}

/* Large blocks begin on a huge page, and lie on as many as they fill where the system has them: what streams through
 * megabytes (weights, gradients, keys and values) then hardly waits for page tables. */
void *pal_alloc(size_t n, size_t size) {
    if (pal_alloc_refused()) return NULL;
    if (size && n > (SIZE_MAX - huge_page) / size) return NULL;
    const size_t wanted = n && size ? n * size : 1, page = wanted >= huge_page ? huge_page : line,
                 bytes = (wanted + line - 1) / line * line;
    void *block;
    if (posix_memalign(&block, page, bytes)) return NULL;
    if (page == huge_page) madvise(block, bytes, MADV_HUGEPAGE); /* only advice: small pages do, too */
    memset(block, 0, bytes);
    return block;
}

void *pal_alloc_unset(size_t n, size_t size) {
    if (pal_alloc_refused() || (size && n > (SIZE_MAX - line) / size)) return NULL;
    const size_t wanted = n && size ? n * size : 1;
    return aligned_alloc(line, (wanted + line - 1) / line * line);
}

void pal_free(void *block) { free(block); }

pal_status pal_alloc_named(void **out, size_t n, size_t size, const char *what, pal_error *err) {
    *out = pal_alloc(n, size);
    if (*out) return PAL_OK;
    return pal_fail(err, PAL_E_MEMORY, "out of memory for %s (%zu x %zu bytes)", what, n, size);
}

char *pal_strdup(const char *text) {
    const size_t bytes = strlen(text) + 1;
    char *copy = pal_alloc(bytes, 1);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

uint64_t pal_alloc_count(void) { return atomic_load(&allocations); }

void pal_alloc_fail_at(uint64_t countdown) {
    atomic_store(&fail_until, ULLONG_MAX);
    atomic_store(&fail_from, countdown ? atomic_load(&allocations) + countdown : 0);
}

void pal_alloc_fail_once(uint64_t countdown) {
    pal_alloc_fail_at(countdown);
    atomic_store(&fail_until, atomic_load(&fail_from));
}
