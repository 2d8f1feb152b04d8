/* SPDX-License-Identifier: MIT */
/* Linked with --wrap. Allocations that are not pal_alloc's own come through pal_alloc_refused. */
#include "places.h"

#include <execinfo.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

void *__real_pal_alloc(size_t n, size_t size);
pal_status __real_pal_alloc_named(void **out, size_t n, size_t size, const char *what, pal_error *err);
char *__real_pal_strdup(const char *word);
bool __real_pal_alloc_refused(void);
void *__wrap_pal_alloc(size_t n, size_t size);
pal_status __wrap_pal_alloc_named(void **out, size_t n, size_t size, const char *what, pal_error *err);
char *__wrap_pal_strdup(const char *word);
bool __wrap_pal_alloc_refused(void);

enum { OWN = 2, CALLERS = 64, PLACES = 1 << 16 }; /* OWN: note() and its caller */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int callers;
static struct {
    uint64_t before; /* allocations */
    uint64_t hashes[PLACES];
    allocating_place places[PLACES / 2];
    size_t count;
} found;

void places_watch(int more) {
    pthread_mutex_lock(&lock);
    callers = more < CALLERS ? more : CALLERS;
    if (callers) {
        memset(&found, 0, sizeof found);
        found.before = pal_alloc_count();
    }
    pthread_mutex_unlock(&lock);
}

size_t places_found(const allocating_place **places) {
    *places = found.places;
    return found.count;
}

static void note(void) {
    void *frames[OWN + CALLERS];
    pthread_mutex_lock(&lock);
    if (callers) {
        const int depth = backtrace(frames, OWN + callers);
        const uint64_t hash = pal_hash(1, frames + OWN, (size_t)(depth - OWN) * sizeof *frames) | 1;
        size_t at = hash % PLACES;
        while (found.hashes[at] && found.hashes[at] != hash) at = (at + 1) % PLACES;
        if (!found.hashes[at]) {
            if (found.count == PLACES / 2) abort();
            found.hashes[at] = hash;
            found.places[found.count++] = (allocating_place){ pal_alloc_count() - found.before + 1, hash };
        }
    }
    pthread_mutex_unlock(&lock);
}

void *__wrap_pal_alloc(size_t n, size_t size) {
    note();
    return __real_pal_alloc(n, size);
}
pal_status __wrap_pal_alloc_named(void **out, size_t n, size_t size, const char *what, pal_error *err) {
    note();
    return __real_pal_alloc_named(out, n, size, what, err);
}
char *__wrap_pal_strdup(const char *word) {
    note();
    return __real_pal_strdup(word);
}
bool __wrap_pal_alloc_refused(void) {
    note();
    return __real_pal_alloc_refused();
}
