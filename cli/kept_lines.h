/* SPDX-License-Identifier: MIT */
/* A file of JSON lines that a command appends to, so that the same command continues after an interruption. */
#ifndef PAL_CLI_KEPT_LINES_H
#define PAL_CLI_KEPT_LINES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "palimpsa/status.h"

typedef struct kept_lines {
    const char *path;
    FILE *stream; /* NULL: nothing can be added */
    struct pal_io_file *file;
} kept_lines;

/* A line of the file, and in the end perhaps the beginning of one that was cut off: no line break, and no JSON. */
typedef struct kept_line {
    const char *text; /* size bytes, without its end */
    size_t size;
    bool whole;
    int number;
    json_t *value; /* NULL: no JSON */
} kept_line;
typedef int kept_line_fn(void *user, const kept_line *line);

/* Locks the file, gives every line that is there to take, then removes one that was cut off; more may be added. A file
 * that another process adds to is refused. One that take refuses, by a sentence and an exit code, stays as it is.
 * Prints a sentence and returns an exit code. */
int kept_lines_open(kept_lines *l, const char *path, kept_line_fn *take, void *user);
pal_status kept_lines_add(kept_lines *l, const json_t *line, size_t flags, pal_error *err); /* none after a failure */
int kept_lines_close(kept_lines *l); /* fine when zeroed, or after a failure */

#endif
