/* SPDX-License-Identifier: MIT */
/* Calls as Python writes them: names, and arguments by name that are literals. They become JSON as they are read. */
#include <string.h>

#include "chat/scan.h"
#include "format/json.h"
#include "text/utf8.h"

enum { DEEPEST = 200 };

static pal_parse literal(scan *s, pal_bytes *out, int depth);

/* The sign at this place, after blanks; MORE where there is none yet. */
static pal_parse look(scan *s, unsigned char *sign) {
    pal_scan_blanks(s);
    if (s->at == s->end) return pal_scan_ended(s);
    *sign = *s->at;
    return PAL_PARSE_DONE;
}

static pal_parse put_code(pal_bytes *text, uint32_t code) {
    unsigned char c[4];
    size_t n = 1;
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) code = 0xFFFD;
    if (code < 0x80) {
        c[0] = (unsigned char)code;
    } else {
        n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        for (size_t i = n - 1; i; i--, code >>= 6) c[i] = (unsigned char)(0x80 | (code & 0x3F));
        c[0] = (unsigned char)((0xF00u >> n & 0xF0u) | code);
    }
    return pal_scan_put(text, c, n);
}

static int hex_of(unsigned char c) {
    return pal_scan_is_digit(c) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* So many hexadecimal digits. */
static pal_parse hex(scan *s, int digits, uint32_t *code) {
    *code = 0;
    for (; digits; digits--, s->at++) {
        if (s->at == s->end) return pal_scan_ended(s);
        const int digit = hex_of(*s->at);
        if (digit < 0) return PAL_PARSE_NO;
        *code = *code << 4 | (uint32_t)digit;
    }
    return PAL_PARSE_DONE;
}

/* After a backslash. One that means nothing stays, as in Python. */
static pal_parse escape(scan *s, pal_bytes *text) {
    static const char from[] = "ntrbfv0\\'\"/", to[] = "\n\t\r\b\f\v\0\\'\"/";
    uint32_t code, low;
    pal_parse found;
    if (s->at == s->end) return pal_scan_ended(s);
    const unsigned char c = *s->at++;
    const char *known = c ? strchr(from, c) : NULL;
    if (known) return pal_scan_put(text, to + (known - from), 1);
    if (c == '\n') return PAL_PARSE_DONE; /* a line that continues */
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (!digits) {
        found = pal_scan_put(text, "\\", 1);
        return found == PAL_PARSE_DONE ? pal_scan_put(text, &c, 1) : found;
    }
    if ((found = hex(s, digits, &code)) != PAL_PARSE_DONE) return found;
    if (code >= 0xD800 && code < 0xDC00) { /* JSON writes characters in two halves */
        if (s->end - s->at < 6) return pal_scan_ended(s) == PAL_PARSE_MORE ? PAL_PARSE_MORE : put_code(text, code);
        scan second = *s;
        second.at += 2;
        if (s->at[0] == '\\' && s->at[1] == 'u' && hex(&second, 4, &low) == PAL_PARSE_DONE && low >= 0xDC00 &&
            low < 0xE000) {
            *s = second;
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
    }
    return put_code(text, code);
}

static pal_parse string(scan *s, pal_bytes *out) {
    const unsigned char quote = *s->at;
    pal_bytes text = { 0 };
    pal_parse found = PAL_PARSE_DONE;
    const bool known = s->end - s->at >= 3, long_one = known && s->at[1] == quote && s->at[2] == quote;
    if (!known && s->end - s->at == 2 && s->at[1] == quote && !s->last) return PAL_PARSE_MORE;
    for (s->at += long_one ? 3 : 1; found == PAL_PARSE_DONE;) {
        if (s->at == s->end) found = pal_scan_ended(s);
        else if (*s->at == quote && !long_one) break;
        else if (*s->at == quote && s->end - s->at < 3 && !s->last) found = PAL_PARSE_MORE;
        else if (*s->at == quote && s->end - s->at >= 3 && s->at[1] == quote && s->at[2] == quote) break;
        else if (*s->at == '\\') s->at++, found = escape(s, &text);
        else found = pal_scan_put(&text, s->at++, 1);
    }
    if (found == PAL_PARSE_DONE) {
        s->at += long_one ? 3 : 1;
        found = pal_scan_quoted(out, (pal_slice){ text.data, text.size });
    }
    pal_bytes_free(&text);
    return found;
}

/* A number, or one of the names of constants. */
static pal_parse word(scan *s, pal_bytes *out) {
    static const char *const names[][2] = { { "True", "true" }, { "False", "false" }, { "None", "null" },
                                            { "true", "true" }, { "false", "false" }, { "null", "null" } };
    const unsigned char *from = s->at;
    while (s->at < s->end && *s->at && !strchr(" \n\t\r,:()[]{}'\"", *s->at)) s->at++;
    const size_t size = (size_t)(s->at - from);
    if (s->at == s->end) return pal_scan_ended(s);
    if (!size || size > 64) return PAL_PARSE_NO;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (size == strlen(names[i][0]) && memcmp(from, names[i][0], size) == 0)
            return pal_scan_put(out, names[i][1], strlen(names[i][1]));
    char text[80];
    size_t n = 0;
    for (size_t i = *from == '+'; i < size; i++) { /* .5 and 5. are 0.5 and 5.0, 1_000 is 1000 */
        const bool before = i && pal_scan_is_digit(from[i - 1]);
        const bool after = i + 1 < size && pal_scan_is_digit(from[i + 1]);
        if (from[i] == '_' && before && after) continue;
        if (from[i] == '.' && !before) text[n++] = '0';
        text[n++] = (char)from[i];
        if (from[i] == '.' && !after) text[n++] = '0';
        if (n > sizeof text - 4) return PAL_PARSE_NO;
    }
    json_t *number = pal_json_parse(text, n, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL, &(bool){ 0 });
    const bool fine = json_is_number(number);
    json_decref(number);
    return fine ? pal_scan_put(out, text, n) : PAL_PARSE_NO;
}

/* "name": value of a dictionary; numbers as keys become strings. */
static pal_parse entry(scan *s, pal_bytes *out, int depth) {
    pal_bytes key = { 0 };
    pal_parse found = literal(s, &key, depth + 1);
    if (found == PAL_PARSE_DONE) {
        const pal_slice text = { key.data, key.size };
        if (*key.data == '{' || *key.data == '[') found = PAL_PARSE_NO;
        else found = *key.data == '"' ? pal_scan_put(out, text.data, text.size) : pal_scan_quoted(out, text);
    }
    pal_bytes_free(&key);
    if (found == PAL_PARSE_DONE) found = pal_scan_text(s, ":");
    if (found == PAL_PARSE_DONE) found = pal_scan_put(out, ": ", 2);
    return found == PAL_PARSE_DONE ? literal(s, out, depth + 1) : found;
}

/* A list, a tuple or a dictionary. A comma may stand before its end. */
static pal_parse several(scan *s, pal_bytes *out, int depth) {
    const unsigned char open = *s->at++, end = open == '(' ? ')' : open == '[' ? ']' : '}';
    const bool dictionary = open == '{';
    size_t count = 0;
    unsigned char sign = 0;
    pal_parse found = pal_scan_put(out, dictionary ? "{" : "[", 1);
    while (found == PAL_PARSE_DONE && (found = look(s, &sign)) == PAL_PARSE_DONE && sign != end) {
        if (count && sign != ',') return PAL_PARSE_NO;
        if (count) s->at++;
        if (count && ((found = look(s, &sign)) != PAL_PARSE_DONE || sign == end)) break;
        if (count++) found = pal_scan_put(out, ", ", 2);
        if (found == PAL_PARSE_DONE) found = dictionary ? entry(s, out, depth) : literal(s, out, depth + 1);
    }
    if (found != PAL_PARSE_DONE) return found;
    s->at++;
    return pal_scan_put(out, dictionary ? "}" : "]", 1);
}

static pal_parse literal(scan *s, pal_bytes *out, int depth) {
    unsigned char sign = 0;
    const pal_parse found = look(s, &sign);
    if (found != PAL_PARSE_DONE) return found;
    if (depth == DEEPEST) return PAL_PARSE_NO;
    if (sign == '\'' || sign == '"') return string(s, out);
    return sign == '[' || sign == '(' || sign == '{' ? several(s, out, depth) : word(s, out);
}

pal_parse pal_scan_literal(scan *s, pal_bytes *out) { return literal(s, out, 0); }

/* name=literal, ... up to the bracket that ends them. */
static pal_parse arguments(scan *s, pal_bytes *out) {
    unsigned char sign = 0;
    pal_slice name;
    out->size = 0;
    pal_parse found = pal_scan_put(out, "{", 1);
    while (found == PAL_PARSE_DONE && (found = look(s, &sign)) == PAL_PARSE_DONE && sign != ')') {
        if (out->size > 1 && sign != ',') return PAL_PARSE_NO;
        if (out->size > 1) {
            s->at++;
            if ((found = look(s, &sign)) != PAL_PARSE_DONE || sign == ')') break;
            if ((found = pal_scan_put(out, ", ", 2)) != PAL_PARSE_DONE) return found;
        }
        if ((found = pal_scan_name(s, &name)) != PAL_PARSE_DONE || (found = pal_scan_text(s, "=")) != PAL_PARSE_DONE ||
            (found = pal_scan_quoted(out, name)) != PAL_PARSE_DONE ||
            (found = pal_scan_put(out, ": ", 2)) != PAL_PARSE_DONE)
            return found;
        found = literal(s, out, 0);
    }
    if (found != PAL_PARSE_DONE) return found;
    s->at++;
    return pal_scan_put(out, "}", 1);
}

static pal_parse call(scan *s, pal_bytes *value) {
    pal_slice name;
    pal_parse found = pal_scan_name(s, &name);
    if (found != PAL_PARSE_DONE || (found = pal_scan_text(s, "(")) != PAL_PARSE_DONE ||
        (found = arguments(s, value)) != PAL_PARSE_DONE)
        return found;
    return pal_scan_call(s, name, (pal_slice){ value->data, value->size });
}

static pal_parse all(scan *s, pal_bytes *value) {
    unsigned char sign = 0;
    pal_parse found = look(s, &sign);
    if (found != PAL_PARSE_DONE) return found;
    const bool list = sign == '[';
    s->at += list;
    while ((found = call(s, value)) == PAL_PARSE_DONE && list && (found = look(s, &sign)) == PAL_PARSE_DONE) {
        if (sign != ',' && sign != ']') return PAL_PARSE_NO;
        s->at++;
        if (sign == ']') break;
    }
    return found;
}

pal_parse pal_parse_python_calls(scan *s) {
    pal_bytes value = { 0 };
    pal_parse found = pal_scan_text(s, s->syntax->open);
    if (found == PAL_PARSE_DONE) found = all(s, &value);
    if (found == PAL_PARSE_DONE) {
        found = pal_scan_text(s, s->syntax->close);
        pal_scan_blanks(s);
        if (found == PAL_PARSE_NO && s->last && s->at == s->end) found = PAL_PARSE_DONE; /* only the end is missing */
    }
    pal_bytes_free(&value);
    return found;
}
