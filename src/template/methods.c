/* SPDX-License-Identifier: MIT */
/* Methods of texts, lists, tuples and mappings. */
#include <string.h>

#include "template/run.h"
#include "template/strings.h"

tpl_value pal_tpl_function(tpl_heap *h, const char *name, tpl_call_fn *call, tpl_value self) {
    tpl_function *f = pal_tpl_take(h, 1, sizeof *f);
    *f = (tpl_function){ .name = name, .call = call, .self = self };
    return (tpl_value){ .kind = TPL_FUNCTION, .as.function = f };
}

static tpl_text text_argument(tpl_heap *h, tpl_value v, const char *of) {
    if (v.kind != TPL_STRING) pal_tpl_fail(h, "%s: expected a text, found a value of type %s", of, pal_tpl_type(v));
    return v.as.string->text;
}

static tpl_value strip(tpl_heap *h, tpl_value self, tpl_arguments a, bool left, bool right) {
    tpl_value chars = pal_tpl_none();
    pal_tpl_bind(h, "strip", a, "chars", 0, &chars);
    if (chars.kind == TPL_NONE) return pal_tpl_string(h, pal_tpl_strip(self.as.string->text, NULL, left, right));
    const tpl_text text = text_argument(h, chars, "strip");
    return pal_tpl_string(h, pal_tpl_strip(self.as.string->text, &text, left, right));
}
static tpl_value m_strip(tpl_heap *h, tpl_value self, tpl_arguments a) { return strip(h, self, a, true, true); }
static tpl_value m_lstrip(tpl_heap *h, tpl_value self, tpl_arguments a) { return strip(h, self, a, true, false); }
static tpl_value m_rstrip(tpl_heap *h, tpl_value self, tpl_arguments a) { return strip(h, self, a, false, true); }

static void split_blanks(tpl_heap *h, tpl_text t, int64_t most, tpl_list *parts) {
    t = pal_tpl_strip(t, NULL, true, false);
    while (t.size && most--) {
        size_t at = 0, n;
        while (at < t.size && !pal_tpl_is_space(pal_tpl_code(t, at, &n))) at += n;
        pal_tpl_append(h, parts, pal_tpl_string(h, pal_tpl_part(t, 0, at)));
        t = pal_tpl_strip(pal_tpl_part(t, at, t.size), NULL, true, false);
    }
    if (t.size) pal_tpl_append(h, parts, pal_tpl_string(h, pal_tpl_strip(t, NULL, false, true)));
}

static tpl_value m_split(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value given[2] = { pal_tpl_none(), pal_tpl_int(-1) };
    const tpl_value parts = pal_tpl_new_list(h, TPL_LIST, 0);
    pal_tpl_bind(h, "split", a, "sep maxsplit", 0, given);
    int64_t most = pal_tpl_whole(h, given[1], "split");
    tpl_text t = self.as.string->text;
    pal_tpl_step(h, t.size / 64);
    if (given[0].kind == TPL_NONE) {
        split_blanks(h, t, most < 0 ? -1 : most, parts.as.list);
        return parts;
    }
    const tpl_text by = text_argument(h, given[0], "split");
    if (!by.size) pal_tpl_fail(h, "split: an empty separator");
    for (size_t at; most-- && (at = pal_tpl_find(t, by, 0)) != SIZE_MAX;) {
        pal_tpl_append(h, parts.as.list, pal_tpl_string(h, pal_tpl_part(t, 0, at)));
        t = pal_tpl_part(t, at + by.size, t.size);
    }
    pal_tpl_append(h, parts.as.list, pal_tpl_string(h, t));
    return parts;
}

static tpl_value m_rsplit(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value given[2] = { pal_tpl_none(), pal_tpl_int(-1) };
    const tpl_value parts = pal_tpl_new_list(h, TPL_LIST, 0), turned = pal_tpl_new_list(h, TPL_LIST, 0);
    pal_tpl_bind(h, "rsplit", a, "sep maxsplit", 0, given);
    int64_t most = pal_tpl_whole(h, given[1], "rsplit");
    tpl_text t = self.as.string->text;
    const tpl_text by = text_argument(h, given[0], "rsplit");
    if (!by.size) pal_tpl_fail(h, "rsplit: an empty separator");
    for (size_t at = t.size; most && at >= by.size;) {
        at--;
        pal_tpl_step(h, 1);
        if (at + by.size > t.size || memcmp(t.data + at, by.data, by.size) != 0) {
            if (!at) break;
            continue;
        }
        pal_tpl_append(h, turned.as.list, pal_tpl_string(h, pal_tpl_part(t, at + by.size, t.size)));
        t = pal_tpl_part(t, 0, at);
        most--;
    }
    pal_tpl_append(h, parts.as.list, pal_tpl_string(h, t));
    for (size_t i = turned.as.list->count; i > 0; i--) pal_tpl_append(h, parts.as.list, turned.as.list->item[i - 1]);
    return parts;
}

static tpl_value m_splitlines(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value keep = pal_tpl_bool(false);
    const tpl_value lines = pal_tpl_new_list(h, TPL_LIST, 0);
    pal_tpl_bind(h, "splitlines", a, "keepends", 0, &keep);
    pal_tpl_lines(h, self.as.string->text, lines.as.list, pal_tpl_truth(keep));
    return lines;
}

static bool has_at(tpl_heap *h, tpl_text t, tpl_value what, bool end) {
    if (what.kind == TPL_TUPLE) {
        for (size_t i = 0; i < what.as.list->count; i++)
            if (has_at(h, t, what.as.list->item[i], end)) return true;
        return false;
    }
    const tpl_text x = text_argument(h, what, end ? "endswith" : "startswith");
    if (x.size > t.size) return false;
    return !x.size || memcmp(end ? t.data + t.size - x.size : t.data, x.data, x.size) == 0;
}

static tpl_value m_startswith(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value what = pal_tpl_none();
    pal_tpl_bind(h, "startswith", a, "prefix", 1, &what);
    return pal_tpl_bool(has_at(h, self.as.string->text, what, false));
}
static tpl_value m_endswith(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value what = pal_tpl_none();
    pal_tpl_bind(h, "endswith", a, "suffix", 1, &what);
    return pal_tpl_bool(has_at(h, self.as.string->text, what, true));
}

static tpl_value m_replace(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value given[3] = { pal_tpl_none(), pal_tpl_none(), pal_tpl_int(-1) };
    tpl_out o = { 0 };
    pal_tpl_bind(h, "replace", a, "old new count", 2, given);
    pal_tpl_replace(h, &o, self.as.string->text, text_argument(h, given[0], "replace"),
                    text_argument(h, given[1], "replace"), pal_tpl_whole(h, given[2], "replace"));
    return pal_tpl_out_string(h, &o);
}

static tpl_value m_find(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value what = pal_tpl_none();
    pal_tpl_bind(h, "find", a, "sub", 1, &what);
    const tpl_text t = self.as.string->text;
    const size_t at = pal_tpl_find(t, text_argument(h, what, "find"), 0);
    return pal_tpl_int(at == SIZE_MAX ? -1 : (int64_t)pal_tpl_characters(pal_tpl_part(t, 0, at)));
}

static tpl_value m_count(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value what = pal_tpl_none();
    int64_t count = 0;
    pal_tpl_bind(h, "count", a, "sub", 1, &what);
    const tpl_text t = self.as.string->text, sub = text_argument(h, what, "count");
    if (!sub.size) return pal_tpl_int((int64_t)pal_tpl_characters(t) + 1);
    for (size_t at = 0; (at = pal_tpl_find(t, sub, at)) != SIZE_MAX; at += sub.size) count++;
    return pal_tpl_int(count);
}

static tpl_value m_upper(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_out o = { 0 };
    pal_tpl_bind(h, "upper", a, "", 0, NULL);
    pal_tpl_case(h, &o, self.as.string->text, true);
    return pal_tpl_out_string(h, &o);
}
static tpl_value m_lower(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_out o = { 0 };
    pal_tpl_bind(h, "lower", a, "", 0, NULL);
    pal_tpl_case(h, &o, self.as.string->text, false);
    return pal_tpl_out_string(h, &o);
}
static tpl_value m_capitalize(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_out o = { 0 };
    pal_tpl_bind(h, "capitalize", a, "", 0, NULL);
    pal_tpl_capitalize(h, &o, self.as.string->text);
    return pal_tpl_out_string(h, &o);
}
static tpl_value m_title(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_out o = { 0 };
    pal_tpl_bind(h, "title", a, "", 0, NULL);
    pal_tpl_title(h, &o, self.as.string->text, false);
    return pal_tpl_out_string(h, &o);
}

static tpl_value m_join(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value of = pal_tpl_none();
    tpl_out o = { 0 };
    pal_tpl_bind(h, "join", a, "iterable", 1, &of);
    const tpl_list *items = pal_tpl_items(h, of);
    for (size_t i = 0; i < items->count; i++) {
        if (i) pal_tpl_put(h, &o, self.as.string->text);
        pal_tpl_put(h, &o, text_argument(h, items->item[i], "join"));
    }
    return pal_tpl_out_string(h, &o);
}

static tpl_value m_remove(tpl_heap *h, tpl_value self, tpl_arguments a, bool end) {
    tpl_value what = pal_tpl_none();
    const tpl_text t = self.as.string->text;
    pal_tpl_bind(h, end ? "removesuffix" : "removeprefix", a, "part", 1, &what);
    const size_t size = text_argument(h, what, "removeprefix").size;
    if (!has_at(h, t, what, end)) return self;
    return pal_tpl_string(h, end ? pal_tpl_part(t, 0, t.size - size) : pal_tpl_part(t, size, t.size));
}
static tpl_value m_removeprefix(tpl_heap *h, tpl_value self, tpl_arguments a) { return m_remove(h, self, a, false); }
static tpl_value m_removesuffix(tpl_heap *h, tpl_value self, tpl_arguments a) { return m_remove(h, self, a, true); }

static tpl_value m_isdigit(tpl_heap *h, tpl_value self, tpl_arguments a) {
    const tpl_text t = self.as.string->text;
    bool all = t.size > 0;
    pal_tpl_bind(h, "isdigit", a, "", 0, NULL);
    for (size_t i = 0; i < t.size; i++) {
        if (t.data[i] >= 0x80) pal_tpl_fail(h, "isdigit: only texts of ASCII are supported");
        all = all && t.data[i] >= '0' && t.data[i] <= '9';
    }
    return pal_tpl_bool(all);
}

/* The value for the {} at `at`, which moves past it. */
static tpl_value field(tpl_heap *h, tpl_text t, size_t *at, tpl_arguments a, size_t *next) {
    size_t end = *at;
    char name[64] = "";
    while (end < t.size && t.data[end] != '}') end++;
    const size_t size = end - *at;
    if (end == t.size || size >= sizeof name) pal_tpl_fail(h, "format: a '{' without its '}'");
    memcpy(name, t.data + *at, size);
    *at = end + 1;
    if (strpbrk(name, ".[:!{")) pal_tpl_fail(h, "format: only {}, {number} and {name} are supported");
    size_t index = SIZE_MAX;
    if (!size) index = (*next)++;
    else if (strspn(name, "0123456789") == size) {
        index = 0;
        for (size_t i = 0; i < size && index < a.count; i++) index = index * 10 + (size_t)(name[i] - '0');
    }
    for (size_t i = 0; i < a.count; i++)
        if (a.item[i].name ? strcmp(a.item[i].name, name) == 0 : i == index) return a.item[i].value;
    pal_tpl_fail(h, "format: no argument for {%s}", name);
}

static tpl_value m_format(tpl_heap *h, tpl_value self, tpl_arguments a) {
    const tpl_text t = self.as.string->text;
    tpl_out o = { 0 };
    size_t next = 0;
    for (size_t i = 0; i < t.size;) {
        const unsigned char c = t.data[i];
        const bool twice = (c == '{' || c == '}') && i + 1 < t.size && t.data[i + 1] == c;
        if (twice || (c != '{' && c != '}')) {
            pal_tpl_put(h, &o, pal_tpl_part(t, i, i + 1));
            i += twice ? 2 : 1;
        } else if (c == '}') pal_tpl_fail(h, "format: a '}' without its '{'");
        else {
            i++;
            pal_tpl_print(h, &o, field(h, t, &i, a, &next));
        }
    }
    return pal_tpl_out_string(h, &o);
}

/* Lists and mappings */

static tpl_value m_list_count(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value what = pal_tpl_none();
    int64_t count = 0;
    pal_tpl_bind(h, "count", a, "value", 1, &what);
    for (size_t i = 0; i < self.as.list->count; i++) count += pal_tpl_equal(h, self.as.list->item[i], what);
    return pal_tpl_int(count);
}
static tpl_value m_index(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value what = pal_tpl_none();
    pal_tpl_bind(h, "index", a, "value", 1, &what);
    for (size_t i = 0; i < self.as.list->count; i++)
        if (pal_tpl_equal(h, self.as.list->item[i], what)) return pal_tpl_int((int64_t)i);
    pal_tpl_fail(h, "index: the value is not in the list");
}
static tpl_value m_copy(tpl_heap *h, tpl_value self, tpl_arguments a) { /* nothing changes either */
    pal_tpl_bind(h, "copy", a, "", 0, NULL);
    return self;
}

static tpl_value m_get(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value given[2] = { pal_tpl_none(), pal_tpl_none() };
    pal_tpl_bind(h, "get", a, "key default", 1, given);
    if (!pal_tpl_hashable(given[0])) pal_tpl_fail(h, "get: a %s cannot be a key", pal_tpl_type(given[0]));
    const tpl_value *found = pal_tpl_get(h, self.as.dict, given[0]);
    return found ? *found : given[1];
}

static tpl_value view(tpl_heap *h, tpl_value self, tpl_arguments a, const char *name) {
    const tpl_dict *d = self.as.dict;
    const tpl_value all = pal_tpl_new_list(h, TPL_VIEW, d->count);
    pal_tpl_bind(h, name, a, "", 0, NULL);
    for (size_t i = 0; i < d->count; i++)
        pal_tpl_append(h, all.as.list,
                       *name == 'k'   ? d->pair[i].key
                       : *name == 'v' ? d->pair[i].value
                                      : pal_tpl_pair_of(h, d->pair[i].key, d->pair[i].value));
    return all;
}
static tpl_value m_keys(tpl_heap *h, tpl_value self, tpl_arguments a) { return view(h, self, a, "keys"); }
static tpl_value m_values(tpl_heap *h, tpl_value self, tpl_arguments a) { return view(h, self, a, "values"); }
static tpl_value m_items(tpl_heap *h, tpl_value self, tpl_arguments a) { return view(h, self, a, "items"); }

typedef struct {
    const char *name;
    tpl_call_fn *call; /* NULL: Jinja's sandbox forbids it */
} method;

static const method of_texts[] = { { "strip", m_strip },
                                   { "lstrip", m_lstrip },
                                   { "rstrip", m_rstrip },
                                   { "split", m_split },
                                   { "rsplit", m_rsplit },
                                   { "splitlines", m_splitlines },
                                   { "startswith", m_startswith },
                                   { "endswith", m_endswith },
                                   { "replace", m_replace },
                                   { "find", m_find },
                                   { "count", m_count },
                                   { "upper", m_upper },
                                   { "lower", m_lower },
                                   { "capitalize", m_capitalize },
                                   { "title", m_title },
                                   { "join", m_join },
                                   { "removeprefix", m_removeprefix },
                                   { "removesuffix", m_removesuffix },
                                   { "isdigit", m_isdigit },
                                   { "format", m_format },
                                   { NULL, NULL } };
static const method of_lists[] = { { "count", m_list_count }, { "index", m_index }, { "copy", m_copy },
                                   { "append", NULL },        { "clear", NULL },    { "pop", NULL },
                                   { "reverse", NULL },       { "insert", NULL },   { "sort", NULL },
                                   { "extend", NULL },        { "remove", NULL },   { NULL, NULL } };
static const method of_tuples[] = { { "count", m_list_count }, { "index", m_index }, { NULL, NULL } };
static const method of_dicts[] = { { "get", m_get },     { "keys", m_keys },  { "values", m_values },
                                   { "items", m_items }, { "copy", m_copy },  { "clear", NULL },
                                   { "pop", NULL },      { "popitem", NULL }, { "setdefault", NULL },
                                   { "update", NULL },   { NULL, NULL } };

bool pal_tpl_method(tpl_heap *h, tpl_value of, const char *name, tpl_value *found) {
    const method *m = of.kind == TPL_STRING  ? of_texts
                      : of.kind == TPL_LIST  ? of_lists
                      : of.kind == TPL_TUPLE ? of_tuples
                      : of.kind == TPL_DICT  ? of_dicts
                                             : NULL;
    for (; m && m->name; m++)
        if (strcmp(m->name, name) == 0) {
            *found = m->call ? pal_tpl_function(h, m->name, m->call, of) : pal_tpl_undefined(m->name);
            found->forbidden = !m->call;
            return true;
        }
    return false;
}
