/* SPDX-License-Identifier: MIT */
#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/directory.h"
#include "base/io.h"

pal_status pal_map_open(pal_map *map, const char *path, pal_error *err) {
    pal_status st = PAL_OK;
    struct stat info;
    *map = (pal_map){ 0 };
    const int fd = open(path,
                        O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would make us wait before we can refuse it */
    if (fd < 0) return pal_fail(err, PAL_E_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0) {
        st = pal_fail(err, PAL_E_IO, "%s: cannot stat: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        st = pal_fail(err, PAL_E_IO, "%s: not a regular file", path);
    } else if (info.st_size > 0) {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) st = pal_fail(err, PAL_E_IO, "%s: cannot map: %s", path, strerror(errno));
        else *map = (pal_map){ .data = data, .size = (size_t)info.st_size };
    }
    close(fd);
    return st;
}

void pal_map_close(pal_map *map) {
    if (map->data) munmap((void *)map->data, map->size);
    *map = (pal_map){ 0 };
}

/* Creates path + a random suffix, with the mode of an ordinary new file (which mkstemp does not give). */
static int create_beside(const char *path, char *temporary, size_t bytes) {
    enum { TRIES = 100 };
    int fd = -1;
    for (int i = 0; i < TRIES && fd < 0; i++) {
        uint32_t suffix;
        if (getentropy(&suffix, sizeof suffix) != 0) return -1;
        snprintf(temporary, bytes, "%s.%08" PRIx32, path, suffix);
        fd = pal_io_open(temporary, O_WRONLY | O_CREAT | O_EXCL);
        if (fd < 0 && errno != EEXIST) return -1;
    }
    return fd;
}

pal_status pal_writer_open(pal_writer *w, const char *path, pal_error *err) {
    const size_t bytes = strlen(path) + 16;
    struct stat info;
    *w = (pal_writer){ 0 };
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) /* a rename would put a file in the place of a device */
        return pal_fail(err, PAL_E_IO, "%s: %s, expected the name of a file to write", path,
                        S_ISDIR(info.st_mode) ? "a directory" : "not an ordinary file");
    *w = (pal_writer){ .path = pal_strdup(path), .temporary = pal_alloc(bytes, 1) };
    if (!w->path || !w->temporary) {
        pal_writer_drop(w);
        return pal_fail(err, PAL_E_MEMORY, "out of memory while writing %s", path);
    }
    const int fd = create_beside(path, w->temporary, bytes);
    if (fd < 0) {
        const int why = errno;
        pal_free(w->temporary);
        w->temporary = NULL;
        pal_writer_drop(w);
        return pal_fail(err, PAL_E_IO, "%s: cannot create a file next to it: %s", path, strerror(why));
    }
    w->stream = pal_io_stream(fd, &w->file);
    if (!w->stream) {
        close(fd);
        pal_writer_drop(w);
        return pal_fail(err, PAL_E_MEMORY, "out of memory while writing %s", path);
    }
    return PAL_OK;
}

pal_status pal_sync_directory_of(const char *path, pal_error *err) {
    /* No allocation: this runs after a rename, when failing for want of memory would be a lie. */
    char dir[PATH_MAX] = ".";
    const char *slash = strrchr(path, '/');
    pal_status st = PAL_OK;
    if (slash) st = pal_path(dir, sizeof dir, err, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    if (st) return st;
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (!pal_io_sync(fd) && errno != EINVAL && errno != ENOTSUP)) /* some file systems sync no directories */
        st = pal_fail(err, PAL_E_IO, "%s: cannot sync its directory: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return st;
}

pal_status pal_sync_file(const char *path, pal_error *err) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool done = fd >= 0 && pal_io_sync(fd);
    const int why = errno;
    if (fd >= 0) close(fd);
    return done ? PAL_OK : pal_fail(err, PAL_E_IO, "%s: cannot sync: %s", path, strerror(why));
}

/* A link never replaces a file, as a rename does. File systems without links have renames only. */
static bool take_free_name(const pal_writer *w) {
    if (pal_io_link(w->temporary, w->path)) return pal_io_unlink(w->temporary), true;
    return errno != EEXIST && pal_io_rename(w->temporary, w->path);
}

pal_status pal_writer_commit(pal_writer *w, pal_error *err) {
    pal_status st = PAL_OK;
    errno = 0;
    const int failed = ferror(w->stream) || fflush(w->stream) != 0 || !pal_io_sync(w->file->fd);
    const int why = w->file->why ? w->file->why : errno ? errno : EIO;
    const int unclosed = fclose(w->stream) != 0;
    w->file = NULL;
    w->stream = NULL;
    if (failed || unclosed) {
        st = pal_fail(err, PAL_E_IO, "%s: cannot write: %s", w->path, strerror(failed ? why : errno));
    } else if (!(w->fresh ? take_free_name(w) : pal_io_rename(w->temporary, w->path))) {
        st = w->fresh && errno == EEXIST
                 ? pal_fail(err, PAL_E_ARGUMENT, "%s: exists already; nothing is overwritten", w->path)
                 : pal_fail(err, PAL_E_IO, "%s: cannot rename into place: %s", w->path, strerror(errno));
    } else {
        pal_free(w->temporary);
        w->temporary = NULL;
        st = pal_sync_directory_of(w->path, err);
    }
    pal_writer_drop(w);
    return st;
}

void pal_writer_drop(pal_writer *w) {
    if (w->stream) fclose(w->stream);
    if (w->temporary) pal_io_unlink(w->temporary);
    pal_free(w->temporary);
    pal_free(w->path);
    *w = (pal_writer){ 0 };
}
