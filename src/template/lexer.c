/* SPDX-License-Identifier: MIT */
#include "template/lexer.h"

#include <string.h>

#include "template/strings.h"

typedef struct {
    tpl_heap *h;
    tpl_token *token;
    size_t count, room;
    size_t at;       /* in the source */
    bool line_start; /* what came before ended with a line break, or nothing came before */
} lexer;

static const char *source(const lexer *x) { return x->h->source; }
static size_t left(const lexer *x) { return x->h->source_size - x->at; }
static tpl_text all(const lexer *x) {
    return (tpl_text){ .data = (const unsigned char *)source(x), .size = x->h->source_size };
}
static bool starts(const lexer *x, const char *with) {
    const size_t size = strlen(with);
    return left(x) >= size && memcmp(source(x) + x->at, with, size) == 0;
}

static void add(lexer *x, tpl_token_kind kind, size_t from, size_t to) {
    if (x->count == x->room) {
        const size_t room = x->room ? 2 * x->room : 256;
        tpl_token *block = pal_tpl_take(x->h, room, sizeof *block);
        if (x->count) memcpy(block, x->token, x->count * sizeof *block);
        x->token = block;
        x->room = room;
    }
    x->token[x->count++] =
        (tpl_token){ .kind = kind, .at = (uint32_t)from, .text = source(x) + from, .size = to - from };
}

static void skip_space(lexer *x) {
    size_t size;
    while (left(x) && pal_tpl_is_space(pal_tpl_code(all(x), x->at, &size))) x->at += size;
}

/* Past a tag's end and what goes with it: all white space after a '-', the line break after a block or a comment. */
static void pass_end(lexer *x, const char *end, bool trims) {
    const char sign = source(x)[x->at];
    if (sign == '-' || sign == '+') x->at++;
    x->at += strlen(end);
    if (sign == '-') skip_space(x);
    else if (sign != '+' && trims && left(x) && source(x)[x->at] == '\n') x->at++;
    x->line_start = source(x)[x->at - 1] == '\n';
}

/* Text up to a tag, whose sign follows its two characters. */
static void add_data(lexer *x, size_t from, size_t to, char sign, bool is_print) {
    if (sign == '-') {
        to = from + pal_tpl_strip(pal_tpl_part(all(x), from, to), NULL, false, true).size;
    } else if (sign != '+' && !is_print) {
        size_t line = to;
        while (line > from && source(x)[line - 1] != '\n') line--;
        if ((line > from || x->line_start) && !pal_tpl_strip(pal_tpl_part(all(x), line, to), NULL, true, false).size)
            to = line;
    }
    if (to > from) add(x, TPL_T_DATA, from, to);
}

static char sign_at(const lexer *x, size_t at) {
    return at < x->h->source_size && strchr("-+", source(x)[at]) ? source(x)[at] : 0;
}

static void pass_comment(lexer *x) {
    const size_t begin = x->at;
    x->at += 2;
    if (sign_at(x, x->at)) x->at++;
    const size_t inside = x->at;
    while (left(x) && !starts(x, "#}")) x->at++;
    if (!left(x)) {
        x->h->at = (uint32_t)begin;
        pal_tpl_fail(x->h, "a comment without its end #}");
    }
    if (x->at > inside && sign_at(x, x->at - 1)) x->at--;
    pass_end(x, "#}", true);
}

/* Whether `word` stands there between {% and %}; *end: at the tag's end, its sign included. */
static bool is_tag(const lexer *x, const char *word, size_t *end) {
    lexer y = *x;
    if (!starts(&y, "{%")) return false;
    y.at += 2;
    if (sign_at(&y, y.at)) y.at++;
    skip_space(&y);
    if (!starts(&y, word)) return false;
    y.at += strlen(word);
    skip_space(&y);
    *end = y.at;
    if (sign_at(&y, y.at)) y.at++;
    return starts(&y, "%}");
}

static void pass_raw(lexer *x, size_t end) {
    const size_t begin = x->at;
    size_t last;
    x->at = end;
    pass_end(x, "%}", false);
    const size_t from = x->at;
    while (left(x) && !is_tag(x, "endraw", &last)) x->at++;
    if (!left(x)) {
        x->h->at = (uint32_t)begin;
        pal_tpl_fail(x->h, "'raw' without its 'endraw'");
    }
    add_data(x, from, x->at, sign_at(x, x->at + 2), false);
    x->at = last;
    pass_end(x, "%}", true);
}

static bool is_name(unsigned char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
}
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static void add_quoted(lexer *x) {
    const size_t begin = x->at++;
    const char quote = source(x)[begin];
    while (left(x) && source(x)[x->at] != quote) x->at += source(x)[x->at] == '\\' && left(x) > 1 ? 2 : 1;
    if (!left(x)) pal_tpl_fail(x->h, "a text without its closing quote");
    add(x, TPL_T_TEXT, begin + 1, x->at++);
}

static void add_number(lexer *x) {
    const size_t begin = x->at;
    const char *s = source(x), *end = s + x->h->source_size, *c = s + begin;
    tpl_token_kind kind = TPL_T_INT;
    const bool part = begin && s[begin - 1] == '.'; /* of a.0.1 */
    while (c < end && (is_digit(*c) || *c == '_')) c++;
    if (!part && c + 1 < end && *c == '.' && is_digit(c[1])) {
        kind = TPL_T_FLOAT;
        for (c++; c < end && (is_digit(*c) || *c == '_');) c++;
    }
    if (!part && c + 1 < end && (*c == 'e' || *c == 'E')) {
        const char *e = c + 1;
        if (e + 1 < end && strchr("+-", *e)) e++;
        if (is_digit(*e)) {
            kind = TPL_T_FLOAT;
            while (e < end && is_digit(*e)) e++;
            c = e;
        }
    }
    x->at = (size_t)(c - s);
    if (c < end && is_name((unsigned char)*c))
        pal_tpl_fail(x->h, "a number that goes over into letters; expected a decimal number");
    add(x, kind, begin, x->at);
}

static void add_operator(lexer *x) {
    static const char *const operators[] = { "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                             "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";" };
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++)
        if (starts(x, operators[i])) {
            const size_t size = strlen(operators[i]);
            add(x, TPL_T_OPERATOR, x->at, x->at + size);
            x->at += size;
            return;
        }
    const unsigned char c = (unsigned char)source(x)[x->at];
    pal_tpl_fail(x->h, c >= 0x20 && c < 0x7F ? "an unexpected character '%c'" : "an unexpected byte 0x%02X", c);
}

/* The inside of a tag; brackets that are open hide its end. */
static void add_inside(lexer *x, const char *end, bool is_print) {
    int open = 0;
    for (;;) {
        skip_space(x);
        x->h->at = (uint32_t)x->at;
        pal_tpl_step(x->h, 1);
        if (!left(x)) pal_tpl_fail(x->h, "a tag without its end %s", end);
        const char c = source(x)[x->at];
        const bool sign = c == '-' || (c == '+' && !is_print);
        x->at += sign;
        const bool ends = !open && starts(x, end);
        x->at -= sign;
        if (ends) break;
        if (is_digit(c)) add_number(x);
        else if (is_name((unsigned char)c)) {
            const size_t begin = x->at;
            while (left(x) && is_name((unsigned char)source(x)[x->at])) x->at++;
            add(x, TPL_T_NAME, begin, x->at);
        } else if (c == '"' || c == '\'') add_quoted(x);
        else {
            if (strchr("([{", c)) open++;
            if (strchr(")]}", c)) open -= 1;
            if (open < 0) pal_tpl_fail(x->h, "an unexpected '%c'", c);
            add_operator(x);
        }
    }
    const size_t begin = x->at;
    pass_end(x, end, !is_print);
    add(x, is_print ? TPL_T_PRINT_END : TPL_T_BLOCK_END, begin, begin + 2);
}

const tpl_token *pal_tpl_tokens(tpl_heap *h) {
    lexer x = { .h = h, .line_start = true };
    size_t raw;
    while (left(&x)) {
        const size_t from = x.at;
        while (left(&x) && !starts(&x, "{%") && !starts(&x, "{{") && !starts(&x, "{#")) x.at++;
        h->at = (uint32_t)x.at;
        pal_tpl_step(h, 1);
        if (!left(&x)) {
            add_data(&x, from, x.at, '+', false);
            break;
        }
        const bool is_print = starts(&x, "{{");
        const char sign = sign_at(&x, x.at + 2);
        add_data(&x, from, x.at, sign, is_print);
        if (starts(&x, "{#")) pass_comment(&x);
        else if (is_tag(&x, "raw", &raw)) pass_raw(&x, raw);
        else {
            add(&x, is_print ? TPL_T_PRINT_BEGIN : TPL_T_BLOCK_BEGIN, x.at, x.at + 2);
            x.at += sign ? 3 : 2;
            add_inside(&x, is_print ? "}}" : "%}", is_print);
        }
    }
    h->at = (uint32_t)h->source_size;
    add(&x, TPL_T_END, h->source_size, h->source_size);
    return x.token;
}
