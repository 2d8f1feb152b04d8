/* SPDX-License-Identifier: MIT */
/* One process at a time in a directory, or at the end of a file, by flock: the lock ends with the process, however that
 * ends. */
#ifndef PAL_BASE_LOCK_H
#define PAL_BASE_LOCK_H

#include <stdbool.h>
#include <stddef.h>

#include "palimpsa/status.h"

/* *fd holds the lock until it is closed; -1 after a failure. wait: until it is free. Otherwise, if it is locked,
 * PAL_E_ARGUMENT with a sentence that names them. A file system without locks lets everybody in. */
pal_status pal_lock_directory(int *fd, const char *directory, bool wait, pal_error *err);
/* The same for a directory that is made if needed, *made: by this call. PAL_E_IO: it cannot be made; PAL_E_ARGUMENT:
 * something else is there, or another process in it. */
pal_status pal_lock_new_directory(int *fd, bool *made, const char *directory, pal_error *err);
/* A new directory for this user alone, PREFIX-xxxxxxxx, whose name path (size) gets. Those of processes that ended
 * without removing theirs go first. */
pal_status pal_lock_temporary_directory(int *fd, char *path, size_t size, const char *prefix, pal_error *err);
/* A file that is open for writing: locked until fd is closed. PAL_E_ARGUMENT if locked; the sentence names the holder.
 */
pal_status pal_lock_file(int fd, const char *path, pal_error *err);
/* made: an empty directory is removed again. fd -1 is fine. */
void pal_unlock_directory(int fd, const char *directory, bool made);

#endif
