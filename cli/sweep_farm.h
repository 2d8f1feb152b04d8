/* SPDX-License-Identifier: MIT */
/* Child processes that are `palimpsa train` for a sweep: of this process and, under mpirun, one on every rank. A place
 * is where one can run; places are numbered from 1. */
#ifndef PAL_CLI_SWEEP_FARM_H
#define PAL_CLI_SWEEP_FARM_H

#include <stdbool.h>

enum { FARM_PLACES = 1024, FARM_TEXT = 65536 /* bytes of a run's arguments */ };

/* On one process there are `jobs` places; on several ranks as many as ranks. Returns an exit code. */
int farm_open(int jobs, int *places);
/* Starts arguments (ended by NULL) at a free place; what is printed is added to the file `log`. Returns an exit code.
 */
int farm_start(int place, const char **arguments, const char *log);
/* Looks for a child that has ended: its place and what waitpid said of it. 0: none has. -1: an error was said. */
int farm_ended(int *status);
/* Asks all children to end cleanly. */
void farm_stop(void);
/* No more runs: the other ranks end. */
void farm_close(void);
/* What other ranks than 0 do until then. Returns an exit code. */
int farm_serve(void);

/* A child that becomes `palimpsa arguments...`; NULL for a log: its complaints are seen, and nothing else. */
int farm_spawn(const char **arguments, const char *log, int *child);

#endif
