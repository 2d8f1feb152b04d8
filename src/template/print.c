/* SPDX-License-Identifier: MIT */
/* Values as text: Python's str() and repr(). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template/strings.h"

/* The fewest digits that read back as the same number. */
void pal_tpl_print_float(tpl_heap *h, tpl_out *o, double x) {
    char digits[40], mantissa[32];
    if (isnan(x) || isinf(x)) {
        pal_tpl_put_string(h, o, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    for (int precision = 0; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, x);
        if (strtod(digits, NULL) == x) break;
    }
    char *exponent = strchr(digits, 'e');
    const int e = atoi(exponent + 1);
    int count = 0;
    for (const char *c = digits; c < exponent; c++)
        if (*c >= '0' && *c <= '9') mantissa[count++] = *c;
    if (digits[0] == '-') pal_tpl_put_string(h, o, "-");
    if (e < -4 || e >= 16) {
        pal_tpl_put_bytes(h, o, mantissa, 1, 0);
        if (count > 1) {
            pal_tpl_put_string(h, o, ".");
            pal_tpl_put_bytes(h, o, mantissa + 1, (size_t)count - 1, 0);
        }
        pal_tpl_printf(h, o, 0, "e%c%02d", e < 0 ? '-' : '+', abs(e));
        return;
    }
    if (e < 0) pal_tpl_put_string(h, o, "0.");
    for (int i = -1; i > e; i--) pal_tpl_put_string(h, o, "0");
    for (int i = 0; i < count || i <= e; i++) {
        if (e >= 0 && i == e + 1) pal_tpl_put_string(h, o, ".");
        pal_tpl_put_bytes(h, o, i < count ? &mantissa[i] : "0", 1, 0);
    }
    if (e >= 0 && count <= e + 1) pal_tpl_put_string(h, o, ".0");
}

static void put_repr(tpl_heap *h, tpl_out *o, tpl_value v) {
    if (v.kind == TPL_STRING) pal_tpl_repr(h, o, v.as.string->text);
    else if (v.kind == TPL_UNDEFINED) pal_tpl_put_string(h, o, "Undefined");
    else pal_tpl_print(h, o, v);
}

static void put_list(tpl_heap *h, tpl_out *o, tpl_value v) {
    const tpl_list *list = v.as.list;
    const bool tuple = v.kind == TPL_TUPLE;
    pal_tpl_put_string(h, o, tuple ? "(" : "[");
    for (size_t i = 0; i < list->count; i++) {
        if (i) pal_tpl_put_string(h, o, ", ");
        put_repr(h, o, list->item[i]);
    }
    pal_tpl_put_string(h, o, tuple ? list->count == 1 ? ",)" : ")" : "]");
}

static void put_dict(tpl_heap *h, tpl_out *o, const tpl_dict *d) {
    pal_tpl_put_string(h, o, "{");
    for (size_t i = 0; i < d->count; i++) {
        if (i) pal_tpl_put_string(h, o, ", ");
        put_repr(h, o, d->pair[i].key);
        pal_tpl_put_string(h, o, ": ");
        put_repr(h, o, d->pair[i].value);
    }
    pal_tpl_put_string(h, o, "}");
}

void pal_tpl_print(tpl_heap *h, tpl_out *o, tpl_value v) {
    pal_tpl_step(h, 1);
    pal_tpl_enter(h);
    switch (v.kind) {
    case TPL_UNDEFINED: break;
    case TPL_NONE: pal_tpl_put_string(h, o, "None"); break;
    case TPL_BOOL: pal_tpl_put_string(h, o, v.as.truth ? "True" : "False"); break;
    case TPL_INT: pal_tpl_printf(h, o, 0, "%lld", (long long)v.as.whole); break;
    case TPL_FLOAT: pal_tpl_print_float(h, o, v.as.real); break;
    case TPL_STRING: pal_tpl_put(h, o, v.as.string->text); break;
    case TPL_LIST:
    case TPL_TUPLE: put_list(h, o, v); break;
    case TPL_DICT: put_dict(h, o, v.as.dict); break;
    default: pal_tpl_fail(h, "a value of type %s cannot be printed", pal_tpl_type(v));
    }
    pal_tpl_exit(h);
}

tpl_text pal_tpl_text_of(tpl_heap *h, tpl_value v) {
    tpl_out o = { 0 };
    if (v.kind == TPL_STRING) return v.as.string->text;
    pal_tpl_print(h, &o, v);
    return pal_tpl_out_text(&o);
}

const char *pal_tpl_name_of(tpl_heap *h, tpl_value v) {
    const tpl_text text = pal_tpl_text_of(h, v);
    char *name = pal_tpl_take(h, text.size + 1, 1);
    if (text.size) memcpy(name, text.data, text.size);
    return name;
}
