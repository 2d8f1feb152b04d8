/* SPDX-License-Identifier: MIT */
/* One line of progress. On a terminal it is redrawn in place and cut to the width; elsewhere, and where TERM is dumb,
 * it is a line every ten seconds. */
#ifndef PAL_CLI_LIVE_H
#define PAL_CLI_LIVE_H

#include <stdbool.h>
#include <stdio.h>

#include "palimpsa/status.h"

typedef struct live_line {
    FILE *to;
    bool terminal; /* that can redraw a line */
    bool open;     /* a line is on the screen */
    double shown;  /* clock of the last one */
} live_line;

bool live_terminal(FILE *to);
int live_columns(FILE *to);
live_line live_begin(FILE *to); /* the first line is due after a moment, as all others are */
bool live_due(const live_line *line);
void live_show(live_line *line, const char *format, ...) PAL_PRINTF(2, 3);
void live_clear(live_line *line);

#endif
