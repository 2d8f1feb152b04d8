/* SPDX-License-Identifier: MIT */
/* Calls as JSON, whole or after their name. */
#include <stdlib.h>
#include <string.h>

#include "chat/scan.h"
#include "format/json.h"

/* A member of an object that was checked: its key with quotes, and the text of its value. */
typedef struct {
    pal_slice key, value;
} member;

static pal_slice value_at(scan *s) {
    const unsigned char *from = s->at;
    size_t depth = 0;
    bool quoted = false;
    for (; s->at < s->end; s->at++) {
        const unsigned char c = *s->at;
        if (quoted) {
            if (c == '\\') s->at++;
            else if (c == '"') quoted = false;
            continue;
        }
        if (!depth && (c == ',' || c == '}' || c == ']')) break;
        if (c == '"') quoted = true;
        else if (c == '{' || c == '[') depth++;
        else if (c == '}' || c == ']') depth--;
    }
    const unsigned char *to = s->at;
    while (to > from && strchr(" \n\r\t", to[-1])) to--;
    return (pal_slice){ from, (size_t)(to - from) };
}

/* The next member after { or a comma; false: there is none. */
static bool next_member(scan *s, member *m) {
    pal_scan_blanks(s);
    if (s->at == s->end || *s->at == '}') return false;
    s->at++;
    pal_scan_blanks(s);
    if (s->at == s->end || *s->at != '"') return false;
    m->key.data = s->at++;
    for (; *s->at != '"'; s->at++) s->at += *s->at == '\\';
    m->key.size = (size_t)(++s->at - m->key.data);
    pal_scan_blanks(s);
    s->at++; /* the colon */
    pal_scan_blanks(s);
    m->value = value_at(s);
    return true;
}

static bool is_key(pal_slice key, const char *const *names) {
    for (; *names; names++)
        if (key.size == strlen(*names) + 2 && memcmp(key.data + 1, *names, key.size - 2) == 0) return true;
    return false;
}

/* A string's text, to be released; NULL: it is none, or there is no memory. */
static json_t *string_of(pal_slice text) {
    json_t *value = text.size ? pal_json_parse((const char *)text.data, text.size, JSON_DECODE_ANY, NULL, &(bool){ 0 })
                              : NULL;
    if (json_is_string(value)) return value;
    json_decref(value);
    return NULL;
}

/* Arguments may be missing, null, or the text of an object as a string. */
static pal_parse add_with(scan *s, pal_slice name, pal_slice arguments) {
    static const pal_slice nothing = { (const unsigned char *)"{}", 2 };
    if (!arguments.size || *arguments.data == 'n') return pal_scan_call(s, name, nothing);
    if (*arguments.data == '{') return pal_scan_call(s, name, arguments);
    json_t *text = string_of(arguments);
    pal_parse found = PAL_PARSE_NO;
    pal_bytes inner = { 0 };
    if (text) {
        scan in = { .at = (const unsigned char *)json_string_value(text), .last = true };
        in.end = in.at + json_string_length(text);
        found = in.at == in.end ? pal_scan_put(&inner, "{}", 2) : pal_scan_json(&in, &inner);
        pal_scan_blanks(&in);
        if (found == PAL_PARSE_DONE)
            found = in.at == in.end && *inner.data == '{'
                        ? pal_scan_call(s, name, (pal_slice){ inner.data, inner.size })
                        : PAL_PARSE_NO;
    }
    pal_bytes_free(&inner);
    json_decref(text);
    return found;
}

/* One object, which was checked. */
static pal_parse add_object(scan *s, pal_slice object) {
    static const char *const names[] = { "name", "tool_name", NULL };
    static const char *const arguments[] = { "arguments", "parameters", NULL };
    static const char *const wrapped[] = { "function", NULL };
    scan at = { .at = object.data, .end = object.data + object.size };
    member m, name = { 0 }, with = { 0 }, inside = { 0 }, only = { 0 };
    size_t count = 0;
    while (next_member(&at, &m)) {
        if (!name.key.size && is_key(m.key, names)) name = m;
        if (!with.key.size && is_key(m.key, arguments)) with = m;
        if (is_key(m.key, wrapped) && *m.value.data == '{') inside = m;
        only = m;
        count++;
    }
    if (inside.key.size && !name.key.size) return add_object(s, inside.value); /* {"function": {"name": ...}} */
    if (s->syntax->keyed && count == 1 && *only.value.data == '{') name.value = only.key, with = only;
    json_t *called = string_of(name.value);
    const size_t size = json_string_length(called);
    pal_parse found = PAL_PARSE_NO;
    if (size && size <= 256 && strlen(json_string_value(called)) == size)
        found = add_with(s, (pal_slice){ (const unsigned char *)json_string_value(called), size }, with.value);
    json_decref(called);
    return found;
}

/* An object, or a list of them. */
static pal_parse add_value(scan *s, pal_slice value) {
    if (*value.data == '{') return add_object(s, value);
    scan at = { .at = value.data + 1, .end = value.data + value.size };
    pal_parse found = PAL_PARSE_NO; /* an empty list calls nothing */
    for (;; at.at++) {
        pal_scan_blanks(&at);
        if (at.at >= at.end || *at.at != '{') break;
        const unsigned char *from = at.at;
        const pal_slice one = value_at(&at);
        if (one.data != from || (found = add_object(s, one)) != PAL_PARSE_DONE) break;
        pal_scan_blanks(&at);
        if (at.at < at.end && *at.at == ']') return PAL_PARSE_DONE;
    }
    return found == PAL_PARSE_DONE ? PAL_PARSE_NO : found;
}

/* What follows the calls: their end, or another; DONE: it is over. */
static pal_parse over(scan *s, bool any) {
    const char *close = s->syntax->close;
    if (!*close) return any ? PAL_PARSE_DONE : PAL_PARSE_NO;
    scan at = *s;
    const pal_parse found = pal_scan_text(&at, close);
    if (found == PAL_PARSE_DONE) {
        *s = at;
        return any ? PAL_PARSE_DONE : PAL_PARSE_NO;
    }
    if (found == PAL_PARSE_MORE) return found;
    pal_scan_blanks(&at);
    if (at.at == at.end && s->last && any) { /* only the end is missing */
        *s = at;
        return PAL_PARSE_DONE;
    }
    return PAL_PARSE_NO;
}

pal_parse pal_parse_json_calls(scan *s) {
    pal_bytes value = { 0 };
    const size_t before = s->calls->count;
    pal_parse found = pal_scan_text(s, s->syntax->open);
    while (found == PAL_PARSE_DONE) {
        const bool any = s->calls->count > before;
        if ((found = over(s, any)) != PAL_PARSE_NO) break;
        pal_scan_blanks(s);
        if (any && s->at < s->end && *s->at == ',') s->at++;
        if ((found = pal_scan_json(s, &value)) != PAL_PARSE_DONE) break;
        found = add_value(s, (pal_slice){ value.data, value.size });
    }
    pal_bytes_free(&value);
    return found;
}

/* The text of a call's index or id between its name and its arguments. */
static void skip_number(scan *s) {
    if (s->at == s->end || *s->at != ':') return;
    for (s->at++; s->at < s->end && pal_scan_is_digit(*s->at);) s->at++;
}

static pal_parse skip_id(scan *s) {
    const pal_parse found = pal_scan_text(s, "[CALL_ID]");
    pal_slice id;
    if (found == PAL_PARSE_DONE) return pal_scan_name(s, &id);
    return found == PAL_PARSE_MORE ? found : PAL_PARSE_DONE;
}

/* From the text before its name on. */
static pal_parse named_call(scan *s, pal_bytes *value) {
    const pal_call_syntax *x = s->syntax;
    pal_slice name;
    pal_parse found = pal_scan_name(s, &name);
    if (found != PAL_PARSE_DONE) return found;
    if (x->index) skip_number(s);
    if ((found = skip_id(s)) != PAL_PARSE_DONE || (found = pal_scan_text(s, x->after)) != PAL_PARSE_DONE ||
        (found = pal_scan_json(s, value)) != PAL_PARSE_DONE)
        return found;
    if (*value->data != '{') return PAL_PARSE_NO;
    found = pal_scan_text(s, x->end);
    pal_scan_blanks(s);
    if (found == PAL_PARSE_NO && s->last && s->at == s->end) found = PAL_PARSE_DONE; /* only the end is missing */
    return found == PAL_PARSE_DONE ? pal_scan_call(s, name, (pal_slice){ value->data, value->size }) : found;
}

pal_parse pal_parse_named_calls(scan *s) {
    pal_bytes value = { 0 };
    const size_t before = s->calls->count;
    pal_parse found = pal_scan_text(s, s->syntax->open);
    while (found == PAL_PARSE_DONE) {
        if ((found = over(s, s->calls->count > before)) != PAL_PARSE_NO) break;
        if ((found = pal_scan_text(s, s->syntax->call)) == PAL_PARSE_DONE) found = named_call(s, &value);
    }
    pal_bytes_free(&value);
    return found;
}
