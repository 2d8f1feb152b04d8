/* SPDX-License-Identifier: MIT */
/* Only the thread that began calls MPI (MPI_THREAD_FUNNELED), and no call below waits: a rank that failed or fell
 * silent is noticed by those that poll. */
#include "comm/mpi.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { ROOM = 1 << 14 /* messages under way */, FAILURE = 99 /* the tag of what pal_mpi_tell_failure sends */ };

/* Messages under way. */
typedef struct {
    MPI_Request request[ROOM];
    int *left[ROOM], peer[ROOM], done[ROOM];
    bool receives[ROOM];
    int count;
    int rank, size;
    int failed_rank, failed_code; /* rank -1: no failure */
} messages;
static messages m = { .failed_rank = -1 };

const char *pal_mpi_name(void) {
    static char name[64];
    snprintf(name, sizeof name, "Open MPI %d.%d.%d", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
    return name;
}

bool pal_mpi_launched(void) { return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_NAMESPACE"); }

static pal_status no_mpi(int code, const char *what, pal_error *err) {
    char why[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code == MPI_SUCCESS) return PAL_OK;
    MPI_Error_string(code, why, &length);
    return pal_fail(err, PAL_E_IO, "MPI cannot %s: %s", what, why);
}

/* Records a reported failure. */
static void listen(void) {
    int there = 0;
    MPI_Status status;
    if (m.failed_rank >= 0 || MPI_Iprobe(MPI_ANY_SOURCE, FAILURE, MPI_COMM_WORLD, &there, &status) || !there) return;
    MPI_Recv(&m.failed_code, 1, MPI_INT, status.MPI_SOURCE, FAILURE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    m.failed_rank = status.MPI_SOURCE;
}

static pal_status progress(void *self, pal_error *err) {
    (void)self;
    int done = 0;
    if (m.count) {
        const pal_status st = no_mpi(MPI_Testsome(m.count, m.request, &done, m.done, MPI_STATUSES_IGNORE),
                                     "exchange messages", err);
        if (st) return st;
    }
    if (done == MPI_UNDEFINED) done = 0;
    for (int i = 0; i < done; i++) --*m.left[m.done[i]];
    int kept = 0;
    for (int i = 0; done && i < m.count; i++) {
        if (m.request[i] == MPI_REQUEST_NULL) continue;
        m.request[kept] = m.request[i], m.left[kept] = m.left[i], m.peer[kept] = m.peer[i];
        m.receives[kept++] = m.receives[i];
    }
    if (done) m.count = kept;
    listen();
    return m.failed_rank < 0 ? PAL_OK : pal_fail(err, PAL_E_IO, "rank %d failed", m.failed_rank);
}

/* A free place among the messages; polls until there is one. */
static pal_status take_place(int *place, int peer, bool receives, int *left, pal_error *err) {
    pal_status st = PAL_OK;
    while (m.count == ROOM && !st) st = progress(NULL, err);
    if (st) return st;
    *place = m.count++;
    m.peer[*place] = peer;
    m.receives[*place] = receives;
    m.left[*place] = left;
    ++*left;
    return PAL_OK;
}

static pal_status begin_send(void *self, int to, pal_comm_kind kind, const void *data, size_t bytes, int *left,
                             pal_error *err) {
    (void)self;
    int at;
    const pal_status st = take_place(&at, to, false, left, err);
    return st ? st
              : no_mpi(MPI_Isend(data, (int)bytes, MPI_BYTE, to, (int)kind, MPI_COMM_WORLD, &m.request[at]), "send",
                       err);
}

static pal_status begin_receive(void *self, int from, pal_comm_kind kind, void *data, size_t bytes, int *left,
                                pal_error *err) {
    (void)self;
    int at;
    const pal_status st = take_place(&at, from, true, left, err);
    return st ? st
              : no_mpi(MPI_Irecv(data, (int)bytes, MPI_BYTE, from, (int)kind, MPI_COMM_WORLD, &m.request[at]),
                       "receive", err);
}

/* What is sent may wait for a rank that itself waits; what should come says more. */
static int silent(void *self, const int *left) {
    (void)self;
    int peer = -1;
    for (int i = 0; i < m.count; i++)
        if (m.left[i] == left && (peer < 0 || m.receives[i])) peer = m.peer[i];
    return peer;
}

static const pal_transport over_mpi = {
    .send = begin_send, .receive = begin_receive, .progress = progress, .silent = silent
};

pal_status pal_mpi_begin(pal_comm *out, pal_error *err) {
    int level;
    pal_status st = no_mpi(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level), "begin", err);
    *out = pal_comm_alone;
    if (st) return st;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &m.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &m.size);
    *out = (pal_comm){ .rank = m.rank, .size = m.size, .timeout = 120, .room = ROOM / 4, .transport = &over_mpi };
    return PAL_OK;
}

void pal_mpi_end(void) { MPI_Finalize(); }

void pal_mpi_tell_failure(int code) {
    static int told;
    static MPI_Request ignored;
    told = code;
    for (int r = 0; r < m.size; r++)
        if (r != m.rank && !MPI_Isend(&told, 1, MPI_INT, r, FAILURE, MPI_COMM_WORLD, &ignored))
            MPI_Request_free(&ignored); /* it continues; no rank waits for it */
}

bool pal_mpi_told_of_failure(double seconds, int *code) {
    const double begun = pal_seconds();
    for (listen(); m.failed_rank < 0 && pal_seconds() - begun < seconds; listen())
        nanosleep(&(struct timespec){ .tv_nsec = 1000 * 1000 }, NULL);
    *code = m.failed_code;
    return m.failed_rank >= 0;
}

void pal_mpi_forget_launcher(void) {
    static const char *const theirs[] = { "OMPI_", "PMIX_", "PMI_" };
    extern char **environ;
    for (char **v = environ; *v;) {
        char name[128];
        bool gone = false;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*v, "="), *v);
        for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++)
            gone |= strncmp(name, theirs[i], strlen(theirs[i])) == 0;
        if (!gone || unsetenv(name) != 0) v++;
    }
}
