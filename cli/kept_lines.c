/* SPDX-License-Identifier: MIT */
#include "kept_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/lock.h"
#include "base/map.h"
#include "cli.h"
#include "format/json.h"

/* *end: after the last complete line; its line break may be missing, and is then one byte after the file. */
static int read_lines(const pal_map *map, const char *path, kept_line_fn *take, void *user, size_t *end) {
    int code = CLI_OK;
    *end = 0;
    for (int number = 1; *end < map->size && !code; number++) {
        const char *text = (const char *)map->data + *end, *stop = memchr(text, '\n', map->size - *end);
        kept_line line = { .text = text, .size = stop ? (size_t)(stop - text) : map->size - *end, .number = number };
        bool starved = false;
        line.value = pal_json_parse(text, line.size, JSON_ALLOW_NUL, NULL, &starved);
        line.whole = stop || line.value;
        code = starved ? cli_error(CLI_FAILED, "out of memory while reading %s", path) : take(user, &line);
        json_decref(line.value);
        if (!line.whole) break;
        *end += line.size + 1;
    }
    return code;
}

/* Locked and open for adding lines. A pipe or a directory is refused before anything waits for it. */
static int open_locked(int *fd, const char *path) {
    pal_map map;
    pal_error err;
    *fd = -1;
    if (access(path, F_OK) == 0) {
        if (pal_map_open(&map, path, &err)) return cli_fail(&err);
        pal_map_close(&map);
    }
    *fd = pal_io_open(path, O_WRONLY | O_CREAT | O_APPEND);
    if (*fd < 0) return cli_error(CLI_FAILED, "%s: cannot open: %s", path, strerror(errno));
    return pal_lock_file(*fd, path, &err) ? cli_fail(&err) : CLI_OK;
}

int kept_lines_open(kept_lines *l, const char *path, kept_line_fn *take, void *user) {
    pal_map map = { 0 };
    pal_error err;
    size_t end = 0;
    int fd;
    *l = (kept_lines){ .path = path };
    int code = open_locked(&fd, path);
    if (!code && pal_map_open(&map, path, &err)) code = cli_fail(&err);
    if (!code) code = read_lines(&map, path, take, user, &end);
    const bool torn = end < map.size;
    const bool unended = end > map.size;
    pal_map_close(&map);
    if (!code && torn && !pal_io_cut(fd, end))
        code = cli_error(CLI_FAILED, "%s: cannot remove a line that was cut off: %s", path, strerror(errno));
    if (!code && unended && !pal_io_write(fd, "\n", 1))
        code = cli_error(CLI_FAILED, "%s: cannot write: %s", path, strerror(errno));
    if (!code && !(l->stream = pal_io_stream(fd, &l->file)))
        code = cli_error(CLI_FAILED, "%s: out of memory while opening it", path);
    if (code && fd >= 0) close(fd);
    return code;
}

pal_status kept_lines_add(kept_lines *l, const json_t *line, size_t flags, pal_error *err) {
    if (pal_json_print(line, flags, l->stream) && fflush(l->stream) == 0) return PAL_OK;
    const int why = l->file->why ? l->file->why : errno;
    fclose(l->stream); /* what there is of this line is removed when the file is opened again */
    *l = (kept_lines){ .path = l->path };
    return pal_fail(err, PAL_E_IO, "%s: cannot write: %s", l->path, strerror(why));
}

int kept_lines_close(kept_lines *l) {
    const bool failed = l->stream && fclose(l->stream) != 0;
    l->stream = NULL;
    return failed ? cli_error(CLI_FAILED, "%s: cannot write: %s", l->path, strerror(errno)) : CLI_OK;
}
