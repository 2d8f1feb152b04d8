/* SPDX-License-Identifier: MIT */
/* Signals that ask for a clean end: Ctrl-C, SIGTERM, SIGUSR1, and a closed terminal (unless it is ignored, as nohup
 * does). */
#ifndef PAL_CLI_STOP_H
#define PAL_CLI_STOP_H

#include <stdbool.h>

/* Before anything starts a thread. Until one of the functions below is called, a signal does what it does to any
 * program. Returns an exit code. */
int cli_stop_begin(void);
/* From now on a signal is remembered instead of ending the process. second_ends: a second one ends it at once; else the
 * work is one that must leave all or nothing. */
void cli_stop_on_signals(bool second_ends);
void cli_stop_say(const char *text); /* printed when the first one comes; NULL: nothing */
bool cli_stopping(void);             /* one came */
void cli_stop_wait(void);            /* until one comes */

/* In a conversation Ctrl-C stops an answer, and the next one begins with cli_stop_forget; other signals end it. */
void cli_stop_in_conversation(void);
bool cli_stop_ends(void); /* one came that ends a conversation */
void cli_stop_forget(void);

#endif
