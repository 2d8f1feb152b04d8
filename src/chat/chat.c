/* SPDX-License-Identifier: MIT */
/* What follows from a template: it is given a conversation whose words are known, and shows around them how it writes
 * calls, whether it takes tools, and what it ends an answer with. */
#include "chat/chat.h"

#include <string.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/map.h"
#include "chat/builtin.h"
#include "format/json.h"
#include "text/strings.h"
#include "text/tokenizer.h"

/* JSON with ' for ". */
static const char probe_tools[] =
    "[{'type': 'function', 'function': {'name': 'probe_tool', 'description': 'probes', 'parameters': {'type': "
    "'object', "
    "'properties': {'place': {'type': 'string', 'description': 'a place'}, 'days': {'type': 'integer', 'description': "
    "'days'}}, 'required': ['place', 'days']}}}]";
static const char probe_call[] =
    "[{'role': 'user', 'content': 'probe question'}, {'role': 'assistant', 'content': %s, 'tool_calls': [{'id': "
    "'abcdefghi', 'type': 'function', 'function': {'name': 'probe_tool', 'arguments': %s}}]}, {'role': 'tool', "
    "'tool_call_id': 'abcdefghi', 'name': 'probe_tool', 'content': 'probe result'}]";
static const char *const probe_contents[] = { "null", "''", "'probe answer'" };
static const char *const probe_arguments[] = { "{'place': 'Paris', 'days': 3}",
                                               "'{\\'place\\': \\'Paris\\', \\'days\\': 3}'" };
static const char probe_answer[] = "[{'role': 'user', 'content': 'probe question'}, {'role': 'assistant', 'content': "
                                   "'probe answer'}, {'role': 'user', "
                                   "'content': 'probe again'}]";
static const char probe_question[] = "[{'role': 'user', 'content': 'probe question'}]";

static json_t *parse_probe(const char *text) {
    char json[1024];
    size_t size = 0;
    for (; text[size] && size < sizeof json; size++) json[size] = text[size] == '\'' ? '"' : text[size];
    return pal_json_parse(json, size, 0, NULL, NULL);
}

/* What the template makes of this; false: it refuses. */
static bool probe(const pal_chat *chat, const char *messages, const char *tools, bool prompt, pal_rendered *out) {
    pal_error err;
    json_t *all = parse_probe(messages), *with = tools ? parse_probe(tools) : NULL;
    const pal_template_input in = {
        .messages = all, .tools = with, .bos = chat->bos, .eos = chat->eos, .add_generation_prompt = prompt
    };
    const pal_status st = pal_template_render(chat->template, &in, out, &err);
    json_decref(all);
    json_decref(with);
    return !st;
}

static const unsigned char *find(const pal_rendered *text, const char *what) {
    return text->size ? memmem(text->text, text->size, what, strlen(what)) : NULL;
}

/* Whether this text holds the probe's call in this syntax, and nothing else of the kind. */
static bool holds_call(const pal_call_syntax *syntax, const json_t *tools, pal_slice text) {
    const pal_reader_options options = { .syntax = syntax, .tools = tools, .strict = true };
    pal_reader r;
    bool found = false;
    pal_reader_begin(&r, &options);
    if (!pal_reader_push(&r, text.data, text.size, true, NULL) && r.calls.count == 1 &&
        strcmp(r.calls.list[0].name, "probe_tool") == 0) {
        const char *arguments = r.calls.list[0].arguments;
        json_t *got = pal_json_parse(arguments, strlen(arguments), 0, NULL, NULL);
        const char *place = json_string_value(json_object_get(got, "place"));
        found = place && strcmp(place, "Paris") == 0 && json_integer_value(json_object_get(got, "days")) == 3;
        json_decref(got);
    }
    pal_reader_free(&r);
    return found;
}

static const pal_call_syntax *syntax_in(pal_slice text) {
    json_t *tools = parse_probe(probe_tools);
    const pal_call_syntax *found = NULL;
    for (size_t i = 0; i < pal_call_syntax_count && !found; i++) {
        const pal_call_syntax *one = &pal_call_syntaxes[i];
        const char *opener = pal_call_opener(one);
        const unsigned char *at = memmem(text.data, text.size, opener, strlen(opener));
        if (!at) continue;
        if (holds_call(one, tools, text)) found = one;
    }
    json_decref(tools);
    return found;
}

/* Where the answer begins: after the prompt; or, where that ends with something else, after the question. */
static const unsigned char *after_prompt(const pal_rendered *text, const pal_rendered *prompt) {
    const bool same = prompt->size && text->size > prompt->size &&
                      memcmp(text->text, prompt->text, prompt->size) == 0;
    return same ? text->text + prompt->size : find(text, "probe question");
}

/* A message with a call, in one of the ways that templates expect it. False: this one refuses it. */
static bool probe_a_call(const pal_chat *chat, size_t content, size_t arguments, pal_rendered *text) {
    char messages[sizeof probe_call + 80];
    snprintf(messages, sizeof messages, probe_call, probe_contents[content], probe_arguments[arguments]);
    if (!probe(chat, messages, chat->takes_tools ? probe_tools : NULL, false, text)) return false;
    const unsigned char *from = find(text, "probe question");
    if (from && !memmem(from, text->size - (size_t)(from - text->text), "None", 4)) return true;
    pal_rendered_free(text);
    return false;
}

/* How the template writes a call; whether its message then has no content or an empty one; and whether it expects
 * arguments as an object, which most do, or as its text. `prompt`: of a question with tools; empty without. */
static void find_syntax(pal_chat *chat, const pal_rendered *prompt) {
    bool accepted = false;
    for (size_t a = 0; a < PAL_COUNT(probe_arguments) && !chat->syntax; a++)
        for (size_t i = 0; i < PAL_COUNT(probe_contents) && !chat->syntax; i++) {
            pal_rendered text;
            if (!probe_a_call(chat, i, a, &text)) continue;
            const unsigned char *from = after_prompt(&text, prompt), *end = text.text + text.size;
            const unsigned char *to = from ? memmem(from, (size_t)(end - from), "probe result", 12) : NULL;
            if (from && chat->takes_tools)
                chat->syntax = syntax_in((pal_slice){ from, (size_t)((to ? to : end) - from) });
            if (!accepted || chat->syntax) chat->null_content = i == 0, chat->text_arguments = a == 1;
            accepted = true;
            pal_rendered_free(&text);
        }
}

static bool has_token(const pal_chat *chat, const char *name) {
    return *name && pal_tokenizer_find(chat->tok, name) >= 0;
}

/* Where the template writes no calls: the syntax that it speaks of, or that the vocabulary has tokens for. */
static void guess_syntax(pal_chat *chat) {
    size_t size;
    const char *source = pal_template_source(chat->template, &size);
    for (int by_token = 0; by_token < 2 && !chat->syntax; by_token++)
        for (size_t i = 0; i < pal_call_syntax_count && !chat->syntax; i++) {
            const pal_call_syntax *one = &pal_call_syntaxes[i];
            const char *opener = pal_call_opener(one);
            if (one->bare || strcmp(opener, "<tool_call>") == 0) continue; /* of which there are too many kinds */
            if (by_token ? has_token(chat, opener) : memmem(source, size, opener, strlen(opener)) != NULL)
                chat->syntax = one;
        }
}

static void find_tools(pal_chat *chat) {
    pal_rendered prompt = { 0 };
    if (probe(chat, probe_question, probe_tools, true, &prompt))
        chat->takes_tools = find(&prompt, "probe_tool") != NULL;
    find_syntax(chat, &prompt);
    if (chat->takes_tools && !chat->syntax) guess_syntax(chat);
    pal_rendered_free(&prompt);
}

static void find_thinking(pal_chat *chat) {
    static const char *const tags[][2] = { { "<think>", "</think>" },
                                           { "<seed:think>", "</seed:think>" },
                                           { "<mm:think>", "</mm:think>" },
                                           { "[THINK]", "[/THINK]" },
                                           { "<|START_THINKING|>", "<|END_THINKING|>" },
                                           { "<|inner_prefix|>", "<|inner_suffix|>" },
                                           { "<|channel>thought", "<channel|>" } };
    size_t size;
    const char *source = pal_template_source(chat->template, &size);
    for (int by_token = 0; by_token < 2 && !chat->think_close; by_token++)
        for (size_t i = 0; i < PAL_COUNT(tags) && !chat->think_close; i++) {
            if (by_token ? !(has_token(chat, tags[i][0]) && has_token(chat, tags[i][1]))
                         : !memmem(source, size, tags[i][1], strlen(tags[i][1])))
                continue;
            chat->think_open = tags[i][0], chat->think_close = tags[i][1];
        }
    chat->says_developer = memmem(source, size, "developer", 9) != NULL;
    chat->says_thinking = !memmem(source, size, "reasoning_content", 17) && memmem(source, size, "thinking", 8);
}

/* Bytes of the mark that a text begins with: a special token's name, or something in brackets. */
static size_t mark_in(const pal_chat *chat, pal_slice text) {
    pal_added_match match;
    size_t at = 0;
    if (pal_added_next(chat->tok, &chat->tok->added_raw, false, NULL, text, &at, 0, &match) &&
        (chat->tok->flags[match.token->id] & PAL_TOKEN_CONTROL)) {
        const size_t size = pal_tokenizer_name(chat->tok, match.token->id).size;
        if (at == size) return size;
    }
    const unsigned char end = text.data[0] == '<' ? '>' : text.data[0] == '[' ? ']' : 0;
    const unsigned char *found = end ? memchr(text.data, end, text.size < 40 ? text.size : 40) : NULL;
    return found ? (size_t)(found - text.data) + 1 : 0;
}

/* What the template writes after an answer ends the next one, too. */
static pal_status find_stop(pal_chat *chat, pal_error *err) {
    pal_rendered text;
    pal_status st = PAL_OK;
    if (!probe(chat, probe_answer, NULL, false, &text) && !probe(chat, probe_answer, probe_tools, false, &text))
        return PAL_OK;
    const unsigned char *from = find(&text, "probe answer"), *to = find(&text, "probe again");
    if (from && to && from < to) {
        pal_slice between = { from + 12, (size_t)(to - from) - 12 };
        bool line = false;
        for (; between.size && strchr(" \n\t\r", *between.data); between.data++, between.size--)
            line |= *between.data == '\n';
        while (between.size && strchr(" \n\t\r", between.data[between.size - 1])) between.size--;
        const unsigned char *end = between.size ? memchr(between.data, '\n', between.size) : NULL;
        if (end) between.size = (size_t)(end - between.data);
        const size_t mark = between.size ? mark_in(chat, between) : 0;
        if (mark) between.size = mark, line = false;
        if (between.size && between.size <= 64) {
            st = pal_alloc_named((void **)&chat->stop, between.size + 2, 1, "a template's stop", err);
            if (!st) memcpy(chat->stop + line, between.data, between.size);
            if (!st && line) chat->stop[0] = '\n';
        }
    }
    pal_rendered_free(&text);
    return st;
}

/* Special tokens that are part of how calls and thinking are written must not be left out of the answer's text. */
static pal_status find_shown(pal_chat *chat, pal_error *err) {
    const pal_call_syntax *x = chat->syntax;
    const char *const texts[] = { x ? x->open : NULL,    x ? x->close : NULL, x ? x->call : NULL,
                                  x ? x->after : NULL,   x ? x->end : NULL,   x ? x->key : NULL,
                                  x ? x->key_end : NULL, x ? x->value : NULL, x ? x->value_end : NULL,
                                  chat->think_open,      chat->think_close,   x ? "[CALL_ID]" : NULL };
    pal_status st = PAL_OK;
    for (uint32_t id = 0; id < chat->tok->size && !st; id++) {
        if (!pal_tokenizer_is_special(chat->tok, id) || pal_tokenizer_is_end(chat->tok, id)) continue;
        const pal_slice name = pal_tokenizer_name(chat->tok, id);
        bool part = false;
        for (size_t i = 0; i < PAL_COUNT(texts) && name.size; i++)
            part |= texts[i] && memmem(texts[i], strlen(texts[i]), name.data, name.size);
        if (part) st = pal_ids_append(&chat->shown, id, err);
    }
    return st;
}

static pal_status token_name(char **out, const pal_chat *chat, int64_t id, pal_error *err) {
    if (id < 0) return PAL_OK;
    const pal_slice name = pal_tokenizer_name(chat->tok, (uint32_t)id);
    const pal_status st = pal_alloc_named((void **)out, name.size + 1, 1, "a token's name", err);
    if (!st) memcpy(*out, name.data, name.size);
    return st;
}

static pal_status open_text(pal_chat **out, const pal_tokenizer *tok, const void *text, size_t size, pal_error *err) {
    void *block;
    pal_status st = pal_alloc_named(&block, 1, sizeof(pal_chat), "a chat template", err);
    if (st) return st;
    pal_chat *chat = block;
    chat->tok = tok;
    st = pal_template_read(&chat->template, text, size, err);
    if (!st) st = token_name(&chat->bos, chat, pal_tokenizer_bos(tok), err);
    if (!st) st = token_name(&chat->eos, chat, pal_tokenizer_eos(tok), err);
    if (!st) find_thinking(chat), find_tools(chat);
    if (!st) st = find_stop(chat, err);
    if (!st) st = find_shown(chat, err);
    pal_json_forget();
    if (st) pal_chat_free(chat);
    else *out = chat;
    return st;
}

static pal_status open_file(pal_chat **out, const pal_tokenizer *tok, const char *path, pal_error *err) {
    pal_map map;
    pal_error why;
    pal_status st = pal_map_open(&map, path, &why);
    if (st)
        return pal_fail(err, PAL_E_ARGUMENT, "%.300s; expected the file of a chat template, or one of %s", why.text,
                        pal_chat_names);
    st = open_text(out, tok, map.data, map.size, &why);
    if (st) (void)pal_fail(err, st, "%.100s: %.400s", path, why.text);
    pal_map_close(&map);
    return st;
}

pal_status pal_chat_open(pal_chat **out, const pal_tokenizer *tok, const char *given, pal_error *err) {
    const char *text = pal_chat_builtin(given ? given : tok->template_count ? "" : "plain");
    pal_error why;
    *out = NULL;
    if (text) return open_text(out, tok, text, strlen(text), err);
    if (given) return open_file(out, tok, given, err);
    pal_slice usual = pal_tokenizer_chat_template(tok, "default");
    const pal_slice tools = pal_tokenizer_chat_template(tok, "tool_use");
    if (!usual.size) usual = (pal_slice){ tok->templates[0].text.data, tok->templates[0].text.size };
    pal_status st = open_text(out, tok, usual.data, usual.size, &why);
    if (!st && tools.size) st = open_text(&(*out)->with_tools, tok, tools.data, tools.size, &why);
    if (!st) return PAL_OK;
    pal_chat_free(*out);
    *out = NULL;
    return pal_fail(err, st, "the chat template of this model: %.400s", why.text);
}

void pal_chat_free(pal_chat *chat) {
    if (!chat) return;
    pal_chat_free(chat->with_tools);
    pal_template_free(chat->template);
    pal_free(chat->bos), pal_free(chat->eos), pal_free(chat->stop);
    pal_ids_free(&chat->shown);
    pal_free(chat);
}

const pal_chat *pal_chat_for(const pal_chat *chat, bool tools) {
    return chat && tools && chat->with_tools ? chat->with_tools : chat;
}
