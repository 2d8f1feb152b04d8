/* SPDX-License-Identifier: MIT */
/* GET /v1/runs: training runs below --runs, with their settings; GET /v1/runs/metrics: what one logged, from a byte on,
 * so that a client follows a run by asking for what is new. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "format/json.h"
#include "serve/inside.h"
#include "text/json_text.h"

enum {
    PATH = 4096,
    DEEPEST = 4,        /* directories below --runs */
    MOST_RUNS = 1000,   /* in the list */
    MOST_SEEN = 100000, /* entries of directories */
    MOST_BYTES = 1 << 20,
    TAIL = 1 << 16, /* bytes in which the last line is looked for */
    FRESH = 60      /* seconds since the last line of a run that continues */
};

typedef struct {
    const pal_server *server;
    json_t *list;
    int seen; /* entries of directories */
} search;

/* A file of a run, opened; -1: there is none. */
static int open_file(const pal_server *s, const char *run, const char *name, struct stat *about) {
    char path[PATH];
    if (snprintf(path, sizeof path, "%s/%s/%s", s->options.runs, run, name) >= (int)sizeof path) return -1;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file >= 0 && (fstat(file, about) != 0 || !S_ISREG(about->st_mode))) {
        close(file);
        return -1;
    }
    return file;
}

/* At most `most` bytes from `from` on, for pal_free. */
static char *read_at(int file, int64_t from, size_t most, size_t *size) {
    char *text = pal_alloc(most + 1, 1);
    *size = 0;
    while (text && *size < most) {
        const ssize_t n = pread(file, text + *size, most - *size, (off_t)(from + (int64_t)*size));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        *size += (size_t)n;
    }
    return text;
}

static json_t *settings_of(const pal_server *s, const char *run) {
    struct stat about;
    size_t size;
    const int file = open_file(s, run, "config.json", &about);
    if (file < 0) return json_null();
    const bool fits = about.st_size <= MOST_BYTES;
    char *text = fits ? read_at(file, 0, (size_t)about.st_size, &size) : NULL;
    close(file);
    if (fits && !text) pal_json_lose();
    json_t *root = text ? pal_json_parse(text, size, 0, NULL, NULL) : NULL;
    pal_free(text);
    return root ? root : json_null();
}

/* The step of the last whole line. */
static json_t *last_step(int file, int64_t bytes) {
    size_t size;
    const int64_t from = bytes > TAIL ? bytes - TAIL : 0;
    char *text = read_at(file, from, TAIL, &size);
    json_t *step = NULL;
    if (!text) pal_json_lose();
    while (text && size && !step) {
        while (size && text[size - 1] != '\n') size--; /* a line that is being written */
        if (!size) break;
        size_t begin = size - 1;
        while (begin && text[begin - 1] != '\n') begin--;
        json_t *row = pal_json_parse(text + begin, size - begin, 0, NULL, NULL);
        if (json_is_integer(json_object_get(row, "step"))) step = json_incref(json_object_get(row, "step"));
        json_decref(row);
        size = begin;
    }
    pal_free(text);
    return step ? step : json_null();
}

static void add_run(search *found, const char *run) {
    struct stat about;
    const int file = open_file(found->server, run, "metrics.jsonl", &about);
    if (file < 0) return;
    json_t *settings = settings_of(found->server, run), *step = last_step(file, about.st_size);
    const json_int_t steps = json_integer_value(json_object_get(settings, "steps")); /* 0: not said */
    const bool ended = steps && json_integer_value(step) >= steps;
    json_t *one = json_pack("{s:o, s:o, s:I, s:I, s:o, s:b}", "name", pal_json_bytes(run, strlen(run)), "settings",
                            settings, "updated", (json_int_t)about.st_mtime, "bytes", (json_int_t)about.st_size, "step",
                            step, "running", !ended && time(NULL) - about.st_mtime < FRESH);
    pal_json_append(found->list, one);
    close(file);
}

/* Runs at and below a directory; links are not followed. */
static void find_runs(search *found, const char *run, int depth) {
    char path[PATH];
    if (json_array_size(found->list) >= MOST_RUNS) return;
    add_run(found, run);
    if (depth == DEEPEST || snprintf(path, sizeof path, "%s/%s", found->server->options.runs, run) >= (int)sizeof path)
        return;
    DIR *directory = opendir(path);
    for (const struct dirent *e; directory && (e = readdir(directory)) && found->seen < MOST_SEEN;) {
        char below[PATH];
        struct stat about;
        found->seen++;
        if (e->d_name[0] == '.' || strcmp(e->d_name, "checkpoints") == 0) continue;
        if (fstatat(dirfd(directory), e->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(about.st_mode)) continue;
        if (snprintf(below, sizeof below, "%s%s%s", strcmp(run, ".") == 0 ? "" : run, strcmp(run, ".") == 0 ? "" : "/",
                     e->d_name) < (int)sizeof below)
            find_runs(found, below, depth + 1);
    }
    if (directory) closedir(directory);
}

static int newer_first(const void *a, const void *b) {
    const json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "updated")),
                     y = json_integer_value(json_object_get(*(json_t *const *)b, "updated"));
    return (x < y) - (x > y);
}

serve_result serve_runs(serve_exchange *x) {
    if (!x->server->options.runs) return serve_error(x, 404, NULL, "this server was started without --runs");
    search found = { .server = x->server, .list = json_array() };
    find_runs(&found, ".", 0);
    const size_t count = json_array_size(found.list);
    json_t **all = pal_alloc(count, sizeof *all), *sorted = json_array();
    for (size_t i = 0; all && i < count; i++) all[i] = json_array_get(found.list, i);
    if (all) qsort(all, count, sizeof *all, newer_first);
    for (size_t i = 0; all && i < count; i++) pal_json_append(sorted, json_incref(all[i]));
    pal_free(all);
    json_decref(found.list);
    return serve_reply_json(x, 200, json_pack("{s:s, s:o}", "object", "list", "data", sorted));
}

/* A name that the list may have: no part begins with a dot, so that none leads out of the directory. */
static bool is_name(const char *run) {
    if (strcmp(run, ".") == 0) return true;
    return run[0] && run[0] != '/' && run[0] != '.' && !strstr(run, "/.") && strlen(run) < PATH / 2;
}

/* Links lead elsewhere, too. */
static bool is_inside(const pal_server *s, const char *run) {
    char path[PATH], *root = realpath(s->options.runs, NULL), *real = NULL;
    if (snprintf(path, sizeof path, "%s/%s", s->options.runs, run) < (int)sizeof path) real = realpath(path, NULL);
    const size_t size = root ? strlen(root) : 0;
    const bool inside = root && real && strncmp(root, real, size) == 0 && (real[size] == '/' || !real[size]);
    free(root);
    free(real);
    return inside;
}

serve_result serve_run_metrics(serve_exchange *x) {
    const char *run = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, "run");
    serve_result result = MHD_NO;
    struct stat about;
    int64_t from = 0;
    size_t size = 0;
    if (!x->server->options.runs) return serve_error(x, 404, NULL, "this server was started without --runs");
    if (!run) return serve_error(x, 400, "run", "'run': expected the name of a run");
    if (!serve_query(x, "from", 0, INT64_MAX, &from, &result)) return result;
    const bool known = is_name(run) && is_inside(x->server, run);
    const int file = known ? open_file(x->server, run, "metrics.jsonl", &about) : -1;
    if (file < 0) return serve_error(x, 404, "run", "no run is called '%.100s'", run);
    const bool reset = from > about.st_size;
    if (reset) from = 0;
    char *text = read_at(file, from, MOST_BYTES, &size);
    close(file);
    if (!text) return serve_error(x, 500, NULL, "out of memory for metrics");
    json_t *rows = json_array();
    size_t done = 0; /* whole lines */
    for (size_t i = 0; i < size; i++) {
        if (text[i] != '\n') continue;
        json_t *row = pal_json_parse(text + done, i - done, 0, NULL, NULL);
        if (json_is_object(row)) pal_json_append(rows, json_incref(row));
        json_decref(row);
        done = i + 1;
    }
    if (!done && size == MOST_BYTES) done = size; /* no line is so long */
    pal_free(text);
    const int64_t next = from + (int64_t)done;
    return serve_reply_json(x, 200,
                            json_pack("{s:o, s:I, s:I, s:b, s:b, s:o}", "run", pal_json_bytes(run, strlen(run)), "from",
                                      (json_int_t)from, "next", (json_int_t)next, "more",
                                      size == MOST_BYTES && next < about.st_size, "reset", reset, "rows", rows));
}
