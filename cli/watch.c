/* SPDX-License-Identifier: MIT */
#include "watch.h"

#include "stop.h"

void cli_watch_begin(cli_watch *watch) {
    *watch = (cli_watch){ .line = live_begin(stderr) };
    cli_stop_on_signals(false);
}

bool cli_watch_go_on(void *user, size_t done, size_t total) {
    cli_watch *watch = user;
    if (watch->line.terminal && live_due(&watch->line))
        live_show(&watch->line, "%5.1f%%", total ? 100.0 * (double)done / (double)total : 100.0);
    return !cli_stopping();
}

void cli_watch_end(cli_watch *watch) { live_clear(&watch->line); }
