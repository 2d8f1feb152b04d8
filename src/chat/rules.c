/* SPDX-License-Identifier: MIT */
/* Grammars of answers: JSON, or calls in the model's own syntax, after thinking where the model thinks. */
#include <string.h>

#include "base/alloc.h"
#include "chat/chat.h"
#include "format/json.h"
#include "grammar/schema.h"
#include "text/tokenizer.h"

typedef struct {
    schema_writer w;
    const pal_chat *chat;
    const pal_chat_rules *of;
    pal_bytes root;
    unsigned made; /* rules of our own */
} writer;

static pal_status say(writer *x, pal_bytes *to, const char *text) {
    return pal_bytes_append(to, text, strlen(text), x->w.err);
}

/* The special token whose name comes first in a text; 0: none. */
static size_t special_in(const writer *x, pal_slice text, size_t *start) {
    const pal_tokenizer *tok = x->chat->tok;
    size_t size = 0;
    *start = text.size;
    for (size_t i = 0; i < x->chat->shown.count; i++) {
        const pal_slice name = pal_tokenizer_name(tok, x->chat->shown.data[i]);
        const unsigned char *found = memmem(text.data, text.size, name.data, name.size);
        const size_t at = found ? (size_t)(found - text.data) : text.size;
        if (found && (at < *start || (at == *start && name.size > size))) *start = at, size = name.size;
    }
    return size;
}

/* A text of the syntax: special tokens as such, and where it has a blank any blanks. */
static pal_status say_text(writer *x, pal_bytes *to, const char *text) {
    pal_slice left = { (const unsigned char *)text, strlen(text) };
    pal_status st = PAL_OK;
    while (left.size && !st) {
        size_t start;
        const size_t size = special_in(x, left, &start);
        if (start) st = pal_schema_literal(&x->w, to, (const char *)left.data, start);
        if (!st && size) {
            st = say(x, to, " <");
            if (!st) st = pal_schema_literal(&x->w, to, (const char *)left.data + start, size);
            if (!st) st = say(x, to, ">");
        }
        if (!st) st = say(x, to, " ");
        left.data += start + size, left.size -= start + size;
    }
    return st;
}

static bool is_special(const writer *x, const char *text) {
    size_t start;
    const pal_slice whole = { (const unsigned char *)text, strlen(text) };
    return special_in(x, whole, &start) > 0;
}

/* A rule for all texts up to the first of this one, which is ASCII or a special token. *rule: its name. */
static pal_status until(writer *x, const char *text, char rule[32]) {
    const size_t size = strlen(text);
    pal_bytes body = { 0 };
    const unsigned number = x->made++;
    pal_status st = PAL_OK;
    snprintf(rule, 32, "u%u-0", number);
    if (is_special(x, text)) {
        st = pal_schema_say(&x->w, &body, "u%u-0 ::= .* ", number);
        if (!st) st = say_text(x, &body, text);
        if (!st) st = say(x, &body, "\n");
    }
    for (size_t i = 0; i < size && !st && !body.size; i++) { /* as much of it has just come as a rule's number says */
        pal_bytes line = { 0 };
        char seen[128] = "";
        st = pal_schema_say(&x->w, &line, "u%u-%zu ::= ", number, i);
        for (size_t k = i + 1; k-- && !st;) { /* the next byte of each beginning that also ends what came */
            if (k && memcmp(text, text + i - k, k) != 0) continue;
            if (strchr(seen, text[k])) continue;
            seen[strlen(seen)] = text[k];
            st = pal_schema_literal(&x->w, &line, text + k, 1);
            if (!st && k + 1 < size) st = pal_schema_say(&x->w, &line, " u%u-%zu | ", number, k + 1);
            else if (!st) st = say(x, &line, " | ");
        }
        if (!st) st = say(x, &line, "[^\\x00");
        for (const char *c = seen; *c && !st; c++)
            st = pal_schema_say(&x->w, &line, "\\x%02X", (unsigned)(unsigned char)*c);
        if (!st) st = pal_schema_say(&x->w, &line, "] u%u-0\n", number);
        if (!st) st = pal_bytes_append(&x->w.rules, line.data, line.size, x->w.err);
        pal_bytes_free(&line);
    }
    if (!st) st = pal_bytes_append(&x->w.rules, body.data, body.size, x->w.err);
    pal_bytes_free(&body);
    return st;
}

static bool is_required(const json_t *schema, const char *name) {
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        if (one && strcmp(one, name) == 0) return true;
    }
    return false;
}

static bool is_words(const json_t *schema) {
    const char *type = json_string_value(json_object_get(schema, "type"));
    return type && strcmp(type, "string") == 0 && !json_object_get(schema, "enum") && !json_object_get(schema, "const");
}

/* A schema whose values are strings of an enum, as XML writes them: without quotes. */
static pal_status say_choices(writer *x, pal_bytes *to, const json_t *values) {
    pal_status st = say(x, to, "(");
    for (size_t i = 0; i < json_array_size(values) && !st; i++) {
        const json_t *one = json_array_get(values, i);
        if (i) st = say(x, to, " | ");
        if (st) break;
        if (json_is_string(one)) st = pal_schema_literal(&x->w, to, json_string_value(one), json_string_length(one));
        else st = pal_schema_json_literal(&x->w, to, one);
    }
    return st ? st : say(x, to, ") ");
}

static pal_status property_rule(writer *x, const char *name, const json_t *schema, uint32_t *rule) {
    return pal_schema_part(&x->w, "properties", name, schema, rule);
}

static pal_status xml_value(writer *x, pal_bytes *to, const char *name, const json_t *schema) {
    const pal_call_syntax *s = x->chat->syntax;
    const json_t *values = json_object_get(schema, "enum");
    char end[32];
    uint32_t rule;
    pal_status st;
    if (is_words(schema)) {
        if ((st = until(x, s->value_end, end))) return st;
        return pal_schema_say(&x->w, to, "%s%s ", s->lines ? "\"\\n\" " : "", end);
    }
    if ((st = say(x, to, s->lines ? "\"\\n\" " : ""))) return st;
    if (json_array_size(values)) st = say_choices(x, to, values);
    else if (!(st = property_rule(x, name, schema, &rule))) st = pal_schema_say(&x->w, to, "r%u ", rule);
    if (!st && s->lines) st = say(x, to, "\"\\n\" ");
    return st ? st : say_text(x, to, s->value_end);
}

static pal_status xml_arguments(writer *x, pal_bytes *to, const json_t *schema) {
    const pal_call_syntax *s = x->chat->syntax;
    const char *name;
    json_t *one;
    pal_status st = PAL_OK;
    json_object_foreach((json_t *)json_object_get(schema, "properties"), name, one) {
        if ((st = say(x, to, "(")) || (st = say_text(x, to, s->key)) ||
            (st = pal_schema_literal(&x->w, to, name, strlen(name))) || (st = say(x, to, " ")) ||
            (st = say_text(x, to, s->key_end)) || (st = say(x, to, *s->value ? "ws " : "")) ||
            (st = say_text(x, to, s->value)) || (st = xml_value(x, to, name, one)) ||
            (st = say(x, to, is_required(schema, name) ? "ws) " : "ws)? ")))
            break;
    }
    return st;
}

/* name=value, ...: a rule for what follows each argument, first of all and after another argument. */
static pal_status python_arguments(writer *x, pal_bytes *to, const json_t *schema) {
    const json_t *properties = json_object_get(schema, "properties");
    const unsigned number = x->made++;
    const char *name;
    json_t *one;
    size_t at = 0;
    pal_bytes lines = { 0 };
    pal_status st = PAL_OK;
    json_object_foreach((json_t *)properties, name, one) {
        uint32_t rule;
        if ((st = property_rule(x, name, one, &rule))) break;
        for (int later = 0; later < 2 && !st; later++) {
            st = pal_schema_say(&x->w, &lines, "a%u-%zu-%d ::= %s", number, at, later, later ? "\", \" " : "");
            if (!st) st = pal_schema_literal(&x->w, &lines, name, strlen(name));
            if (!st) st = pal_schema_say(&x->w, &lines, " \"=\" r%u a%u-%zu-1", rule, number, at + 1);
            if (!st && !is_required(schema, name))
                st = pal_schema_say(&x->w, &lines, " | a%u-%zu-%d", number, at + 1, later);
            if (!st) st = say(x, &lines, "\n");
        }
        if (st) break;
        at++;
    }
    for (int later = 0; later < 2 && !st; later++)
        st = pal_schema_say(&x->w, &lines, "a%u-%zu-%d ::= \"\"\n", number, at, later);
    if (!st) st = pal_bytes_append(&x->w.rules, lines.data, lines.size, x->w.err);
    if (!st) st = pal_schema_say(&x->w, to, "a%u-0-0 ", number);
    pal_bytes_free(&lines);
    return st;
}

/* A tool's arguments as JSON. */
static pal_status json_arguments(writer *x, pal_bytes *to, const json_t *schema) {
    uint32_t rule;
    const pal_status st = pal_schema_value(&x->w, schema, &rule);
    return st ? st : pal_schema_say(&x->w, to, "r%u ", rule);
}

static pal_status json_call(writer *x, pal_bytes *to, const char *name, const json_t *schema) {
    const pal_call_syntax *s = x->chat->syntax;
    char text[256];
    if (s->keyed) snprintf(text, sizeof text, "{\"%s\": ", name);
    else snprintf(text, sizeof text, "{\"%s\": \"%s\", \"%s\": ", s->call, name, s->after);
    pal_status st = pal_schema_literal(&x->w, to, text, strlen(text));
    if (!st) st = say(x, to, " ");
    if (!st) st = json_arguments(x, to, schema);
    return st ? st : say(x, to, "\"}\" ");
}

static pal_status call(writer *x, pal_bytes *to, const char *name, const json_t *schema) {
    const pal_call_syntax *s = x->chat->syntax;
    pal_status st;
    if (s->kind == PAL_CALL_JSON) return json_call(x, to, name, schema);
    if (s->kind != PAL_CALL_PYTHON && (st = say_text(x, to, s->call))) return st;
    if ((st = pal_schema_literal(&x->w, to, name, strlen(name))) || (st = say(x, to, " "))) return st;
    if (s->kind == PAL_CALL_PYTHON) {
        if ((st = say(x, to, "\"(\" ")) || (st = python_arguments(x, to, schema))) return st;
        return say(x, to, "\")\" ");
    }
    if (s->index && (st = say(x, to, "\":\" [0-9]{1,3} "))) return st;
    if ((st = say_text(x, to, s->after)) || (st = say(x, to, "ws "))) return st;
    if (s->kind == PAL_CALL_NAMED) {
        if ((st = json_arguments(x, to, schema)) || (st = say(x, to, *s->end ? "ws " : ""))) return st;
    } else if ((st = xml_arguments(x, to, schema))) {
        return st;
    }
    return say_text(x, to, s->end);
}

/* call ::= one of the tools. */
static pal_status calls_rule(writer *x) {
    static const char nothing[] = "{\"type\": \"object\"}";
    pal_bytes body = { 0 };
    size_t count = 0;
    json_t *empty = pal_json_parse(nothing, sizeof nothing - 1, 0, NULL, NULL);
    pal_status st = say(x, &body, "call ::= ");
    for (size_t i = 0; i < json_array_size(x->of->tools) && !st; i++) {
        const json_t *function = json_object_get(json_array_get(x->of->tools, i), "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        const json_t *schema = json_object_get(function, "parameters");
        if (x->of->only && strcmp(x->of->only, name) != 0) continue;
        if (!json_object_size(schema)) schema = empty;
        x->w.root = schema;
        snprintf(x->w.path, sizeof x->w.path, "#");
        if (count++) st = say(x, &body, " | ");
        if (!st) st = call(x, &body, name, schema);
    }
    if (!st) st = say(x, &body, "\n");
    if (!st) st = pal_bytes_append(&x->w.rules, body.data, body.size, x->w.err);
    pal_bytes_free(&body);
    json_decref(empty);
    if (!st && !count) return pal_fail(x->w.err, PAL_E_ARGUMENT, "no tool of this request has that name");
    return st;
}

static pal_status say_calls(writer *x) {
    const pal_call_syntax *s = x->chat->syntax;
    const bool many = !x->of->single, list = s->kind == PAL_CALL_PYTHON || (s->kind == PAL_CALL_JSON && s->list);
    pal_status st = calls_rule(x);
    if (!st) st = say(x, &x->w.rules, "block ::= ");
    if (!st && *s->open) st = say_text(x, &x->w.rules, s->open);
    if (!st && *s->open && !list) st = say(x, &x->w.rules, "ws ");
    if (!st) st = say(x, &x->w.rules, list ? "\"[\" call " : "call ");
    if (!st && list && many) st = say(x, &x->w.rules, "(\", \" call)* ");
    if (!st && list) st = say(x, &x->w.rules, "\"]\" ");
    if (!st && many && s->kind == PAL_CALL_NAMED && *s->close) st = say(x, &x->w.rules, "(ws call)* ");
    if (!st && *s->close) st = say(x, &x->w.rules, list ? "" : "ws ");
    if (!st) st = say_text(x, &x->w.rules, s->close);
    if (!st) st = say(x, &x->w.rules, "\n");
    if (!st) st = say(x, &x->root, many && !list && !s->bare ? "ws block (ws block)*" : "ws block");
    return st;
}

/* Thinking that comes first; one that the prompt began must end. */
static pal_status say_thinking(writer *x) {
    const pal_chat *c = x->chat;
    char end[32];
    pal_status st;
    if (!c->think_close) return say(x, &x->root, "(");
    if ((st = until(x, c->think_close, end))) return st;
    if (x->of->thinking) return pal_schema_say(&x->w, &x->root, "%s ws ws (", end);
    if ((st = say(x, &x->root, "(")) || (st = say_text(x, &x->root, c->think_open))) return st;
    return pal_schema_say(&x->w, &x->root, "%s ws ws)? (", end);
}

static pal_status say_json(writer *x) {
    uint32_t rule;
    pal_status st;
    if (x->of->object) return say(x, &x->root, "object");
    x->w.root = x->of->schema;
    if ((st = pal_schema_value(&x->w, x->of->schema, &rule))) return st;
    return pal_schema_say(&x->w, &x->root, "r%u", rule);
}

pal_status pal_chat_grammar(pal_grammar **out, const pal_chat *chat, const pal_chat_rules *rules, pal_error *err) {
    pal_error inner;
    writer x = { .w = { .path = "#", .err = &inner }, .chat = chat, .of = rules };
    *out = NULL;
    if (rules->tools && !chat->syntax && !rules->object && !rules->schema)
        return pal_fail(err, PAL_E_UNSUPPORTED, "how this model writes calls is not known, so none can be required");
    const bool calls = rules->tools && chat->syntax, json = rules->object || rules->schema;
    pal_status st = say_thinking(&x);
    if (!st && calls) st = say_calls(&x);
    if (!st && calls && json) st = say(&x, &x.root, " | ");
    if (!st && json) st = say_json(&x);
    if (!st) st = say(&x, &x.root, ")");
    if (!st) st = pal_bytes_append(&x.root, "", 1, &inner);
    if (!st) st = pal_schema_finish(&x.w, (const char *)x.root.data, out);
    if (st) pal_schema_blame(&x.w, st, err);
    pal_schema_writer_free(&x.w);
    pal_bytes_free(&x.root);
    return st;
}
