/* SPDX-License-Identifier: MIT */
#include "missing.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

/* One thread: what is compared with may stand here. */
static int (*compare_with)(const void *, const void *, void *);
static void *argument;
static int compare_both(const void *a, const void *b) { return compare_with(a, b, argument); }

void qsort_r(void *base, size_t count, size_t size, int (*compare)(const void *, const void *, void *), void *with) {
    int (*const outer)(const void *, const void *, void *) = compare_with;
    void *const outer_argument = argument;
    compare_with = compare, argument = with;
    qsort(base, count, size, compare_both);
    compare_with = outer, argument = outer_argument;
}

/* One processor, and signals that never come. */
int sched_getaffinity(pid_t process, size_t size, cpu_set_t *set) {
    (void)process, (void)size, (void)set;
    errno = ENOSYS;
    return -1;
}
int __sched_cpucount(size_t size, const cpu_set_t *set) {
    (void)size, (void)set;
    return 1;
}
int sigaltstack(const stack_t *restrict stack, stack_t *restrict old) {
    (void)stack, (void)old;
    errno = ENOSYS;
    return -1;
}
