/* SPDX-License-Identifier: MIT */
/* A line from a person: cursor keys, history, the usual control keys; plain lines when standard input is not a
 * terminal.
 */
#ifndef PAL_CLI_LINE_H
#define PAL_CLI_LINE_H

#include <stddef.h>

enum { LINE_MAX_BYTES = 1 << 16, LINE_HISTORY = 100 };

typedef struct line_reader {
    char *text; /* (LINE_MAX_BYTES) */
    char *history[LINE_HISTORY];
    int count;
} line_reader;

int line_begin(line_reader *r); /* 0, or -1 without memory */
void line_end(line_reader *r);
/* The line without its end (size bytes, of which some may be zero, and a zero after them), or NULL at the end of input
 * or after an interrupt. Valid until the next call. */
const char *line_read(line_reader *r, const char *prompt, size_t *size);

#endif
