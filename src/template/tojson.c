/* SPDX-License-Identifier: MIT */
/* The filter tojson, spelled as Python's json.dumps spells it, and JSON as values. */
#include "template/tojson.h"

#include <math.h>
#include <string.h>

#include "template/strings.h"

typedef struct {
    tpl_heap *h;
    tpl_out *o;
    bool ascii, sort, lines;
    tpl_text indent, between, colon;
    size_t level;
} writer;

static void put_escaped(writer *w, uint32_t code, unsigned char mark) {
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *simple = code && code < 0x80 ? strchr(from, (int)code) : NULL;
    if (simple) pal_tpl_printf(w->h, w->o, mark, "\\%c", to[simple - from]);
    else if (code < 0x10000) pal_tpl_printf(w->h, w->o, mark, "\\u%04x", code);
    else
        pal_tpl_printf(w->h, w->o, mark, "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10),
                       0xDC00 + ((code - 0x10000) & 0x3FF));
}

static void put_text(writer *w, tpl_text t) {
    size_t from = 0;
    pal_tpl_put_string(w->h, w->o, "\"");
    for (size_t i = 0, n; i < t.size; i += n) {
        const uint32_t code = pal_tpl_code(t, i, &n);
        if (code >= 0x20 && code != '"' && code != '\\' && !(w->ascii && code >= 0x7F)) continue;
        pal_tpl_put(w->h, w->o, pal_tpl_part(t, from, i));
        put_escaped(w, code, pal_tpl_mark(t, i));
        from = i + n;
    }
    pal_tpl_put(w->h, w->o, pal_tpl_part(t, from, t.size));
    pal_tpl_put_string(w->h, w->o, "\"");
}

static void put_float(writer *w, double x) {
    if (isnan(x)) pal_tpl_put_string(w->h, w->o, "NaN");
    else if (isinf(x)) pal_tpl_put_string(w->h, w->o, x < 0 ? "-Infinity" : "Infinity");
    else pal_tpl_print_float(w->h, w->o, x);
}

static void put_plain(writer *w, tpl_value v) {
    if (v.kind == TPL_NONE) pal_tpl_put_string(w->h, w->o, "null");
    else if (v.kind == TPL_BOOL) pal_tpl_put_string(w->h, w->o, v.as.truth ? "true" : "false");
    else if (v.kind == TPL_INT) pal_tpl_print(w->h, w->o, v);
    else put_float(w, v.as.real);
}

static void put_key(writer *w, tpl_value key) {
    if (key.kind == TPL_STRING) {
        put_text(w, key.as.string->text);
        return;
    }
    if (key.kind != TPL_NONE && !pal_tpl_is_number(key))
        pal_tpl_fail(w->h, "tojson: a key of type %s cannot be written", pal_tpl_type(key));
    pal_tpl_put_string(w->h, w->o, "\"");
    put_plain(w, key);
    pal_tpl_put_string(w->h, w->o, "\"");
}

static void new_line(writer *w) {
    if (!w->lines) return;
    pal_tpl_put_string(w->h, w->o, "\n");
    for (size_t i = 0; i < w->level; i++) pal_tpl_put(w->h, w->o, w->indent);
}

static void put_value(writer *w, tpl_value v);

/* The pairs of a mapping by their keys; stable, and leaves where Python would not compare them. */
static const tpl_pair *sorted(writer *w, const tpl_dict *d) {
    tpl_pair *pair = pal_tpl_take(w->h, d->count, sizeof *pair);
    for (size_t i = 0; i < d->count; i++) {
        size_t at = i;
        while (at && pal_tpl_compare(w->h, pair[at - 1].key, d->pair[i].key) > 0) at--;
        pal_tpl_step(w->h, 1 + i - at);
        memmove(pair + at + 1, pair + at, (i - at) * sizeof *pair);
        pair[at] = d->pair[i];
    }
    return pair;
}

static void put_items(writer *w, const tpl_value *item, const tpl_pair *pair, size_t count) {
    w->level++;
    for (size_t i = 0; i < count; i++) {
        if (i) pal_tpl_put(w->h, w->o, w->between);
        new_line(w);
        if (pair) {
            put_key(w, pair[i].key);
            pal_tpl_put(w->h, w->o, w->colon);
        }
        put_value(w, pair ? pair[i].value : item[i]);
    }
    w->level--;
    if (count) new_line(w);
}

static void put_value(writer *w, tpl_value v) {
    pal_tpl_step(w->h, 1);
    pal_tpl_enter(w->h);
    if (v.kind == TPL_STRING) put_text(w, v.as.string->text);
    else if (v.kind == TPL_NONE || pal_tpl_is_number(v)) put_plain(w, v);
    else if (v.kind == TPL_LIST || v.kind == TPL_TUPLE) {
        pal_tpl_put_string(w->h, w->o, "[");
        put_items(w, v.as.list->item, NULL, v.as.list->count);
        pal_tpl_put_string(w->h, w->o, "]");
    } else if (v.kind == TPL_DICT) {
        const tpl_dict *d = v.as.dict;
        pal_tpl_put_string(w->h, w->o, "{");
        put_items(w, NULL, w->sort ? sorted(w, d) : d->pair, d->count);
        pal_tpl_put_string(w->h, w->o, "}");
    } else pal_tpl_fail(w->h, "tojson: a value of type %s cannot be written", pal_tpl_type(v));
    pal_tpl_exit(w->h);
}

static tpl_text plain(const char *text) {
    return (tpl_text){ .data = (const unsigned char *)text, .size = strlen(text) };
}

static tpl_text read_indent(tpl_heap *h, tpl_value v) {
    tpl_out o = { 0 };
    if (v.kind == TPL_STRING) return v.as.string->text;
    int64_t blanks = pal_tpl_whole(h, v, "tojson: indent");
    while (blanks-- > 0) pal_tpl_put_string(h, &o, " ");
    return pal_tpl_out_text(&o);
}

tpl_value pal_tpl_tojson(tpl_heap *h, tpl_value self, tpl_arguments a) {
    enum { ASCII, INDENT, SEPARATORS, SORT, COUNT };
    tpl_value given[COUNT] = { pal_tpl_bool(false), pal_tpl_none(), pal_tpl_none(), pal_tpl_bool(false) };
    tpl_out o = { 0 };
    writer w = { .h = h, .o = &o, .between = plain(", "), .colon = plain(": ") };
    pal_tpl_bind(h, "tojson", a, "ensure_ascii indent separators sort_keys", 0, given);
    w.ascii = pal_tpl_truth(given[ASCII]);
    w.sort = pal_tpl_truth(given[SORT]);
    w.lines = given[INDENT].kind != TPL_NONE;
    if (w.lines) {
        w.indent = read_indent(h, given[INDENT]);
        w.between = plain(",");
    }
    if (given[SEPARATORS].kind != TPL_NONE) {
        const tpl_list *two = pal_tpl_items(h, given[SEPARATORS]);
        if (two->count != 2 || two->item[0].kind != TPL_STRING || two->item[1].kind != TPL_STRING)
            pal_tpl_fail(h, "tojson: separators: expected two texts");
        w.between = two->item[0].as.string->text;
        w.colon = two->item[1].as.string->text;
    }
    put_value(&w, self);
    return pal_tpl_out_string(h, &o);
}

static tpl_value text_value(tpl_heap *h, const char *data, size_t size, unsigned char mark) {
    tpl_out o = { 0 };
    pal_tpl_put_bytes(h, &o, data, size, mark);
    return pal_tpl_out_string(h, &o);
}

tpl_value pal_tpl_from_json(tpl_heap *h, const json_t *json, unsigned char mark) {
    tpl_value v = pal_tpl_none();
    const char *key;
    const json_t *one;
    size_t size;
    pal_tpl_enter(h);
    switch (json ? json_typeof(json) : JSON_NULL) {
    case JSON_NULL: break;
    case JSON_TRUE:
    case JSON_FALSE: v = pal_tpl_bool(json_is_true(json)); break;
    case JSON_INTEGER: v = pal_tpl_int(json_integer_value(json)); break;
    case JSON_REAL: v = pal_tpl_float(json_real_value(json)); break;
    case JSON_STRING: v = text_value(h, json_string_value(json), json_string_length(json), mark); break;
    case JSON_ARRAY:
        v = pal_tpl_new_list(h, TPL_LIST, json_array_size(json));
        for (size_t i = 0; i < json_array_size(json); i++)
            pal_tpl_append(h, v.as.list, pal_tpl_from_json(h, json_array_get(json, i), mark));
        break;
    case JSON_OBJECT:
        v = pal_tpl_new_dict(h, TPL_DICT);
        json_object_keylen_foreach((json_t *)json, key, size, one)
            pal_tpl_set(h, v.as.dict, text_value(h, key, size, mark), pal_tpl_from_json(h, one, mark));
        break;
    }
    pal_tpl_exit(h);
    return v;
}
