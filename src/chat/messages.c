/* SPDX-License-Identifier: MIT */
/* What clients send: messages and tools, checked one by one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "chat/chat.h"
#include "format/json.h"
#include "text/json_text.h"
#include "text/strings.h"

static const json_t *given(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

/* The texts of a list of parts, each on lines of its own as other servers join them; NULL: there are other parts. */
static json_t *join_parts(const json_t *parts) {
    pal_bytes text = { 0 };
    bool fine = json_array_size(parts) > 0;
    for (size_t i = 0; i < json_array_size(parts) && fine; i++) {
        const json_t *one = json_array_get(parts, i), *part = json_object_get(one, "text");
        const char *type = json_string_value(json_object_get(one, "type"));
        fine = type && strcmp(type, "text") == 0 && json_is_string(part);
        if (!fine) break;
        if ((i && pal_bytes_append(&text, "\n", 1, NULL)) ||
            pal_bytes_append(&text, json_string_value(part), json_string_length(part), NULL))
            pal_json_lose();
    }
    json_t *joined = fine ? pal_json_bytes(text.data, text.size) : NULL;
    if (fine && !joined) pal_json_lose();
    pal_bytes_free(&text);
    return joined;
}

/* Arguments as an object, which is what most templates print, or as its text, which is what clients send. */
static json_t *object_of(const json_t *value) {
    if (!value || json_is_null(value) || (json_is_string(value) && !json_string_length(value))) return json_object();
    if (json_is_object(value)) return pal_json_copy(value);
    const char *text = json_string_value(value);
    json_t *object = text ? pal_json_parse(text, json_string_length(value), JSON_ALLOW_NUL, NULL, NULL) : NULL;
    if (json_is_object(object)) return object;
    json_decref(object);
    return NULL;
}

static json_t *arguments_of(const pal_chat *chat, const json_t *value) {
    json_t *object = object_of(value);
    if (!object || !chat->text_arguments) return object;
    char *text = pal_json_dumps(object, 0);
    json_t *made = text ? json_string(text) : NULL;
    if (!made) pal_json_lose();
    free(text);
    json_decref(object);
    return made ? made : json_string("{}");
}

typedef struct {
    const pal_chat *chat;
    json_t *made; /* the messages so far */
    size_t at;
    pal_error *err;
} reading;

static pal_status wrong(const reading *r, const char *expected) {
    return pal_fail(r->err, PAL_E_ARGUMENT, "message %zu: expected %s", r->at, expected);
}

static pal_status read_call(const reading *r, const json_t *call, json_t *to) {
    const json_t *function = json_object_get(call, "function"), *name = json_object_get(function, "name");
    if (!json_string_length(name)) return wrong(r, "each of 'tool_calls' to have a 'function' with a 'name'");
    json_t *arguments = arguments_of(r->chat, json_object_get(function, "arguments"));
    if (!arguments) return wrong(r, "'arguments' of a call to be the text of a JSON object");
    json_t *made = pal_json_copy(call), *inner = json_object_get(made, "function");
    if (json_is_null(json_object_get(made, "id"))) json_object_del(made, "id");
    if (!given(made, "type")) pal_json_set(made, "type", json_string("function"));
    pal_json_set(inner, "arguments", arguments);
    pal_json_append(to, made);
    return PAL_OK;
}

static pal_status read_calls(const reading *r, json_t *message) {
    const json_t *calls = given(message, "tool_calls");
    json_t *made = json_array();
    pal_status st = PAL_OK;
    const char *role = json_string_value(json_object_get(message, "role"));
    if (calls && (!json_is_array(calls) || strcmp(role, "assistant") != 0))
        st = wrong(r, "'tool_calls' to be a list, in a message of the assistant");
    for (size_t i = 0; i < json_array_size(calls) && !st; i++) st = read_call(r, json_array_get(calls, i), made);
    if (!st && json_array_size(made)) pal_json_set(message, "tool_calls", json_incref(made));
    else json_object_del(message, "tool_calls");
    json_decref(made);
    return st;
}

static pal_status read_content(const reading *r, json_t *message) {
    static const char expected[] = "'content' to be a text, or a list of parts of type text";
    const json_t *content = given(message, "content");
    const bool calls = json_object_get(message, "tool_calls") != NULL;
    const bool assistant = strcmp(json_string_value(json_object_get(message, "role")), "assistant") == 0;
    if (!content) {
        if (!assistant || !(calls || given(message, "reasoning_content"))) return wrong(r, expected);
        pal_json_set(message, "content", calls && r->chat->null_content ? json_null() : json_string(""));
        return PAL_OK;
    }
    if (json_is_string(content)) return PAL_OK;
    if (assistant && json_is_array(content) && !json_array_size(content) && calls) {
        pal_json_set(message, "content", json_string(""));
        return PAL_OK;
    }
    json_t *joined = json_is_array(content) ? join_parts(content) : NULL;
    if (!joined) return wrong(r, expected);
    pal_json_set(message, "content", joined);
    return PAL_OK;
}

/* A tool's result has the name of its call where it says none. */
static void name_result(const reading *r, json_t *message) {
    const char *id = json_string_value(json_object_get(message, "tool_call_id"));
    if (!id || given(message, "name")) return;
    for (size_t i = json_array_size(r->made); i--;) {
        const json_t *calls = json_object_get(json_array_get(r->made, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls); k++) {
            const json_t *call = json_array_get(calls, k);
            const char *its = json_string_value(json_object_get(call, "id"));
            if (!its || strcmp(its, id) != 0) continue;
            pal_json_set(message, "name", json_incref(json_object_get(json_object_get(call, "function"), "name")));
            return;
        }
    }
}

static pal_status read_role(const reading *r, json_t *message) {
    static const char *const roles[] = { "system", "developer", "user", "assistant", "tool" };
    const char *role = json_string_value(json_object_get(message, "role"));
    for (size_t i = 0; i < PAL_COUNT(roles) && role; i++) {
        if (strcmp(role, roles[i]) != 0) continue;
        if (i == 1 && !r->chat->says_developer) pal_json_set(message, "role", json_string("system"));
        return PAL_OK;
    }
    return wrong(r, "'role' to be system, developer, user, assistant or tool");
}

static pal_status read_reasoning(const reading *r, json_t *message) {
    const json_t *said = given(message, "reasoning_content");
    if (!said && (said = given(message, "reasoning"))) {
        pal_json_set(message, "reasoning_content", json_incref((json_t *)said));
        json_object_del(message, "reasoning");
        said = json_object_get(message, "reasoning_content");
    }
    if (!said) return PAL_OK;
    if (!json_is_string(said)) return wrong(r, "'reasoning_content' to be a text");
    if (r->chat->says_thinking && !given(message, "thinking"))
        pal_json_set(message, "thinking", json_incref((json_t *)said));
    return PAL_OK;
}

static pal_status read_message(const reading *r, const json_t *one) {
    const char *key;
    json_t *value;
    void *next;
    if (!json_is_object(one)) return wrong(r, "an object with 'role' and 'content'");
    json_t *message = pal_json_copy(one);
    json_object_foreach_safe(message, next, key, value) { /* clients print every field that they know */
        if (json_is_null(value) && strcmp(key, "content") != 0) json_object_del(message, key);
    }
    pal_status st = message ? read_role(r, message) : pal_fail(r->err, PAL_E_MEMORY, "out of memory for messages");
    if (!st) st = read_reasoning(r, message);
    if (!st) st = read_calls(r, message);
    if (!st) st = read_content(r, message);
    if (!st) name_result(r, message);
    pal_json_append(r->made, message);
    return st;
}

static pal_status whole(json_t **out, json_t *made, pal_status st, pal_error *err) {
    *out = NULL;
    if (st) json_decref(made), pal_json_forget();
    else if (!(*out = pal_json_whole(made))) return pal_fail(err, PAL_E_MEMORY, "out of memory for messages");
    return st;
}

pal_status pal_chat_messages(json_t **out, const pal_chat *chat, const json_t *list, pal_error *err) {
    const size_t count = json_array_size(list);
    reading r = { .chat = chat, .err = err };
    pal_status st = PAL_OK;
    *out = NULL;
    if (!count || count > PAL_CHAT_MESSAGES)
        return pal_fail(err, PAL_E_ARGUMENT, "expected a list of 1 to %d messages", PAL_CHAT_MESSAGES);
    r.made = json_array();
    for (; r.at < count && !st; r.at++) st = read_message(&r, json_array_get(list, r.at));
    return whole(out, r.made, st, err);
}

pal_status pal_chat_tools(json_t **out, const json_t *list, pal_error *err) {
    const size_t count = json_array_size(list);
    *out = NULL;
    if (!json_is_array(list) || count > PAL_CHAT_TOOLS)
        return pal_fail(err, PAL_E_ARGUMENT, "expected a list of at most %d tools", PAL_CHAT_TOOLS);
    for (size_t i = 0; i < count; i++) {
        const json_t *tool = json_array_get(list, i), *type = given(tool, "type");
        const json_t *function = json_object_get(tool, "function"), *name = json_object_get(function, "name");
        const json_t *parameters = given(function, "parameters");
        const char *text = json_string_value(name);
        const size_t size = json_string_length(name);
        if (type && (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0))
            return pal_fail(err, PAL_E_ARGUMENT, "tool %zu: expected the type \"function\"", i);
        if (!size || size > 64 ||
            size != strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."))
            return pal_fail(err, PAL_E_ARGUMENT,
                            "tool %zu: expected a 'function' with a 'name' of 1 to 64 letters, digits, _, - and .", i);
        if (parameters && !json_is_object(parameters))
            return pal_fail(err, PAL_E_ARGUMENT, "tool %zu: expected 'parameters' to be a schema of an object", i);
    }
    json_t *made = pal_json_copy(list);
    for (size_t i = 0; i < count; i++) {
        json_t *tool = json_array_get(made, i);
        if (!given(tool, "type")) pal_json_set(tool, "type", json_string("function"));
    }
    return whole(out, made, PAL_OK, err);
}
