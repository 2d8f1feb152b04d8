/* SPDX-License-Identifier: MIT */
/* The only way to change files and directories. Calls that are interrupted are repeated, and short writes continued.
 * A test can watch every call: to make one fail, as a full or broken disk would, or to record what a power failure
 * may undo. */
#ifndef PAL_BASE_IO_H
#define PAL_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum pal_io_kind {
    PAL_IO_OPEN, /* for writing; the path may be new */
    PAL_IO_WRITE,
    PAL_IO_RESERVE,
    PAL_IO_CUT,
    PAL_IO_SYNC, /* of a file or a directory */
    PAL_IO_RENAME,
    PAL_IO_EXCHANGE,
    PAL_IO_LINK,
    PAL_IO_MKDIR,
    PAL_IO_UNLINK,
    PAL_IO_RMDIR,
} pal_io_kind;

typedef struct pal_io_call {
    pal_io_kind kind;
    const char *path, *to; /* of calls with names; to: the second name */
    int fd;                /* of the others */
    const void *bytes;     /* of a write */
    size_t size;
    int64_t offset; /* of a write; -1: where the file stands */
} pal_io_call;

/* Called before each call: 0 lets it happen, PAL_IO_SHORT lets a write take half, and anything else is the errno that
 * it fails with. */
enum { PAL_IO_SHORT = -1 };
typedef int pal_io_watch_fn(const pal_io_call *call);
extern pal_io_watch_fn *pal_io_watch; /* NULL: none. Set while no other thread is there */

/* -1 or false: it failed, errno says why. */
int pal_io_open(const char *path, int flags); /* close() it; flags as for open(), O_CLOEXEC is added */
bool pal_io_write(int fd, const void *bytes, size_t size);
bool pal_io_write_at(int fd, const void *bytes, size_t size, int64_t offset);
bool pal_io_reserve(int fd, size_t bytes); /* true also where the file system cannot */
bool pal_io_cut(int fd, size_t bytes);     /* truncates to `bytes` */
bool pal_io_sync(int fd);
bool pal_io_rename(const char *from, const char *to);
bool pal_io_exchange(const char *a, const char *b); /* not every file system can */
bool pal_io_link(const char *from, const char *to);
bool pal_io_mkdir(const char *path);
bool pal_io_mkdir_private(const char *path); /* for this user alone */
bool pal_io_unlink(const char *path);
bool pal_io_rmdir(const char *path);

/* A stream whose writes go through pal_io_write. It owns fd from then on. (*file)->why keeps the errno of the first
 * write that failed. NULL without memory; then fd is still the caller's. */
typedef struct pal_io_file {
    int fd, why;
} pal_io_file;
FILE *pal_io_stream(int fd, pal_io_file **file);

#endif
