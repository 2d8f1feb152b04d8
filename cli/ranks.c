/* SPDX-License-Identifier: MIT */
#include "ranks.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/map.h"
#include "cli.h"
#include "comm/mpi.h"

static pal_comm comm = { .size = 1 };
static bool joined, failed;

int ranks_begin(void) {
    pal_error err;
    comm = pal_comm_alone;
    if (!pal_mpi_launched()) return CLI_OK;
    if (pal_mpi_begin(&comm, &err)) return cli_error(CLI_USAGE, "%s", err.text);
    joined = true;
    if (!pal_comm_is_root(&comm) && !freopen("/dev/null", "w", stdout))
        return cli_error(CLI_FAILED, "cannot open /dev/null");
    return CLI_OK;
}

bool ranks_failed(void) { return failed; }
bool ranks_launched(void) { return joined; }
const pal_comm *ranks_comm(void) { return &comm; }
void ranks_set_timeout(double seconds) { comm.timeout = seconds; }

int ranks_share_file(char path[4096]) {
    pal_map map = { 0 };
    pal_error err;
    char *text = NULL;
    if (comm.size == 1 || !*path) return CLI_OK;
    if (pal_comm_is_root(&comm)) {
        if (pal_map_open(&map, path, &err)) return cli_fail(&err);
        text = pal_alloc(map.size + 1, 1);
        if (text && map.size) memcpy(text, map.data, map.size);
        pal_map_close(&map);
        if (!text) return cli_error(CLI_FAILED, "%s: out of memory while reading it", path);
    }
    const pal_status st = pal_comm_broadcast_text(&comm, &text, &err);
    int code = st ? cli_error(CLI_FAILED, "%s", err.text) : CLI_OK;
    if (!code && !pal_comm_is_root(&comm)) code = cli_memory_file(path, "the options", text);
    pal_free(text);
    return code;
}

const char *ranks_speak(int code) {
    static char name[32];
    int theirs;
    name[0] = '\0';
    if (comm.size == 1 || failed) return name;
    /* Most mistakes are everybody's: the lowest rank speaks, the others hear of it in time. */
    if (pal_mpi_told_of_failure(comm.rank ? 0.5 + 0.05 * comm.rank : 0, &theirs)) return NULL;
    failed = true;
    pal_mpi_tell_failure(code);
    snprintf(name, sizeof name, "rank %d: ", comm.rank);
    return name;
}

int ranks_end(int code) {
    int theirs;
    if (!joined) return code;
    if (comm.size > 1 && pal_mpi_told_of_failure(0, &theirs)) code = theirs, failed = true;
    if (!failed) {
        pal_mpi_end();
        return code;
    }
    /* Messages are still under way to memory that is gone: MPI is not to be called any more. The others get the time to
     * hear of it and to clean up; mpirun ends those that do not. */
    fflush(NULL);
    nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    _exit(code);
}
