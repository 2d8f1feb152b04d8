/* SPDX-License-Identifier: MIT */
/* + - * / // % ** by Python's rules; integers have 64 bits, and what does not fit is refused. */
#include <math.h>
#include <string.h>

#include "template/run.h"
#include "template/strings.h"

static _Noreturn void wrong_types(tpl_heap *h, char op, tpl_value a, tpl_value b) {
    const char *name = op == 'd' ? "//" : op == 'p' ? "**" : (const char[]){ op, 0 };
    const tpl_value *undefined = a.kind == TPL_UNDEFINED ? &a : b.kind == TPL_UNDEFINED ? &b : NULL;
    if (undefined && undefined->as.missing) pal_tpl_fail(h, "'%s' is undefined", undefined->as.missing);
    pal_tpl_fail(h, "%s does not go with values of type %s and %s", name, pal_tpl_type(a), pal_tpl_type(b));
}

static tpl_value power(tpl_heap *h, int64_t base, int64_t exponent) {
    int64_t result = 1;
    if (exponent < 0) return pal_tpl_float(pow((double)base, (double)exponent));
    if (base == 0 || base == 1) return pal_tpl_int(exponent ? base : 1);
    if (base == -1) return pal_tpl_int(exponent % 2 ? -1 : 1);
    while (exponent--)
        if (__builtin_mul_overflow(result, base, &result)) pal_tpl_fail(h, "an integer of more than 64 bits");
    return pal_tpl_int(result);
}

static tpl_value whole_numbers(tpl_heap *h, char op, int64_t a, int64_t b) {
    int64_t c = 0;
    bool over = false;
    if (strchr("/d%", op) && !b) pal_tpl_fail(h, "a division by zero");
    switch (op) {
    case '+': over = __builtin_add_overflow(a, b, &c); break;
    case '-': over = __builtin_sub_overflow(a, b, &c); break;
    case '*': over = __builtin_mul_overflow(a, b, &c); break;
    case '/': return pal_tpl_float((double)a / (double)b);
    case 'p': return power(h, a, b);
    default:
        over = b == -1 && op == 'd' && a == INT64_MIN;
        if (over) break;
        c = b == -1 ? op == 'd' ? -a : 0 : op == 'd' ? a / b : a % b;
        if (op == 'd' && a % (b == -1 ? 1 : b) && (a < 0) != (b < 0)) c--;
        if (op == '%' && c && (c < 0) != (b < 0)) c += b;
    }
    if (over) pal_tpl_fail(h, "an integer of more than 64 bits");
    return pal_tpl_int(c);
}

static tpl_value real_numbers(tpl_heap *h, char op, double a, double b) {
    if (strchr("/d%", op) && b == 0) pal_tpl_fail(h, "a division by zero");
    switch (op) {
    case '+': return pal_tpl_float(a + b);
    case '-': return pal_tpl_float(a - b);
    case '*': return pal_tpl_float(a * b);
    case '/': return pal_tpl_float(a / b);
    case 'd': return pal_tpl_float(floor(a / b));
    case 'p': return pal_tpl_float(pow(a, b));
    default: break;
    }
    double c = fmod(a, b);
    if (c != 0 && (c < 0) != (b < 0)) c += b;
    return pal_tpl_float(c);
}

static tpl_value add_texts(tpl_heap *h, const tpl_string *a, const tpl_string *b) {
    tpl_out o = { 0 };
    const bool safe = a->safe || b->safe;
    if (safe && !a->safe) pal_tpl_escape(h, &o, a->text);
    else pal_tpl_put(h, &o, a->text);
    if (safe && !b->safe) pal_tpl_escape(h, &o, b->text);
    else pal_tpl_put(h, &o, b->text);
    tpl_string *s = pal_tpl_take(h, 1, sizeof *s);
    *s = (tpl_string){ .text = pal_tpl_out_text(&o), .safe = safe };
    return (tpl_value){ .kind = TPL_STRING, .as.string = s };
}

static tpl_value add_lists(tpl_heap *h, tpl_value a, tpl_value b) {
    const tpl_value all = pal_tpl_new_list(h, a.kind, a.as.list->count + b.as.list->count);
    for (size_t i = 0; i < a.as.list->count; i++) pal_tpl_append(h, all.as.list, a.as.list->item[i]);
    for (size_t i = 0; i < b.as.list->count; i++) pal_tpl_append(h, all.as.list, b.as.list->item[i]);
    return all;
}

static tpl_value repeat(tpl_heap *h, tpl_value what, int64_t times) {
    tpl_out o = { 0 };
    const tpl_value all = what.kind == TPL_STRING ? what : pal_tpl_new_list(h, what.kind, 0);
    for (; times > 0; times--) {
        pal_tpl_step(h, 1);
        if (what.kind == TPL_STRING) pal_tpl_put(h, &o, what.as.string->text);
        else
            for (size_t i = 0; i < what.as.list->count; i++) pal_tpl_append(h, all.as.list, what.as.list->item[i]);
    }
    return what.kind == TPL_STRING ? pal_tpl_out_string(h, &o) : all;
}

/* "..." % values: %s, %d, %i and %%. */
static tpl_value fill_in(tpl_heap *h, tpl_text format, tpl_value with) {
    const tpl_value one = pal_tpl_new_list(h, TPL_LIST, 1);
    tpl_out o = { 0 };
    size_t used = 0;
    if (with.kind != TPL_TUPLE) pal_tpl_append(h, one.as.list, with);
    const tpl_list *values = with.kind == TPL_TUPLE ? with.as.list : one.as.list;
    for (size_t i = 0; i < format.size; i++) {
        const unsigned char c = i + 1 < format.size ? format.data[i + 1] : 0;
        if (format.data[i] != '%') pal_tpl_put(h, &o, pal_tpl_part(format, i, i + 1));
        else if (c == '%') pal_tpl_put(h, &o, pal_tpl_part(format, i, i + 1)), i++;
        else if (!c || !strchr("sdi", c)) pal_tpl_fail(h, "a format with something other than %%s, %%d, %%i or %%%%");
        else {
            if (used == values->count) pal_tpl_fail(h, "a format with more places than values");
            if (c != 's' && values->item[used].kind != TPL_INT) pal_tpl_fail(h, "%%%c: expected an integer", c);
            pal_tpl_print(h, &o, values->item[used++]);
            i++;
        }
    }
    if (used != values->count && with.kind != TPL_DICT) pal_tpl_fail(h, "a format with fewer places than values");
    return pal_tpl_out_string(h, &o);
}

static bool whole(tpl_value v) { return v.kind == TPL_INT || v.kind == TPL_BOOL; }

tpl_value pal_tpl_binary(tpl_heap *h, char op, tpl_value a, tpl_value b) {
    const bool text = a.kind == TPL_STRING, list = a.kind == TPL_LIST || a.kind == TPL_TUPLE;
    if (whole(a) && whole(b))
        return whole_numbers(h, op, pal_tpl_whole(h, a, "a number"), pal_tpl_whole(h, b, "a number"));
    if (pal_tpl_is_number(a) && pal_tpl_is_number(b)) return real_numbers(h, op, pal_tpl_real(a), pal_tpl_real(b));
    if (op == '+' && text && b.kind == TPL_STRING) return add_texts(h, a.as.string, b.as.string);
    if (op == '+' && list && a.kind == b.kind) return add_lists(h, a, b);
    if (op == '*' && (text || list) && whole(b)) return repeat(h, a, pal_tpl_whole(h, b, "a number"));
    if (op == '*' && whole(a) && (b.kind == TPL_STRING || b.kind == TPL_LIST || b.kind == TPL_TUPLE))
        return repeat(h, b, pal_tpl_whole(h, a, "a number"));
    if (op == '%' && text) return fill_in(h, a.as.string->text, b);
    wrong_types(h, op, a, b);
}

tpl_value pal_tpl_negate(tpl_heap *h, tpl_value a, bool plus) {
    if (a.kind == TPL_FLOAT) return pal_tpl_float(plus ? a.as.real : -a.as.real);
    if (!whole(a)) wrong_types(h, plus ? '+' : '-', a, a);
    return plus ? pal_tpl_int(pal_tpl_whole(h, a, "+")) : whole_numbers(h, '-', 0, pal_tpl_whole(h, a, "-"));
}
