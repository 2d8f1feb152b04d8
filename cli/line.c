/* SPDX-License-Identifier: MIT */
#include "line.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

typedef struct {
    char *text;
    size_t size, cursor;
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

static bool inside(char c) { return ((unsigned char)c & 0xC0) == 0x80; } /* a character goes on with this byte */

static size_t left_of(const editor *e, size_t at) {
    while (at > 0 && inside(e->text[--at])) {}
    return at;
}

static size_t right_of(const editor *e, size_t at) {
    if (at < e->size) at++;
    while (at < e->size && inside(e->text[at])) at++;
    return at;
}

static void draw(const editor *e) {
    size_t back = 0;
    for (size_t at = e->cursor; at < e->size; at = right_of(e, at)) back++;
    fprintf(stderr, "\r\033[K%s%.*s", e->prompt, (int)e->size, e->text);
    if (back) fprintf(stderr, "\033[%zuD", back);
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
}

static int key(void) {
    unsigned char c;
    return read(STDIN_FILENO, &c, 1) == 1 ? c : -1;
}

/* ESC [ A and the like; at: where in the history the line is. */
static void escape(editor *e, const line_reader *r, int *at) {
    if (key() != '[') return;
    const int c = key();
    if (c == 'A' && *at > 0) replace(e, r->history[--*at]);
    else if (c == 'B' && *at < r->count) replace(e, ++*at < r->count ? r->history[*at] : "");
    else if (c == 'C') e->cursor = right_of(e, e->cursor);
    else if (c == 'D') e->cursor = left_of(e, e->cursor);
    else if (c == 'H') e->cursor = 0;
    else if (c == 'F') e->cursor = e->size;
    else if (c == '3' && key() == '~') cut(e, e->cursor, right_of(e, e->cursor));
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

static const char *plain(line_reader *r) {
    if (!fgets(r->text, LINE_MAX_BYTES, stdin)) return NULL;
    r->text[strcspn(r->text, "\n")] = '\0';
    return r->text;
}

const char *line_read(line_reader *r, const char *prompt) {
    struct termios before, raw;
    if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &before) != 0) return plain(r);
    raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* signals stay: Ctrl-C interrupts */
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    editor e = { .text = r->text, .prompt = prompt };
    const bool done = edit(&e, r);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    fputc('\n', stderr);
    if (!done) return NULL;
    e.text[e.size] = '\0';
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
