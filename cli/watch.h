/* SPDX-License-Identifier: MIT */
/* Long work that leaves all or nothing: signals ask for a clean end, and a terminal shows the progress. */
#ifndef PAL_CLI_WATCH_H
#define PAL_CLI_WATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "live.h"

typedef struct cli_watch {
    live_line line;
} cli_watch;

/* From now on SIGINT, SIGTERM and SIGHUP (unless it is ignored) do not end the process; cli_watch_go_on reports them
 * instead.
 */
void cli_watch_begin(cli_watch *watch);
bool cli_watch_go_on(void *watch, size_t done, size_t total); /* to be called now and then; false: stop */
void cli_watch_end(cli_watch *watch); /* clears the line */

#endif
