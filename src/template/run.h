/* SPDX-License-Identifier: MIT */
/* A template while it is rendered. */
#ifndef PAL_TEMPLATE_RUN_H
#define PAL_TEMPLATE_RUN_H

#include <time.h>

#include "template/node.h"

typedef struct tpl_variable {
    const char *name;
    tpl_value value;
} tpl_variable;

typedef struct tpl_scope tpl_scope;
struct tpl_scope {
    tpl_scope *parent;
    tpl_variable *variable;
    size_t count, room;
};

typedef struct tpl_run {
    tpl_heap heap; /* first: a function that gets the heap finds its run there */
    tpl_scope inputs;
    struct tm now;
    int calls;
} tpl_run;

struct tpl_macro {
    const tpl_node *parameters, *body;
    tpl_scope *scope; /* where it was defined */
    const char *name;
    bool takes_caller;
};

struct tpl_loop {
    const tpl_list *items;
    size_t index;
};

typedef enum tpl_jump { TPL_GO_ON, TPL_BREAK, TPL_CONTINUE } tpl_jump;

/* statements.c */
tpl_jump pal_tpl_run(tpl_run *r, const tpl_node *n, tpl_scope *scope, tpl_out *out);
void pal_tpl_assign(tpl_run *r, tpl_scope *scope, const char *name, tpl_value value);
tpl_value pal_tpl_call_macro(tpl_run *r, const tpl_macro *m, tpl_arguments arguments);

/* evaluate.c */
tpl_value pal_tpl_evaluate(tpl_run *r, const tpl_node *n, tpl_scope *scope);
tpl_arguments pal_tpl_arguments(tpl_run *r, const tpl_node *first, tpl_scope *scope, const tpl_argument *more);
tpl_value pal_tpl_call(tpl_heap *h, tpl_value callee, tpl_arguments arguments);
tpl_value pal_tpl_apply(tpl_run *r, const tpl_node *filter, tpl_value input,
                        tpl_scope *scope); /* with those before it */

/* access.c */
tpl_value pal_tpl_attribute(tpl_heap *h, tpl_value of, const char *name);
tpl_value pal_tpl_item(tpl_heap *h, tpl_value of, tpl_value index);
tpl_value pal_tpl_slice(tpl_heap *h, tpl_value of, tpl_value from, tpl_value to, tpl_value step);

/* arithmetic.c */
tpl_value pal_tpl_binary(tpl_heap *h, char op, tpl_value a, tpl_value b);
tpl_value pal_tpl_negate(tpl_heap *h, tpl_value a, bool plus);

/* globals.c: range, namespace, ...; false: there is none of this name. */
bool pal_tpl_global(tpl_heap *h, const char *name, tpl_value *value);

/* methods.c: the method of a value; false: it has none of this name. */
bool pal_tpl_method(tpl_heap *h, tpl_value of, const char *name, tpl_value *method);
tpl_value pal_tpl_function(tpl_heap *h, const char *name, tpl_call_fn *call, tpl_value self);

#endif
