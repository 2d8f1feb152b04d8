/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "template/run.h"

void pal_tpl_assign(tpl_run *r, tpl_scope *scope, const char *name, tpl_value value) {
    for (size_t i = 0; i < scope->count; i++)
        if (strcmp(scope->variable[i].name, name) == 0) {
            scope->variable[i].value = value;
            return;
        }
    if (scope->count == scope->room) {
        const size_t room = scope->room ? 2 * scope->room : 4;
        tpl_variable *block = pal_tpl_take(&r->heap, room, sizeof *block);
        if (scope->count) memcpy(block, scope->variable, scope->count * sizeof *block);
        scope->variable = block;
        scope->room = room;
    }
    scope->variable[scope->count++] = (tpl_variable){ .name = name, .value = value };
}

static void assign_field(tpl_run *r, tpl_scope *scope, const tpl_node *target, tpl_value value) {
    const tpl_value of = pal_tpl_evaluate(r, &(tpl_node){ .kind = TPL_N_NAME, .name = target->name, .at = target->at },
                                          scope);
    if (of.kind != TPL_NAMESPACE)
        pal_tpl_fail(&r->heap, "'%s' is not a namespace: its '%s' cannot be set", target->name, target->field);
    if (target->field[0] == '_')
        pal_tpl_fail(&r->heap, "'%s': names in a namespace may not begin with '_'", target->field);
    pal_tpl_set(&r->heap, of.as.dict, pal_tpl_literal(&r->heap, target->field), value);
}

static void assign_to(tpl_run *r, tpl_scope *scope, const tpl_node *target, tpl_value value) {
    r->heap.at = target->at;
    if (target->kind == TPL_N_NAME) pal_tpl_assign(r, scope, target->name, value);
    else if (target->kind == TPL_N_FIELD) assign_field(r, scope, target, value);
    else {
        const tpl_list *items = pal_tpl_items(&r->heap, value);
        size_t count = 0;
        for (const tpl_node *one = target->a; one; one = one->next) count++;
        if (items->count != count) pal_tpl_fail(&r->heap, "%zu values for %zu names", items->count, count);
        count = 0;
        for (const tpl_node *one = target->a; one; one = one->next) assign_to(r, scope, one, items->item[count++]);
    }
}

/* What a body says, in a scope below this one. */
static tpl_value run_apart(tpl_run *r, const tpl_node *body, tpl_scope *scope) {
    tpl_out out = { 0 };
    tpl_scope *inner = pal_tpl_take(&r->heap, 1, sizeof *inner);
    inner->parent = scope;
    pal_tpl_run(r, body, inner, &out);
    return pal_tpl_out_string(&r->heap, &out);
}

static tpl_list *chosen_items(tpl_run *r, const tpl_node *n, tpl_scope *scope, const tpl_list *all) {
    tpl_list *items = pal_tpl_new_list(&r->heap, TPL_LIST, 0).as.list;
    tpl_scope *inner = pal_tpl_take(&r->heap, 1, sizeof *inner);
    for (size_t i = 0; i < all->count; i++) {
        *inner = (tpl_scope){ .parent = scope, .variable = inner->variable, .room = inner->room };
        assign_to(r, inner, n->a, all->item[i]);
        if (pal_tpl_truth(pal_tpl_evaluate(r, n->c, inner))) pal_tpl_append(&r->heap, items, all->item[i]);
    }
    return items;
}

static tpl_jump run_for(tpl_run *r, const tpl_node *n, tpl_scope *scope, tpl_out *out) {
    const tpl_value over = pal_tpl_evaluate(r, n->b, scope);
    r->heap.at = n->b->at;
    const tpl_list *all = pal_tpl_items(&r->heap, over), *items = n->c ? chosen_items(r, n, scope, all) : all;
    tpl_loop *loop = pal_tpl_take(&r->heap, 1, sizeof *loop);
    tpl_scope *inner = pal_tpl_take(&r->heap, 1, sizeof *inner);
    *loop = (tpl_loop){ .items = items };
    for (size_t i = 0; i < items->count; i++) {
        pal_tpl_step(&r->heap, 1);
        *inner = (tpl_scope){ .parent = scope, .variable = inner->variable, .room = inner->room };
        loop->index = i;
        pal_tpl_assign(r, inner, "loop", (tpl_value){ .kind = TPL_LOOP, .as.loop = loop });
        assign_to(r, inner, n->a, items->item[i]);
        if (pal_tpl_run(r, n->d, inner, out) == TPL_BREAK) break;
    }
    if (items->count || !n->e) return TPL_GO_ON;
    *inner = (tpl_scope){ .parent = scope };
    return pal_tpl_run(r, n->e, inner, out);
}

static tpl_jump run_if(tpl_run *r, const tpl_node *n, tpl_scope *scope, tpl_out *out) {
    while (!pal_tpl_truth(pal_tpl_evaluate(r, n->a, scope))) {
        if (!n->c) return TPL_GO_ON;
        if (n->c->kind != TPL_N_IF || n->c->next) return pal_tpl_run(r, n->c, scope, out);
        n = n->c;
    }
    return pal_tpl_run(r, n->b, scope, out);
}

static tpl_value make_macro(tpl_run *r, tpl_macro of) {
    tpl_macro *m = pal_tpl_take(&r->heap, 1, sizeof *m);
    *m = of;
    return (tpl_value){ .kind = TPL_MACRO, .as.macro = m };
}

static void run_call_block(tpl_run *r, const tpl_node *n, tpl_scope *scope, tpl_out *out) {
    const tpl_macro caller = { .name = "caller", .parameters = n->b, .body = n->c, .scope = scope };
    const tpl_argument more = { "caller", make_macro(r, caller) };
    const tpl_value callee = pal_tpl_evaluate(r, n->a->a, scope);
    const tpl_arguments arguments = pal_tpl_arguments(r, n->a->b, scope, &more);
    r->heap.at = n->at;
    pal_tpl_print(&r->heap, out, pal_tpl_call(&r->heap, callee, arguments));
}

static void run_with(tpl_run *r, const tpl_node *n, tpl_scope *scope, tpl_out *out) {
    tpl_scope *inner = pal_tpl_take(&r->heap, 1, sizeof *inner);
    inner->parent = scope;
    for (const tpl_node *one = n->a; one; one = one->next)
        assign_to(r, inner, one->a, pal_tpl_evaluate(r, one->b, scope));
    pal_tpl_run(r, n->b, inner, out);
}

static tpl_jump run_one(tpl_run *r, const tpl_node *n, tpl_scope *scope, tpl_out *out) {
    tpl_value v;
    switch (n->kind) {
    case TPL_N_TEXT: pal_tpl_put(&r->heap, out, n->value.as.string->text); break;
    case TPL_N_PRINT:
        v = pal_tpl_evaluate(r, n->a, scope);
        r->heap.at = n->a->at;
        pal_tpl_print(&r->heap, out, v);
        break;
    case TPL_N_FOR: return run_for(r, n, scope, out);
    case TPL_N_IF: return run_if(r, n, scope, out);
    case TPL_N_SET: assign_to(r, scope, n->a, pal_tpl_evaluate(r, n->b, scope)); break;
    case TPL_N_SET_BLOCK:
        v = run_apart(r, n->c, scope);
        assign_to(r, scope, n->a, n->b ? pal_tpl_apply(r, n->b, v, scope) : v);
        break;
    case TPL_N_MACRO:
        v = make_macro(
            r,
            (tpl_macro){
                .name = n->name, .parameters = n->a, .body = n->b, .scope = scope, .takes_caller = n->takes_caller });
        pal_tpl_assign(r, scope, n->name, v);
        break;
    case TPL_N_CALL_BLOCK: run_call_block(r, n, scope, out); break;
    case TPL_N_FILTER_BLOCK:
        pal_tpl_print(&r->heap, out, pal_tpl_apply(r, n->a, run_apart(r, n->b, scope), scope));
        break;
    case TPL_N_WITH: run_with(r, n, scope, out); break;
    case TPL_N_SCOPE: pal_tpl_print(&r->heap, out, run_apart(r, n->a, scope)); break;
    case TPL_N_BREAK: return TPL_BREAK;
    case TPL_N_CONTINUE: return TPL_CONTINUE;
    default: break;
    }
    return TPL_GO_ON;
}

tpl_jump pal_tpl_run(tpl_run *r, const tpl_node *n, tpl_scope *scope, tpl_out *out) {
    tpl_jump jump = TPL_GO_ON;
    pal_tpl_enter(&r->heap);
    for (; n && jump == TPL_GO_ON; n = n->next) {
        pal_tpl_step(&r->heap, 1);
        r->heap.at = n->at;
        jump = run_one(r, n, scope, out);
    }
    pal_tpl_exit(&r->heap);
    return jump;
}

tpl_value pal_tpl_call_macro(tpl_run *r, const tpl_macro *m, tpl_arguments a) {
    tpl_scope *inner = pal_tpl_take(&r->heap, 1, sizeof *inner);
    size_t used = 0, place = 0;
    tpl_out out = { 0 };
    if (++r->calls > TPL_MOST_CALLS) pal_tpl_fail(&r->heap, "macros call each other more than %d deep", TPL_MOST_CALLS);
    inner->parent = m->scope;
    for (const tpl_node *p = m->parameters; p; p = p->next, place++) {
        tpl_value v = pal_tpl_undefined(p->name);
        bool given = false;
        for (size_t i = 0; i < a.count; i++) {
            const char *name = a.item[i].name;
            if (name ? strcmp(name, p->name) != 0 : i != place) continue;
            if (given) pal_tpl_fail(&r->heap, "%s: two values for the parameter '%s'", m->name, p->name);
            v = a.item[i].value;
            given = true;
            used++;
        }
        if (!given && p->a) v = pal_tpl_evaluate(r, p->a, inner);
        pal_tpl_assign(r, inner, p->name, v);
    }
    for (size_t i = 0; i < a.count; i++)
        if (a.item[i].name && strcmp(a.item[i].name, "caller") == 0 && m->takes_caller) {
            pal_tpl_assign(r, inner, a.item[i].name, a.item[i].value);
            used++;
        }
    if (used != a.count)
        pal_tpl_fail(&r->heap, "%s: more arguments than it has parameters, or of other names", m->name);
    pal_tpl_run(r, m->body, inner, &out);
    r->calls--;
    return pal_tpl_out_string(&r->heap, &out);
}
