/* SPDX-License-Identifier: MIT */
/* A template that was read: a tree. */
#ifndef PAL_TEMPLATE_NODE_H
#define PAL_TEMPLATE_NODE_H

#include "template/value.h"

typedef enum tpl_node_kind {
    /* Statements; `next` is the one after. */
    TPL_N_TEXT,         /* value */
    TPL_N_PRINT,        /* a: expression */
    TPL_N_FOR,          /* a: target, b: what is iterated, c: condition or NULL, d: body, e: else */
    TPL_N_IF,           /* a: condition, b: body, c: else */
    TPL_N_SET,          /* a: target, b: expression */
    TPL_N_SET_BLOCK,    /* a: target, b: filters of the body or NULL, c: body */
    TPL_N_MACRO,        /* name, a: parameters, b: body */
    TPL_N_CALL_BLOCK,   /* a: call, b: parameters, c: body */
    TPL_N_FILTER_BLOCK, /* a: filters, b: body */
    TPL_N_WITH,         /* a: TPL_N_SETs, b: body */
    TPL_N_SCOPE,        /* a: body */
    TPL_N_BREAK,
    TPL_N_CONTINUE,
    /* Expressions; `next` is the next of a list. */
    TPL_N_CONST, /* value */
    TPL_N_NAME,
    TPL_N_FIELD,     /* as a target: name of a namespace, field */
    TPL_N_TUPLE,     /* a: items; as a target, too */
    TPL_N_LIST,      /* a: items */
    TPL_N_DICT,      /* a: keys and values by turns */
    TPL_N_ATTRIBUTE, /* a, name */
    TPL_N_ITEM,      /* a, b: index */
    TPL_N_SLICE,     /* a, b, c, d: from, to, step or NULL */
    TPL_N_CALL,      /* a: what, b: arguments, each with a name or without */
    TPL_N_FILTER,    /* a: input or NULL (the body of a block), b: arguments, filter */
    TPL_N_TEST,      /* a, b: arguments, test */
    TPL_N_NOT,
    TPL_N_NEGATE,
    TPL_N_PLUS,
    TPL_N_AND,
    TPL_N_OR,
    TPL_N_JOIN,    /* a ~ b */
    TPL_N_BINARY,  /* a, b, op: one of + - * / % and, for // and **, d and p */
    TPL_N_COMPARE, /* a: first, b: the rest, each with its op: one of = ! < > l g i n (== != < > <= >= in, not in) */
    TPL_N_CHOOSE   /* a: condition, b: then, c: else or NULL */
} tpl_node_kind;

typedef struct tpl_filter tpl_filter;
typedef struct tpl_test tpl_test;

typedef struct tpl_node tpl_node;
struct tpl_node {
    tpl_node_kind kind;
    uint32_t at;
    char op;
    bool takes_caller; /* of a macro */
    const char *name;
    const char *field;
    tpl_node *a, *b, *c, *d, *e, *next;
    tpl_value value;
    const tpl_filter *filter; /* NULL: jinja2 finds out while rendering that there is none */
    const tpl_test *test;
};

/* A parameter is a TPL_N_NAME with its default, or NULL, in a. An argument has its name in `field`. */

/* parser.c: of h->source */
tpl_node *pal_tpl_parse(tpl_heap *h);

#endif
