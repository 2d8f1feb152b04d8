/* SPDX-License-Identifier: MIT */
/* Ranks over MPI: part of the program, not of the library. mpi.c is the only file that calls MPI; mpi_none.c stands for
 * it where the build has none. */
#ifndef PAL_COMM_MPI_H
#define PAL_COMM_MPI_H

#include "comm/comm.h"

const char *pal_mpi_name(void); /* "Open MPI 4.1.4"; NULL: this build has none */

/* Whether a launcher (mpirun, srun) started this process. */
bool pal_mpi_launched(void);
/* Joins the others. Once a process, and only under a launcher. */
pal_status pal_mpi_begin(pal_comm *out, pal_error *err);
/* Everybody is done. */
void pal_mpi_end(void);

/* The other ranks' next call that waits, or makes progress, fails. */
void pal_mpi_tell_failure(int code);
/* Whether another rank reported its failure, and with which exit code; looks for up to so many seconds. */
bool pal_mpi_told_of_failure(double seconds, int *code);

/* In a child process that is about to become another program: it is not a rank. */
void pal_mpi_forget_launcher(void);

#endif
