/* SPDX-License-Identifier: MIT */
/* palimpsa generate --interactive: lines and answers, all in one memory. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "generate.h"
#include "line.h"
#include "stop.h"
#include "text/strings.h"
#include "text_model.h"

/* "\n" and "\\" in a typed line are a newline and a backslash. */
static void unescape(const char *line, size_t size, pal_bytes *out) {
    for (size_t i = 0; i < size; i++) {
        const bool newline = line[i] == '\\' && line[i + 1] == 'n', backslash = line[i] == '\\' && line[i + 1] == '\\';
        (void)pal_bytes_append(out, newline ? "\n" : line + i, 1, NULL);
        i += newline || backslash;
    }
}

/* Places to go back to. Each is a session with a copy of the memory, which shares what can be shared. */
enum { MOST_MARKS = 64 };
typedef struct {
    struct {
        char name[64];
        pal_session *session;
    } mark[MOST_MARKS];
    int count;
} marks;

static int64_t tokens_of(const pal_session *session) {
    const pal_state *state = pal_session_state(session);
    return pal_state_position(state) + (pal_state_pending(state) >= 0);
}

/* What went wrong, or "". */
static void mark_or_back(generation *g, marks *m, const char *name, bool back, pal_error *err) {
    pal_session *session = g->sessions[0];
    int at = 0;
    err->text[0] = '\0';
    while (at < m->count && strcmp(m->mark[at].name, name) != 0) at++;
    if (!*name || strlen(name) >= sizeof m->mark[0].name) {
        (void)pal_fail(err, PAL_E_ARGUMENT, "a mark's name has 1 to %zu bytes", sizeof m->mark[0].name - 1);
    } else if (back) {
        if (at == m->count) (void)pal_fail(err, PAL_E_ARGUMENT, "no mark is called '%s'", name);
        else (void)pal_session_copy(session, m->mark[at].session, err);
    } else if (at == MOST_MARKS) {
        (void)pal_fail(err, PAL_E_ARGUMENT, "there are %d marks already", MOST_MARKS);
    } else if (at < m->count || !pal_session_new(&m->mark[at].session, g->engine, err)) {
        if (at == m->count) snprintf(m->mark[m->count++].name, sizeof m->mark[0].name, "%s", name);
        (void)pal_session_copy(m->mark[at].session, session, err);
    }
}

static void free_marks(marks *m) {
    while (m->count) pal_session_free(m->mark[--m->count].session);
}

/* 0: not a command; 1: done; -1: quit. */
static int command(generation *g, marks *m, const char *line) {
    pal_error err;
    pal_session *session = g->sessions[0];
    if (line[0] != '/') return 0;
    const size_t word = strcspn(line, " ");
    const char *argument = line + word + strspn(line + word, " ");
#define IS(name) (word == strlen(name) && memcmp(line, name, word) == 0)
    if (IS("/quit") || IS("/exit")) return -1;
    if (IS("/reset")) {
        pal_session_reset(session);
        fputs("[the memory is empty]\n", stderr);
    } else if (IS("/save") || IS("/load")) {
        const bool save = IS("/save");
        if (!*argument) fprintf(stderr, "[%s needs a file name]\n", save ? "/save" : "/load");
        else if (save ? pal_session_save(session, argument, &err) : pal_session_load(session, argument, &err))
            fprintf(stderr, "[%s]\n", err.text);
        else
            fprintf(stderr, "[%s: %lld tokens]\n", argument, (long long)tokens_of(session));
    } else if (IS("/mark") || IS("/back")) {
        mark_or_back(g, m, argument, IS("/back"), &err);
        if (*err.text) fprintf(stderr, "[%s]\n", err.text);
        else fprintf(stderr, "[%s: %lld tokens]\n", argument, (long long)tokens_of(session));
    } else {
        if (!IS("/help")) fprintf(stderr, "[no command '%.*s']\n", (int)word, line);
        fputs("[type text for the model to continue; \\n is a new line. /reset empties the memory, /mark NAME and "
              "/back NAME return to a place, /save FILE and /load FILE keep it, /quit ends; Ctrl-C stops an answer]\n",
              stderr);
    }
#undef IS
    return 1;
}

/* Appends the prompt of the one job to the memory and generates as the options say, or only reads. */
static int go_on(generation *g, bool write) {
    pal_error err;
    job *j = &g->jobs[0];
    pal_session *session = g->sessions[0];
    const pal_state *state = pal_session_state(session);
    const bool fresh = !pal_state_position(state) && pal_state_pending(state) < 0;
    pal_session_options options = generate_session_options(g, j);
    if (!write) options.max_tokens = 0;
    j->ids.count = 0, j->finish = PAL_FINISH_NOT;
    if (generate_encode(g, j, fresh, &err) || pal_session_begin(session, j->ids.data, j->ids.count, &options, &err)) {
        if (!write) return cli_fail(&err);
        fprintf(stderr, "[%s]\n", err.text);
        return -1;
    }
    while (pal_session_busy(session) && !cli_stopping() && !g->closed) pal_engine_step(g->engine);
    pal_session_cancel(session);
    return j->finish == PAL_FINISH_ERROR ? cli_error(CLI_FAILED, "%s", j->error) : CLI_OK;
}

static int answer(generation *g, const char *line, size_t size) {
    job *j = &g->jobs[0];
    pal_session *session = g->sessions[0];
    char memory[32];
    j->prompt.size = 0;
    if (size) unescape(line, size, &j->prompt);
    const int64_t before = g->written_tokens;
    const double start = pal_seconds();
    const int code = go_on(g, true);
    if (code) return code < 0 ? CLI_OK : code;
    const double seconds = pal_seconds() - start;
    const pal_slice rest = pal_session_rest(session);
    if (!g->o->uncertainty) generate_show(g, rest.data, rest.size);
    generate_show(g, "\n", 1);
    text_size(memory, pal_state_bytes(g->m.model, g->o->context));
    const bool grows = pal_model_grows(pal_model_config_of(g->m.model));
    fprintf(stderr, "[memory %s%s, %lld tokens read, %.1f tokens/s%s]\n", memory, grows ? "" : " (constant)",
            (long long)pal_state_position(pal_session_state(session)),
            seconds > 0 ? (double)(g->written_tokens - before) / seconds : 0.0,
            j->finish == PAL_FINISH_CONTEXT ? "; the context is full: /reset" : "");
    cli_stop_forget();
    return CLI_OK;
}

int generate_converse(generation *g) {
    line_reader reader;
    marks places = { .count = 0 };
    int code = CLI_OK;
    if (line_begin(&reader)) return cli_error(CLI_FAILED, "out of memory for a line");
    if (g->jobs[0].prompt.size) code = go_on(g, false); /* a text to talk about, read before the first question */
    if (isatty(STDIN_FILENO)) command(g, &places, "/help");
    while (!code && !g->closed && !cli_stop_ends()) {
        size_t size;
        const char *line = line_read(&reader, "> ", &size);
        if (!line) break;
        const int kind = command(g, &places, line);
        if (kind < 0) break;
        if (kind == 0) code = answer(g, line, size);
    }
    line_end(&reader);
    free_marks(&places);
    return code;
}
