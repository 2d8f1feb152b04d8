/* SPDX-License-Identifier: MIT */
/* The program as one of several ranks, started by mpirun. Without a launcher nothing here does anything.
 *
 * Rank 0 prints; what the others print is dropped. Of several ranks that fail, one says why: cli_error asks the
 * others, whose next exchange then fails without a word. */
#ifndef PAL_CLI_RANKS_H
#define PAL_CLI_RANKS_H

#include "comm/comm.h"

/* Joins the other ranks if a launcher started this process. Returns an exit code. */
int ranks_begin(void);
/* The last thing that a process does: gives its exit code, which is that of a rank that failed. */
int ranks_end(int code);

/* Whether a launcher started this process. mpirun gives every rank its own terminal, wherever the output goes. */
bool ranks_launched(void);
const pal_comm *ranks_comm(void);
/* The file at path, as rank 0 has it: on other ranks path becomes that of a copy. "" stays "". Returns an exit code. */
int ranks_share_file(char path[4096]);
void ranks_set_timeout(double seconds); /* that a rank may stay silent */

/* Whether this rank has said why it failed. */
bool ranks_failed(void);

/* Before an error is printed: who says it ("rank 2: ", "" for a process alone); NULL: another rank has failed and said
 * why. Afterwards the other ranks know. */
const char *ranks_speak(int code);

#endif
