/* SPDX-License-Identifier: MIT */
/* Functions that every template has. */
#include <string.h>

#include "template/run.h"
#include "template/strings.h"

static tpl_value g_range(tpl_heap *h, tpl_value self, tpl_arguments a) {
    enum { MOST = 100000 }; /* as in jinja2's sandbox */
    tpl_value given[3] = { pal_tpl_none(), pal_tpl_none(), pal_tpl_int(1) };
    (void)self;
    pal_tpl_bind(h, "range", a, "start stop step", 1, given);
    const bool one = a.count == 1;
    const int64_t from = one ? 0 : pal_tpl_whole(h, given[0], "range");
    const int64_t to = pal_tpl_whole(h, given[one ? 0 : 1], "range"), step = pal_tpl_whole(h, given[2], "range");
    const tpl_value all = pal_tpl_new_list(h, TPL_RANGE, 0);
    if (!step) pal_tpl_fail(h, "range: a step of 0");
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
        if (all.as.list->count == MOST) pal_tpl_fail(h, "range: more than %d numbers", MOST);
        pal_tpl_append(h, all.as.list, pal_tpl_int(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return all;
}

static tpl_value make_dict(tpl_heap *h, const char *name, tpl_kind kind, tpl_arguments a) {
    const tpl_value all = pal_tpl_new_dict(h, kind);
    for (size_t i = 0; i < a.count; i++) {
        const tpl_value v = a.item[i].value;
        if (kind == TPL_NAMESPACE && a.item[i].name && a.item[i].name[0] == '_')
            pal_tpl_fail(h, "namespace: names may not begin with '_'");
        if (a.item[i].name) pal_tpl_set(h, all.as.dict, pal_tpl_literal(h, a.item[i].name), v);
        else if (i || v.kind != TPL_DICT) pal_tpl_fail(h, "%s: expected names with values, or one mapping", name);
        else
            for (size_t k = 0; k < v.as.dict->count; k++)
                pal_tpl_set(h, all.as.dict, v.as.dict->pair[k].key, v.as.dict->pair[k].value);
    }
    return all;
}
static tpl_value g_namespace(tpl_heap *h, tpl_value self, tpl_arguments a) {
    (void)self;
    return make_dict(h, "namespace", TPL_NAMESPACE, a);
}
static tpl_value g_dict(tpl_heap *h, tpl_value self, tpl_arguments a) {
    (void)self;
    return make_dict(h, "dict", TPL_DICT, a);
}

static tpl_value g_raise(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value message = pal_tpl_none();
    (void)self;
    pal_tpl_bind(h, "raise_exception", a, "message", 1, &message);
    pal_tpl_fail(h, "the template refuses these messages: %s", pal_tpl_name_of(h, message));
}

static tpl_value g_strftime(tpl_heap *h, tpl_value self, tpl_arguments a) {
    const tpl_run *r = (const tpl_run *)h;
    tpl_value format = pal_tpl_none();
    tpl_out o = { 0 };
    char text[1024] = "";
    (void)self;
    pal_tpl_bind(h, "strftime_now", a, "format", 1, &format);
    if (format.kind != TPL_STRING) pal_tpl_fail(h, "strftime_now: expected a text");
    const char *spelled = pal_tpl_name_of(h, format);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t size = strftime(text, sizeof text, spelled, &r->now);
#pragma GCC diagnostic pop
    if (!size && *spelled) pal_tpl_fail(h, "strftime_now: the date would have no text, or more than 1023 bytes");
    pal_tpl_put_bytes(h, &o, text, size, 0);
    return pal_tpl_out_string(h, &o);
}

bool pal_tpl_global(tpl_heap *h, const char *name, tpl_value *value) {
    static const struct {
        const char *name;
        tpl_call_fn *call;
    } globals[] = { { "range", g_range },
                    { "namespace", g_namespace },
                    { "dict", g_dict },
                    { "raise_exception", g_raise },
                    { "strftime_now", g_strftime } };
    for (size_t i = 0; i < sizeof globals / sizeof globals[0]; i++)
        if (strcmp(globals[i].name, name) == 0) {
            *value = pal_tpl_function(h, globals[i].name, globals[i].call, pal_tpl_none());
            return true;
        }
    return false;
}
