/* SPDX-License-Identifier: MIT */
#include "template/value.h"

#include <math.h>
#include <string.h>

#include "template/strings.h"

tpl_value pal_tpl_string(tpl_heap *h, tpl_text text) {
    tpl_string *s = pal_tpl_take(h, 1, sizeof *s);
    s->text = text;
    return (tpl_value){ .kind = TPL_STRING, .as.string = s };
}

tpl_value pal_tpl_literal(tpl_heap *h, const char *text) {
    return pal_tpl_string(h, (tpl_text){ .data = (const unsigned char *)text, .size = strlen(text) });
}

tpl_value pal_tpl_new_list(tpl_heap *h, tpl_kind kind, size_t room) {
    tpl_list *list = pal_tpl_take(h, 1, sizeof *list);
    if (room) list->item = pal_tpl_take(h, room, sizeof *list->item);
    list->room = room;
    return (tpl_value){ .kind = kind, .as.list = list };
}

void pal_tpl_append(tpl_heap *h, tpl_list *list, tpl_value item) {
    pal_tpl_step(h, 1);
    if (list->count == list->room) {
        const size_t room = list->room ? 2 * list->room : 8;
        tpl_value *block = pal_tpl_take(h, room, sizeof *block);
        if (list->count) memcpy(block, list->item, list->count * sizeof *block);
        list->item = block;
        list->room = room;
    }
    list->item[list->count++] = item;
}

tpl_value pal_tpl_pair_of(tpl_heap *h, tpl_value a, tpl_value b) {
    tpl_value pair = pal_tpl_new_list(h, TPL_TUPLE, 2);
    pal_tpl_append(h, pair.as.list, a);
    pal_tpl_append(h, pair.as.list, b);
    return pair;
}

/* Dictionaries */

tpl_value pal_tpl_new_dict(tpl_heap *h, tpl_kind kind) {
    return (tpl_value){ .kind = kind, .as.dict = pal_tpl_take(h, 1, sizeof(tpl_dict)) };
}

bool pal_tpl_hashable(tpl_value v) {
    if (v.kind == TPL_TUPLE)
        for (size_t i = 0; i < v.as.list->count; i++)
            if (!pal_tpl_hashable(v.as.list->item[i])) return false;
    return v.kind != TPL_LIST && v.kind != TPL_DICT && v.kind != TPL_VIEW;
}

static uint64_t mix(uint64_t hash, const void *data, size_t size) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash ^ hash >> 29;
}

/* Equal values have equal hashes: 1, 1.0 and true, too. */
static uint64_t hash_of(tpl_value v) {
    const uint64_t start = 0xcbf29ce484222325u;
    if (v.kind == TPL_STRING) return mix(start, v.as.string->text.data, v.as.string->text.size);
    if (pal_tpl_is_number(v)) {
        const double x = pal_tpl_real(v) + 0.0;
        return mix(start, &x, sizeof x);
    }
    return (uint64_t)v.kind; /* rare as keys */
}

static size_t find(tpl_heap *h, const tpl_dict *d, tpl_value key) {
    if (!d->slots) {
        for (size_t i = 0; i < d->count; i++)
            if (pal_tpl_equal(h, d->pair[i].key, key)) return i;
        return d->count;
    }
    for (size_t s = hash_of(key) & (d->slots - 1); d->slot[s]; s = (s + 1) & (d->slots - 1))
        if (pal_tpl_equal(h, d->pair[d->slot[s] - 1].key, key)) return d->slot[s] - 1;
    return d->count;
}

static void note(tpl_dict *d, size_t index) {
    size_t s = hash_of(d->pair[index].key) & (d->slots - 1);
    while (d->slot[s]) s = (s + 1) & (d->slots - 1);
    d->slot[s] = (uint32_t)index + 1;
}

void pal_tpl_set(tpl_heap *h, tpl_dict *d, tpl_value key, tpl_value value) {
    if (!pal_tpl_hashable(key)) pal_tpl_fail(h, "a %s cannot be a key of a mapping", pal_tpl_type(key));
    const size_t at = find(h, d, key);
    if (at < d->count) {
        d->pair[at].value = value;
        return;
    }
    if (d->count == d->room) {
        const size_t room = d->room ? 2 * d->room : 8;
        tpl_pair *block = pal_tpl_take(h, room, sizeof *block);
        if (d->count) memcpy(block, d->pair, d->count * sizeof *block);
        d->pair = block;
        d->room = room;
        if (room > 8) {
            d->slots = 2 * room;
            d->slot = pal_tpl_take(h, d->slots, sizeof *d->slot);
            for (size_t i = 0; i < d->count; i++) note(d, i);
        }
    }
    d->pair[d->count++] = (tpl_pair){ .key = key, .value = value };
    if (d->slots) note(d, d->count - 1);
}

const tpl_value *pal_tpl_get(tpl_heap *h, const tpl_dict *d, tpl_value key) {
    if (!pal_tpl_hashable(key)) return NULL;
    const size_t at = find(h, d, key);
    return at < d->count ? &d->pair[at].value : NULL;
}

const tpl_value *pal_tpl_get_name(const tpl_dict *d, const char *name) {
    for (size_t i = 0; i < d->count; i++)
        if (pal_tpl_is_text(d->pair[i].key, name)) return &d->pair[i].value;
    return NULL;
}

/* What values are */

const char *pal_tpl_type(tpl_value v) {
    static const char *const names[] = {
        "undefined value",   "None",      "bool", "int",       "float", "str",      "list", "tuple", "range",
        "view of a mapping", "generator", "dict", "namespace", "macro", "function", "loop"
    };
    return names[v.kind];
}

bool pal_tpl_is_number(tpl_value v) { return v.kind == TPL_BOOL || v.kind == TPL_INT || v.kind == TPL_FLOAT; }

double pal_tpl_real(tpl_value v) {
    return v.kind == TPL_FLOAT ? v.as.real : v.kind == TPL_INT ? (double)v.as.whole : v.as.truth;
}

int64_t pal_tpl_whole(tpl_heap *h, tpl_value v, const char *what) {
    if (v.kind == TPL_BOOL) return v.as.truth;
    if (v.kind != TPL_INT) pal_tpl_fail(h, "%s: expected an integer, found a value of type %s", what, pal_tpl_type(v));
    return v.as.whole;
}

bool pal_tpl_same_text(tpl_text a, tpl_text b) {
    return a.size == b.size && (!a.size || memcmp(a.data, b.data, a.size) == 0);
}

bool pal_tpl_is_text(tpl_value v, const char *text) {
    return v.kind == TPL_STRING && pal_tpl_same_text(v.as.string->text, (tpl_text){ .data = (const unsigned char *)text,
                                                                                    .size = strlen(text) });
}

bool pal_tpl_length(tpl_value v, size_t *length) {
    switch (v.kind) {
    case TPL_UNDEFINED: *length = 0; return true;
    case TPL_STRING: *length = pal_tpl_characters(v.as.string->text); return true;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
    case TPL_VIEW: *length = v.as.list->count; return true;
    case TPL_DICT: *length = v.as.dict->count; return true;
    default: return false;
    }
}

bool pal_tpl_truth(tpl_value v) {
    size_t length;
    if (v.kind == TPL_BOOL) return v.as.truth;
    if (v.kind == TPL_INT) return v.as.whole != 0;
    if (v.kind == TPL_FLOAT) return v.as.real != 0;
    if (v.kind == TPL_STRING) return v.as.string->text.size != 0;
    if (v.kind == TPL_NONE) return false;
    return !pal_tpl_length(v, &length) || length;
}

bool pal_tpl_iterable(tpl_value v) {
    return v.kind == TPL_UNDEFINED || (v.kind >= TPL_STRING && v.kind <= TPL_DICT) || v.kind == TPL_LOOP;
}

const tpl_list *pal_tpl_items(tpl_heap *h, tpl_value v) {
    if (v.kind >= TPL_LIST && v.kind <= TPL_VIEW) return v.as.list;
    if (!pal_tpl_iterable(v) || v.kind == TPL_LOOP)
        pal_tpl_fail(h, "a value of type %s cannot be iterated", pal_tpl_type(v));
    tpl_list *items = pal_tpl_new_list(h, TPL_LIST, 0).as.list;
    if (v.kind == TPL_GENERATOR) {
        tpl_list *all = v.as.list;
        items->item = all->item + all->given;
        items->count = items->room = all->count - all->given;
        all->given = all->count;
    } else if (v.kind == TPL_DICT) {
        for (size_t i = 0; i < v.as.dict->count; i++) pal_tpl_append(h, items, v.as.dict->pair[i].key);
    } else if (v.kind == TPL_STRING) {
        const tpl_text text = v.as.string->text;
        for (size_t i = 0, n; i < text.size; i += n) {
            n = pal_tpl_character(text, i);
            pal_tpl_append(h, items, pal_tpl_string(h, pal_tpl_part(text, i, i + n)));
        }
    }
    return items;
}

/* Comparisons */

static bool equal_lists(tpl_heap *h, const tpl_list *a, const tpl_list *b) {
    bool same = a->count == b->count;
    for (size_t i = 0; i < a->count && same; i++) same = pal_tpl_equal(h, a->item[i], b->item[i]);
    return same;
}

static bool equal_dicts(tpl_heap *h, const tpl_dict *a, const tpl_dict *b) {
    bool same = a->count == b->count;
    for (size_t i = 0; i < a->count && same; i++) {
        const tpl_value *other = pal_tpl_get(h, b, a->pair[i].key);
        same = other && pal_tpl_equal(h, a->pair[i].value, *other);
    }
    return same;
}

bool pal_tpl_equal(tpl_heap *h, tpl_value a, tpl_value b) {
    bool same;
    if (pal_tpl_is_number(a) && pal_tpl_is_number(b)) {
        if (a.kind == TPL_INT && b.kind == TPL_INT) return a.as.whole == b.as.whole;
        return pal_tpl_real(a) == pal_tpl_real(b);
    }
    if (a.kind != b.kind) return false;
    pal_tpl_step(h, 1);
    switch (a.kind) {
    case TPL_UNDEFINED:
    case TPL_NONE: return true;
    case TPL_STRING:
        pal_tpl_step(h, a.as.string->text.size / 64);
        return pal_tpl_same_text(a.as.string->text, b.as.string->text);
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
        pal_tpl_enter(h);
        same = equal_lists(h, a.as.list, b.as.list);
        pal_tpl_exit(h);
        return same;
    case TPL_DICT:
        pal_tpl_enter(h);
        same = equal_dicts(h, a.as.dict, b.as.dict);
        pal_tpl_exit(h);
        return same;
    case TPL_FUNCTION: return a.as.function == b.as.function;
    default: return a.as.list == b.as.list; /* the same thing */
    }
}

static int sign(int x) { return (x > 0) - (x < 0); }

int pal_tpl_compare(tpl_heap *h, tpl_value a, tpl_value b) {
    if (pal_tpl_is_number(a) && pal_tpl_is_number(b)) {
        if (a.kind == TPL_INT && b.kind == TPL_INT) return (a.as.whole > b.as.whole) - (a.as.whole < b.as.whole);
        const double x = pal_tpl_real(a), y = pal_tpl_real(b);
        return (x > y) - (x < y);
    }
    if (a.kind == TPL_STRING && b.kind == TPL_STRING) { /* by bytes is by code points */
        const tpl_text x = a.as.string->text, y = b.as.string->text;
        const size_t common = x.size < y.size ? x.size : y.size;
        const int order = common ? sign(memcmp(x.data, y.data, common)) : 0;
        pal_tpl_step(h, 1 + common / 64);
        return order ? order : (x.size > y.size) - (x.size < y.size);
    }
    if (a.kind == b.kind && (a.kind == TPL_LIST || a.kind == TPL_TUPLE)) {
        const tpl_list *x = a.as.list, *y = b.as.list;
        for (size_t i = 0; i < x->count && i < y->count; i++)
            if (!pal_tpl_equal(h, x->item[i], y->item[i])) {
                pal_tpl_enter(h);
                const int order = pal_tpl_compare(h, x->item[i], y->item[i]);
                pal_tpl_exit(h);
                return order;
            }
        return (x->count > y->count) - (x->count < y->count);
    }
    pal_tpl_fail(h, "values of type %s and %s cannot be ordered", pal_tpl_type(a), pal_tpl_type(b));
}

bool pal_tpl_contains(tpl_heap *h, tpl_value all, tpl_value one) {
    if (all.kind == TPL_STRING) {
        if (one.kind != TPL_STRING)
            pal_tpl_fail(h, "'in' a text: expected a text to look for, found a value of type %s", pal_tpl_type(one));
        const tpl_text in = all.as.string->text, what = one.as.string->text;
        pal_tpl_step(h, in.size / 64);
        return !what.size || (in.size && memmem(in.data, in.size, what.data, what.size));
    }
    if (all.kind == TPL_DICT) {
        if (!pal_tpl_hashable(one)) pal_tpl_fail(h, "a %s cannot be a key of a mapping", pal_tpl_type(one));
        return pal_tpl_get(h, all.as.dict, one) != NULL;
    }
    const tpl_list *items = pal_tpl_items(h, all);
    for (size_t i = 0; i < items->count; i++)
        if (pal_tpl_equal(h, items->item[i], one)) return true;
    return false;
}

/* Arguments */

static size_t name_at(const char *names, const char *name) {
    const size_t size = strlen(name);
    size_t index = 0;
    while (*names) {
        const size_t length = strcspn(names, " ");
        if (length == size && memcmp(names, name, size) == 0) return index;
        names += length;
        while (*names == ' ') names++;
        index++;
    }
    return SIZE_MAX;
}

void pal_tpl_bind(tpl_heap *h, const char *of, tpl_arguments a, const char *names, size_t needed, tpl_value *out) {
    size_t count = *names != 0;
    uint64_t given = 0;
    for (const char *c = names; *c; c++) count += *c == ' ';
    for (size_t i = 0; i < a.count; i++) {
        const char *name = a.item[i].name;
        const size_t at = name ? name_at(names, name) : i;
        if (name && at == SIZE_MAX) pal_tpl_fail(h, "%s: no argument is called '%s'", of, name);
        if (at >= count) pal_tpl_fail(h, "%s: too many arguments", of);
        if (given >> at & 1) pal_tpl_fail(h, "%s: two values for the argument '%s'", of, name);
        given |= (uint64_t)1 << at;
        out[at] = a.item[i].value;
    }
    for (size_t i = 0; i < needed; i++)
        if (!(given >> i & 1)) pal_tpl_fail(h, "%s: an argument is missing", of);
}
