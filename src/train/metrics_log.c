/* SPDX-License-Identifier: MIT */
#include "train/metrics_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/io.h"
#include "base/map.h"
#include "format/json.h"

/* The step of a complete line, or -1; false without memory. */
static bool line_step(const char *line, size_t size, int64_t *found) {
    bool starved;
    json_t *object = pal_json_parse(line, size, 0, NULL, &starved);
    const json_t *step = json_object_get(object, "step");
    *found = json_is_integer(step) ? (int64_t)json_integer_value(step) : -1;
    json_decref(object);
    return !starved;
}

/* Copies the lines that stay into a new file in the old one's place. */
static pal_status keep_until(const char *path, int64_t step, pal_error *err) {
    pal_map map;
    pal_status st = pal_map_open(&map, path, err);
    if (st) return st;
    pal_writer w;
    if ((st = pal_writer_open(&w, path, err))) goto done;
    int64_t last = -1;
    for (size_t at = 0; at < map.size;) {
        const unsigned char *line = map.data + at, *end = memchr(line, '\n', map.size - at);
        if (!end) break; /* torn */
        const size_t size = (size_t)(end - line);
        int64_t found;
        if (!line_step((const char *)line, size, &found)) {
            pal_writer_drop(&w);
            st = pal_fail(err, PAL_E_MEMORY, "out of memory while reading %s", path);
            goto done;
        }
        if (found > last && found <= step) {
            fwrite(line, 1, size + 1, w.stream); /* commit looks at ferror */
            last = found;
        }
        at += size + 1;
    }
    st = pal_writer_commit(&w, err);
done:
    pal_map_close(&map);
    return st;
}

pal_status pal_metrics_log_open(pal_metrics_log *m, const char *path, int64_t step, pal_error *err) {
    *m = (pal_metrics_log){ 0 };
    pal_status st;
    if (access(path, F_OK) == 0 && (st = keep_until(path, step, err))) return st;
    if (!(m->path = pal_strdup(path))) return pal_fail(err, PAL_E_MEMORY, "%s: out of memory while opening it", path);
    const int fd = pal_io_open(path, O_WRONLY | O_CREAT | O_APPEND);
    if (fd < 0 || !(m->stream = pal_io_stream(fd, NULL))) {
        st = fd < 0 ? pal_fail(err, PAL_E_IO, "%s: cannot open: %s", path, strerror(errno))
                    : pal_fail(err, PAL_E_MEMORY, "%s: out of memory while opening it", path);
        if (fd >= 0) close(fd);
        pal_free(m->path);
        *m = (pal_metrics_log){ 0 };
        return st;
    }
    return PAL_OK;
}

pal_status pal_metrics_log_write(pal_metrics_log *m, json_t *line, pal_error *err) {
    const bool written = pal_json_print(line, JSON_COMPACT | JSON_REAL_PRECISION(9), m->stream) &&
                         fflush(m->stream) == 0;
    json_decref(line);
    return written ? PAL_OK : pal_fail(err, PAL_E_IO, "%s: cannot write: %s", m->path, strerror(errno));
}

pal_status pal_metrics_log_close(pal_metrics_log *m, pal_error *err) {
    pal_status st = PAL_OK;
    if (m->stream && fclose(m->stream) != 0)
        st = pal_fail(err, PAL_E_IO, "%s: cannot write: %s", m->path, strerror(errno));
    pal_free(m->path);
    *m = (pal_metrics_log){ 0 };
    return st;
}
