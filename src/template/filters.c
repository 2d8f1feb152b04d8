/* SPDX-License-Identifier: MIT */
/* Filters by name, and those of texts and numbers. */
#include "template/filters.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "template/run.h"
#include "template/strings.h"
#include "template/tojson.h"

tpl_value pal_tpl_f_abs(tpl_heap *h, tpl_value self, tpl_arguments a) {
    pal_tpl_bind(h, "abs", a, "", 0, NULL);
    if (!pal_tpl_is_number(self))
        pal_tpl_fail(h, "abs: expected a number, found a value of type %s", pal_tpl_type(self));
    if (self.kind == TPL_FLOAT) return pal_tpl_float(fabs(self.as.real));
    return pal_tpl_negate(h, self, pal_tpl_whole(h, self, "abs") >= 0);
}

tpl_value pal_tpl_f_attr(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value name = pal_tpl_none(), v;
    pal_tpl_bind(h, "attr", a, "name", 1, &name);
    if (self.kind == TPL_DICT) /* methods alone: the filter does not look for keys */
        return pal_tpl_method(h, self, pal_tpl_name_of(h, name), &v) ? v : pal_tpl_undefined("an attribute");
    return pal_tpl_attribute(h, self, pal_tpl_name_of(h, name));
}

tpl_value pal_tpl_f_capitalize(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_out o = { 0 };
    pal_tpl_bind(h, "capitalize", a, "", 0, NULL);
    pal_tpl_capitalize(h, &o, pal_tpl_text_of(h, self));
    return pal_tpl_out_string(h, &o);
}

tpl_value pal_tpl_f_default(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value given[2] = { pal_tpl_literal(h, ""), pal_tpl_bool(false) };
    pal_tpl_bind(h, "default", a, "default_value boolean", 0, given);
    return self.kind == TPL_UNDEFINED || (pal_tpl_truth(given[1]) && !pal_tpl_truth(self)) ? given[0] : self;
}

/* A number as Python's float() and int() read it from a text; false: it is none. */
static bool read_real(tpl_heap *h, tpl_value v, double *out) {
    if (pal_tpl_is_number(v)) *out = pal_tpl_real(v);
    if (v.kind != TPL_STRING) return pal_tpl_is_number(v);
    const tpl_text t = pal_tpl_strip(v.as.string->text, NULL, true, true);
    const char *text = pal_tpl_name_of(h, pal_tpl_string(h, t));
    char *end;
    if (!*text || strlen(text) != t.size || strpbrk(text, "xXpPnN_")) return false; /* hexadecimal, nan, inf */
    *out = strtod(text, &end);
    return !*end;
}

static void fail_undefined(tpl_heap *h, tpl_value v) {
    if (v.kind == TPL_UNDEFINED) pal_tpl_fail(h, "'%s' is undefined", v.as.missing ? v.as.missing : "the value");
}

tpl_value pal_tpl_f_float(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value other = pal_tpl_float(0);
    double x = 0;
    pal_tpl_bind(h, "float", a, "default", 0, &other);
    fail_undefined(h, self);
    return read_real(h, self, &x) ? pal_tpl_float(x) : other;
}

tpl_value pal_tpl_f_int(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value given[2] = { pal_tpl_int(0), pal_tpl_int(10) };
    double x = 0;
    pal_tpl_bind(h, "int", a, "default base", 0, given);
    fail_undefined(h, self);
    if (pal_tpl_whole(h, given[1], "int") != 10) pal_tpl_fail(h, "int: only base 10 is supported");
    if (self.kind == TPL_INT || self.kind == TPL_BOOL) return pal_tpl_int(pal_tpl_whole(h, self, "int"));
    if (self.kind == TPL_STRING) {
        const tpl_text t = pal_tpl_strip(self.as.string->text, NULL, true, true);
        const char *text = pal_tpl_name_of(h, pal_tpl_string(h, t));
        char *end;
        errno = 0;
        const long long whole = strtoll(text, &end, 10);
        if (*text && !*end && strlen(text) == t.size) {
            if (errno) pal_tpl_fail(h, "an integer of more than 64 bits");
            return pal_tpl_int(whole);
        }
    }
    if (!read_real(h, self, &x) || !isfinite(x)) return given[0];
    if (fabs(x) >= 9e18) pal_tpl_fail(h, "an integer of more than 64 bits");
    return pal_tpl_int((int64_t)x);
}

tpl_value pal_tpl_f_round(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value given[2] = { pal_tpl_int(0), pal_tpl_literal(h, "common") };
    pal_tpl_bind(h, "round", a, "precision method", 0, given);
    if (!pal_tpl_is_number(self)) pal_tpl_fail(h, "round: expected a number");
    if (given[0].kind != TPL_INT || given[0].as.whole) pal_tpl_fail(h, "round: only a precision of 0 is supported");
    const double x = pal_tpl_real(self);
    if (self.kind != TPL_FLOAT && pal_tpl_is_text(given[1], "common")) return self;
    if (pal_tpl_is_text(given[1], "common")) return pal_tpl_float(nearbyint(x));
    if (pal_tpl_is_text(given[1], "ceil")) return pal_tpl_float(ceil(x));
    if (pal_tpl_is_text(given[1], "floor")) return pal_tpl_float(floor(x));
    pal_tpl_fail(h, "round: the method is common, ceil or floor");
}

tpl_value pal_tpl_f_indent(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value given[3] = { pal_tpl_int(4), pal_tpl_bool(false), pal_tpl_bool(false) };
    tpl_out o = { 0 }, width = { 0 };
    pal_tpl_bind(h, "indent", a, "width first blank", 0, given);
    if (self.kind != TPL_STRING)
        pal_tpl_fail(h, "indent: expected a text, found a value of type %s", pal_tpl_type(self));
    if (given[0].kind == TPL_STRING) pal_tpl_put(h, &width, given[0].as.string->text);
    else
        for (int64_t i = pal_tpl_whole(h, given[0], "indent"); i > 0; i--) pal_tpl_put_string(h, &width, " ");
    tpl_list *lines = pal_tpl_new_list(h, TPL_LIST, 0).as.list;
    tpl_out with_end = { 0 };
    pal_tpl_put(h, &with_end, self.as.string->text);
    pal_tpl_put_string(h, &with_end, "\n");
    pal_tpl_lines(h, pal_tpl_out_text(&with_end), lines, false);
    for (size_t i = 0; i < lines->count; i++) {
        const tpl_text line = lines->item[i].as.string->text;
        if (i) pal_tpl_put_string(h, &o, "\n");
        if (i ? line.size || pal_tpl_truth(given[2]) : pal_tpl_truth(given[1]))
            pal_tpl_put(h, &o, pal_tpl_out_text(&width));
        pal_tpl_put(h, &o, line);
    }
    return pal_tpl_out_string(h, &o);
}

tpl_value pal_tpl_f_lower(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_out o = { 0 };
    pal_tpl_bind(h, "lower", a, "", 0, NULL);
    pal_tpl_case(h, &o, pal_tpl_text_of(h, self), false);
    return pal_tpl_out_string(h, &o);
}
tpl_value pal_tpl_f_upper(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_out o = { 0 };
    pal_tpl_bind(h, "upper", a, "", 0, NULL);
    pal_tpl_case(h, &o, pal_tpl_text_of(h, self), true);
    return pal_tpl_out_string(h, &o);
}
tpl_value pal_tpl_f_title(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_out o = { 0 };
    pal_tpl_bind(h, "title", a, "", 0, NULL);
    pal_tpl_title(h, &o, pal_tpl_text_of(h, self), true);
    return pal_tpl_out_string(h, &o);
}

tpl_value pal_tpl_f_replace(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value given[3] = { pal_tpl_none(), pal_tpl_none(), pal_tpl_none() };
    tpl_out o = { 0 };
    pal_tpl_bind(h, "replace", a, "old new count", 2, given);
    pal_tpl_replace(h, &o, pal_tpl_text_of(h, self), pal_tpl_text_of(h, given[0]), pal_tpl_text_of(h, given[1]),
                    given[2].kind == TPL_NONE ? -1 : pal_tpl_whole(h, given[2], "replace"));
    return pal_tpl_out_string(h, &o);
}

tpl_value pal_tpl_f_safe(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_string *s = pal_tpl_take(h, 1, sizeof *s);
    pal_tpl_bind(h, "safe", a, "", 0, NULL);
    *s = (tpl_string){ .text = pal_tpl_text_of(h, self), .safe = true };
    return (tpl_value){ .kind = TPL_STRING, .as.string = s };
}

tpl_value pal_tpl_f_string(tpl_heap *h, tpl_value self, tpl_arguments a) {
    pal_tpl_bind(h, "string", a, "", 0, NULL);
    return self.kind == TPL_STRING ? self : pal_tpl_string(h, pal_tpl_text_of(h, self));
}

tpl_value pal_tpl_f_trim(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value chars = pal_tpl_none();
    pal_tpl_bind(h, "trim", a, "chars", 0, &chars);
    if (chars.kind == TPL_NONE) return pal_tpl_string(h, pal_tpl_strip(pal_tpl_text_of(h, self), NULL, true, true));
    if (chars.kind != TPL_STRING) pal_tpl_fail(h, "trim: expected a text");
    return pal_tpl_string(h, pal_tpl_strip(pal_tpl_text_of(h, self), &chars.as.string->text, true, true));
}

const struct tpl_filter *pal_tpl_find_filter(const char *name) {
    static const struct tpl_filter filters[] = { { "abs", pal_tpl_f_abs },
                                                 { "attr", pal_tpl_f_attr },
                                                 { "capitalize", pal_tpl_f_capitalize },
                                                 { "count", pal_tpl_f_length },
                                                 { "d", pal_tpl_f_default },
                                                 { "default", pal_tpl_f_default },
                                                 { "dictsort", pal_tpl_f_dictsort },
                                                 { "first", pal_tpl_f_first },
                                                 { "float", pal_tpl_f_float },
                                                 { "indent", pal_tpl_f_indent },
                                                 { "int", pal_tpl_f_int },
                                                 { "items", pal_tpl_f_items },
                                                 { "join", pal_tpl_f_join },
                                                 { "last", pal_tpl_f_last },
                                                 { "length", pal_tpl_f_length },
                                                 { "list", pal_tpl_f_list },
                                                 { "lower", pal_tpl_f_lower },
                                                 { "map", pal_tpl_f_map },
                                                 { "max", pal_tpl_f_max },
                                                 { "min", pal_tpl_f_min },
                                                 { "reject", pal_tpl_f_reject },
                                                 { "rejectattr", pal_tpl_f_rejectattr },
                                                 { "replace", pal_tpl_f_replace },
                                                 { "reverse", pal_tpl_f_reverse },
                                                 { "round", pal_tpl_f_round },
                                                 { "safe", pal_tpl_f_safe },
                                                 { "select", pal_tpl_f_select },
                                                 { "selectattr", pal_tpl_f_selectattr },
                                                 { "sort", pal_tpl_f_sort },
                                                 { "string", pal_tpl_f_string },
                                                 { "sum", pal_tpl_f_sum },
                                                 { "title", pal_tpl_f_title },
                                                 { "tojson", pal_tpl_tojson },
                                                 { "trim", pal_tpl_f_trim },
                                                 { "unique", pal_tpl_f_unique },
                                                 { "upper", pal_tpl_f_upper } };
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        if (strcmp(filters[i].name, name) == 0) return &filters[i];
    return NULL;
}
