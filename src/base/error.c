/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"

/* The parentheses keep status.h's macro of that name away. */
pal_status(pal_fail)(pal_error *err, pal_status status, const char *format, ...) {
    if (err) {
        va_list args;
        va_start(args, format);
        err->status = status;
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        pal_tame(err->text);
    }
    return status;
}

const char *pal_version(void) { return PAL_VERSION " (matmul: " PAL_MATMUL_BACKEND ")"; }
