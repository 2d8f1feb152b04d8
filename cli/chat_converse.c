/* SPDX-License-Identifier: MIT */
/* palimpsa generate --chat --interactive: a conversation of messages. The memory goes along with it as long as the
 * template only adds to what was read; where it takes something back, such as past thinking, all is read again. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "chat/chat.h"
#include "chat_generate.h"
#include "format/json.h"
#include "line.h"
#include "stop.h"
#include "text/json_text.h"
#include "text/strings.h"
#include "text_model.h"

typedef struct {
    generation *g;
    json_t *messages;
    const json_t *calls; /* of the newest answer; NULL: none */
    size_t answered;     /* of them */
    pal_ids known;       /* what the memory has read and written */
} conversation;

static bool command(conversation *c, const char *line, bool *quit) {
    if (line[0] != '/') return false;
    *quit = strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0;
    if (strcmp(line, "/reset") == 0) {
        json_array_clear(c->messages);
        c->calls = NULL;
        fputs("[a new conversation]\n", stderr);
    } else if (!*quit) {
        fputs("[type what you say; a tool's call waits for its result. /reset begins a new conversation, /quit ends; "
              "Ctrl-C stops an answer]\n",
              stderr);
    }
    return true;
}

static void add(conversation *c, const char *role, const char *text, size_t size) {
    json_t *message = json_object();
    pal_json_set(message, "role", json_string(role));
    pal_json_set(message, "content", pal_json_bytes(text, size));
    if (c->calls)
        pal_json_set(message, "tool_call_id",
                     json_incref(json_object_get(json_array_get(c->calls, c->answered), "id")));
    pal_json_append(c->messages, message);
}

/* The line is a result while calls wait for theirs, else what the user says. True: the model answers now. */
static bool take(conversation *c, const char *line, size_t size) {
    if (!c->calls) {
        if (c->g->o->system && !json_array_size(c->messages))
            add(c, "system", c->g->o->system, strlen(c->g->o->system));
        add(c, "user", line, size);
        return true;
    }
    add(c, "tool", line, size);
    if (++c->answered < json_array_size(c->calls)) return false;
    c->calls = NULL;
    return true;
}

/* The ids that follow what the memory holds; all of them, and an empty memory, where the prompt is another. */
static pal_status begin(conversation *c, pal_error *err) {
    generation *g = c->g;
    job *j = &g->jobs[0];
    j->ids.count = 0, j->written.count = 0, j->finish = PAL_FINISH_NOT;
    pal_status st = chat_generate_encode(g, j, c->messages, err);
    if (st) return st;
    const size_t known = c->known.count;
    const bool follows = known < j->ids.count && known &&
                         memcmp(c->known.data, j->ids.data, known * sizeof *j->ids.data) == 0;
    if (!follows) pal_session_reset(g->sessions[0]);
    const size_t from = follows ? known : 0;
    c->known.count = 0;
    for (size_t i = 0; i < j->ids.count && !st; i++) st = pal_ids_append(&c->known, j->ids.data[i], err);
    const pal_session_options options = generate_session_options(g, j);
    return st ? st : pal_session_begin(g->sessions[0], j->ids.data + from, j->ids.count - from, &options, err);
}

static void keep(conversation *c) {
    generation *g = c->g;
    job *j = &g->jobs[0];
    json_t *message = chat_generate_message(j);
    for (size_t i = 0; i < j->written.count; i++)
        if (pal_ids_append(&c->known, j->written.data[i], NULL)) g->short_of_memory = true;
    c->calls = json_object_get(message, "tool_calls");
    c->answered = 0;
    g->calls_made += json_array_size(c->calls);
    pal_json_append(c->messages, message);
}

static int answer(conversation *c) {
    generation *g = c->g;
    job *j = &g->jobs[0];
    pal_session *session = g->sessions[0];
    pal_error err;
    char memory[32];
    const double start = pal_seconds();
    if (begin(c, &err)) {
        fprintf(stderr, "[%s]\n", err.text);
        pal_json_forget();
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
        return CLI_OK;
    }
    while (pal_session_busy(session) && !cli_stopping() && !g->closed) pal_engine_step(g->engine);
    pal_session_cancel(session);
    if (j->finish == PAL_FINISH_ERROR) return cli_error(CLI_FAILED, "%s", j->error);
    if (!chat_generate_read(j, pal_session_rest(session), true)) g->short_of_memory = true;
    generate_show(g, "\n", 1);
    const double seconds = pal_seconds() - start;
    text_size(memory, pal_state_bytes(g->m.model, g->o->context));
    fprintf(stderr, "[memory %s, %lld tokens read, %.1f tokens/s%s]\n", memory,
            (long long)pal_state_position(pal_session_state(session)),
            seconds > 0 ? (double)j->written.count / seconds : 0.0,
            j->finish == PAL_FINISH_CONTEXT ? "; the context is full: /reset" : "");
    cli_stop_forget();
    keep(c);
    return g->short_of_memory ? cli_error(CLI_FAILED, "out of memory for a conversation") : CLI_OK;
}

/* "> ", or the name of the tool whose result is waited for. */
static void make_prompt(const conversation *c, char prompt[80]) {
    const json_t *call = json_array_get(c->calls, c->answered);
    const char *name = json_string_value(json_object_get(json_object_get(call, "function"), "name"));
    snprintf(prompt, 80, name ? "%.70s > " : "%.2s", name ? name : "> ");
}

int chat_generate_converse(generation *g) {
    conversation c = { .g = g, .messages = json_array() };
    line_reader reader;
    bool quit = false;
    int code = CLI_OK;
    if (line_begin(&reader)) return cli_error(CLI_FAILED, "out of memory for a line");
    const pal_bytes *first = &g->jobs[0].prompt;
    if (first->size && take(&c, (const char *)first->data, first->size)) code = answer(&c);
    if (isatty(STDIN_FILENO)) command(&c, "/help", &quit);
    while (!code && !quit && !g->closed && !cli_stop_ends()) {
        char prompt[80];
        size_t size;
        make_prompt(&c, prompt);
        const char *line = line_read(&reader, prompt, &size);
        if (!line) break;
        if (!command(&c, line, &quit) && take(&c, line, size)) code = answer(&c);
    }
    line_end(&reader);
    json_decref(c.messages);
    pal_ids_free(&c.known);
    return code;
}
