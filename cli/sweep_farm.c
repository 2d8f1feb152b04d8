/* SPDX-License-Identifier: MIT */
#include "sweep_farm.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "cli.h"
#include "comm/mpi.h"
#include "ranks.h"
#include "stop.h"

/* From rank 0 to another: run these arguments, end your child cleanly, or end. */
typedef enum { ORDER_RUN, ORDER_STOP, ORDER_END } order_kind;
typedef struct {
    order_kind kind;
    int count; /* of arguments; the log comes after them */
    char text[FARM_TEXT];
} order;

/* One place: a child of this process, or another rank's. */
typedef struct {
    int child; /* process id; 0: none */
    int busy, status;
    int left; /* 1: the other rank has not answered */
} farm_place;

static farm_place place_at[FARM_PLACES + 1];
static int places;

int farm_open(int jobs, int *count) {
    const pal_comm *c = ranks_comm();
    ranks_set_timeout(INFINITY); /* a run takes any time */
    if (c->size > 1 && jobs > 1)
        return cli_error(CLI_USAGE, "--jobs %d: under mpirun every rank has one run at a time; leave it out", jobs);
    if (jobs > FARM_PLACES || c->size > FARM_PLACES)
        return cli_error(CLI_USAGE, "--jobs or ranks: expected at most %d", FARM_PLACES);
    *count = places = c->size > 1 ? c->size : jobs;
    return CLI_OK;
}

int farm_spawn(const char **arguments, const char *log, int *child) {
    *child = 0; /* whatever goes wrong: a signal to process -1 would go to every process, one to 0 to our own group */
    const int to = log ? pal_io_open(log, O_WRONLY | O_CREAT | O_APPEND) : open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (to < 0) return cli_error(CLI_FAILED, "%s: cannot open: %s", log ? log : "/dev/null", strerror(errno));
    fflush(stdout);
    const pid_t parent = getpid(), made = fork();
    if (made > 0) *child = (int)made;
    if (made != 0) close(to);
    if (made < 0) return cli_error(CLI_FAILED, "sweep: cannot start a process: %s", strerror(errno));
    if (made > 0) return CLI_OK;
    if (cli_stopping()) _exit(0); /* a signal from here on waits for the program that this becomes */
    prctl(PR_SET_PDEATHSIG, SIGTERM);  /* a killed sweep must not leave runs that a new one would start again */
    if (getppid() != parent) _exit(0); /* it was killed before that */
    pal_mpi_forget_launcher();
    if (dup2(to, STDOUT_FILENO) < 0 || (log && dup2(to, STDERR_FILENO) < 0)) _exit(127);
    execv("/proc/self/exe", (char *const *)arguments);
    _exit(127);
}

/* Rank 0 is place 1, and a process alone has nothing but places of its own. */
static bool is_far(int place) { return ranks_comm()->size > 1 && place > 1; }

static int tell(int rank, const order *o) {
    pal_error err;
    if (!pal_comm_move(ranks_comm(), 0, rank, (void *)o, sizeof *o, &err)) return CLI_OK;
    return cli_error(CLI_FAILED, "%s", err.text);
}

int farm_start(int place, const char **arguments, const char *log) {
    static order o;
    farm_place *p = &place_at[place];
    pal_error err;
    size_t used = 0;
    if (!is_far(place)) {
        const int code = farm_spawn(arguments, log, &p->child);
        p->busy = !code;
        return code;
    }
    o = (order){ .kind = ORDER_RUN };
    for (bool more = true; more;) {
        const char *word = arguments[o.count] ? arguments[o.count++] : log;
        const size_t size = strlen(word) + 1;
        more = word != log;
        if (used + size > sizeof o.text) return cli_error(CLI_USAGE, "sweep: the options of train are too long");
        memcpy(o.text + used, word, size);
        used += size;
    }
    const int code = tell(place - 1, &o);
    if (code) return code;
    p->busy = 1;
    p->left = 0;
    if (pal_comm_receive(ranks_comm(), place - 1, PAL_COMM_WORK, &p->status, sizeof p->status, &p->left, &err))
        return cli_error(CLI_FAILED, "%s", err.text);
    return CLI_OK;
}

int farm_ended(int *status) {
    pal_error err;
    if (pal_comm_progress(ranks_comm(), &err)) {
        cli_error(CLI_FAILED, "%s", err.text);
        return -1;
    }
    for (int i = 1; i <= places; i++) {
        farm_place *p = &place_at[i];
        if (!p->busy) continue;
        if (is_far(i) ? p->left > 0 : waitpid(p->child, &p->status, WNOHANG) != p->child) continue;
        *p = (farm_place){ .status = p->status };
        *status = p->status;
        return i;
    }
    return 0;
}

void farm_stop(void) {
    static const order stop = { .kind = ORDER_STOP };
    for (int i = 1; i <= places; i++)
        if (place_at[i].busy && is_far(i)) tell(i - 1, &stop);
        else if (place_at[i].busy) kill(place_at[i].child, SIGTERM);
}

void farm_close(void) {
    static const order end = { .kind = ORDER_END };
    for (int r = 1; r < ranks_comm()->size; r++) tell(r, &end);
}

static int begin_order(const order *o, int *child) {
    const char *arguments[1024] = { NULL }, *at = o->text;
    if (o->count >= 1024) return cli_error(CLI_FAILED, "sweep: too many options of train");
    for (int i = 0; i < o->count; i++, at += strlen(at) + 1) arguments[i] = at;
    return farm_spawn(arguments, at, child);
}

/* One child at a time; an order may come while it runs. */
int farm_serve(void) {
    static order o;
    const pal_comm *c = ranks_comm();
    pal_error err;
    pal_status st = PAL_OK;
    int child = 0, status = 0, left = 0, code = CLI_OK;
    ranks_set_timeout(INFINITY);
    cli_stop_on_signals(true); /* rank 0 decides what they mean */
    while (!st && !code) {
        if (!left) st = pal_comm_receive(c, 0, PAL_COMM_VALUES, &o, sizeof o, &left, &err);
        while (!st && left && !(child && waitpid(child, &status, WNOHANG) == child)) {
            st = pal_comm_progress(c, &err);
            nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000 * 1000 }, NULL);
        }
        if (st) break;
        if (left) { /* the child has ended */
            int sent = 0;
            child = 0;
            st = pal_comm_send(c, 0, PAL_COMM_WORK, &status, sizeof status, &sent, &err);
            if (!st) st = pal_comm_wait(c, &sent, &err);
        } else if (o.kind == ORDER_END) return CLI_OK;
        else if (o.kind == ORDER_RUN) code = begin_order(&o, &child);
        else if (child) kill(child, SIGTERM);
    }
    if (child) kill(child, SIGTERM);
    return st ? cli_error(CLI_FAILED, "%s", err.text) : code;
}
