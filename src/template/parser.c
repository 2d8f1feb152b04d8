/* SPDX-License-Identifier: MIT */
/* Statements of a template. */
#include "template/parser.h"

#include <string.h>

static const char *copy(tpl_reader *r, const char *text, size_t size) {
    char *name = pal_tpl_take(r->h, size + 1, 1);
    memcpy(name, text, size);
    return name;
}

tpl_node *pal_tpl_node(tpl_reader *r, tpl_node_kind kind) {
    tpl_node *n = pal_tpl_take(r->h, 1, sizeof *n);
    n->kind = kind;
    n->at = r->h->at = r->token->at;
    return n;
}

static bool is(const tpl_reader *r, tpl_token_kind kind, const char *text) {
    return r->token->kind == kind && r->token->size == strlen(text) &&
           memcmp(r->token->text, text, r->token->size) == 0;
}
bool pal_tpl_is_name(const tpl_reader *r, const char *name) { return is(r, TPL_T_NAME, name); }
bool pal_tpl_is_operator(const tpl_reader *r, const char *op) { return is(r, TPL_T_OPERATOR, op); }
static bool take(tpl_reader *r, bool there) {
    if (there) r->h->at = (++r->token)->at;
    return there;
}
bool pal_tpl_take_name(tpl_reader *r, const char *name) { return take(r, pal_tpl_is_name(r, name)); }
bool pal_tpl_take_operator(tpl_reader *r, const char *op) { return take(r, pal_tpl_is_operator(r, op)); }

void pal_tpl_unexpected(tpl_reader *r, const char *expected) {
    const tpl_token *t = r->token;
    r->h->at = t->at;
    if (t->kind == TPL_T_END) pal_tpl_fail(r->h, "the template ends; expected %s", expected);
    if (t->kind == TPL_T_DATA) pal_tpl_fail(r->h, "text; expected %s", expected);
    pal_tpl_fail(r->h, "'%.*s'; expected %s", (int)(t->size < 60 ? t->size : 60), t->text, expected);
}

void pal_tpl_expect_operator(tpl_reader *r, const char *op) {
    char expected[8] = "'";
    if (pal_tpl_take_operator(r, op)) return;
    strcat(strcat(expected, op), "'");
    pal_tpl_unexpected(r, expected);
}

const char *pal_tpl_expect_name(tpl_reader *r, const char *what) {
    const tpl_token *t = r->token;
    if (t->kind != TPL_T_NAME) pal_tpl_unexpected(r, what);
    take(r, true);
    return copy(r, t->text, t->size);
}

static void expect_block_end(tpl_reader *r) {
    if (!take(r, r->token->kind == TPL_T_BLOCK_END)) pal_tpl_unexpected(r, "the end of the tag, %}");
}

static tpl_node *parse_statement(tpl_reader *r);

static bool at_end(const tpl_reader *r, const char *const *ends) {
    if (r->token->kind != TPL_T_BLOCK_BEGIN || !ends) return false;
    for (const tpl_reader next = { .token = r->token + 1 }; *ends; ends++)
        if (pal_tpl_is_name(&next, *ends)) return true;
    return false;
}

/* Statements up to a tag with one of these names, whose name is then the next token; NULL: up to the end. */
static tpl_node *parse_body(tpl_reader *r, const char *const *ends) {
    tpl_node *first = NULL, **last = &first;
    pal_tpl_enter(r->h);
    while (!at_end(r, ends)) {
        tpl_node *n;
        if (r->token->kind == TPL_T_END) {
            if (!ends) break;
            pal_tpl_fail(r->h, "the template ends; expected '%s'", ends[0]);
        }
        if (r->token->kind == TPL_T_DATA) {
            n = pal_tpl_node(r, TPL_N_TEXT);
            n->value = pal_tpl_string(
                r->h, (tpl_text){ .data = (const unsigned char *)r->token->text, .size = r->token->size });
            take(r, true);
        } else if (r->token->kind == TPL_T_PRINT_BEGIN) {
            n = pal_tpl_node(r, TPL_N_PRINT);
            take(r, true);
            n->a = pal_tpl_tuple(r, true);
            if (!take(r, r->token->kind == TPL_T_PRINT_END)) pal_tpl_unexpected(r, "the end of the expression, }}");
        } else {
            take(r, true);
            n = parse_statement(r);
        }
        if (n) *last = n, last = &n->next;
    }
    if (ends) take(r, true);
    pal_tpl_exit(r->h);
    return first;
}

/* A body that ends with one tag alone. */
static tpl_node *parse_block(tpl_reader *r, const char *end) {
    const char *const ends[] = { end, NULL };
    expect_block_end(r);
    tpl_node *body = parse_body(r, ends);
    take(r, true);
    expect_block_end(r);
    return body;
}

static tpl_node *parse_for(tpl_reader *r, tpl_node *n) {
    static const char *const ends[] = { "endfor", "else", NULL };
    const bool soft = r->soft;
    n->a = pal_tpl_target(r, false);
    if (!pal_tpl_take_name(r, "in")) pal_tpl_unexpected(r, "'in'");
    n->b = pal_tpl_tuple(r, false);
    if (pal_tpl_take_name(r, "if")) n->c = pal_tpl_expression(r);
    if (pal_tpl_is_name(r, "recursive")) pal_tpl_fail(r->h, "recursive loops are not supported");
    expect_block_end(r);
    r->soft = false;
    r->loops++;
    n->d = parse_body(r, ends);
    r->loops--;
    if (pal_tpl_take_name(r, "else")) {
        expect_block_end(r);
        n->e = parse_body(r, (const char *const[]){ "endfor", NULL });
    }
    r->soft = soft;
    take(r, true);
    expect_block_end(r);
    return n;
}

static tpl_node *parse_if(tpl_reader *r, tpl_node *n) {
    static const char *const ends[] = { "endif", "elif", "else", NULL };
    const bool soft = r->soft;
    tpl_node *one = n;
    r->soft = true;
    for (;;) {
        one->a = pal_tpl_tuple(r, false);
        expect_block_end(r);
        one->b = parse_body(r, ends);
        if (!pal_tpl_is_name(r, "elif")) break;
        one->c = pal_tpl_node(r, TPL_N_IF);
        one = one->c;
        take(r, true);
    }
    if (pal_tpl_take_name(r, "else")) {
        expect_block_end(r);
        one->c = parse_body(r, (const char *const[]){ "endif", NULL });
    }
    r->soft = soft;
    take(r, true);
    expect_block_end(r);
    return n;
}

static tpl_node *parse_set(tpl_reader *r, tpl_node *n) {
    n->a = pal_tpl_target(r, true);
    if (pal_tpl_take_operator(r, "=")) {
        n->b = pal_tpl_tuple(r, true);
        expect_block_end(r);
        return n;
    }
    n->kind = TPL_N_SET_BLOCK;
    if (n->a->kind == TPL_N_TUPLE) pal_tpl_unexpected(r, "'='");
    n->b = pal_tpl_filters(r, NULL);
    n->c = parse_block(r, "endset");
    return n;
}

/* A body that runs elsewhere: loops around it cannot be left from there. */
static tpl_node *parse_apart(tpl_reader *r, const char *end) {
    const int loops = r->loops;
    const bool soft = r->soft;
    r->loops = 0;
    r->soft = false;
    tpl_node *body = parse_block(r, end);
    r->loops = loops;
    r->soft = soft;
    return body;
}

static bool mentions(tpl_heap *h, const tpl_node *n, const char *name) {
    bool found = false;
    pal_tpl_enter(h);
    for (; n && !found; n = n->next)
        found = (n->kind == TPL_N_NAME && strcmp(n->name, name) == 0) || mentions(h, n->a, name) ||
                mentions(h, n->b, name) || mentions(h, n->c, name) || mentions(h, n->d, name) ||
                mentions(h, n->e, name);
    pal_tpl_exit(h);
    return found;
}

static tpl_node *parse_macro(tpl_reader *r, tpl_node *n) {
    n->name = pal_tpl_expect_name(r, "the name of the macro");
    n->a = pal_tpl_parameters(r);
    n->b = parse_apart(r, "endmacro");
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "kwargs" : "varargs";
        if (mentions(r->h, n->b, name)) pal_tpl_fail(r->h, "'%s' in a macro is not supported", name);
    }
    n->takes_caller = mentions(r->h, n->b, "caller");
    return n;
}

static tpl_node *parse_call(tpl_reader *r, tpl_node *n) {
    if (pal_tpl_is_operator(r, "(")) n->b = pal_tpl_parameters(r);
    n->a = pal_tpl_expression(r);
    if (n->a->kind != TPL_N_CALL) pal_tpl_unexpected(r, "a call before this");
    n->c = parse_apart(r, "endcall");
    return n;
}

static tpl_node *parse_with(tpl_reader *r, tpl_node *n) {
    tpl_node **last = &n->a;
    while (r->token->kind != TPL_T_BLOCK_END) {
        if (n->a) pal_tpl_expect_operator(r, ",");
        tpl_node *one = pal_tpl_node(r, TPL_N_SET);
        one->a = pal_tpl_target(r, false);
        pal_tpl_expect_operator(r, "=");
        one->b = pal_tpl_expression(r);
        *last = one;
        last = &one->next;
    }
    n->b = parse_block(r, "endwith");
    return n;
}

static tpl_node *parse_filter_block(tpl_reader *r, tpl_node *n) {
    n->a = pal_tpl_filters(r, n);
    n->b = parse_block(r, "endfilter");
    return n;
}

static tpl_node *parse_generation(tpl_reader *r, tpl_node *n) {
    n->a = parse_apart(r, "endgeneration");
    return n;
}

static tpl_node *parse_jump(tpl_reader *r, tpl_node *n) {
    if (!r->loops) pal_tpl_fail(r->h, "'%s' outside of a loop", n->kind == TPL_N_BREAK ? "break" : "continue");
    expect_block_end(r);
    return n;
}

static tpl_node *parse_statement(tpl_reader *r) {
    static const struct {
        const char *name;
        tpl_node_kind kind;
        tpl_node *(*parse)(tpl_reader *r, tpl_node *n);
    } statements[] = { { "for", TPL_N_FOR, parse_for },          { "if", TPL_N_IF, parse_if },
                       { "set", TPL_N_SET, parse_set },          { "macro", TPL_N_MACRO, parse_macro },
                       { "call", TPL_N_CALL_BLOCK, parse_call }, { "filter", TPL_N_FILTER_BLOCK, parse_filter_block },
                       { "with", TPL_N_WITH, parse_with },       { "generation", TPL_N_SCOPE, parse_generation },
                       { "break", TPL_N_BREAK, parse_jump },     { "continue", TPL_N_CONTINUE, parse_jump } };
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (!pal_tpl_is_name(r, statements[i].name)) continue;
        tpl_node *n = pal_tpl_node(r, statements[i].kind);
        take(r, true);
        return statements[i].parse(r, n);
    }
    pal_tpl_unexpected(r, "one of for, if, set, macro, call, filter, with, generation, break, continue or raw");
}

tpl_node *pal_tpl_parse(tpl_heap *h) {
    tpl_reader r = { .h = h, .token = pal_tpl_tokens(h) };
    return parse_body(&r, NULL);
}
