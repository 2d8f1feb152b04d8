/* SPDX-License-Identifier: MIT */
#include "chat/scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "format/json.h"
#include "text/json_text.h"

static bool is_blank(unsigned char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

pal_parse pal_scan_ended(const scan *s) { return s->last ? PAL_PARSE_NO : PAL_PARSE_MORE; }

void pal_scan_blanks(scan *s) {
    while (s->at < s->end && is_blank(*s->at)) s->at++;
}

pal_parse pal_scan_text(scan *s, const char *text) {
    scan at = *s;
    const size_t size = strlen(text);
    if (!size) return PAL_PARSE_DONE;
    pal_scan_blanks(&at);
    const size_t left = (size_t)(at.end - at.at), common = left < size ? left : size;
    if (memcmp(at.at, text, common) != 0) return PAL_PARSE_NO;
    if (common < size) return pal_scan_ended(s);
    s->at = at.at + size;
    return PAL_PARSE_DONE;
}

pal_parse pal_scan_until(scan *s, const char *text, pal_slice *before) {
    const size_t size = strlen(text);
    const unsigned char *found = memmem(s->at, (size_t)(s->end - s->at), text, size);
    if (!found) return pal_scan_ended(s);
    *before = (pal_slice){ s->at, (size_t)(found - s->at) };
    s->at = found + size;
    return PAL_PARSE_DONE;
}

pal_parse pal_scan_name(scan *s, pal_slice *name) {
    pal_scan_blanks(s);
    const unsigned char *from = s->at;
    while (s->at < s->end &&
           (pal_scan_is_letter(*s->at) || pal_scan_is_digit(*s->at) || *s->at == '_' || *s->at == '-' || *s->at == '.'))
        s->at++;
    *name = (pal_slice){ from, (size_t)(s->at - from) };
    if (s->at == s->end) return s->last && name->size ? PAL_PARSE_DONE : pal_scan_ended(s);
    return name->size ? PAL_PARSE_DONE : PAL_PARSE_NO;
}

/* The end of an object or a list, by its brackets and strings alone. */
static pal_parse json_end(scan *s) {
    size_t depth = 0;
    bool quoted = false;
    if (s->at == s->end) return pal_scan_ended(s);
    if (*s->at != '{' && *s->at != '[') return PAL_PARSE_NO;
    for (; s->at < s->end; s->at++) {
        const unsigned char c = *s->at;
        if (quoted) {
            if (c == '\\' && s->at + 1 < s->end) s->at++;
            else if (c == '"') quoted = false;
        } else if (c == '"') quoted = true;
        else if (c == '{' || c == '[') depth++;
        else if (c == '}' || c == ']') depth--;
        if (!depth && !quoted) {
            s->at++;
            return PAL_PARSE_DONE;
        }
    }
    return pal_scan_ended(s);
}

/* Models write line breaks into strings as they are. */
static pal_parse clean_json(pal_slice text, pal_bytes *out) {
    static const char hex[] = "0123456789abcdef";
    bool quoted = false;
    out->size = 0;
    for (size_t i = 0; i < text.size; i++) {
        const unsigned char c = text.data[i];
        char escaped[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };
        if (quoted && c < ' ') {
            if (c == '\n') escaped[1] = 'n';
            if (pal_scan_put(out, escaped, c == '\n' ? 2 : 6) != PAL_PARSE_DONE) return PAL_PARSE_STARVED;
            continue;
        }
        if (c == '"') quoted = !quoted;
        const size_t size = quoted && c == '\\' && i + 1 < text.size && text.data[i + 1] >= ' ' ? 2 : 1;
        if (pal_scan_put(out, text.data + i, size) != PAL_PARSE_DONE) return PAL_PARSE_STARVED;
        i += size - 1;
    }
    return PAL_PARSE_DONE;
}

pal_parse pal_scan_json(scan *s, pal_bytes *value) {
    json_error_t why;
    bool starved = false;
    pal_scan_blanks(s);
    const unsigned char *from = s->at;
    pal_parse found = json_end(s);
    if (found != PAL_PARSE_DONE) return found;
    if ((found = clean_json((pal_slice){ from, (size_t)(s->at - from) }, value)) != PAL_PARSE_DONE) return found;
    json_t *read = pal_json_parse((const char *)value->data, value->size,
                                  JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why, &starved);
    json_decref(read);
    return read ? PAL_PARSE_DONE : starved ? PAL_PARSE_STARVED : PAL_PARSE_NO;
}

pal_parse pal_scan_put(pal_bytes *to, const void *data, size_t size) {
    return pal_bytes_append(to, data, size, NULL) ? PAL_PARSE_STARVED : PAL_PARSE_DONE;
}

pal_parse pal_scan_quoted(pal_bytes *to, pal_slice text) {
    json_t *value = pal_json_bytes(text.data, text.size);
    char *printed = value ? pal_json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    const pal_parse done = printed ? pal_scan_put(to, printed, strlen(printed)) : PAL_PARSE_STARVED;
    free(printed);
    json_decref(value);
    return done;
}

static char *copy(pal_slice text) {
    char *made = pal_alloc(text.size + 1, 1);
    if (made) memcpy(made, text.data, text.size);
    return made;
}

pal_parse pal_scan_call(scan *s, pal_slice name, pal_slice arguments) {
    pal_calls *c = s->calls;
    pal_call made = { copy(name), copy(arguments) };
    void *list = c->list;
    const bool fits = made.name && made.arguments &&
                      !pal_grow(&list, &c->room, c->count, c->count + 1, sizeof made, NULL);
    c->list = list;
    if (fits) {
        c->list[c->count++] = made;
        return PAL_PARSE_DONE;
    }
    pal_free(made.name), pal_free(made.arguments);
    return PAL_PARSE_STARVED;
}
