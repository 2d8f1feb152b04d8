/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static pal_log_fn *listener;
static void *listener_user;

void pal_log_listen(pal_log_fn *fn, void *user) {
    listener = fn;
    listener_user = user;
}

void pal_warn(const char *format, ...) {
    if (!listener) return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pal_tame(text);
    listener(listener_user, text);
}
