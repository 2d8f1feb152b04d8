/* SPDX-License-Identifier: MIT */
#include "template/strings.h"

#include <string.h>

#include "text/utf8.h"

uint32_t pal_tpl_code(tpl_text t, size_t at, size_t *size) {
    uint32_t code = t.data[at];
    *size = pal_utf8_read(t.data + at, t.size - at, &code);
    if (!*size) {
        code = t.data[at];
        *size = 1;
    }
    return code;
}

size_t pal_tpl_character(tpl_text t, size_t at) {
    size_t size;
    pal_tpl_code(t, at, &size);
    return size;
}

size_t pal_tpl_characters(tpl_text t) {
    size_t count = 0;
    for (size_t i = 0; i < t.size; i += pal_tpl_character(t, i)) count++;
    return count;
}

size_t pal_tpl_offset(tpl_text t, size_t characters) {
    size_t at = 0;
    while (characters-- && at < t.size) at += pal_tpl_character(t, at);
    return at;
}

bool pal_tpl_is_space(uint32_t code) { return pal_is_blank(code) || (code >= 0x1C && code <= 0x1F); }

bool pal_tpl_is_line_end(uint32_t code) {
    return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
           code == 0x2029;
}

size_t pal_tpl_find(tpl_text t, tpl_text what, size_t from) {
    if (from > t.size) return SIZE_MAX;
    if (!what.size) return from;
    const unsigned char *at = from < t.size ? memmem(t.data + from, t.size - from, what.data, what.size) : NULL;
    return at ? (size_t)(at - t.data) : SIZE_MAX;
}

static bool strips(tpl_text t, size_t at, const tpl_text *chars) {
    size_t size;
    const uint32_t code = pal_tpl_code(t, at, &size);
    return chars ? chars->size && memmem(chars->data, chars->size, t.data + at, size) : pal_tpl_is_space(code);
}

tpl_text pal_tpl_strip(tpl_text t, const tpl_text *chars, bool left, bool right) {
    size_t from = 0, to = t.size;
    while (left && from < to && strips(t, from, chars)) from += pal_tpl_character(t, from);
    while (right && to > from) {
        size_t last = to - 1;
        while (last > from && (t.data[last] & 0xC0) == 0x80 && to - last < 4) last--;
        if (last + pal_tpl_character(t, last) != to) last = to - 1;
        if (!strips(pal_tpl_part(t, 0, to), last, chars)) break;
        to = last;
    }
    return pal_tpl_part(t, from, to);
}

void pal_tpl_replace(tpl_heap *h, tpl_out *o, tpl_text t, tpl_text from, tpl_text to, int64_t most) {
    size_t at = 0;
    while (most < 0 || most-- > 0) {
        const size_t hit = pal_tpl_find(t, from, at);
        if (hit == SIZE_MAX) break;
        pal_tpl_step(h, 1);
        pal_tpl_put(h, o, pal_tpl_part(t, at, hit));
        pal_tpl_put(h, o, to);
        at = hit + from.size;
        if (from.size) continue; /* nothing is found before every character and at the end */
        const size_t next = at < t.size ? at + pal_tpl_character(t, at) : at;
        pal_tpl_put(h, o, pal_tpl_part(t, at, next));
        if (next == at) return;
        at = next;
    }
    pal_tpl_put(h, o, pal_tpl_part(t, at, t.size));
}

/* Characters whose upper case is more than one: code, then up to three. */
static const uint16_t wide_upper[][4] = {
    { 0xDF, 'S', 'S', 0 },          { 0x149, 0x2BC, 'N', 0 },       { 0x1F0, 'J', 0x30C, 0 },
    { 0x390, 0x399, 0x308, 0x301 }, { 0x3B0, 0x3A5, 0x308, 0x301 }, { 0x587, 0x535, 0x552, 0 },
    { 0x1E96, 'H', 0x331, 0 },      { 0x1E97, 'T', 0x308, 0 },      { 0x1E98, 'W', 0x30A, 0 },
    { 0x1E99, 'Y', 0x30A, 0 },      { 0x1E9A, 'A', 0x2BE, 0 },      { 0xFB00, 'F', 'F', 0 },
    { 0xFB01, 'F', 'I', 0 },        { 0xFB02, 'F', 'L', 0 },        { 0xFB03, 'F', 'F', 'I' },
    { 0xFB04, 'F', 'F', 'L' },      { 0xFB05, 'S', 'T', 0 },        { 0xFB06, 'S', 'T', 0 }
};

static void put_upper(tpl_heap *h, tpl_out *o, uint32_t code, unsigned char mark) {
    for (size_t i = 0; i < sizeof wide_upper / sizeof wide_upper[0]; i++)
        if (wide_upper[i][0] == code) {
            for (size_t k = 1; k < 4 && wide_upper[i][k]; k++) pal_tpl_put_code(h, o, wide_upper[i][k], mark);
            return;
        }
    pal_tpl_put_code(h, o, (uint32_t)utf8proc_toupper((int32_t)code), mark);
}

static bool is_cased(uint32_t code) {
    const int c = (int)utf8proc_category((int32_t)code);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

/* A sigma at the end of a word has its own form. */
static bool ends_word(tpl_text t, size_t at, size_t size) {
    size_t n;
    if (at + size < t.size && is_cased(pal_tpl_code(t, at + size, &n))) return false;
    if (!at) return false;
    size_t before = at - 1;
    while (before && (t.data[before] & 0xC0) == 0x80) before--;
    return is_cased(pal_tpl_code(t, before, &n));
}

static void put_lower(tpl_heap *h, tpl_out *o, tpl_text t, size_t at, size_t size, uint32_t code) {
    const unsigned char mark = pal_tpl_mark(t, at);
    if (code == 0x3A3) code = ends_word(t, at, size) ? 0x3C2 : 0x3C3;
    else if (code == 0x130) {
        pal_tpl_put_code(h, o, 'i', mark);
        code = 0x307;
    } else code = (uint32_t)utf8proc_tolower((int32_t)code);
    pal_tpl_put_code(h, o, code, mark);
}

static void put_case(tpl_heap *h, tpl_out *o, tpl_text t, size_t at, bool upper) {
    size_t size;
    const uint32_t code = pal_tpl_code(t, at, &size);
    if (size == 1 && t.data[at] >= 0x80) pal_tpl_put(h, o, pal_tpl_part(t, at, at + 1));
    else if (upper) put_upper(h, o, code, pal_tpl_mark(t, at));
    else put_lower(h, o, t, at, size, code);
}

void pal_tpl_case(tpl_heap *h, tpl_out *o, tpl_text t, bool upper) {
    for (size_t i = 0; i < t.size; i += pal_tpl_character(t, i)) put_case(h, o, t, i, upper);
}

void pal_tpl_capitalize(tpl_heap *h, tpl_out *o, tpl_text t) {
    for (size_t i = 0; i < t.size; i += pal_tpl_character(t, i)) put_case(h, o, t, i, i == 0);
}

void pal_tpl_title(tpl_heap *h, tpl_out *o, tpl_text t, bool filter) {
    bool inside = false;
    for (size_t i = 0, n; i < t.size; i += n) {
        const uint32_t code = pal_tpl_code(t, i, &n);
        put_case(h, o, t, i, !inside);
        inside = filter ? !(pal_tpl_is_space(code) || (code && code < 0x80 && strchr("-({[<", (int)code)))
                        : is_cased(code);
    }
}

void pal_tpl_escape(tpl_heap *h, tpl_out *o, tpl_text t) {
    size_t from = 0;
    for (size_t i = 0; i < t.size; i++) {
        const unsigned char c = t.data[i];
        const char *as = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&#34;" : "&#39;";
        if (!c || !strchr("&<>\"'", c)) continue;
        pal_tpl_put(h, o, pal_tpl_part(t, from, i));
        pal_tpl_put_bytes(h, o, as, strlen(as), pal_tpl_mark(t, i));
        from = i + 1;
    }
    pal_tpl_put(h, o, pal_tpl_part(t, from, t.size));
}

void pal_tpl_lines(tpl_heap *h, tpl_text t, tpl_list *lines, bool keep_ends) {
    size_t from = 0;
    for (size_t i = 0, n; i < t.size; i += n) {
        const size_t at = i;
        if (!pal_tpl_is_line_end(pal_tpl_code(t, i, &n))) continue;
        if (t.data[i] == '\r' && i + 1 < t.size && t.data[i + 1] == '\n') n = 2;
        pal_tpl_append(h, lines, pal_tpl_string(h, pal_tpl_part(t, from, keep_ends ? at + n : at)));
        from = at + n;
    }
    if (from < t.size) pal_tpl_append(h, lines, pal_tpl_string(h, pal_tpl_part(t, from, t.size)));
}

static bool is_printable(uint32_t code) {
    const int c = (int)utf8proc_category((int32_t)code);
    return code == ' ' || !(c == UTF8PROC_CATEGORY_CN || c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF ||
                            c == UTF8PROC_CATEGORY_CS || c == UTF8PROC_CATEGORY_CO || c == UTF8PROC_CATEGORY_ZS ||
                            c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP);
}

void pal_tpl_repr(tpl_heap *h, tpl_out *o, tpl_text t) {
    const bool single = t.size && memchr(t.data, '\'', t.size), other = t.size && memchr(t.data, '"', t.size);
    const char quote = single && !other ? '"' : '\'';
    pal_tpl_put_bytes(h, o, &quote, 1, 0);
    for (size_t i = 0, n; i < t.size; i += n) {
        const uint32_t code = pal_tpl_code(t, i, &n);
        const unsigned char mark = pal_tpl_mark(t, i);
        if (code == (unsigned char)quote || code == '\\') pal_tpl_printf(h, o, mark, "\\%c", (int)code);
        else if (code == '\n') pal_tpl_put_bytes(h, o, "\\n", 2, mark);
        else if (code == '\r') pal_tpl_put_bytes(h, o, "\\r", 2, mark);
        else if (code == '\t') pal_tpl_put_bytes(h, o, "\\t", 2, mark);
        else if (is_printable(code)) pal_tpl_put(h, o, pal_tpl_part(t, i, i + n));
        else pal_tpl_printf(h, o, mark, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
    }
    pal_tpl_put_bytes(h, o, &quote, 1, 0);
}
