/* SPDX-License-Identifier: MIT */
/* Files: read by mapping, written aside and renamed. */
#ifndef PAL_BASE_MAP_H
#define PAL_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "palimpsa/status.h"

typedef struct pal_map {
    const unsigned char *data; /* NULL for an empty file */
    size_t size;
} pal_map;

pal_status pal_map_open(pal_map *map, const char *path, pal_error *err);
void pal_map_close(pal_map *map); /* a zeroed map is fine */

/* Writing: open a temporary next to `path`, write to ->stream, then commit (flush, sync, rename, sync the directory) or
 * drop it. Unless commit succeeds, `path` is what it was before; but when the directory's sync was all that failed, the
 * new file is in place already and may be lost in a power failure. */
typedef struct pal_writer {
    FILE *stream;
    char *path, *temporary;
    struct pal_io_file *file; /* what the stream writes to */
    bool fresh;               /* set by the caller: commit refuses (PAL_E_ARGUMENT) when `path` exists by then */
} pal_writer;

pal_status pal_writer_open(pal_writer *w, const char *path, pal_error *err);
pal_status pal_writer_commit(pal_writer *w, pal_error *err); /* drops the temporary on failure */
void pal_writer_drop(pal_writer *w);                         /* fine after commit, or when zeroed */
pal_status pal_sync_directory_of(const char *path, pal_error *err);
pal_status pal_sync_file(const char *path, pal_error *err); /* one that was not written by a pal_writer */

#endif
