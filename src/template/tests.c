/* SPDX-License-Identifier: MIT */
/* x is NAME. */
#include <string.h>

#include "template/filters.h"
#include "template/run.h"
#include "template/strings.h"

static tpl_value argument(tpl_heap *h, const char *name, tpl_arguments a) {
    tpl_value v = pal_tpl_none();
    pal_tpl_bind(h, name, a, "other", 1, &v);
    return v;
}
static tpl_value answer(tpl_heap *h, const char *name, tpl_arguments a, bool holds) {
    pal_tpl_bind(h, name, a, "", 0, NULL);
    return pal_tpl_bool(holds);
}

#define TEST_OF_KIND(name, condition) \
    static tpl_value t_##name(tpl_heap *h, tpl_value v, tpl_arguments a) { return answer(h, #name, a, (condition)); }
TEST_OF_KIND(boolean, v.kind == TPL_BOOL)
TEST_OF_KIND(callable, v.kind == TPL_MACRO || v.kind == TPL_FUNCTION || v.kind == TPL_UNDEFINED)
TEST_OF_KIND(defined, v.kind != TPL_UNDEFINED)
TEST_OF_KIND(undefined, v.kind == TPL_UNDEFINED)
TEST_OF_KIND(false, v.kind == TPL_BOOL && !v.as.truth)
TEST_OF_KIND(true, v.kind == TPL_BOOL && v.as.truth)
TEST_OF_KIND(float, v.kind == TPL_FLOAT)
TEST_OF_KIND(integer, v.kind == TPL_INT)
TEST_OF_KIND(iterable, pal_tpl_iterable(v))
TEST_OF_KIND(mapping, v.kind == TPL_DICT)
TEST_OF_KIND(none, v.kind == TPL_NONE)
TEST_OF_KIND(number, pal_tpl_is_number(v))
TEST_OF_KIND(string, v.kind == TPL_STRING)
TEST_OF_KIND(sequence, v.kind == TPL_UNDEFINED || v.kind == TPL_STRING || v.kind == TPL_LIST || v.kind == TPL_TUPLE ||
                           v.kind == TPL_RANGE || v.kind == TPL_DICT)

static tpl_value remainder_of(tpl_heap *h, tpl_value v, tpl_value by) { return pal_tpl_binary(h, '%', v, by); }
static tpl_value t_even(tpl_heap *h, tpl_value v, tpl_arguments a) {
    return answer(h, "even", a, pal_tpl_equal(h, remainder_of(h, v, pal_tpl_int(2)), pal_tpl_int(0)));
}
static tpl_value t_odd(tpl_heap *h, tpl_value v, tpl_arguments a) {
    return answer(h, "odd", a, pal_tpl_equal(h, remainder_of(h, v, pal_tpl_int(2)), pal_tpl_int(1)));
}
static tpl_value t_divisibleby(tpl_heap *h, tpl_value v, tpl_arguments a) {
    return pal_tpl_bool(pal_tpl_equal(h, remainder_of(h, v, argument(h, "divisibleby", a)), pal_tpl_int(0)));
}

static tpl_value t_eq(tpl_heap *h, tpl_value v, tpl_arguments a) {
    return pal_tpl_bool(pal_tpl_equal(h, v, argument(h, "eq", a)));
}
static tpl_value t_ne(tpl_heap *h, tpl_value v, tpl_arguments a) {
    return pal_tpl_bool(!pal_tpl_equal(h, v, argument(h, "ne", a)));
}
static tpl_value t_lt(tpl_heap *h, tpl_value v, tpl_arguments a) {
    return pal_tpl_bool(pal_tpl_compare(h, v, argument(h, "lt", a)) < 0);
}
static tpl_value t_gt(tpl_heap *h, tpl_value v, tpl_arguments a) {
    return pal_tpl_bool(pal_tpl_compare(h, v, argument(h, "gt", a)) > 0);
}
static tpl_value t_le(tpl_heap *h, tpl_value v, tpl_arguments a) {
    return pal_tpl_bool(pal_tpl_compare(h, v, argument(h, "le", a)) <= 0);
}
static tpl_value t_ge(tpl_heap *h, tpl_value v, tpl_arguments a) {
    return pal_tpl_bool(pal_tpl_compare(h, v, argument(h, "ge", a)) >= 0);
}
static tpl_value t_in(tpl_heap *h, tpl_value v, tpl_arguments a) {
    return pal_tpl_bool(pal_tpl_contains(h, argument(h, "in", a), v));
}

static bool has_case(tpl_heap *h, tpl_value v, bool upper) {
    tpl_out same = { 0 }, other = { 0 };
    const tpl_text t = pal_tpl_text_of(h, v);
    pal_tpl_case(h, &same, t, upper);
    pal_tpl_case(h, &other, t, !upper);
    return pal_tpl_same_text(pal_tpl_out_text(&same), t) && !pal_tpl_same_text(pal_tpl_out_text(&other), t);
}
static tpl_value t_lower(tpl_heap *h, tpl_value v, tpl_arguments a) {
    return answer(h, "lower", a, has_case(h, v, false));
}
static tpl_value t_upper(tpl_heap *h, tpl_value v, tpl_arguments a) {
    return answer(h, "upper", a, has_case(h, v, true));
}

const struct tpl_test *pal_tpl_find_test(const char *name) {
    static const struct tpl_test tests[] = { { "boolean", t_boolean },
                                             { "callable", t_callable },
                                             { "defined", t_defined },
                                             { "divisibleby", t_divisibleby },
                                             { "eq", t_eq },
                                             { "equalto", t_eq },
                                             { "even", t_even },
                                             { "false", t_false },
                                             { "float", t_float },
                                             { "ge", t_ge },
                                             { "greaterthan", t_gt },
                                             { "gt", t_gt },
                                             { "in", t_in },
                                             { "integer", t_integer },
                                             { "iterable", t_iterable },
                                             { "le", t_le },
                                             { "lessthan", t_lt },
                                             { "lower", t_lower },
                                             { "lt", t_lt },
                                             { "mapping", t_mapping },
                                             { "ne", t_ne },
                                             { "none", t_none },
                                             { "number", t_number },
                                             { "odd", t_odd },
                                             { "sequence", t_sequence },
                                             { "string", t_string },
                                             { "true", t_true },
                                             { "undefined", t_undefined },
                                             { "upper", t_upper },
                                             { "==", t_eq },
                                             { "!=", t_ne },
                                             { "<", t_lt },
                                             { ">", t_gt },
                                             { "<=", t_le },
                                             { ">=", t_ge } };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (strcmp(tests[i].name, name) == 0) return &tests[i];
    return NULL;
}
