/* SPDX-License-Identifier: MIT */
#include "stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t stopping;

static void on_signal(int number) {
    (void)number;
    stopping = 1;
}

void cli_stop_on_signals(bool second_ends) {
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
    const struct sigaction action = { .sa_handler = on_signal, .sa_flags = second_ends ? (int)SA_RESETHAND : 0 };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;
        if (numbers[i] == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN) continue;
        sigaction(numbers[i], &action, NULL);
    }
}

bool cli_stopping(void) { return stopping != 0; }
