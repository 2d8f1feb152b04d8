/* SPDX-License-Identifier: MIT */
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"

#ifndef RENAME_EXCHANGE /* musl has neither the name nor renameat2 */
#define RENAME_EXCHANGE 2
#endif

pal_io_watch_fn *pal_io_watch;

/* Whether the call may happen; *size becomes what a write may take. */
static bool allowed(const pal_io_call *call, size_t *size) {
    const int answer = pal_io_watch ? pal_io_watch(call) : 0;
    if (answer == PAL_IO_SHORT && size) *size = (*size + 1) / 2;
    if (answer <= 0) return true;
    errno = answer;
    return false;
}

#define REPEAT(call, action)                                         \
    for (;;) {                                                       \
        if (allowed(&(call), NULL) && (action)) return true;         \
        if (errno != EINTR) return false;                            \
    }

int pal_io_open(const char *path, int flags) {
    const pal_io_call call = { .kind = PAL_IO_OPEN, .path = path };
    for (;;) {
        const int fd = allowed(&call, NULL) ? open(path, flags | O_CLOEXEC, 0666) : -1;
        if (fd >= 0 || errno != EINTR) return fd;
    }
}

static bool write_all(int fd, const char *bytes, size_t size, int64_t offset) {
    enum { MOST = 8 << 20 }; /* at once, so that a stop is seen in time */
    for (size_t at = 0; at < size;) {
        size_t piece = size - at < MOST ? size - at : MOST;
        const int64_t to = offset < 0 ? -1 : offset + (int64_t)at;
        const pal_io_call call = { .kind = PAL_IO_WRITE, .fd = fd, .bytes = bytes + at, .size = piece, .offset = to };
        ssize_t n = -1;
        if (allowed(&call, &piece)) n = to < 0 ? write(fd, bytes + at, piece) : pwrite(fd, bytes + at, piece, to);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) return false;
        at += (size_t)n;
    }
    return true;
}

bool pal_io_write(int fd, const void *bytes, size_t size) { return write_all(fd, bytes, size, -1); }

bool pal_io_write_at(int fd, const void *bytes, size_t size, int64_t offset) {
    return write_all(fd, bytes, size, offset);
}

bool pal_io_reserve(int fd, size_t bytes) {
    const pal_io_call call = { .kind = PAL_IO_RESERVE, .fd = fd, .size = bytes };
    for (;;) {
        if (allowed(&call, NULL) && (!bytes || fallocate(fd, 0, 0, (off_t)bytes) == 0)) return true;
        if (errno == EOPNOTSUPP || errno == ENOSYS) return true;
        if (errno != EINTR) return false;
    }
}

bool pal_io_cut(int fd, size_t bytes) {
    const pal_io_call call = { .kind = PAL_IO_CUT, .fd = fd, .size = bytes };
    REPEAT(call, ftruncate(fd, (off_t)bytes) == 0)
}

bool pal_io_sync(int fd) {
    const pal_io_call call = { .kind = PAL_IO_SYNC, .fd = fd };
    REPEAT(call, fsync(fd) == 0)
}

bool pal_io_rename(const char *from, const char *to) {
    const pal_io_call call = { .kind = PAL_IO_RENAME, .path = from, .to = to };
    REPEAT(call, rename(from, to) == 0)
}

bool pal_io_exchange(const char *a, const char *b) {
    const pal_io_call call = { .kind = PAL_IO_EXCHANGE, .path = a, .to = b };
#ifdef __EMSCRIPTEN__ /* as on a kernel without it */
    REPEAT(call, (errno = ENOSYS, false))
#else
    REPEAT(call, syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0)
#endif
}

bool pal_io_link(const char *from, const char *to) {
    const pal_io_call call = { .kind = PAL_IO_LINK, .path = from, .to = to };
    REPEAT(call, link(from, to) == 0)
}

bool pal_io_mkdir(const char *path) {
    const pal_io_call call = { .kind = PAL_IO_MKDIR, .path = path };
    REPEAT(call, mkdir(path, 0777) == 0)
}

bool pal_io_mkdir_private(const char *path) {
    const pal_io_call call = { .kind = PAL_IO_MKDIR, .path = path };
    REPEAT(call, mkdir(path, 0700) == 0)
}

bool pal_io_unlink(const char *path) {
    const pal_io_call call = { .kind = PAL_IO_UNLINK, .path = path };
    REPEAT(call, unlink(path) == 0)
}

bool pal_io_rmdir(const char *path) {
    const pal_io_call call = { .kind = PAL_IO_RMDIR, .path = path };
    REPEAT(call, rmdir(path) == 0)
}

static ssize_t stream_write(void *cookie, const char *bytes, size_t size) {
    pal_io_file *file = cookie;
    if (pal_io_write(file->fd, bytes, size)) return (ssize_t)size;
    if (!file->why) file->why = errno;
    return 0; /* how a cookie says that it failed */
}

static int stream_seek(void *cookie, off64_t *offset, int whence) {
    const off_t at = lseek(((pal_io_file *)cookie)->fd, *offset, whence);
    if (at < 0) return -1;
    *offset = at;
    return 0;
}

static int stream_close(void *cookie) {
    const int code = close(((pal_io_file *)cookie)->fd);
    pal_free(cookie);
    return code;
}

FILE *pal_io_stream(int fd, pal_io_file **file) {
    pal_io_file *cookie = pal_alloc(1, sizeof *cookie);
    if (!cookie) return NULL;
    cookie->fd = fd;
    FILE *stream = fopencookie(
        cookie, "w", (cookie_io_functions_t){ .write = stream_write, .seek = stream_seek, .close = stream_close });
    if (!stream) pal_free(cookie);
    else if (file) *file = cookie;
    return stream;
}
