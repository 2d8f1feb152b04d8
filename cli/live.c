/* SPDX-License-Identifier: MIT */
#include "live.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "text/utf8.h"

bool live_terminal(FILE *to) {
    const char *kind = getenv("TERM");
    return isatty(fileno(to)) && kind && *kind && strcmp(kind, "dumb") != 0;
}

int live_columns(FILE *to) {
    struct winsize window;
    return ioctl(fileno(to), TIOCGWINSZ, &window) == 0 && window.ws_col ? window.ws_col : 80;
}

live_line live_begin(FILE *to) {
    return (live_line){ .to = to, .terminal = live_terminal(to), .shown = pal_seconds() };
}

bool live_due(const live_line *line) { return pal_seconds() - line->shown >= (line->terminal ? 0.1 : 10); }

/* Ends the text before it is wider than so many columns. */
static void cut(char *text, int columns) {
    size_t left = strlen(text), n;
    for (uint32_t code; left; text += n, left -= n) {
        n = pal_utf8_read((const unsigned char *)text, left, &code);
        columns -= n ? utf8proc_charwidth((utf8proc_int32_t)code) : 1;
        if (!n) n = 1;
        if (columns < 0) {
            *text = '\0';
            return;
        }
    }
}

void live_show(live_line *line, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pal_tame(text);
    if (line->terminal) cut(text, live_columns(line->to) - 1); /* a full row would move the cursor to the next */
    fprintf(line->to, line->terminal ? "\r\033[K%s" : "%s\n", text);
    fflush(line->to);
    line->open = line->terminal;
    line->shown = pal_seconds();
}

void live_clear(live_line *line) {
    if (!line->open) return;
    fputs("\r\033[K", line->to);
    fflush(line->to);
    line->open = false;
}
