/* SPDX-License-Identifier: MIT */
/* palimpsa chat-template: what a chat template makes of messages. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/context.h"
#include "base/map.h"
#include "chat/chat.h"
#include "cli.h"
#include "format/json.h"
#include "template/template.h"

static int read_json(json_t **out, const char *path) {
    json_error_t why;
    bool starved = false;
    *out = pal_json_load(path, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why, &starved);
    if (*out) return CLI_OK;
    return cli_error(CLI_USAGE, "%s: line %d: %s", path, why.line, starved ? "out of memory" : why.text);
}

/* The part of `root` with this name, or root itself where it is a list. */
static json_t *part(json_t *root, const char *name) {
    return json_is_object(root) ? json_object_get(root, name) : root;
}

static int print_pieces(const pal_rendered *text) {
    json_t *all = json_array();
    for (size_t from = 0, to; from < text->size; from = to) {
        for (to = from; to < text->size && text->said[to] == text->said[from];) to++;
        json_t *piece = json_object();
        pal_json_set(piece, "from", json_string(text->said[from] ? "input" : "template"));
        pal_json_set(piece, "text", json_stringn((const char *)text->text + from, to - from));
        pal_json_append(all, piece);
    }
    return cli_print_json(all, JSON_INDENT(1));
}

/* What the server and generate --chat read off the template. */
static int describe(const char *path) {
    pal_tokenizer *tok = NULL;
    pal_chat *chat = NULL;
    pal_error err;
    if (pal_tokenizer_open(&tok, "bytes", &err)) return cli_fail(&err);
    const int code = pal_chat_open(&chat, tok, path, &err) ? cli_fail(&err) : CLI_OK;
    if (!code) {
        printf("tools: %s\n", chat->takes_tools ? "yes" : "no");
        printf("calls: %s\n", chat->syntax ? chat->syntax->name : chat->takes_tools ? "not known" : "none");
        if (chat->think_close) printf("thinking: %s ... %s\n", chat->think_open, chat->think_close);
        else puts("thinking: none");
        if (chat->stop) printf("an answer ends with: %s\n", *chat->stop == '\n' ? chat->stop + 1 : chat->stop);
        else puts("an answer ends with: the end of the text");
    }
    pal_chat_free(chat);
    pal_tokenizer_close(tok);
    return code;
}

typedef struct {
    const char *messages, *tools, *kwargs, *bos, *eos, *date;
    bool no_prompt, pieces;
} settings;

static int render(const settings *s, const pal_template *t, const json_t *messages, const json_t *tools,
                  const json_t *kwargs, const char *path) {
    pal_template_input in = { .messages = messages,
                              .tools = tools,
                              .kwargs = kwargs,
                              .bos = s->bos,
                              .eos = s->eos,
                              .add_generation_prompt = !s->no_prompt };
    pal_rendered text;
    pal_error err;
    struct tm now = { .tm_isdst = -1 };
    if (s->date) {
        char end;
        if (sscanf(s->date, "%d-%d-%dT%d:%d:%d%c", &now.tm_year, &now.tm_mon, &now.tm_mday, &now.tm_hour, &now.tm_min,
                   &now.tm_sec, &end) != 6)
            return cli_error(CLI_USAGE, "--date '%s': expected YYYY-MM-DDThh:mm:ss", s->date);
        now.tm_year -= 1900;
        now.tm_mon--;
        if (mktime(&now) == -1) return cli_error(CLI_USAGE, "--date '%s': there is no such date", s->date);
        in.now = &now;
    }
    if (pal_template_render(t, &in, &text, &err)) return cli_error(CLI_USAGE, "%s: %s", path, err.text);
    int code = CLI_OK;
    if (s->pieces) code = print_pieces(&text);
    else fwrite(text.text, 1, text.size, stdout);
    pal_rendered_free(&text);
    return code;
}

static int read_and_render(const settings *s, const char *path) {
    json_t *messages = NULL, *tools = NULL, *kwargs = NULL;
    pal_template *t = NULL;
    pal_map map;
    pal_error err;
    json_error_t why;
    if (pal_map_open(&map, path, &err)) return cli_fail(&err);
    int code = CLI_OK;
    if (pal_template_read(&t, map.data, map.size, &err)) code = cli_error(CLI_USAGE, "%s: %s", path, err.text);
    pal_map_close(&map);
    if (!code) code = read_json(&messages, s->messages);
    if (!code && s->tools) code = read_json(&tools, s->tools);
    if (!code && s->kwargs && !(kwargs = pal_json_parse(s->kwargs, strlen(s->kwargs), 0, &why, NULL)))
        code = cli_error(CLI_USAGE, "--kwargs: %s", why.text);
    if (!code && kwargs && !json_is_object(kwargs)) code = cli_error(CLI_USAGE, "--kwargs: expected an object");
    if (!code)
        code = render(s, t, part(messages, "messages"),
                      tools ? part(tools, "tools") : json_object_get(messages, "tools"), kwargs, path);
    json_decref(messages);
    json_decref(tools);
    json_decref(kwargs);
    pal_template_free(t);
    return code;
}

int cmd_chat_template(int argc, char **argv) {
    settings s = { 0 };
    const char *path;
    int count;
    const cli_option options[] = {
        { "messages", OPT_TEXT, &s.messages, "FILE",
          "messages: a list, or an object with \"messages\" and \"tools\" (default: what the template can do is "
          "printed)" },
        { "tools", OPT_TEXT, &s.tools, "FILE", "a list of tools" },
        { "kwargs", OPT_TEXT, &s.kwargs, "JSON", "an object with what else the template sees" },
        { "no-generation-prompt", OPT_FLAG, &s.no_prompt, NULL, "do not begin the assistant's answer" },
        { "bos", OPT_TEXT, &s.bos, "TEXT", "bos_token (default: not defined)" },
        { "eos", OPT_TEXT, &s.eos, "TEXT", "eos_token (default: not defined)" },
        { "date", OPT_TEXT, &s.date, "TIME", "what strftime_now sees, as YYYY-MM-DDThh:mm:ss (default: the clock)" },
        { "pieces", OPT_FLAG, &s.pieces, NULL, "print JSON that keeps apart what the template and the messages say" },
    };
    const cli_usage usage = {
        .synopsis = "chat-template FILE|DIR [options]",
        .about = "Reads a chat template (Jinja) and renders messages as the model sees them.\n\n"
                 "DIR is a model directory with a chat_template.jinja. "
                 "Without messages it says whether the template takes tools, how its model writes "
                 "calls of them, and how it thinks.",
        .examples = "  palimpsa chat-template chat_template.jinja\n"
                    "  palimpsa chat-template chat_template.jinja --messages messages.json\n"
                    "  palimpsa chat-template chat_template.jinja --messages messages.json --tools tools.json --kwargs "
                    "'{\"enable_thinking\": false}'\n",
        .options = options,
        .option_count = PAL_COUNT(options),
    };
    const int parsed = cli_parse(&usage, argc, argv, &path, 1, &count);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    if (count != 1)
        return cli_error(
            CLI_USAGE,
            "chat-template: name a template's file, or a directory that has one; see 'palimpsa chat-template --help'");
    if (!s.messages && (s.tools || s.kwargs)) return cli_error(CLI_USAGE, "chat-template: --messages is missing");
    char inside[4096];
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode) &&
        snprintf(inside, sizeof inside, "%s/chat_template.jinja", path) < (int)sizeof inside)
        path = inside;
    return s.messages ? read_and_render(&s, path) : describe(path);
}
