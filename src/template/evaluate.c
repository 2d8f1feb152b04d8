/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "template/filters.h"
#include "template/run.h"
#include "template/strings.h"

static tpl_value look_up(tpl_run *r, const char *name, const tpl_scope *scope) {
    tpl_value v;
    for (const tpl_scope *s = scope; s; s = s->parent)
        for (size_t i = 0; i < s->count; i++)
            if (strcmp(s->variable[i].name, name) == 0) return s->variable[i].value;
    return pal_tpl_global(&r->heap, name, &v) ? v : pal_tpl_undefined(name);
}

static tpl_value evaluate_list(tpl_run *r, const tpl_node *n, tpl_kind kind, tpl_scope *scope) {
    const tpl_value list = pal_tpl_new_list(&r->heap, kind, 0);
    for (const tpl_node *one = n->a; one; one = one->next)
        pal_tpl_append(&r->heap, list.as.list, pal_tpl_evaluate(r, one, scope));
    return list;
}

static tpl_value evaluate_dict(tpl_run *r, const tpl_node *n, tpl_scope *scope) {
    const tpl_value dict = pal_tpl_new_dict(&r->heap, TPL_DICT);
    for (const tpl_node *one = n->a; one; one = one->next->next) {
        const tpl_value key = pal_tpl_evaluate(r, one, scope);
        pal_tpl_set(&r->heap, dict.as.dict, key, pal_tpl_evaluate(r, one->next, scope));
    }
    return dict;
}

tpl_arguments pal_tpl_arguments(tpl_run *r, const tpl_node *first, tpl_scope *scope, const tpl_argument *more) {
    size_t count = more != NULL, i = 0;
    for (const tpl_node *one = first; one; one = one->next) count++;
    if (!count) return (tpl_arguments){ .count = 0 };
    tpl_argument *item = pal_tpl_take(&r->heap, count, sizeof *item);
    for (const tpl_node *one = first; one; one = one->next)
        item[i++] = (tpl_argument){ .name = one->field, .value = pal_tpl_evaluate(r, one, scope) };
    if (more) item[i] = *more;
    return (tpl_arguments){ .item = item, .count = count };
}

tpl_value pal_tpl_call(tpl_heap *h, tpl_value callee, tpl_arguments arguments) {
    tpl_run *r = (tpl_run *)h;
    if (callee.kind == TPL_MACRO) return pal_tpl_call_macro(r, callee.as.macro, arguments);
    if (callee.kind == TPL_FUNCTION) return callee.as.function->call(h, callee.as.function->self, arguments);
    if (callee.kind != TPL_UNDEFINED) pal_tpl_fail(h, "a value of type %s cannot be called", pal_tpl_type(callee));
    if (callee.forbidden) pal_tpl_fail(h, "'%s' is not allowed in a template", callee.as.missing);
    pal_tpl_fail(h, "'%s' is undefined", callee.as.missing);
}

static tpl_value apply_one(tpl_run *r, const tpl_node *n, tpl_value input, tpl_scope *scope) {
    const tpl_arguments arguments = pal_tpl_arguments(r, n->b, scope, NULL);
    r->heap.at = n->at;
    if (!n->filter) pal_tpl_fail(&r->heap, "no filter is called '%s'", n->name);
    return n->filter->call(&r->heap, input, arguments);
}

tpl_value pal_tpl_apply(tpl_run *r, const tpl_node *filter, tpl_value input, tpl_scope *scope) {
    pal_tpl_enter(&r->heap);
    if (filter->a) input = pal_tpl_apply(r, filter->a, input, scope);
    pal_tpl_exit(&r->heap);
    return apply_one(r, filter, input, scope);
}

static tpl_value evaluate_test(tpl_run *r, const tpl_node *n, tpl_scope *scope) {
    const tpl_value of = pal_tpl_evaluate(r, n->a, scope);
    const tpl_arguments arguments = pal_tpl_arguments(r, n->b, scope, NULL);
    r->heap.at = n->at;
    if (!n->test) pal_tpl_fail(&r->heap, "no test is called '%s'", n->name);
    return n->test->call(&r->heap, of, arguments);
}

static bool compare(tpl_run *r, char op, tpl_value a, tpl_value b) {
    tpl_heap *h = &r->heap;
    switch (op) {
    case '=': return pal_tpl_equal(h, a, b);
    case '!': return !pal_tpl_equal(h, a, b);
    case '<': return pal_tpl_compare(h, a, b) < 0;
    case '>': return pal_tpl_compare(h, a, b) > 0;
    case 'l': return pal_tpl_compare(h, a, b) <= 0;
    case 'g': return pal_tpl_compare(h, a, b) >= 0;
    case 'i': return pal_tpl_contains(h, b, a);
    default: return !pal_tpl_contains(h, b, a);
    }
}

static tpl_value evaluate_compare(tpl_run *r, const tpl_node *n, tpl_scope *scope) {
    tpl_value left = pal_tpl_evaluate(r, n->a, scope);
    bool holds = true;
    for (const tpl_node *one = n->b; one && holds; one = one->next) {
        const tpl_value right = pal_tpl_evaluate(r, one->a, scope);
        r->heap.at = n->at;
        holds = compare(r, one->op, left, right);
        left = right;
    }
    return pal_tpl_bool(holds);
}

static tpl_value evaluate_join(tpl_run *r, const tpl_node *n, tpl_scope *scope) {
    tpl_out o = { 0 };
    const tpl_value a = pal_tpl_evaluate(r, n->a, scope), b = pal_tpl_evaluate(r, n->b, scope);
    pal_tpl_print(&r->heap, &o, a);
    pal_tpl_print(&r->heap, &o, b);
    return pal_tpl_out_string(&r->heap, &o);
}

static tpl_value evaluate_slice(tpl_run *r, const tpl_node *n, tpl_scope *scope) {
    const tpl_value of = pal_tpl_evaluate(r, n->a, scope);
    const tpl_value from = n->b ? pal_tpl_evaluate(r, n->b, scope) : pal_tpl_none();
    const tpl_value to = n->c ? pal_tpl_evaluate(r, n->c, scope) : pal_tpl_none();
    const tpl_value step = n->d ? pal_tpl_evaluate(r, n->d, scope) : pal_tpl_none();
    r->heap.at = n->at;
    return pal_tpl_slice(&r->heap, of, from, to, step);
}

/* Both sides are there: what is left has two operands. */
static tpl_value evaluate_two(tpl_run *r, const tpl_node *n, tpl_scope *scope) {
    const tpl_value a = pal_tpl_evaluate(r, n->a, scope);
    if (n->kind == TPL_N_AND && !pal_tpl_truth(a)) return a;
    if (n->kind == TPL_N_OR && pal_tpl_truth(a)) return a;
    const tpl_value b = pal_tpl_evaluate(r, n->b, scope);
    r->heap.at = n->at;
    if (n->kind == TPL_N_ITEM) return pal_tpl_item(&r->heap, a, b);
    return n->kind == TPL_N_BINARY ? pal_tpl_binary(&r->heap, n->op, a, b) : b;
}

static tpl_value evaluate_one(tpl_run *r, const tpl_node *n, tpl_scope *scope) {
    tpl_value a;
    tpl_arguments arguments;
    switch (n->kind) {
    case TPL_N_CONST: return n->value;
    case TPL_N_NAME: return look_up(r, n->name, scope);
    case TPL_N_TUPLE: return evaluate_list(r, n, TPL_TUPLE, scope);
    case TPL_N_LIST: return evaluate_list(r, n, TPL_LIST, scope);
    case TPL_N_DICT: return evaluate_dict(r, n, scope);
    case TPL_N_ATTRIBUTE:
        a = pal_tpl_evaluate(r, n->a, scope);
        r->heap.at = n->at;
        return pal_tpl_attribute(&r->heap, a, n->name);
    case TPL_N_SLICE: return evaluate_slice(r, n, scope);
    case TPL_N_CALL:
        a = pal_tpl_evaluate(r, n->a, scope);
        arguments = pal_tpl_arguments(r, n->b, scope, NULL);
        r->heap.at = n->at;
        return pal_tpl_call(&r->heap, a, arguments);
    case TPL_N_FILTER: return apply_one(r, n, pal_tpl_evaluate(r, n->a, scope), scope);
    case TPL_N_TEST: return evaluate_test(r, n, scope);
    case TPL_N_NOT: return pal_tpl_bool(!pal_tpl_truth(pal_tpl_evaluate(r, n->a, scope)));
    case TPL_N_NEGATE:
    case TPL_N_PLUS: return pal_tpl_negate(&r->heap, pal_tpl_evaluate(r, n->a, scope), n->kind == TPL_N_PLUS);
    case TPL_N_JOIN: return evaluate_join(r, n, scope);
    case TPL_N_COMPARE: return evaluate_compare(r, n, scope);
    case TPL_N_CHOOSE:
        if (pal_tpl_truth(pal_tpl_evaluate(r, n->a, scope))) return pal_tpl_evaluate(r, n->b, scope);
        return n->c ? pal_tpl_evaluate(r, n->c, scope) : pal_tpl_undefined("an inline if without its else");
    default: return evaluate_two(r, n, scope);
    }
}

tpl_value pal_tpl_evaluate(tpl_run *r, const tpl_node *n, tpl_scope *scope) {
    pal_tpl_step(&r->heap, 1);
    pal_tpl_enter(&r->heap);
    r->heap.at = n->at;
    const tpl_value v = evaluate_one(r, n, scope);
    pal_tpl_exit(&r->heap);
    return v;
}
