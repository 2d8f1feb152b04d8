/* SPDX-License-Identifier: MIT */
/* The only place that starts threads. Work is cut into items whose number depends on the problem, never on the number
 * of threads; each item writes what no other item writes. That is why results do not depend on the thread count. */
#ifndef PAL_BASE_PARALLEL_H
#define PAL_BASE_PARALLEL_H

#include <stddef.h>

#include "palimpsa/context.h"

/* How many threads work runs on: those of the context, but one in a process made by fork. OpenMP's threads stayed with
 * the parent, and waiting for them would never end. */
int pal_threads(const pal_context *cx);

/* thread is 0 .. pal_context_threads()-1, for picking a scratch area. */
typedef void pal_task_fn(void *arg, size_t index, int thread);

/* Runs fn for index 0 .. n-1, in any order, with denormals flushed to zero (and the caller's mode restored). Inside
 * another parallel region, ours or the caller's, it runs on the calling thread alone. */
void pal_parallel_for(const pal_context *cx, size_t n, pal_task_fn *fn, void *arg);

/* A task over ranges of rows: n rows in blocks of `grain`. Kernels that work on rows use this rather than their own
 * loop. */
typedef void pal_range_fn(void *arg, size_t begin, size_t end, int thread);
void pal_parallel_ranges(const pal_context *cx, size_t n, size_t grain, pal_range_fn *fn, void *arg);

/* Ends the threads that wait for the calling thread's next loop. A thread that has had its last loop should say so:
 * while more threads wait than there are processors, libgomp lets all of them sleep at once, and each loop of another
 * thread must wake them. */
void pal_parallel_release(void);

#endif
