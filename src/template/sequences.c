/* SPDX-License-Identifier: MIT */
/* Filters of lists and mappings. */
#include <string.h>

#include "template/filters.h"
#include "template/run.h"
#include "template/strings.h"

tpl_value pal_tpl_f_first(tpl_heap *h, tpl_value self, tpl_arguments a) {
    pal_tpl_bind(h, "first", a, "", 0, NULL);
    const tpl_list *items = pal_tpl_items(h, self);
    return items->count ? items->item[0] : pal_tpl_undefined("the first of no items");
}
tpl_value pal_tpl_f_last(tpl_heap *h, tpl_value self, tpl_arguments a) {
    pal_tpl_bind(h, "last", a, "", 0, NULL);
    if (self.kind == TPL_GENERATOR || self.kind == TPL_UNDEFINED)
        pal_tpl_fail(h, "last: a value of type %s cannot be reversed", pal_tpl_type(self));
    const tpl_list *items = pal_tpl_items(h, self);
    return items->count ? items->item[items->count - 1] : pal_tpl_undefined("the last of no items");
}

tpl_value pal_tpl_f_length(tpl_heap *h, tpl_value self, tpl_arguments a) {
    size_t length;
    pal_tpl_bind(h, "length", a, "", 0, NULL);
    if (!pal_tpl_length(self, &length)) pal_tpl_fail(h, "length: a value of type %s has none", pal_tpl_type(self));
    return pal_tpl_int((int64_t)length);
}

static tpl_value new_from(tpl_heap *h, tpl_kind kind, const tpl_list *items) {
    const tpl_value all = pal_tpl_new_list(h, kind, items->count);
    for (size_t i = 0; i < items->count; i++) pal_tpl_append(h, all.as.list, items->item[i]);
    return all;
}

tpl_value pal_tpl_f_list(tpl_heap *h, tpl_value self, tpl_arguments a) {
    pal_tpl_bind(h, "list", a, "", 0, NULL);
    return new_from(h, TPL_LIST, pal_tpl_items(h, self));
}

tpl_value pal_tpl_f_items(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value items;
    pal_tpl_bind(h, "items", a, "", 0, NULL);
    if (self.kind == TPL_UNDEFINED) return pal_tpl_new_list(h, TPL_GENERATOR, 0);
    if (self.kind != TPL_DICT) pal_tpl_fail(h, "items: a value of type %s is not a mapping", pal_tpl_type(self));
    pal_tpl_method(h, self, "items", &items);
    items = pal_tpl_call(h, items, (tpl_arguments){ .count = 0 });
    items.kind = TPL_GENERATOR;
    return items;
}

tpl_value pal_tpl_f_reverse(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_out o = { 0 };
    pal_tpl_bind(h, "reverse", a, "", 0, NULL);
    const tpl_list *items = pal_tpl_items(h, self);
    const tpl_value all = pal_tpl_new_list(h, TPL_GENERATOR, items->count);
    for (size_t i = items->count; i > 0; i--) {
        if (self.kind == TPL_STRING) pal_tpl_put(h, &o, items->item[i - 1].as.string->text);
        else pal_tpl_append(h, all.as.list, items->item[i - 1]);
    }
    return self.kind == TPL_STRING ? pal_tpl_out_string(h, &o) : all;
}

/* "a.b.0" of a value: keys first, as jinja2 looks for the attributes that filters name. */
static tpl_value by_path(tpl_heap *h, tpl_value v, tpl_value path) {
    if (path.kind == TPL_INT) return pal_tpl_item(h, v, path);
    if (path.kind != TPL_STRING) pal_tpl_fail(h, "an attribute: expected a text");
    tpl_text t = path.as.string->text;
    for (;;) {
        const size_t dot = t.size ? (size_t)((const unsigned char *)memchr(t.data, '.', t.size) - t.data) : 0;
        const bool more = t.size && memchr(t.data, '.', t.size);
        const tpl_text part = pal_tpl_part(t, 0, more ? dot : t.size);
        bool digits = part.size > 0 && part.size < 10;
        int64_t index = 0;
        for (size_t i = 0; i < part.size && digits; i++) {
            digits = part.data[i] >= '0' && part.data[i] <= '9';
            index = index * 10 + part.data[i] - '0';
        }
        v = pal_tpl_item(h, v, digits ? pal_tpl_int(index) : pal_tpl_string(h, part));
        if (!more) return v;
        t = pal_tpl_part(t, dot + 1, t.size);
    }
}

static tpl_value folded(tpl_heap *h, tpl_value v) {
    tpl_out o = { 0 };
    if (v.kind != TPL_STRING) return v;
    pal_tpl_case(h, &o, v.as.string->text, false);
    return pal_tpl_out_string(h, &o);
}

typedef struct {
    tpl_value key, item;
} keyed;

/* By merging: stable, and never quadratic. */
static void sort_keyed(tpl_heap *h, keyed *x, keyed *spare, size_t count, int order) {
    if (count < 2) return;
    const size_t half = count / 2;
    sort_keyed(h, x, spare, half, order);
    sort_keyed(h, x + half, spare, count - half, order);
    memcpy(spare, x, half * sizeof *x);
    for (size_t i = 0, j = half, to = 0; i < half; to++) {
        const bool right = j < count && order * pal_tpl_compare(h, x[j].key, spare[i].key) < 0;
        x[to] = right ? x[j++] : spare[i++];
    }
}

static tpl_value sorted(tpl_heap *h, const tpl_list *items, const tpl_value *key, bool reverse) {
    keyed *x = pal_tpl_take(h, items->count, sizeof *x), *spare = pal_tpl_take(h, items->count, sizeof *x);
    const tpl_value all = pal_tpl_new_list(h, TPL_LIST, items->count);
    for (size_t i = 0; i < items->count; i++) x[i] = (keyed){ .key = key[i], .item = items->item[i] };
    sort_keyed(h, x, spare, items->count, reverse ? -1 : 1);
    for (size_t i = 0; i < items->count; i++) pal_tpl_append(h, all.as.list, x[i].item);
    return all;
}

tpl_value pal_tpl_f_dictsort(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value given[3] = { pal_tpl_bool(false), pal_tpl_literal(h, "key"), pal_tpl_bool(false) };
    pal_tpl_bind(h, "dictsort", a, "case_sensitive by reverse", 0, given);
    if (self.kind != TPL_DICT) pal_tpl_fail(h, "dictsort: a value of type %s is not a mapping", pal_tpl_type(self));
    const size_t by = pal_tpl_is_text(given[1], "key") ? 0 : 1;
    if (by && !pal_tpl_is_text(given[1], "value")) pal_tpl_fail(h, "dictsort: by key or by value");
    const tpl_list *items = pal_tpl_items(h, pal_tpl_f_items(h, self, (tpl_arguments){ .count = 0 }));
    tpl_value *key = pal_tpl_take(h, items->count, sizeof *key);
    for (size_t i = 0; i < items->count; i++) {
        key[i] = items->item[i].as.list->item[by];
        if (!pal_tpl_truth(given[0])) key[i] = folded(h, key[i]);
    }
    return sorted(h, items, key, pal_tpl_truth(given[2]));
}

static tpl_value key_of(tpl_heap *h, tpl_value item, tpl_value attribute, bool case_sensitive) {
    const tpl_value key = attribute.kind == TPL_NONE ? item : by_path(h, item, attribute);
    return case_sensitive ? key : folded(h, key);
}

tpl_value pal_tpl_f_sort(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value given[3] = { pal_tpl_bool(false), pal_tpl_bool(false), pal_tpl_none() };
    pal_tpl_bind(h, "sort", a, "reverse case_sensitive attribute", 0, given);
    if (given[2].kind == TPL_STRING && memchr(given[2].as.string->text.data, ',', given[2].as.string->text.size))
        pal_tpl_fail(h, "sort: several attributes are not supported");
    const tpl_list *items = pal_tpl_items(h, self);
    tpl_value *key = pal_tpl_take(h, items->count, sizeof *key);
    for (size_t i = 0; i < items->count; i++) key[i] = key_of(h, items->item[i], given[2], pal_tpl_truth(given[1]));
    return sorted(h, items, key, pal_tpl_truth(given[0]));
}

tpl_value pal_tpl_f_unique(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value given[2] = { pal_tpl_bool(false), pal_tpl_none() };
    const tpl_value all = pal_tpl_new_list(h, TPL_GENERATOR, 0);
    tpl_dict *seen = pal_tpl_new_dict(h, TPL_DICT).as.dict;
    pal_tpl_bind(h, "unique", a, "case_sensitive attribute", 0, given);
    const tpl_list *items = pal_tpl_items(h, self);
    for (size_t i = 0; i < items->count; i++) {
        const tpl_value key = key_of(h, items->item[i], given[1], pal_tpl_truth(given[0]));
        const size_t before = seen->count;
        pal_tpl_set(h, seen, key, key);
        if (seen->count > before) pal_tpl_append(h, all.as.list, items->item[i]);
    }
    return all;
}

static tpl_value extreme(tpl_heap *h, tpl_value self, tpl_arguments a, const char *name, int order) {
    tpl_value given[2] = { pal_tpl_bool(false), pal_tpl_none() }, best_key = pal_tpl_none();
    size_t best = 0;
    pal_tpl_bind(h, name, a, "case_sensitive attribute", 0, given);
    const tpl_list *items = pal_tpl_items(h, self);
    for (size_t i = 0; i < items->count; i++) {
        const tpl_value key = key_of(h, items->item[i], given[1], pal_tpl_truth(given[0]));
        if (i && order * pal_tpl_compare(h, key, best_key) <= 0) continue;
        best = i;
        best_key = key;
    }
    return items->count ? items->item[best] : pal_tpl_undefined("the least or largest of no items");
}
tpl_value pal_tpl_f_max(tpl_heap *h, tpl_value self, tpl_arguments a) { return extreme(h, self, a, "max", 1); }
tpl_value pal_tpl_f_min(tpl_heap *h, tpl_value self, tpl_arguments a) { return extreme(h, self, a, "min", -1); }

tpl_value pal_tpl_f_sum(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value given[2] = { pal_tpl_none(), pal_tpl_int(0) };
    pal_tpl_bind(h, "sum", a, "attribute start", 0, given);
    const tpl_list *items = pal_tpl_items(h, self);
    tpl_value sum = given[1];
    for (size_t i = 0; i < items->count; i++)
        sum = pal_tpl_binary(h, '+', sum,
                             given[0].kind == TPL_NONE ? items->item[i] : by_path(h, items->item[i], given[0]));
    return sum;
}

tpl_value pal_tpl_f_join(tpl_heap *h, tpl_value self, tpl_arguments a) {
    tpl_value given[2] = { pal_tpl_literal(h, ""), pal_tpl_none() };
    tpl_out o = { 0 };
    pal_tpl_bind(h, "join", a, "d attribute", 0, given);
    const tpl_list *items = pal_tpl_items(h, self);
    const tpl_text between = pal_tpl_text_of(h, given[0]);
    for (size_t i = 0; i < items->count; i++) {
        if (i) pal_tpl_put(h, &o, between);
        pal_tpl_print(h, &o, given[1].kind == TPL_NONE ? items->item[i] : by_path(h, items->item[i], given[1]));
    }
    return pal_tpl_out_string(h, &o);
}

static tpl_value map_attribute(tpl_heap *h, const tpl_list *items, tpl_arguments a) {
    tpl_value given[2] = { pal_tpl_none(), pal_tpl_undefined(NULL) };
    const tpl_value all = pal_tpl_new_list(h, TPL_GENERATOR, items->count);
    pal_tpl_bind(h, "map", a, "attribute default", 1, given);
    for (size_t i = 0; i < items->count; i++) {
        const tpl_value v = by_path(h, items->item[i], given[0]);
        pal_tpl_append(h, all.as.list, v.kind == TPL_UNDEFINED ? given[1] : v);
    }
    return all;
}

tpl_value pal_tpl_f_map(tpl_heap *h, tpl_value self, tpl_arguments a) {
    if (!pal_tpl_truth(self)) return pal_tpl_new_list(h, TPL_GENERATOR, 0); /* None, too, as jinja2 has it */
    const tpl_list *items = pal_tpl_items(h, self);
    if (!a.count) pal_tpl_fail(h, "map: an argument is missing");
    if (a.item[0].name) return map_attribute(h, items, a);
    const char *name = pal_tpl_name_of(h, a.item[0].value);
    const struct tpl_filter *filter = pal_tpl_find_filter(name);
    const tpl_value all = pal_tpl_new_list(h, TPL_GENERATOR, items->count);
    if (!filter) pal_tpl_fail(h, "map: no filter is called '%s'", name);
    for (size_t i = 0; i < items->count; i++)
        pal_tpl_append(h, all.as.list,
                       filter->call(h, items->item[i], (tpl_arguments){ .item = a.item + 1, .count = a.count - 1 }));
    return all;
}

/* Items for which a test holds or fails, of the item or of one of its attributes. */
static tpl_value choose(tpl_heap *h, tpl_value self, tpl_arguments a, const char *name, bool wanted, bool attribute) {
    if (!pal_tpl_truth(self)) return pal_tpl_new_list(h, TPL_GENERATOR, 0);
    const tpl_list *items = pal_tpl_items(h, self);
    const tpl_value all = pal_tpl_new_list(h, TPL_GENERATOR, 0);
    const size_t first = attribute ? 1 : 0;
    if (a.count < first) pal_tpl_fail(h, "%s: an argument is missing", name);
    const char *called = a.count > first ? pal_tpl_name_of(h, a.item[first].value) : NULL;
    const struct tpl_test *test = called ? pal_tpl_find_test(called) : NULL;
    const tpl_arguments rest = { .item = a.item + first + 1, .count = called ? a.count - first - 1 : 0 };
    if (called && !test) pal_tpl_fail(h, "%s: no test is called '%s'", name, called);
    for (size_t i = 0; i < items->count; i++) {
        const tpl_value v = attribute ? by_path(h, items->item[i], a.item[0].value) : items->item[i];
        const bool holds = pal_tpl_truth(test ? test->call(h, v, rest) : v);
        if (holds == wanted) pal_tpl_append(h, all.as.list, items->item[i]);
    }
    return all;
}
tpl_value pal_tpl_f_select(tpl_heap *h, tpl_value self, tpl_arguments a) {
    return choose(h, self, a, "select", true, false);
}
tpl_value pal_tpl_f_reject(tpl_heap *h, tpl_value self, tpl_arguments a) {
    return choose(h, self, a, "reject", false, false);
}
tpl_value pal_tpl_f_selectattr(tpl_heap *h, tpl_value self, tpl_arguments a) {
    return choose(h, self, a, "selectattr", true, true);
}
tpl_value pal_tpl_f_rejectattr(tpl_heap *h, tpl_value self, tpl_arguments a) {
    return choose(h, self, a, "rejectattr", false, true);
}
