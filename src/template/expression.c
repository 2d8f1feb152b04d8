/* SPDX-License-Identifier: MIT */
/* Expressions of a template, in Jinja's order of precedence. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "template/filters.h"
#include "template/parser.h"
#include "template/strings.h"

static tpl_node *parse_unary(tpl_reader *r, bool filters);

static tpl_node *constant(tpl_reader *r, tpl_value value) {
    tpl_node *n = pal_tpl_node(r, TPL_N_CONST);
    n->value = value;
    r->token++;
    return n;
}

static tpl_node *two(tpl_reader *r, tpl_node_kind kind, char op, tpl_node *a, tpl_node *b) {
    tpl_node *n = pal_tpl_node(r, kind);
    n->at = a->at;
    n->op = op;
    n->a = a;
    n->b = b;
    return n;
}

/* Hexadecimal digits after \x, \u and \U. */
static const char *hex(tpl_reader *r, const char *c, const char *end, int digits, tpl_out *o) {
    uint32_t code = 0;
    for (int i = 0; i < digits; i++, c++) {
        const char *known = "0123456789abcdef";
        const char *digit = c < end && *c ? strchr(known, *c >= 'A' && *c <= 'F' ? *c + 32 : *c) : NULL;
        if (!digit) pal_tpl_fail(pal_tpl_here(r), "a text with an incomplete escape of %d hexadecimal digits", digits);
        code = code << 4 | (uint32_t)(digit - known);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        pal_tpl_fail(pal_tpl_here(r), "a text with an escape of the code point %X, which UTF-8 does not have", code);
    pal_tpl_put_code(r->h, o, code, 0);
    return c;
}

static const char *unescape(tpl_reader *r, const char *c, const char *end, tpl_out *o) {
    static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
    const char *simple = strchr(from, *c);
    if (*c == '\n') return c + 1;
    if (*c == 'x' || *c == 'u' || *c == 'U') return hex(r, c + 1, end, *c == 'x' ? 2 : *c == 'u' ? 4 : 8, o);
    if (*c == 'N') pal_tpl_fail(pal_tpl_here(r), "a text with an escape \\N, which is not supported");
    if (*c >= '0' && *c <= '7') {
        uint32_t code = 0;
        for (int i = 0; i < 3 && c < end && *c >= '0' && *c <= '7'; i++) code = code * 8 + (uint32_t)(*c++ - '0');
        pal_tpl_put_code(r->h, o, code, 0);
        return c;
    }
    if (!simple || !*c) pal_tpl_put_string(r->h, o, "\\");
    pal_tpl_put_bytes(r->h, o, simple && *c ? &to[simple - from] : c, 1, 0);
    return c + 1;
}

static tpl_node *parse_text(tpl_reader *r) {
    tpl_out o = { 0 };
    tpl_node *n = pal_tpl_node(r, TPL_N_CONST);
    for (; r->token->kind == TPL_T_TEXT; r->token++) {
        const char *c = r->token->text, *end = c + r->token->size;
        while (c < end) {
            const char *next = memchr(c, '\\', (size_t)(end - c));
            if (!next || next + 1 == end) next = end;
            pal_tpl_put_bytes(r->h, &o, c, (size_t)(next - c), 0);
            c = next < end ? unescape(r, next + 1, end, &o) : end;
        }
    }
    n->value = pal_tpl_out_string(r->h, &o);
    return n;
}

static tpl_node *parse_number(tpl_reader *r) {
    char digits[64];
    size_t size = 0;
    for (size_t i = 0; i < r->token->size; i++) {
        if (r->token->text[i] == '_') continue;
        if (size + 1 == sizeof digits) pal_tpl_unexpected(r, "a shorter number");
        digits[size++] = r->token->text[i];
    }
    digits[size] = 0;
    if (r->token->kind == TPL_T_FLOAT) return constant(r, pal_tpl_float(strtod(digits, NULL)));
    errno = 0;
    const long long whole = strtoll(digits, NULL, 10);
    if (errno) pal_tpl_unexpected(r, "an integer of 64 bits");
    if (digits[0] == '0' && whole) pal_tpl_unexpected(r, "a number without leading zeroes");
    return constant(r, pal_tpl_int(whole));
}

static tpl_node *parse_items(tpl_reader *r, tpl_node_kind kind, const char *end) {
    tpl_node *n = pal_tpl_node(r, kind), **last = &n->a;
    r->token++;
    while (!pal_tpl_is_operator(r, end)) {
        if (n->a) pal_tpl_expect_operator(r, ",");
        if (pal_tpl_is_operator(r, end)) break;
        *last = pal_tpl_expression(r);
        last = &(*last)->next;
        if (kind != TPL_N_DICT) continue;
        pal_tpl_expect_operator(r, ":");
        *last = pal_tpl_expression(r);
        last = &(*last)->next;
    }
    r->token++;
    return n;
}

static bool ends_expression(const tpl_reader *r) {
    const tpl_token_kind k = r->token->kind;
    return k == TPL_T_BLOCK_END || k == TPL_T_PRINT_END || k == TPL_T_END || pal_tpl_is_operator(r, ")") ||
           pal_tpl_is_operator(r, "]") || pal_tpl_is_operator(r, "=") || pal_tpl_is_name(r, "in");
}

static tpl_node *parse_or(tpl_reader *r);

static tpl_node *parse_commas(tpl_reader *r, tpl_node *(*item)(tpl_reader *r)) {
    tpl_node *n = pal_tpl_node(r, TPL_N_TUPLE), **last = &n->a;
    bool tuple = false;
    while (!ends_expression(r)) {
        *last = item(r);
        last = &(*last)->next;
        if (!pal_tpl_take_operator(r, ",")) break;
        tuple = true;
    }
    if (!n->a) pal_tpl_unexpected(r, "an expression");
    return tuple ? n : n->a;
}

tpl_node *pal_tpl_tuple(tpl_reader *r, bool choices) {
    return parse_commas(r, choices ? pal_tpl_expression : parse_or);
}

static tpl_node *parse_parentheses(tpl_reader *r) {
    tpl_node *n = pal_tpl_node(r, TPL_N_TUPLE);
    r->token++;
    if (!pal_tpl_is_operator(r, ")")) n = pal_tpl_tuple(r, true);
    pal_tpl_expect_operator(r, ")");
    return n;
}

static bool is_constant(tpl_reader *r, tpl_value *value) {
    if (pal_tpl_is_name(r, "true") || pal_tpl_is_name(r, "True")) *value = pal_tpl_bool(true);
    else if (pal_tpl_is_name(r, "false") || pal_tpl_is_name(r, "False")) *value = pal_tpl_bool(false);
    else if (pal_tpl_is_name(r, "none") || pal_tpl_is_name(r, "None")) *value = pal_tpl_none();
    else return false;
    return true;
}

tpl_node *pal_tpl_primary(tpl_reader *r) {
    tpl_value value;
    if (is_constant(r, &value)) return constant(r, value);
    if (r->token->kind == TPL_T_NAME) {
        static const char *const missing[] = { "lipsum", "cycler", "joiner", "self", "super", NULL };
        for (size_t i = 0; missing[i]; i++)
            if (pal_tpl_is_name(r, missing[i])) pal_tpl_fail(pal_tpl_here(r), "'%s' is not supported", missing[i]);
        tpl_node *n = pal_tpl_node(r, TPL_N_NAME);
        n->name = pal_tpl_expect_name(r, "a name");
        return n;
    }
    if (r->token->kind == TPL_T_TEXT) return parse_text(r);
    if (r->token->kind == TPL_T_INT || r->token->kind == TPL_T_FLOAT) return parse_number(r);
    if (pal_tpl_is_operator(r, "(")) return parse_parentheses(r);
    if (pal_tpl_is_operator(r, "[")) return parse_items(r, TPL_N_LIST, "]");
    if (pal_tpl_is_operator(r, "{")) return parse_items(r, TPL_N_DICT, "}");
    pal_tpl_unexpected(r, "an expression");
}

static tpl_node *parse_arguments(tpl_reader *r) {
    tpl_node *first = NULL, **last = &first;
    bool named = false;
    r->token++;
    while (!pal_tpl_is_operator(r, ")")) {
        const char *name = NULL;
        if (first) pal_tpl_expect_operator(r, ",");
        if (pal_tpl_is_operator(r, ")")) break;
        if (pal_tpl_is_operator(r, "*") || pal_tpl_is_operator(r, "**"))
            pal_tpl_fail(pal_tpl_here(r), "arguments from a list or a mapping (* and **) are not supported");
        const tpl_token *t = r->token;
        if (t->kind == TPL_T_NAME && t[1].kind == TPL_T_OPERATOR && t[1].size == 1 && t[1].text[0] == '=') {
            name = pal_tpl_expect_name(r, "a name");
            r->token++;
            named = true;
        } else if (named) pal_tpl_unexpected(r, "an argument with a name, as the one before");
        *last = pal_tpl_expression(r);
        (*last)->field = name;
        last = &(*last)->next;
    }
    r->token++;
    return first;
}

static tpl_node *parse_subscript(tpl_reader *r, tpl_node *of) {
    tpl_node *n = two(r, TPL_N_ITEM, 0, of, NULL), *part[3] = { NULL, NULL, NULL };
    int count = 0;
    r->token++;
    for (bool more = true; more; count++) {
        if (count == 3) pal_tpl_unexpected(r, "']'");
        if (!pal_tpl_is_operator(r, ":") && !pal_tpl_is_operator(r, "]")) part[count] = pal_tpl_expression(r);
        more = pal_tpl_take_operator(r, ":");
    }
    if (pal_tpl_is_operator(r, ",")) pal_tpl_unexpected(r, "']': several indices are not supported");
    if (count == 1 && !part[0]) pal_tpl_unexpected(r, "an index");
    pal_tpl_expect_operator(r, "]");
    if (count > 1) n->kind = TPL_N_SLICE;
    n->b = part[0], n->c = part[1], n->d = part[2];
    return n;
}

static tpl_node *parse_attribute(tpl_reader *r, tpl_node *of) {
    tpl_node *n = two(r, TPL_N_ATTRIBUTE, 0, of, NULL);
    r->token++;
    if (r->token->kind == TPL_T_INT) {
        n->kind = TPL_N_ITEM;
        n->b = parse_number(r);
    } else n->name = pal_tpl_expect_name(r, "a name after '.'");
    return n;
}

static tpl_node *parse_invocation(tpl_reader *r, tpl_node *of) {
    tpl_node *n = two(r, TPL_N_CALL, 0, of, NULL);
    n->b = parse_arguments(r);
    return n;
}

tpl_node *pal_tpl_postfix(tpl_reader *r, tpl_node *of) {
    for (;;) {
        pal_tpl_step(r->h, 1);
        if (pal_tpl_is_operator(r, ".")) of = parse_attribute(r, of);
        else if (pal_tpl_is_operator(r, "[")) of = parse_subscript(r, of);
        else if (pal_tpl_is_operator(r, "(")) of = parse_invocation(r, of);
        else return of;
    }
}

static tpl_node *parse_filter(tpl_reader *r, tpl_node *input) {
    tpl_node *n = pal_tpl_node(r, TPL_N_FILTER);
    n->a = input;
    n->name = pal_tpl_expect_name(r, "the name of a filter");
    n->filter = pal_tpl_find_filter(n->name);
    if (!n->filter && !r->soft) {
        r->h->at = n->at;
        pal_tpl_fail(r->h, "no filter is called '%s'", n->name);
    }
    if (pal_tpl_is_operator(r, "(")) n->b = parse_arguments(r);
    return n;
}

tpl_node *pal_tpl_filters(tpl_reader *r, tpl_node *block) {
    tpl_node *n = NULL;
    if (block) n = parse_filter(r, NULL);
    while (pal_tpl_take_operator(r, "|")) n = parse_filter(r, n);
    return n;
}

/* An argument without parentheses: x is divisibleby 3. */
static bool has_argument(const tpl_reader *r) {
    if (pal_tpl_is_name(r, "else") || pal_tpl_is_name(r, "or") || pal_tpl_is_name(r, "and")) return false;
    const tpl_token_kind k = r->token->kind;
    return k == TPL_T_NAME || k == TPL_T_TEXT || k == TPL_T_INT || k == TPL_T_FLOAT || pal_tpl_is_operator(r, "[") ||
           pal_tpl_is_operator(r, "{");
}

static tpl_node *parse_test(tpl_reader *r, tpl_node *of) {
    tpl_node *n = two(r, TPL_N_TEST, 0, of, NULL);
    const bool negated = pal_tpl_take_name(r, "not");
    const uint32_t at = r->token->at;
    n->name = pal_tpl_expect_name(r, "the name of a test");
    n->test = pal_tpl_find_test(n->name);
    if (!n->test && !r->soft) {
        r->h->at = at;
        pal_tpl_fail(r->h, "no test is called '%s'", n->name);
    }
    if (pal_tpl_is_operator(r, "(")) n->b = parse_arguments(r);
    else if (has_argument(r)) {
        if (pal_tpl_is_name(r, "is")) pal_tpl_unexpected(r, "'and' between tests");
        n->b = pal_tpl_postfix(r, pal_tpl_primary(r));
    }
    if (!negated) return n;
    return two(r, TPL_N_NOT, 0, n, NULL);
}

static tpl_node *parse_unary(tpl_reader *r, bool filters) {
    tpl_node *n;
    pal_tpl_enter(r->h);
    if (pal_tpl_is_operator(r, "-") || pal_tpl_is_operator(r, "+")) {
        n = pal_tpl_node(r, pal_tpl_is_operator(r, "-") ? TPL_N_NEGATE : TPL_N_PLUS);
        r->token++;
        n->a = parse_unary(r, false);
    } else n = pal_tpl_primary(r);
    n = pal_tpl_postfix(r, n);
    while (filters) {
        pal_tpl_step(r->h, 1);
        if (pal_tpl_take_operator(r, "|")) n = parse_filter(r, n);
        else if (pal_tpl_take_name(r, "is")) n = parse_test(r, n);
        else if (pal_tpl_is_operator(r, "(")) n = parse_invocation(r, n);
        else break;
    }
    pal_tpl_exit(r->h);
    return n;
}

/* Operators from those that bind most: ** / * // % / ~ / + - */
static tpl_node *parse_operators(tpl_reader *r, int level) {
    static const struct {
        const char *text;
        int level;
        char op;
    } operators[] = { { "**", 0, 'p' }, { "*", 1, '*' }, { "/", 1, '/' }, { "//", 1, 'd' },
                      { "%", 1, '%' },  { "~", 2, '~' }, { "+", 3, '+' }, { "-", 3, '-' } };
    tpl_node *n = level ? parse_operators(r, level - 1) : parse_unary(r, true);
    for (size_t i = 0; i < sizeof operators / sizeof operators[0];) {
        if (operators[i].level != level || !pal_tpl_take_operator(r, operators[i].text)) {
            i++;
            continue;
        }
        tpl_node *right = level ? parse_operators(r, level - 1) : parse_unary(r, true);
        n = two(r, operators[i].op == '~' ? TPL_N_JOIN : TPL_N_BINARY, operators[i].op, n, right);
        i = 0;
    }
    return n;
}

static char take_comparison(tpl_reader *r) {
    static const struct {
        const char *text;
        char op;
    } operators[] = { { "==", '=' }, { "!=", '!' }, { "<=", 'l' }, { ">=", 'g' }, { "<", '<' }, { ">", '>' } };
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++)
        if (pal_tpl_take_operator(r, operators[i].text)) return operators[i].op;
    if (pal_tpl_take_name(r, "in")) return 'i';
    const tpl_reader next = { .token = r->token + 1 };
    if (!pal_tpl_is_name(r, "not") || !pal_tpl_is_name(&next, "in")) return 0;
    r->token += 2;
    return 'n';
}

static tpl_node *parse_compare(tpl_reader *r) {
    tpl_node *n = parse_operators(r, 3), *all = NULL, **last = NULL;
    for (char op; (op = take_comparison(r));) {
        if (!all) {
            all = two(r, TPL_N_COMPARE, 0, n, NULL);
            last = &all->b;
        }
        tpl_node *right = two(r, TPL_N_PLUS, op, n, NULL); /* holds the operator */
        right->a = parse_operators(r, 3);
        *last = right;
        last = &right->next;
    }
    return all ? all : n;
}

static tpl_node *parse_not(tpl_reader *r) {
    if (!pal_tpl_is_name(r, "not")) return parse_compare(r);
    pal_tpl_enter(r->h);
    tpl_node *n = pal_tpl_node(r, TPL_N_NOT);
    r->token++;
    n->a = parse_not(r);
    pal_tpl_exit(r->h);
    return n;
}

static tpl_node *parse_and(tpl_reader *r) {
    tpl_node *n = parse_not(r);
    while (pal_tpl_take_name(r, "and")) n = two(r, TPL_N_AND, 0, n, parse_not(r));
    return n;
}

static tpl_node *parse_or(tpl_reader *r) {
    tpl_node *n = parse_and(r);
    while (pal_tpl_take_name(r, "or")) n = two(r, TPL_N_OR, 0, n, parse_and(r));
    return n;
}

tpl_node *pal_tpl_expression(tpl_reader *r) {
    pal_tpl_enter(r->h);
    tpl_node *n = parse_or(r);
    while (pal_tpl_take_name(r, "if")) {
        const bool soft = r->soft;
        tpl_node *choice = pal_tpl_node(r, TPL_N_CHOOSE);
        r->soft = true;
        choice->b = n;
        choice->a = parse_or(r);
        if (pal_tpl_take_name(r, "else")) choice->c = pal_tpl_expression(r);
        r->soft = soft;
        n = choice;
    }
    pal_tpl_exit(r->h);
    return n;
}

static tpl_node *parse_target_name(tpl_reader *r) {
    tpl_value value;
    if (pal_tpl_take_operator(r, "(")) {
        tpl_node *n = pal_tpl_target(r, false);
        pal_tpl_expect_operator(r, ")");
        return n;
    }
    if (is_constant(r, &value)) pal_tpl_unexpected(r, "a name that can be set");
    tpl_node *n = pal_tpl_node(r, TPL_N_NAME);
    n->name = pal_tpl_expect_name(r, "a name");
    return n;
}

tpl_node *pal_tpl_target(tpl_reader *r, bool fields) {
    pal_tpl_enter(r->h);
    tpl_node *n = parse_commas(r, parse_target_name);
    if (fields && n->kind == TPL_N_NAME && pal_tpl_take_operator(r, ".")) {
        n->kind = TPL_N_FIELD;
        n->field = pal_tpl_expect_name(r, "a name after '.'");
    }
    pal_tpl_exit(r->h);
    return n;
}

tpl_node *pal_tpl_parameters(tpl_reader *r) {
    tpl_node *first = NULL, **last = &first;
    bool defaults = false;
    pal_tpl_expect_operator(r, "(");
    while (!pal_tpl_is_operator(r, ")")) {
        if (first) pal_tpl_expect_operator(r, ",");
        if (pal_tpl_is_operator(r, ")")) break;
        tpl_node *n = parse_target_name(r);
        if (n->kind != TPL_N_NAME) pal_tpl_unexpected(r, "the name of a parameter");
        if (pal_tpl_take_operator(r, "=")) n->a = pal_tpl_expression(r), defaults = true;
        else if (defaults) pal_tpl_unexpected(r, "a default, as the parameter before has");
        *last = n;
        last = &n->next;
    }
    r->token++;
    return first;
}
