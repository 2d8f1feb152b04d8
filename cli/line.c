/* SPDX-License-Identifier: MIT */
#include "line.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "live.h"
#include "text/utf8.h"

typedef struct {
    char *text;
    size_t size, cursor;
    size_t from; /* the first byte that is shown */
    const char *prompt;
} editor;

int line_begin(line_reader *r) {
    *r = (line_reader){ .text = malloc(LINE_MAX_BYTES) };
    return r->text ? 0 : -1;
}

void line_end(line_reader *r) {
    free(r->text);
    for (int i = 0; i < r->count; i++) free(r->history[i]);
}

static bool inside(char c) { return ((unsigned char)c & 0xC0) == 0x80; } /* a character continues with this byte */

static size_t left_of(const editor *e, size_t at) {
    while (at > 0 && inside(e->text[--at])) {
    }
    return at;
}

static size_t right_of(const editor *e, size_t at) {
    if (at < e->size) at++;
    while (at < e->size && inside(e->text[at])) at++;
    return at;
}

/* Columns that the character at `at` takes. */
static int width_of(const editor *e, size_t at) {
    uint32_t code;
    if (!pal_utf8_read((const unsigned char *)e->text + at, e->size - at, &code) || code < ' ') return 1;
    return utf8proc_charwidth((utf8proc_int32_t)code);
}

/* Shows as much of the line as the terminal's row holds, with the cursor in it. */
static void draw(editor *e) {
    const int room = live_columns(stderr) - (int)strlen(e->prompt) - 1; /* one for the cursor */
    int before = 0, shown = 0;
    if (e->cursor <= e->from) { /* with some of what stands left of it */
        e->from = e->cursor;
        for (int i = 0; i < room / 2; i++) e->from = left_of(e, e->from);
    }
    for (size_t at = e->from; at < e->cursor; at = right_of(e, at)) before += width_of(e, at);
    for (; before > room && e->from < e->cursor; e->from = right_of(e, e->from)) before -= width_of(e, e->from);
    fprintf(stderr, "\r\033[K%s", e->prompt);
    for (size_t at = e->from, next; at < e->size && shown + width_of(e, at) <= room; at = next) {
        next = right_of(e, at);
        shown += width_of(e, at);
        if (e->text[at] == '\t') fputc(' ', stderr);
        else fwrite(e->text + at, 1, next - at, stderr);
    }
    if (shown > before) fprintf(stderr, "\033[%dD", shown - before);
    fflush(stderr);
}

static void cut(editor *e, size_t from, size_t to) {
    memmove(e->text + from, e->text + to, e->size - to);
    e->size -= to - from;
    e->cursor = from;
}

static void insert(editor *e, char c) {
    if (e->size + 1 >= LINE_MAX_BYTES) return;
    memmove(e->text + e->cursor + 1, e->text + e->cursor, e->size - e->cursor);
    e->text[e->cursor++] = c;
    e->size++;
}

static void replace(editor *e, const char *text) {
    e->size = e->cursor = strnlen(text, LINE_MAX_BYTES - 1);
    memcpy(e->text, text, e->size);
    e->from = 0;
}

static int key(void) {
    unsigned char c;
    return read(STDIN_FILENO, &c, 1) == 1 ? c : -1;
}

/* ESC [ numbers letter, or ESC O letter; numbers after the first say of Shift, Ctrl and Alt. at: where in the history
 * the line is. */
static void escape(editor *e, const line_reader *r, int *at) {
    int c = key(), number = 0;
    if (c == 'O') c = key();
    else if (c != '[') return;
    else {
        while ((c = key()) >= '0' && c <= '9') number = (number * 10 + c - '0') % 1000;
        while (c >= ' ' && c < '@') c = key();
        if (c == '[') key(), c = 0; /* F1 to F5 of the Linux console */
    }
    if (c == '~') c = number == 1 || number == 7 ? 'H' : number == 4 || number == 8 ? 'F' : number == 3 ? '~' : 0;
    if (c == 'A' && *at > 0) replace(e, r->history[--*at]);
    else if (c == 'B' && *at < r->count) replace(e, ++*at < r->count ? r->history[*at] : "");
    else if (c == 'C') e->cursor = right_of(e, e->cursor);
    else if (c == 'D') e->cursor = left_of(e, e->cursor);
    else if (c == 'H') e->cursor = 0;
    else if (c == 'F') e->cursor = e->size;
    else if (c == '~') cut(e, e->cursor, right_of(e, e->cursor));
}

/* True: the line is complete. False: the input ended. */
static bool edit(editor *e, const line_reader *r) {
    enum { CTRL_A = 1, CTRL_D = 4, CTRL_E = 5, CTRL_K = 11, CTRL_U = 21, ESC = 27, DELETE = 127 };
    int at = r->count;
    for (;;) {
        draw(e);
        const int c = key();
        if (c < 0 || (c == CTRL_D && !e->size)) return false;
        if (c == '\r' || c == '\n') return true;
        if (c == ESC) escape(e, r, &at);
        else if (c == DELETE || c == '\b') cut(e, left_of(e, e->cursor), e->cursor);
        else if (c == CTRL_A) e->cursor = 0;
        else if (c == CTRL_E) e->cursor = e->size;
        else if (c == CTRL_U) cut(e, 0, e->cursor);
        else if (c == CTRL_K) e->size = e->cursor;
        else if (c == '\t' || c >= ' ') insert(e, (char)c);
    }
}

static const char *plain(line_reader *r, size_t *size) {
    for (;;) {
        size_t n = 0;
        int c;
        while ((c = getc(stdin)) != '\n' && c != EOF)
            if (n < LINE_MAX_BYTES) r->text[n++] = (char)c;
        if (c == EOF && (!n || ferror(stdin))) return NULL;
        if (n < LINE_MAX_BYTES) {
            *size = n && r->text[n - 1] == '\r' ? n - 1 : n;
            r->text[*size] = '\0';
            return r->text;
        }
        fprintf(stderr, "[a line of more than %d bytes is not read]\n", LINE_MAX_BYTES - 1);
    }
}

const char *line_read(line_reader *r, const char *prompt, size_t *size) {
    struct termios before, raw;
    if (!isatty(STDIN_FILENO)) return plain(r, size);
    if (!live_terminal(stderr) || tcgetattr(STDIN_FILENO, &before) != 0) {
        fputs(prompt, stderr);
        return plain(r, size);
    }
    raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* signals stay: Ctrl-C interrupts */
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    editor e = { .text = r->text, .prompt = prompt };
    const bool done = edit(&e, r);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    fputc('\n', stderr);
    if (!done) return NULL;
    e.text[e.size] = '\0';
    *size = e.size;
    if (e.size && (!r->count || strcmp(r->history[r->count - 1], e.text) != 0)) {
        if (r->count == LINE_HISTORY) {
            free(r->history[0]);
            memmove(r->history, r->history + 1, (LINE_HISTORY - 1) * sizeof *r->history);
            r->count--;
        }
        if ((r->history[r->count] = strdup(e.text))) r->count++;
    }
    return r->text;
}
