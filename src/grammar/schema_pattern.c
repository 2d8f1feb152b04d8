/* SPDX-License-Identifier: MIT */
/* Regular expressions of schemas: characters, classes, groups, alternatives and repetitions, and anchors at both ends.
 * What the string holds is written as JSON: a quote or a backslash in it gets its escape. */
#include <string.h>

#include "grammar/schema.h"
#include "text/utf8.h"

enum { RANGES = 256, GROUPS = 50 };

typedef struct {
    pal_code_range range[RANGES];
    size_t count;
} set;

typedef struct {
    schema_writer *w;
    const unsigned char *start, *at, *end;
    pal_bytes *out;
    int depth;
} pattern;

static pal_status refuse(pattern *p, const char *what) {
    return pal_schema_refuse(p->w, "'pattern': %s at byte %zu", what, (size_t)(p->at - p->start) + 1);
}

static bool next_is(const pattern *p, char c) { return p->at < p->end && *p->at == (unsigned char)c; }

static pal_status add_range(pattern *p, set *s, uint32_t low, uint32_t high) {
    if (s->count == RANGES) return refuse(p, "a class of too many ranges");
    s->range[s->count++] = (pal_code_range){ low, high };
    return PAL_OK;
}

/* All characters but those of s. */
static pal_status complement(pattern *p, const set *s, set *out) {
    uint32_t next = 0;
    pal_status st = PAL_OK;
    while (!st && next <= 0x10FFFF) { /* up to the nearest range that ends at or after `next` */
        uint32_t low = 0x110000, high = 0x10FFFF;
        for (size_t i = 0; i < s->count; i++)
            if (s->range[i].high >= next && s->range[i].low < low) low = s->range[i].low, high = s->range[i].high;
        if (low > next) st = add_range(p, out, next, low - 1);
        next = high + 1;
    }
    return st;
}

static pal_status add_kind(pattern *p, set *s, int letter) {
    set one = { .count = 0 }, other = { .count = 0 };
    pal_status st = PAL_OK;
    const int kind = letter | 0x20;
    if (kind == 'd' || kind == 'w') st = add_range(p, &one, '0', '9');
    if (kind == 'w') {
        (void)add_range(p, &one, 'a', 'z'), (void)add_range(p, &one, 'A', 'Z');
        st = add_range(p, &one, '_', '_');
    }
    if (kind == 's') (void)add_range(p, &one, '\t', '\r'), st = add_range(p, &one, ' ', ' ');
    if (!st && letter != kind) st = complement(p, &one, &other);
    const set *all = letter != kind ? &other : &one;
    for (size_t i = 0; i < all->count && !st; i++) st = add_range(p, s, all->range[i].low, all->range[i].high);
    return st;
}

/* After a backslash: a character (true in *one), or a kind of them, which is added. */
static pal_status read_escape(pattern *p, set *s, uint32_t *code, bool *one) {
    static const char letters[] = "nrtfv", values[] = "\n\r\t\f\v";
    if (p->at == p->end) return refuse(p, "an escape without a character");
    const int c = *p->at++, digits = c == 'x' ? 2 : c == 'u' ? 4 : 0;
    *one = true;
    if (strchr("dDwWsS", c)) {
        *one = false;
        return add_kind(p, s, c);
    }
    if (strchr(letters, c)) {
        *code = (unsigned char)values[strchr(letters, c) - letters];
        return PAL_OK;
    }
    *code = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        const char *hex = "0123456789abcdefABCDEF", *found = p->at < p->end && *p->at ? strchr(hex, *p->at) : NULL;
        if (!found) return refuse(p, "an escape with too few hexadecimal digits");
        *code = *code << 4 | (uint32_t)(found - hex < 16 ? found - hex : found - hex - 6);
    }
    if (digits) return *code >= 0xD800 && *code < 0xE000 ? refuse(p, "a surrogate") : PAL_OK;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c >= 0x80)
        return refuse(p, "an escape that is not supported");
    *code = (uint32_t)c;
    return PAL_OK;
}

static pal_status read_one(pattern *p, uint32_t *code) {
    const size_t size = pal_utf8_read(p->at, (size_t)(p->end - p->at), code);
    p->at += size;
    return size ? PAL_OK : refuse(p, "bytes that are not UTF-8");
}

static pal_status read_class(pattern *p, set *s) {
    set listed = { .count = 0 };
    pal_status st = PAL_OK;
    p->at++;
    const bool except = next_is(p, '^');
    p->at += except;
    while (!st && !next_is(p, ']')) {
        uint32_t low, high;
        bool one = true;
        if (p->at == p->end) return refuse(p, "a class without its end");
        if (next_is(p, '\\')) p->at++, st = read_escape(p, &listed, &low, &one);
        else st = read_one(p, &low);
        if (st || !one) continue;
        high = low;
        if (next_is(p, '-') && p->end - p->at > 1 && p->at[1] != ']') {
            p->at++;
            if (next_is(p, '\\')) p->at++, st = read_escape(p, &listed, &high, &one);
            else st = read_one(p, &high);
            if (!st && (!one || high < low)) st = refuse(p, "a range that ends before it begins");
        }
        if (!st) st = add_range(p, &listed, low, high);
    }
    p->at++;
    if (st) return st;
    if (except) return complement(p, &listed, s);
    *s = listed;
    return PAL_OK;
}

static bool holds(const set *s, uint32_t code) {
    for (size_t i = 0; i < s->count; i++)
        if (code >= s->range[i].low && code <= s->range[i].high) return true;
    return false;
}

/* One character of the set, as JSON writes it. */
static pal_status write_set(pattern *p, const set *s) {
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    set raw = { .count = 0 };
    pal_status st = PAL_OK;
    for (size_t i = 0; i < s->count && !st; i++) { /* without control characters, quote and backslash */
        static const pal_code_range part[] = { { 0x20, 0x21 }, { 0x23, 0x5B }, { 0x5D, 0xD7FF }, { 0xE000, 0x10FFFF } };
        for (size_t k = 0; k < 4 && !st; k++) {
            const uint32_t low = s->range[i].low > part[k].low ? s->range[i].low : part[k].low;
            const uint32_t high = s->range[i].high < part[k].high ? s->range[i].high : part[k].high;
            if (low <= high) st = add_range(p, &raw, low, high);
        }
    }
    const char *between = "";
    if (!st) st = pal_schema_say(p->w, p->out, " (");
    if (raw.count && !st) {
        st = pal_schema_say(p->w, p->out, "[");
        for (size_t i = 0; i < raw.count && !st; i++)
            st = pal_schema_say(p->w, p->out, "\\U%08X-\\U%08X", raw.range[i].low, raw.range[i].high);
        if (!st) st = pal_schema_say(p->w, p->out, "]");
        between = " | ";
    }
    for (size_t i = 0; escaped[i] && !st; i++) {
        const char text[] = { '\\', letters[i] };
        if (!holds(s, (unsigned char)escaped[i])) continue;
        if (!(st = pal_schema_say(p->w, p->out, "%s", between))) st = pal_schema_literal(p->w, p->out, text, 2);
        between = " | ";
    }
    if (!st && !*between) st = refuse(p, "a character that is not supported before this");
    return st ? st : pal_schema_say(p->w, p->out, ")");
}

static pal_status read_choice(pattern *p);

static pal_status read_group(pattern *p) {
    pal_status st;
    p->at++;
    if (next_is(p, '?')) {
        if (p->end - p->at < 2 || p->at[1] != ':') return refuse(p, "a group that is not supported");
        p->at += 2;
    }
    if (++p->depth > GROUPS) return refuse(p, "too many groups in each other");
    if ((st = pal_schema_say(p->w, p->out, " (")) || (st = read_choice(p))) return st;
    if (!next_is(p, ')')) return refuse(p, "a group without its end");
    p->at++, p->depth--;
    return pal_schema_say(p->w, p->out, ")");
}

static pal_status read_item(pattern *p) {
    set s = { .count = 0 };
    uint32_t code;
    bool one = true;
    pal_status st;
    if (next_is(p, '(')) return read_group(p);
    if (next_is(p, '[')) st = read_class(p, &s), one = false;
    else if (next_is(p, '.')) {
        p->at++, one = false;
        s = (set){ .range = { { 0, 9 }, { 11, 12 }, { 14, 0x2027 }, { 0x202A, 0x10FFFF } }, .count = 4 };
        st = PAL_OK;
    } else if (next_is(p, '\\')) p->at++, st = read_escape(p, &s, &code, &one);
    else if (p->at < p->end && strchr("^$?*+{", *p->at)) return refuse(p, "a sign that is not supported here");
    else st = read_one(p, &code);
    if (!st && one) st = add_range(p, &s, code, code);
    return st ? st : write_set(p, &s);
}

static pal_status read_repetition(pattern *p) {
    pal_status st = PAL_OK;
    if (p->at == p->end || !*p->at || !strchr("?*+{", *p->at)) return PAL_OK;
    if (*p->at == '{') { /* the notation of rules is the same, and checked there */
        const unsigned char *from = p->at;
        while (p->at < p->end && *p->at != '}') p->at++;
        if (p->at == p->end || strspn((const char *)from + 1, "0123456789,") != (size_t)(p->at - from - 1) ||
            p->at - from > 16)
            return refuse(p, "a repetition that is not supported");
        st = pal_schema_say(p->w, p->out, "%.*s}", (int)(p->at - from), (const char *)from);
    } else {
        st = pal_schema_say(p->w, p->out, "%c", *p->at);
    }
    p->at++;
    if (!st && p->at < p->end && *p->at && strchr("?*+{", *p->at)) return refuse(p, "a repetition of a repetition");
    return st;
}

static pal_status read_sequence(pattern *p) {
    pal_status st = PAL_OK;
    bool empty = true;
    while (!st && p->at < p->end && *p->at != '|' && *p->at != ')' && !(*p->at == '$' && !p->depth)) {
        if (!(st = read_item(p))) st = read_repetition(p);
        empty = false;
    }
    return st || !empty ? st : pal_schema_say(p->w, p->out, "\"\"");
}

static pal_status read_choice(pattern *p) {
    pal_status st;
    for (;;) {
        const bool outer = !p->depth, anchored = outer && next_is(p, '^');
        p->at += anchored;
        if (outer && !anchored && (st = pal_schema_say(p->w, p->out, "char* "))) return st;
        if ((st = read_sequence(p))) return st;
        const bool ends = outer && next_is(p, '$');
        p->at += ends;
        if (outer && !ends && (st = pal_schema_say(p->w, p->out, " char*"))) return st;
        if (!next_is(p, '|')) return PAL_OK;
        p->at++;
        if ((st = pal_schema_say(p->w, p->out, " | "))) return st;
    }
}

pal_status pal_schema_pattern(schema_writer *w, const char *text, pal_bytes *out) {
    const unsigned char *start = (const unsigned char *)text;
    pattern p = { w, start, start, start + strlen(text), out, 0 };
    pal_status st = pal_schema_say(w, out, "\"\\\"\" (");
    if (!st) st = read_choice(&p);
    if (!st && p.at < p.end) st = refuse(&p, "a sign that is not supported");
    return st ? st : pal_schema_say(w, out, ") \"\\\"\"");
}
