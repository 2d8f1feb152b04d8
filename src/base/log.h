/* SPDX-License-Identifier: MIT */
/* Warnings that are not errors ("tensor x holds NaN"). The library hands them to the listener and is silent
 * otherwise. */
#ifndef PAL_BASE_LOG_H
#define PAL_BASE_LOG_H

#include "palimpsa/status.h"

typedef void pal_log_fn(void *user, const char *sentence);

/* One listener for the process; NULL removes it. Set it before threads start. */
void pal_log_listen(pal_log_fn *fn, void *user);
void pal_warn(const char *format, ...) PAL_PRINTF(1, 2);

/* Names from files get into sentences: what could move a terminal's cursor becomes '?', so that one sentence is one
 * line. */
static inline void pal_tame(char *text) {
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        const bool c1 = p[0] == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0; /* U+0080 to U+009F, of which one is ESC [ */
        if (*p < ' ' || *p == 127 || c1) *p = '?';
        if (c1) p[1] = '?';
    }
}

#endif
