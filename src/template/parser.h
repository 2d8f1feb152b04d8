/* SPDX-License-Identifier: MIT */
#ifndef PAL_TEMPLATE_PARSER_H
#define PAL_TEMPLATE_PARSER_H

#include "template/lexer.h"
#include "template/node.h"

typedef struct tpl_reader {
    tpl_heap *h;
    const tpl_token *token; /* the next one */
    int loops;              /* around this place */
    bool soft; /* in a branch: what is missing there is an error only when it is reached, as jinja2 has it */
} tpl_reader;

static inline tpl_heap *pal_tpl_here(tpl_reader *r) { /* for an error at the next token */
    r->h->at = r->token->at;
    return r->h;
}
tpl_node *pal_tpl_node(tpl_reader *r, tpl_node_kind kind);   /* at the next token */
bool pal_tpl_is_name(const tpl_reader *r, const char *name); /* the next token */
bool pal_tpl_is_operator(const tpl_reader *r, const char *op);
bool pal_tpl_take_name(tpl_reader *r, const char *name); /* if it is there */
bool pal_tpl_take_operator(tpl_reader *r, const char *op);
void pal_tpl_expect_operator(tpl_reader *r, const char *op);
const char *pal_tpl_expect_name(tpl_reader *r, const char *what);
_Noreturn void pal_tpl_unexpected(tpl_reader *r, const char *expected); /* the next token */

/* expression.c */
tpl_node *pal_tpl_expression(tpl_reader *r);
/* Commas make a tuple; `choices`: with inline ifs. */
tpl_node *pal_tpl_tuple(tpl_reader *r, bool choices);
tpl_node *pal_tpl_target(tpl_reader *r, bool fields);      /* of set, for and with; ns.x only with `fields` */
tpl_node *pal_tpl_filters(tpl_reader *r, tpl_node *input); /* filters of what a block says */
tpl_node *pal_tpl_postfix(tpl_reader *r, tpl_node *of);
tpl_node *pal_tpl_primary(tpl_reader *r);
tpl_node *pal_tpl_parameters(tpl_reader *r); /* in parentheses */

#endif
