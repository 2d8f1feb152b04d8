/* SPDX-License-Identifier: MIT */
/* Calls with each argument between tags. Values are text; the tool's schema says which of them are something else. */
#include <string.h>

#include "chat/scan.h"
#include "format/json.h"

static bool names_type(const json_t *schema, const char *type) {
    const json_t *given = json_object_get(schema, "type");
    for (size_t i = 0; i < (json_is_array(given) ? json_array_size(given) : 1); i++) {
        const char *one = json_string_value(json_is_array(given) ? json_array_get(given, i) : given);
        if (one && strcmp(one, type) == 0) return true;
    }
    const json_t *any = json_object_get(schema, "anyOf");
    if (!any) any = json_object_get(schema, "oneOf");
    for (size_t i = 0; i < json_array_size(any); i++)
        if (names_type(json_array_get(any, i), type)) return true;
    const json_t *values = json_object_get(schema, "enum");
    return !given && json_is_string(json_array_get(values, 0)) && strcmp(type, "string") == 0;
}

static bool is_word(pal_slice text, const char *word) {
    return text.size == strlen(word) && memcmp(text.data, word, text.size) == 0;
}

/* A list or dictionary as Python prints it: {'a': [True]}. DONE, or NO and out is as it was. */
static pal_parse put_literal(pal_bytes *out, pal_slice text) {
    scan at = { .at = text.data, .end = text.data + text.size, .last = true };
    const size_t before = out->size;
    pal_parse found = text.size && strchr("[{(", *text.data) && *text.data ? pal_scan_literal(&at, out) : PAL_PARSE_NO;
    if (found == PAL_PARSE_DONE && at.at != at.end) found = PAL_PARSE_NO;
    if (found != PAL_PARSE_DONE) out->size = before;
    return found;
}

/* <![CDATA[...]]> stands for what is in it. */
static pal_slice unwrapped(pal_slice text) {
    static const char open[] = "<![CDATA[", close[] = "]]>";
    const size_t before = sizeof open - 1, after = sizeof close - 1;
    const bool wrapped = text.size >= before + after && memcmp(text.data, open, before) == 0 &&
                         memcmp(text.data + text.size - after, close, after) == 0;
    return wrapped ? (pal_slice){ text.data + before, text.size - before - after } : text;
}

/* The text as JSON where it is some, and a string is not what is asked for; Python's spellings count. */
static pal_parse put_value(pal_bytes *out, pal_slice text, const json_t *schema) {
    const bool words = names_type(schema, "string");
    pal_slice bare = text;
    while (bare.size && strchr(" \n\t\r", bare.data[0])) bare.data++, bare.size--;
    while (bare.size && strchr(" \n\t\r", bare.data[bare.size - 1])) bare.size--;
    const bool null = is_word(bare, "null") || is_word(bare, "None");
    if (null && (!words || names_type(schema, "null"))) return pal_scan_put(out, "null", 4);
    if (words) return pal_scan_quoted(out, text);
    if (is_word(bare, "True")) return pal_scan_put(out, "true", 4);
    if (is_word(bare, "False")) return pal_scan_put(out, "false", 5);
    bool starved = false;
    json_t *value = bare.size
                        ? pal_json_parse((const char *)bare.data, bare.size,
                                         JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL, &starved)
                        : NULL;
    json_decref(value);
    if (starved) return PAL_PARSE_STARVED;
    if (value) return pal_scan_put(out, bare.data, bare.size);
    const pal_parse found = put_literal(out, bare);
    return found == PAL_PARSE_NO ? pal_scan_quoted(out, text) : found;
}

/* From the text before its name on. */
static pal_parse argument(scan *s, const json_t *properties, pal_bytes *out) {
    const pal_call_syntax *x = s->syntax;
    pal_slice key, value;
    pal_parse found = pal_scan_until(s, x->key_end, &key);
    if (found != PAL_PARSE_DONE || (found = pal_scan_text(s, x->value)) != PAL_PARSE_DONE ||
        (found = pal_scan_until(s, x->value_end, &value)) != PAL_PARSE_DONE)
        return found;
    if (!key.size || key.size > 256 || memchr(key.data, '\n', key.size)) return PAL_PARSE_NO;
    if (x->lines && value.size && *value.data == '\n') value.data++, value.size--;
    if (x->lines && value.size && value.data[value.size - 1] == '\n') value.size--;
    char name[257];
    memcpy(name, key.data, key.size);
    name[key.size] = 0;
    if ((out->size > 1 && (found = pal_scan_put(out, ", ", 2)) != PAL_PARSE_DONE) ||
        (found = pal_scan_quoted(out, key)) != PAL_PARSE_DONE || (found = pal_scan_put(out, ": ", 2)) != PAL_PARSE_DONE)
        return found;
    return put_value(out, unwrapped(value), json_object_get(properties, name));
}

static pal_parse arguments(scan *s, pal_slice name, pal_bytes *out) {
    char called[257] = "";
    pal_parse found;
    if (name.size < sizeof called) memcpy(called, name.data, name.size);
    const json_t *properties = json_object_get(pal_tool_parameters(s->tools, called), "properties");
    out->size = 0;
    if ((found = pal_scan_put(out, "{", 1)) != PAL_PARSE_DONE) return found;
    while ((found = pal_scan_text(s, s->syntax->key)) == PAL_PARSE_DONE)
        if ((found = argument(s, properties, out)) != PAL_PARSE_DONE) return found;
    return found == PAL_PARSE_NO ? pal_scan_put(out, "}", 1) : found;
}

/* The end of a call. At the end of the text, or of all calls, it may be missing. */
static pal_parse call_end(scan *s) {
    const pal_parse found = pal_scan_text(s, s->syntax->end);
    scan at = *s;
    pal_scan_blanks(&at);
    if (found == PAL_PARSE_NO && s->last && at.at == at.end) return PAL_PARSE_DONE;
    if (found == PAL_PARSE_NO && *s->syntax->close) return pal_scan_text(&at, s->syntax->close);
    return found;
}

static pal_parse call(scan *s, pal_bytes *value) {
    pal_slice name;
    pal_parse found = pal_scan_name(s, &name);
    if (found != PAL_PARSE_DONE || (found = pal_scan_text(s, s->syntax->after)) != PAL_PARSE_DONE ||
        (found = arguments(s, name, value)) != PAL_PARSE_DONE || (found = call_end(s)) != PAL_PARSE_DONE)
        return found;
    return pal_scan_call(s, name, (pal_slice){ value->data, value->size });
}

/* After a call: the end of all, or another; DONE: it is over. */
static pal_parse over(scan *s, bool any) {
    scan at = *s;
    pal_parse found = *s->syntax->close ? pal_scan_text(&at, s->syntax->close) : any ? PAL_PARSE_DONE : PAL_PARSE_NO;
    if (found == PAL_PARSE_NO && any && s->last) {
        pal_scan_blanks(&at);
        if (at.at == at.end) found = PAL_PARSE_DONE; /* only the end is missing */
    }
    if (found == PAL_PARSE_DONE && !any) return PAL_PARSE_NO;
    if (found == PAL_PARSE_DONE) *s = at;
    return found;
}

pal_parse pal_parse_xml_calls(scan *s) {
    pal_bytes value = { 0 };
    const size_t before = s->calls->count;
    pal_parse found = pal_scan_text(s, s->syntax->open);
    while (found == PAL_PARSE_DONE) {
        const bool any = s->calls->count > before;
        if ((found = over(s, any)) != PAL_PARSE_NO) break;
        if (any && !*s->syntax->call) break; /* one call in each */
        if ((found = pal_scan_text(s, s->syntax->call)) == PAL_PARSE_DONE) found = call(s, &value);
    }
    pal_bytes_free(&value);
    return found;
}
