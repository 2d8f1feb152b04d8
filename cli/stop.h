/* SPDX-License-Identifier: MIT */
/* Signals that ask for a clean end: Ctrl-C, SIGTERM, and a closed terminal (unless it is ignored, as nohup does). */
#ifndef PAL_CLI_STOP_H
#define PAL_CLI_STOP_H

#include <stdbool.h>

/* From now on a signal is remembered instead of ending the process. second_ends: another one ends it at once; else the
 * work is one that must leave all or nothing. */
void cli_stop_on_signals(bool second_ends);
bool cli_stopping(void); /* one came */

#endif
