/* SPDX-License-Identifier: MIT */
#include "watch.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "stop.h"

void cli_watch_begin(cli_watch *watch) {
    *watch = (cli_watch){ 0 };
    cli_stop_on_signals(false);
}

bool cli_watch_go_on(void *user, size_t done, size_t total) {
    cli_watch *watch = user;
    const double now = pal_seconds();
    if (now - watch->shown > 0.1 && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r%5.1f%%\033[K", total ? 100.0 * (double)done / (double)total : 100.0);
        fflush(stderr);
        watch->shown = now;
    }
    return !cli_stopping();
}

void cli_watch_end(cli_watch *watch) {
    if (watch->shown > 0) fputs("\r\033[K", stderr);
    watch->shown = 0;
}
