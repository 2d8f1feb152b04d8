/* SPDX-License-Identifier: MIT */
/* Rules as text: a subset of the notation of llama.cpp's GBNF. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "grammar/program.h"
#include "text/strings.h"
#include "text/utf8.h"

typedef struct {
    const unsigned char *at, *end;
    int line, depth;
    pal_grammar *g;
    pal_strings names;
    pal_string_map by_name;
    size_t map_room;
    pal_ids first_line; /* by rule: where it was named first */
    char shown[96];
    pal_error *err;
} reader;

static pal_status refuse(reader *r, const char *what) {
    return pal_fail(r->err, PAL_E_ARGUMENT, "line %d: %s", r->line, what);
}

static bool is_name(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static void skip_blanks(reader *r) {
    for (; r->at < r->end; r->at++) {
        if (*r->at == '#')
            while (r->at < r->end && *r->at != '\n') r->at++;
        if (r->at == r->end) return;
        if (*r->at == '\n') r->line++;
        else if (*r->at != ' ' && *r->at != '\t' && *r->at != '\r') return;
    }
}

static bool next_is(const reader *r, char c) { return r->at < r->end && *r->at == (unsigned char)c; }

static pal_slice read_name(reader *r) {
    const unsigned char *from = r->at;
    while (r->at < r->end && is_name(*r->at)) r->at++;
    return (pal_slice){ from, (size_t)(r->at - from) };
}

/* Whether a rule begins here: a name and ::=. */
static bool rule_begins(const reader *r) {
    reader look = *r;
    if (!read_name(&look).size) return false;
    skip_blanks(&look);
    return look.end - look.at >= 3 && memcmp(look.at, "::=", 3) == 0;
}

/* A map that grows forgets. */
static pal_status grow_map(reader *r) {
    if (r->names.count <= r->map_room) return PAL_OK;
    const pal_status st = pal_string_map_reserve(&r->by_name, r->map_room = 2 * r->map_room + 64, r->err);
    for (uint32_t i = 0; !st && i + 1 < r->names.count; i++) (void)pal_string_map_add(&r->by_name, &r->names, i);
    return st;
}

static pal_status find_rule(reader *r, pal_slice name, uint32_t *rule) {
    pal_status st;
    *rule = r->names.count ? pal_string_map_find(&r->by_name, &r->names, name.data, name.size) : PAL_NO_ID;
    if (*rule != PAL_NO_ID) return PAL_OK;
    pal_grammar *g = r->g;
    *rule = (uint32_t)r->names.count;
    if ((st = pal_strings_add(&r->names, name.data, name.size, r->err)) || (st = grow_map(r)) ||
        (st = pal_ids_append(&r->first_line, (uint32_t)r->line, r->err)) ||
        (st = pal_grow((void **)&g->rule, &g->rule_room, g->rules, g->rules + 1, sizeof *g->rule, r->err)))
        return st;
    (void)pal_string_map_add(&r->by_name, &r->names, *rule);
    g->rule[g->rules++] = PAL_NO_ID;
    return PAL_OK;
}

static const char *name_of(void *user, uint32_t rule) {
    reader *r = user;
    const pal_slice name = pal_strings_at(&r->names, rule);
    snprintf(r->shown, sizeof r->shown, "rule '%.*s'", (int)(name.size < 60 ? name.size : 60), (const char *)name.data);
    return r->shown;
}

static int hex(int c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* One character of a literal or class, or an escape that names one. */
static pal_status read_character(reader *r, uint32_t *code) {
    static const char letters[] = "nrt\\\"[]-^", values[] = "\n\r\t\\\"[]-^";
    if (r->at == r->end || *r->at == '\n') return refuse(r, "a literal or a class that does not end on its line");
    if (*r->at != '\\') {
        const size_t size = pal_utf8_read(r->at, (size_t)(r->end - r->at), code);
        r->at += size;
        return size ? PAL_OK : refuse(r, "bytes that are not UTF-8");
    }
    if (++r->at == r->end) return refuse(r, "a text that ends in an escape");
    const int letter = *r->at++, digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    const char *known = letter ? strchr(letters, letter) : NULL;
    if (known) {
        *code = (unsigned char)values[known - letters];
        return PAL_OK;
    }
    *code = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        const int digit = r->at < r->end ? hex(*r->at) : -1;
        if (digit < 0) return refuse(r, "an escape with too few hexadecimal digits");
        *code = *code << 4 | (uint32_t)digit;
    }
    if (!digits)
        return refuse(r, "an unknown escape; expected \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xNN \\uNNNN \\UNNNNNNNN");
    return *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000) ? refuse(r, "an escape of no character") : PAL_OK;
}

static pal_status read_literal(reader *r, bool token, uint32_t *node) {
    pal_bytes text = { 0 };
    pal_status st = PAL_OK;
    const unsigned char mark = PAL_TOKEN_MARK;
    r->at++;
    if (token) st = pal_bytes_append(&text, &mark, 1, r->err);
    while (!st && !next_is(r, '"')) {
        unsigned char bytes[4];
        uint32_t code = 0;
        if (!(st = read_character(r, &code))) st = pal_bytes_append(&text, bytes, pal_utf8_write(code, bytes), r->err);
    }
    if (!st && token) st = pal_bytes_append(&text, &mark, 1, r->err);
    if (!st) r->at++, st = pal_node_bytes(r->g, text.data, text.size, node, r->err);
    pal_bytes_free(&text);
    return st;
}

static pal_status read_class(reader *r, uint32_t *node) {
    enum { MOST = 1024 };
    pal_code_range range[MOST];
    size_t count = 0;
    pal_status st;
    r->at++;
    const bool except = next_is(r, '^');
    r->at += except;
    while (!next_is(r, ']')) {
        if (count == MOST) return refuse(r, "a class of more than 1024 ranges");
        pal_code_range *one = &range[count++];
        if ((st = read_character(r, &one->low))) return st;
        one->high = one->low;
        if (next_is(r, '-') && r->end - r->at > 1 && r->at[1] != ']') {
            r->at++;
            if ((st = read_character(r, &one->high))) return st;
            if (one->high < one->low) return refuse(r, "a range of a class that ends before it begins");
        }
    }
    r->at++;
    if (!count && !except) return refuse(r, "a class without characters");
    return pal_node_characters(r->g, range, count, except, node, r->err);
}

static pal_status read_choice(reader *r, uint32_t *node);

static pal_status read_group(reader *r, uint32_t *node) {
    pal_status st;
    r->at++;
    if (++r->depth > PAL_GRAMMAR_DEPTH) return refuse(r, "more than 200 groups in each other");
    if ((st = read_choice(r, node))) return st;
    if (!next_is(r, ')')) return refuse(r, "expected ) at the end of a group");
    r->at++, r->depth--;
    return PAL_OK;
}

static pal_status read_item(reader *r, uint32_t *node) {
    const int c = *r->at;
    uint32_t rule;
    pal_status st;
    if (c == '"') return read_literal(r, false, node);
    if (c == '[') return read_class(r, node);
    if (c == '(') return read_group(r, node);
    if (c == '.') {
        r->at++;
        return pal_node_characters(r->g, NULL, 0, true, node, r->err);
    }
    if (c == '<' && r->end - r->at > 1 && r->at[1] == '"') {
        r->at++;
        if ((st = read_literal(r, true, node))) return st;
        if (!next_is(r, '>')) return refuse(r, "expected > after the name of a special token");
        r->at++;
        return PAL_OK;
    }
    if (!is_name(c)) {
        char what[80];
        snprintf(what, sizeof what,
                 c > 32 && c < 127 ? "'%c' found where a part of a rule is expected"
                                   : "byte 0x%02x found where a part of a rule is expected",
                 (unsigned)c);
        return refuse(r, what);
    }
    if ((st = find_rule(r, read_name(r), &rule))) return st;
    return pal_node_add(r->g, (pal_node){ .kind = PAL_NODE_RULE, .first = rule }, node, r->err);
}

static bool read_number(reader *r, uint32_t *number) {
    uint32_t value = 0;
    const unsigned char *from = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9' && value < 1000000; r->at++)
        value = 10 * value + (uint32_t)(*r->at - '0');
    *number = value;
    return r->at > from && value <= 1000000;
}

static pal_status read_counts(reader *r, uint32_t *least, uint32_t *most) {
    static const char expected[] = "expected {n}, {n,} or {n,m} with n <= m <= 1000000";
    r->at++;
    if (!read_number(r, least)) return refuse(r, expected);
    *most = *least;
    if (next_is(r, ',')) {
        r->at++;
        if (next_is(r, '}')) *most = PAL_NO_BOUND;
        else if (!read_number(r, most)) return refuse(r, expected);
    }
    if (!next_is(r, '}') || *most < *least) return refuse(r, expected);
    r->at++;
    return PAL_OK;
}

static pal_status read_repeated(reader *r, uint32_t *node) {
    pal_status st = read_item(r, node);
    while (!st && r->at < r->end && strchr("?*+{", *r->at) && *r->at) {
        pal_node repeat = { .kind = PAL_NODE_REPEAT, .first = *node, .least = *r->at == '+', .most = PAL_NO_BOUND };
        if (*r->at == '{') st = read_counts(r, &repeat.least, &repeat.most);
        else if (*r->at++ == '?') repeat.most = 1;
        if (!st) st = pal_node_add(r->g, repeat, node, r->err);
    }
    skip_blanks(r);
    return st;
}

static pal_status read_sequence(reader *r, uint32_t *node) {
    pal_ids list = { 0 };
    pal_status st = PAL_OK;
    while (!st && r->at < r->end && *r->at != '|' && *r->at != ')' && !rule_begins(r)) {
        uint32_t one;
        if (!(st = read_repeated(r, &one))) st = pal_ids_append(&list, one, r->err);
    }
    if (!st) st = pal_node_list(r->g, PAL_NODE_SEQUENCE, list.data, list.count, node, r->err);
    pal_ids_free(&list);
    return st;
}

static pal_status read_choice(reader *r, uint32_t *node) {
    pal_ids list = { 0 };
    pal_status st;
    for (;;) {
        uint32_t one;
        skip_blanks(r);
        if ((st = read_sequence(r, &one)) || (st = pal_ids_append(&list, one, r->err))) break;
        if (!next_is(r, '|')) break;
        r->at++;
    }
    if (!st) st = pal_node_list(r->g, PAL_NODE_CHOICE, list.data, list.count, node, r->err);
    pal_ids_free(&list);
    return st;
}

static pal_status read_rule(reader *r) {
    uint32_t rule, node;
    pal_status st;
    if (!rule_begins(r)) return refuse(r, "expected a rule: its name, ::= and what it stands for");
    if ((st = find_rule(r, read_name(r), &rule))) return st;
    if (r->g->rule[rule] != PAL_NO_ID) {
        name_of(r, rule);
        return pal_fail(r->err, PAL_E_ARGUMENT, "line %d: %s is there twice", r->line, r->shown);
    }
    skip_blanks(r);
    r->at += 3;
    r->depth = 0;
    if ((st = read_choice(r, &node))) return st;
    r->g->rule[rule] = node;
    return next_is(r, ')') ? refuse(r, "a ) without its (") : PAL_OK;
}

static pal_status read_rules(reader *r) {
    pal_status st;
    uint32_t root;
    for (skip_blanks(r); r->at < r->end;)
        if ((st = read_rule(r))) return st;
    for (uint32_t i = 0; i < r->g->rules; i++)
        if (r->g->rule[i] == PAL_NO_ID)
            return pal_fail(r->err, PAL_E_ARGUMENT, "line %u: %s is not there", r->first_line.data[i], name_of(r, i));
    root = r->names.count ? pal_string_map_find(&r->by_name, &r->names, "root", 4) : PAL_NO_ID;
    if (root == PAL_NO_ID) return pal_fail(r->err, PAL_E_ARGUMENT, "the grammar has no rule named 'root'");
    r->g->root = r->g->rule[root];
    return pal_grammar_finish(r->g, name_of, r, r->err);
}

pal_status pal_grammar_read(pal_grammar **out, const char *text, size_t size, pal_error *err) {
    void *block;
    pal_status st;
    *out = NULL;
    if (size > PAL_GRAMMAR_TEXT)
        return pal_fail(err, PAL_E_ARGUMENT, "a grammar of %zu bytes: expected at most %d", size, PAL_GRAMMAR_TEXT);
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_grammar), "a grammar", err))) return st;
    reader r = {
        .at = (const unsigned char *)text, .end = (const unsigned char *)text + size, .line = 1, .g = block, .err = err
    };
    if ((st = read_rules(&r))) pal_grammar_free(r.g);
    else *out = r.g;
    pal_strings_free(&r.names);
    pal_string_map_free(&r.by_name);
    pal_ids_free(&r.first_line);
    return st;
}
