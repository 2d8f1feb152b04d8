/* SPDX-License-Identifier: MIT */
#include "base/parallel.h"

#include <omp.h>
#include <pthread.h>

#include "base/context.h"

/* Decayed memories would otherwise end in denormals, which some processors handle a hundred times slower. */
#if PAL_X86_64
#include <xmmintrin.h>
enum { FLUSH_TO_ZERO = 0x8040 };
static unsigned flush_begin(void) {
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FLUSH_TO_ZERO);
    return mode;
}
static void flush_end(unsigned mode) { _mm_setcsr(mode); }
#elif PAL_ARM64
enum { FLUSH_TO_ZERO = 1 << 24 };
static unsigned flush_begin(void) {
    unsigned long mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0" : : "r"(mode | FLUSH_TO_ZERO));
    return (unsigned)mode;
}
static void flush_end(unsigned mode) { __asm__ volatile("msr fpcr, %0" : : "r"((unsigned long)mode)); }
#else
static unsigned flush_begin(void) { return 0; }
static void flush_end(unsigned mode) { (void)mode; }
#endif

static volatile int forked;
static void note_fork(void) { forked = 1; }
static void watch_forks(void) { pthread_atfork(NULL, NULL, note_fork); }

int pal_threads(const pal_context *cx) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    return forked ? 1 : cx->threads;
}

/* The region of ours that this thread works in. OpenMP's own thread number will not do: a caller's region has one too,
 * and it may exceed the context's threads. */
static _Thread_local struct {
    const pal_context *cx; /* NULL outside */
    int thread;
} inside;

void pal_parallel_for(const pal_context *cx, size_t n, pal_task_fn *fn, void *arg) {
    const int threads = pal_threads(cx);
    if (threads == 1 || n <= 1 || omp_in_parallel()) {
        const unsigned mode = flush_begin();
        const int thread = inside.cx == cx ? inside.thread : 0;
        for (size_t i = 0; i < n; i++) fn(arg, i, thread);
        flush_end(mode);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        const unsigned mode = flush_begin();
        const int thread = omp_get_thread_num(), thread_before = inside.thread;
        const pal_context *cx_before = inside.cx;
        inside.cx = cx, inside.thread = thread;
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < n; i++) fn(arg, i, thread);
        inside.cx = cx_before, inside.thread = thread_before;
        flush_end(mode);
    }
}

typedef struct {
    pal_range_fn *fn;
    void *arg;
    size_t n, grain;
} range_job;

static void range_task(void *arg, size_t index, int thread) {
    const range_job *job = arg;
    const size_t begin = index * job->grain, end = begin + job->grain;
    job->fn(job->arg, begin, end < job->n ? end : job->n, thread);
}

void pal_parallel_ranges(const pal_context *cx, size_t n, size_t grain, pal_range_fn *fn, void *arg) {
    range_job job = { .fn = fn, .arg = arg, .n = n, .grain = grain };
    pal_parallel_for(cx, (n + grain - 1) / grain, range_task, &job);
}

void pal_parallel_release(void) { omp_pause_resource_all(omp_pause_soft); }
