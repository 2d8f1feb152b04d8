/* SPDX-License-Identifier: MIT */
#include "watch.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stopping;

static void on_signal(int number) {
    (void)number;
    stopping = 1;
}

double cli_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void cli_watch_begin(cli_watch *watch) {
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
    *watch = (cli_watch){ 0 };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN) continue; /* nohup */
        sigaction(numbers[i], &(struct sigaction){ .sa_handler = on_signal }, NULL);
    }
}

bool cli_watch_go_on(void *user, size_t done, size_t total) {
    cli_watch *watch = user;
    const double now = cli_seconds();
    if (now - watch->shown > 0.1 && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r%5.1f%%\033[K", total ? 100.0 * (double)done / (double)total : 100.0);
        fflush(stderr);
        watch->shown = now;
    }
    return !stopping;
}

bool cli_watch_stopped(void) { return stopping; }

void cli_watch_end(cli_watch *watch) {
    if (watch->shown > 0) fputs("\r\033[K", stderr);
    watch->shown = 0;
}
