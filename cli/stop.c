/* SPDX-License-Identifier: MIT */
#include "stop.h"

#include <signal.h>

static volatile sig_atomic_t stopping, ending;

static void on_signal(int number) {
    stopping = 1;
    if (number != SIGINT) ending = 1;
}

static void catch_signal(int number, bool second_ends) {
    const struct sigaction action = { .sa_handler = on_signal, .sa_flags = second_ends ? (int)SA_RESETHAND : 0 };
    struct sigaction before;
    if (number == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN) return;
    sigaction(number, &action, NULL);
}

void cli_stop_on_signals(bool second_ends) {
    catch_signal(SIGINT, second_ends);
    catch_signal(SIGTERM, second_ends);
    catch_signal(SIGHUP, second_ends);
    catch_signal(SIGUSR1, false); /* mpirun and Slurm hand it to every rank, some to this one twice */
}

void cli_stop_in_conversation(void) {
    cli_stop_on_signals(true);
    catch_signal(SIGINT, false);
}

bool cli_stopping(void) { return stopping != 0; }
bool cli_stop_ends(void) { return ending != 0; }
void cli_stop_forget(void) { stopping = ending; }
