/* SPDX-License-Identifier: MIT */
#include "chat_generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "chat/chat.h"
#include "cli.h"
#include "format/json.h"
#include "text/json_text.h"
#include "text/strings.h"
#include "text_model.h"

/* The text of a file as JSON. */
static int read_json(json_t **out, const char *path, size_t flags) {
    json_error_t why;
    bool starved = false;
    pal_bytes text = { 0 };
    int code = text_read(path, &text);
    if (!code && !(*out = pal_json_parse((const char *)text.data, text.size, flags, &why, &starved)))
        code = cli_error(starved ? CLI_FAILED : CLI_USAGE, "%s: %s (line %d)", path,
                         starved ? "out of memory" : why.text, why.line);
    pal_bytes_free(&text);
    return code;
}

static int read_tools(generation *g) {
    json_t *given = NULL;
    pal_error err;
    int code = g->o->tools ? read_json(&given, g->o->tools, 0) : CLI_OK;
    const json_t *list = json_is_object(given) ? json_object_get(given, "tools") : given;
    if (!code && given && pal_chat_tools(&g->tools, list, &err))
        code = cli_error(err.status == PAL_E_MEMORY ? CLI_FAILED : CLI_USAGE, "%s: %s", g->o->tools, err.text);
    json_decref(given);
    if (!json_array_size(g->tools)) {
        json_decref(g->tools);
        g->tools = NULL;
    }
    return code;
}

/* The stops of the command line and the template's. */
static int add_stop(generation *g) {
    const size_t count = (size_t)g->o->stop.count;
    g->stops = pal_alloc(count + 1, sizeof *g->stops);
    if (!g->stops) return cli_error(CLI_FAILED, "out of memory for stop strings");
    for (size_t i = 0; i < count; i++) g->stops[i] = g->o->stop.items[i];
    if (g->form->stop) g->stops[count] = g->form->stop;
    return CLI_OK;
}

int chat_generate_open(generation *g) {
    pal_error err;
    int code = read_tools(g);
    if (code) return code;
    if (pal_chat_open(&g->chat, g->m.tokenizer, g->o->template, &err)) return cli_fail(&err);
    g->form = pal_chat_for(g->chat, g->tools != NULL);
    if (g->tools && !g->form->takes_tools)
        return cli_error(CLI_USAGE, "--tools: the chat template of this model does not take tools");
    return add_stop(g);
}

void chat_generate_close(generation *g) {
    pal_chat_free(g->chat);
    pal_free(g->stops);
    json_decref(g->tools);
}

/* --json-schema: the answer is JSON after its thinking. */
static pal_status make_grammar(generation *g, bool thinking, pal_error *err) {
    json_t *schema = NULL;
    if (!g->o->schema || g->grammar) return PAL_OK;
    if (read_json(&schema, g->o->schema, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES))
        return pal_fail(err, PAL_E_ARGUMENT, "--json-schema was not read");
    const pal_chat_rules rules = { .schema = schema, .thinking = thinking };
    pal_error why;
    const pal_status st = pal_chat_grammar(&g->grammar, g->form, &rules, &why);
    json_decref(schema);
    return st ? pal_fail(err, st, "%s: %.400s", g->o->schema, why.text) : PAL_OK;
}

pal_status chat_generate_encode(generation *g, job *j, const json_t *messages, pal_error *err) {
    pal_chat_prompt prompt = { 0 };
    json_t *checked;
    pal_status st = pal_chat_messages(&checked, g->form, messages, err);
    const pal_template_input in = { .messages = checked, .tools = g->tools, .add_generation_prompt = true };
    if (!st) st = pal_chat_render(g->form, &in, &prompt, err);
    if (!st) st = pal_chat_encode(g->form, g->m.scratch, &prompt, err);
    for (size_t i = 0; i < prompt.ids.count && !st; i++) st = pal_ids_append(&j->ids, prompt.ids.data[i], err);
    if (!st && !j->ids.count) st = pal_fail(err, PAL_E_ARGUMENT, "the chat template makes nothing of these messages");
    if (!st) st = make_grammar(g, prompt.thinking, err);
    const pal_reader_options said = pal_chat_reading(g->form, g->tools, prompt.thinking);
    pal_reader_free(&j->said);
    pal_reader_begin(&j->said, &said);
    j->shown_said = j->shown_thought = j->shown_calls = 0;
    pal_chat_prompt_free(&prompt);
    json_decref(checked);
    return st;
}

/* Thinking and calls are for the person who looks; the answer alone is the output. */
static void show(job *j, bool last) {
    pal_reader *r = &j->said;
    if (r->reasoning.size > j->shown_thought) {
        fwrite(r->reasoning.data + j->shown_thought, 1, r->reasoning.size - j->shown_thought, stderr);
        j->shown_thought = r->reasoning.size;
        if (last) fputc('\n', stderr);
    }
    if (r->content.size > j->shown_said) {
        if (!j->shown_said && j->shown_thought) fputs("\n", stderr);
        generate_show(j->of, r->content.data + j->shown_said, r->content.size - j->shown_said);
        j->shown_said = r->content.size;
    }
    for (; j->shown_calls < r->calls.count; j->shown_calls++) {
        const pal_call *c = &r->calls.list[j->shown_calls];
        if (j->shown_said || j->shown_calls) generate_show(j->of, "\n", 1);
        generate_show(j->of, c->name, strlen(c->name));
        generate_show(j->of, "(", 1);
        generate_show(j->of, c->arguments, strlen(c->arguments));
        generate_show(j->of, ")", 1);
    }
}

bool chat_generate_read(job *j, pal_slice text, bool last) {
    if (pal_reader_push(&j->said, text.data, text.size, last, NULL)) return false;
    if (j->of->stream || (last && !j->of->o->common.json)) show(j, last);
    return true;
}

json_t *chat_generate_message(const job *j) {
    const pal_reader *r = &j->said;
    json_t *made = json_object(), *calls = json_array();
    pal_json_set(made, "role", json_string("assistant"));
    pal_json_set(made, "content", pal_json_bytes(r->content.data, r->content.size));
    if (r->reasoning.size)
        pal_json_set(made, "reasoning_content", pal_json_bytes(r->reasoning.data, r->reasoning.size));
    for (size_t i = 0; i < r->calls.count; i++) {
        char id[16];
        snprintf(id, sizeof id, "call%05zu", (j->of->calls_made + i) % 100000);
        pal_json_append(calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function", "function", "name",
                                         r->calls.list[i].name, "arguments", r->calls.list[i].arguments));
    }
    if (r->calls.count) pal_json_set(made, "tool_calls", json_incref(calls));
    json_decref(calls);
    return made;
}
