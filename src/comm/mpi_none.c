/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "comm/mpi.h"

const char *pal_mpi_name(void) { return NULL; }

bool pal_mpi_launched(void) {
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    if (!size && getenv("PMIX_NAMESPACE")) size = getenv("SLURM_STEP_NUM_TASKS"); /* by srun */
    return size && atoi(size) > 1;
}

pal_status pal_mpi_begin(pal_comm *out, pal_error *err) {
    *out = pal_comm_alone;
    return pal_fail(err, PAL_E_UNSUPPORTED,
                    "started on several ranks, but this build has no MPI; install Open MPI (Debian: libopenmpi-dev) "
                    "and build it again");
}

void pal_mpi_end(void) {}
void pal_mpi_tell_failure(int code) { (void)code; }
bool pal_mpi_told_of_failure(double seconds, int *code) { return (void)seconds, (void)code, false; }
void pal_mpi_forget_launcher(void) {}
