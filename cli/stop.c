/* SPDX-License-Identifier: MIT */
/* The signals are blocked in every thread but one, which does nothing but wait for them. A handler must not interrupt a
 * thread that computes: see base/signal_stack.h. */
#include "stop.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/context.h"
#include "base/signal_stack.h"
#include "cli.h"

enum { NUDGE = SIGURG }; /* to the main thread, so that a system call that waits returns; ignored by default */

static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
static sigset_t signals;
static pthread_t main_thread;
static sem_t came;
static atomic_uint remembered, once; /* a bit a signal: does not end the process; and is so once only */
static atomic_bool stopping, ending;
static _Atomic(const char *) sentence;

static unsigned bit(int number) { return 1u << number; }

static bool is_ignored(int number) {
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* Restores the signal's original disposition: it ends the process, or is ignored. */
static void let_through(int number) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    raise(number);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
}

static void *listen(void *unused) {
    for (int number; sigwait(&signals, &number) == 0;) {
        if (!(atomic_load(&remembered) & bit(number))) {
            let_through(number);
            continue;
        }
        if (atomic_load(&once) & bit(number)) atomic_fetch_and(&remembered, ~bit(number));
        if (number != SIGINT) atomic_store(&ending, true);
        const char *said = atomic_load(&stopping) ? NULL : atomic_load(&sentence);
        atomic_store(&stopping, true);
        if (said) fprintf(stderr, "%spalimpsa: %s\n", isatty(STDERR_FILENO) ? "\n" : "", said); /* after ^C */
        sem_post(&came);
        pthread_kill(main_thread, NUDGE);
    }
    return unused;
}

static void on_nudge(int number) { (void)number; }

int cli_stop_begin(void) {
    const struct sigaction nudged = { .sa_handler = on_nudge, .sa_flags = SA_ONSTACK };
    pthread_t listener;
    sigemptyset(&signals);
    for (size_t i = 0; i < PAL_COUNT(numbers); i++) sigaddset(&signals, numbers[i]);
    pal_give_signal_stack();
    main_thread = pthread_self();
    sem_init(&came, 0, 0);
    sigaction(NUDGE, &nudged, NULL);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    const int failed = pthread_create(&listener, NULL, listen, NULL);
    return failed ? cli_error(CLI_FAILED, "cannot start a thread: %s", strerror(failed)) : CLI_OK;
}

void cli_stop_on_signals(bool second_ends) {
    const unsigned ends = bit(SIGINT) | bit(SIGTERM) | (is_ignored(SIGHUP) ? 0 : bit(SIGHUP));
    atomic_store(&once, second_ends ? ends : 0);
    atomic_store(&remembered, ends | bit(SIGUSR1)); /* which mpirun and Slurm hand to every rank, to some twice */
}

void cli_stop_say(const char *text) { atomic_store(&sentence, text); }

void cli_stop_in_conversation(void) {
    cli_stop_on_signals(true);
    atomic_fetch_and(&once, ~bit(SIGINT));
}

void cli_stop_wait(void) {
    while (!cli_stopping()) sem_wait(&came); /* or it was the nudge */
}

bool cli_stopping(void) { return atomic_load(&stopping); }
bool cli_stop_ends(void) { return atomic_load(&ending); }
void cli_stop_forget(void) { atomic_store(&stopping, atomic_load(&ending)); }
