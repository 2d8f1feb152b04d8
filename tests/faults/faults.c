/* SPDX-License-Identifier: MIT */
/* Linked to the objects of the program, this makes what they ask the system for go wrong, as the environment says:
 *   PALIMPSA_FAULTS=memory:K       allocations fail from the K-th on
 *   PALIMPSA_FAULTS=memory-once:K  only the K-th does
 *   PALIMPSA_FAULTS=enospc:K       calls that change files fail from the K-th on: the disk is full
 *   PALIMPSA_FAULTS=eio:K|eintr:K  the K-th call fails
 *   PALIMPSA_FAULTS=short:K        writes take half of what they are given, from the K-th call on
 *   PALIMPSA_FAULTS=slow:K         a checkpoint takes K seconds more to read
 *   PALIMPSA_FAULTS=record         nothing fails; every call that changes files goes to the log
 *   PALIMPSA_FAULTS=places         nothing fails; of each place that allocates a line goes to the log: "place K HASH"
 * PALIMPSA_FAULTS_LOG names a file that gets, of every process, the line "count KIND N" in the end, and when calls are
 * recorded a line for each: kind, path, second path or offset and bytes as hexadecimal digits.
 * Allocations are those of ours (refused.c), of jansson and of Oniguruma (oniguruma.c). Cairo, oneDNN, OpenMP,
 * libmicrohttpd and the C library's own have no hooks: theirs do not fail. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/io.h"
#include "format/run_dir.h"
#include "places.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long long calls, at;
typedef enum { NOTHING, MEMORY, FULL, ONCE, SHORT, SLOW, RECORD, PLACES } fault;
static fault mode;
static int error;
static char log_path[PATH_MAX];

static void append(const char *text, size_t size) {
    const int fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, text, size) != (ssize_t)size) abort();
    close(fd);
}

static void print_path(FILE *to, const char *path) {
    char absolute[PATH_MAX], where[PATH_MAX];
    if (path[0] == '/') snprintf(absolute, sizeof absolute, "%s", path);
    else if (getcwd(where, sizeof where)) snprintf(absolute, sizeof absolute, "%.2000s/%.2000s", where, path);
    else abort();
    fprintf(to, "%s", absolute);
}

/* A line with blanks between words: no path of a test has any. */
static void record(const pal_io_call *c) {
    static const char *const names[] = { "open", "write", "reserve", "cut",    "sync", "rename", "exchange",
                                         "link", "mkdir", "unlink",  "rmdir" };
    char *text = NULL, link[64], path[PATH_MAX] = "";
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    fprintf(to, "%s ", names[c->kind]);
    if (c->path) print_path(to, c->path);
    else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", c->fd);
        if (readlink(link, path, sizeof path - 1) < 0) abort();
        fprintf(to, "%s", path);
    }
    if (c->to) {
        fputc(' ', to);
        print_path(to, c->to);
    }
    if (c->kind == PAL_IO_WRITE) {
        long long offset = c->offset;
        if (offset < 0) /* at the end of what is appended to, else where the file stands */
            offset = fcntl(c->fd, F_GETFL) & O_APPEND ? (long long)lseek(c->fd, 0, SEEK_END)
                                                      : (long long)lseek(c->fd, 0, SEEK_CUR);
        fprintf(to, " %lld ", offset);
        for (size_t i = 0; i < c->size; i++) fprintf(to, "%02x", ((const unsigned char *)c->bytes)[i]);
    } else if (c->kind == PAL_IO_RESERVE || c->kind == PAL_IO_CUT) fprintf(to, " %zu", c->size);
    fputc('\n', to);
    fclose(to);
    append(text, size);
    free(text);
}

static int watch(const pal_io_call *c) {
    int answer = 0;
    pthread_mutex_lock(&lock);
    calls++;
    if (mode == RECORD) record(c);
    const bool frees = c->kind == PAL_IO_UNLINK || c->kind == PAL_IO_RMDIR; /* a full disk lets these pass */
    if (mode == FULL && calls >= at && !frees) answer = error;
    if (mode == ONCE && calls == at) answer = error;
    if (mode == SHORT && calls >= at) answer = PAL_IO_SHORT;
    pthread_mutex_unlock(&lock);
    return answer;
}

/* The linker sends the library's calls here. */
pal_status __real_pal_run_check(const char *folder, json_t **trainer, pal_error *err);
pal_status __wrap_pal_run_check(const char *folder, json_t **trainer, pal_error *err);

pal_status __wrap_pal_run_check(const char *folder, json_t **trainer, pal_error *err) {
    if (mode == SLOW) sleep((unsigned)at);
    return __real_pal_run_check(folder, trainer, err);
}

static void tell_places(void) {
    const allocating_place *places;
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    const size_t count = places_found(&places);
    for (size_t i = 0; i < count; i++)
        fprintf(to, "place %llu %llx\n", (unsigned long long)places[i].number, (unsigned long long)places[i].callers);
    fclose(to);
    append(text, size);
    free(text);
}

static void tell(void) {
    char text[96];
    const int size = snprintf(text, sizeof text, "count memory %llu\ncount disk %llu\n",
                              (unsigned long long)pal_alloc_count(), calls);
    if (!*log_path) return;
    append(text, (size_t)size);
    if (mode == PLACES) tell_places();
}

__attribute__((constructor)) static void begin(void) {
    static const struct {
        const char *name;
        fault mode;
        int error;
    } kinds[] = { { "memory:", MEMORY, 0 }, { "memory-once:", MEMORY, 1 }, { "enospc:", FULL, ENOSPC },
                  { "eio:", ONCE, EIO },    { "eintr:", ONCE, EINTR },     { "short:", SHORT, 0 },
                  { "slow:", SLOW, 0 },     { "record", RECORD, 0 },       { "places", PLACES, 0 },
                  { "count", NOTHING, 0 } };
    const char *text = getenv("PALIMPSA_FAULTS"), *log = getenv("PALIMPSA_FAULTS_LOG");
    if (log) snprintf(log_path, sizeof log_path, "%s", log);
    pal_io_watch = watch;
    atexit(tell);
    if (!text) return;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const size_t n = strlen(kinds[i].name);
        if (strncmp(text, kinds[i].name, n) != 0) continue;
        mode = kinds[i].mode;
        error = kinds[i].error;
        at = strtoull(text + n, NULL, 10);
        if (mode == MEMORY && error) pal_alloc_fail_once(at);
        else if (mode == MEMORY) pal_alloc_fail_at(at);
        else if (mode == PLACES) places_watch(8);
        return;
    }
    fprintf(stderr, "PALIMPSA_FAULTS=%s: unknown\n", text);
    abort();
}
