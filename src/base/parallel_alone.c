/* SPDX-License-Identifier: MIT */
/* base/parallel.h where there are no threads: WebAssembly on a page that any static host serves. It has no mode that
 * flushes denormals either. */
#include "base/parallel.h"

#include "base/context.h"

int pal_threads(const pal_context *cx) {
    (void)cx;
    return 1;
}

void pal_parallel_for(const pal_context *cx, size_t n, pal_task_fn *fn, void *arg) {
    (void)cx;
    for (size_t i = 0; i < n; i++) fn(arg, i, 0);
}

void pal_parallel_ranges(const pal_context *cx, size_t n, size_t grain, pal_range_fn *fn, void *arg) {
    (void)cx;
    for (size_t begin = 0; begin < n; begin += grain) fn(arg, begin, begin + grain < n ? begin + grain : n, 0);
}

void pal_parallel_release(void) {}
