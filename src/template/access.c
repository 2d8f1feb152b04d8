/* SPDX-License-Identifier: MIT */
/* Attributes, items and slices, as jinja2's sandbox gives them. */
#include <stdio.h>
#include <string.h>

#include "template/run.h"
#include "template/strings.h"

static tpl_value neighbour(const tpl_loop *loop, bool there, size_t index) {
    return there ? loop->items->item[index] : pal_tpl_undefined("an item before the first or after the last");
}

static tpl_value cycle(tpl_heap *h, tpl_value self, tpl_arguments a) {
    if (!a.count) pal_tpl_fail(h, "cycle: an argument is missing");
    return a.item[self.as.loop->index % a.count].value;
}

static tpl_value loop_attribute(tpl_heap *h, tpl_value of, const char *name) {
    const tpl_loop *loop = of.as.loop;
    const int64_t index = (int64_t)loop->index, count = (int64_t)loop->items->count;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = { { "index0", index },
                    { "index", index + 1 },
                    { "revindex", count - index },
                    { "revindex0", count - index - 1 },
                    { "length", count },
                    { "depth", 1 },
                    { "depth0", 0 } };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strcmp(name, numbers[i].name) == 0) return pal_tpl_int(numbers[i].value);
    if (strcmp(name, "first") == 0) return pal_tpl_bool(index == 0);
    if (strcmp(name, "last") == 0) return pal_tpl_bool(index + 1 == count);
    if (strcmp(name, "previtem") == 0) return neighbour(loop, index > 0, loop->index - 1);
    if (strcmp(name, "nextitem") == 0) return neighbour(loop, index + 1 < count, loop->index + 1);
    if (strcmp(name, "cycle") == 0) return pal_tpl_function(h, "cycle", cycle, of);
    if (strcmp(name, "changed") == 0) pal_tpl_fail(h, "'loop.changed' is not supported");
    return pal_tpl_undefined(name);
}

static tpl_value native_attribute(tpl_heap *h, tpl_value of, const char *name, bool *there) {
    tpl_value v;
    *there = true;
    if (of.kind == TPL_UNDEFINED)
        pal_tpl_fail(h, "'%s' is undefined: it has no '%s'", of.as.missing ? of.as.missing : "the value", name);
    if (name[0] == '_' && name[1] == '_') {
        v = pal_tpl_undefined(name);
        v.forbidden = true;
        return v;
    }
    if (of.kind == TPL_LOOP) return loop_attribute(h, of, name);
    if (of.kind == TPL_NAMESPACE) {
        const tpl_value *found = pal_tpl_get_name(of.as.dict, name);
        if (found) return *found;
    } else if (pal_tpl_method(h, of, name, &v)) return v;
    *there = false;
    return pal_tpl_undefined(name);
}

tpl_value pal_tpl_attribute(tpl_heap *h, tpl_value of, const char *name) {
    bool there;
    const tpl_value v = native_attribute(h, of, name, &there);
    if (there || of.kind != TPL_DICT) return v;
    const tpl_value *found = pal_tpl_get(h, of.as.dict, pal_tpl_literal(h, name));
    return found ? *found : v;
}

static tpl_value list_item(tpl_heap *h, tpl_value of, int64_t index) {
    if (of.kind == TPL_STRING) {
        const tpl_text text = of.as.string->text;
        if (index < 0) index += (int64_t)pal_tpl_characters(text);
        const size_t at = index < 0 ? text.size : pal_tpl_offset(text, (size_t)index);
        pal_tpl_step(h, at / 64);
        if (at < text.size) return pal_tpl_string(h, pal_tpl_part(text, at, at + pal_tpl_character(text, at)));
    } else {
        const int64_t count = (int64_t)of.as.list->count;
        if (index < 0) index += count;
        if (index >= 0 && index < count) return of.as.list->item[index];
    }
    return pal_tpl_undefined("an element past the end");
}

tpl_value pal_tpl_item(tpl_heap *h, tpl_value of, tpl_value index) {
    bool there;
    if (of.kind == TPL_UNDEFINED)
        pal_tpl_fail(h, "'%s' is undefined: it has no elements", of.as.missing ? of.as.missing : "the value");
    if (of.kind == TPL_DICT) {
        const tpl_value *found = pal_tpl_get(h, of.as.dict, index);
        if (found) return *found;
    }
    if (index.kind == TPL_STRING) return native_attribute(h, of, pal_tpl_name_of(h, index), &there);
    const bool sequence = of.kind == TPL_STRING || of.kind == TPL_LIST || of.kind == TPL_TUPLE || of.kind == TPL_RANGE;
    if (sequence && (index.kind == TPL_INT || index.kind == TPL_BOOL))
        return list_item(h, of, pal_tpl_whole(h, index, "an index"));
    return pal_tpl_undefined("an element");
}

/* Where a slice begins or ends, within -1 .. count. */
static int64_t bound(tpl_heap *h, tpl_value v, int64_t count, bool down, int64_t usual) {
    if (v.kind == TPL_NONE) return usual;
    int64_t x = pal_tpl_whole(h, v, "a slice");
    if (x < 0) x += count;
    if (x < 0) return down ? -1 : 0;
    return x >= count ? down ? count - 1 : count : x;
}

static tpl_value slice_text(tpl_heap *h, tpl_text text, int64_t from, int64_t to, int64_t step) {
    tpl_out o = { 0 };
    pal_tpl_step(h, text.size / 64);
    if (step == 1) {
        const size_t begin = pal_tpl_offset(text, (size_t)from);
        const tpl_text rest = pal_tpl_part(text, begin, text.size);
        return pal_tpl_string(h, pal_tpl_part(rest, 0, from < to ? pal_tpl_offset(rest, (size_t)(to - from)) : 0));
    }
    const size_t count = pal_tpl_characters(text);
    uint32_t *start = pal_tpl_take(h, count + 1, sizeof *start);
    for (size_t i = 0, at = 0; i < count; i++) {
        start[i] = (uint32_t)at;
        at += pal_tpl_character(text, at);
    }
    start[count] = (uint32_t)text.size;
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step)
        pal_tpl_put(h, &o, pal_tpl_part(text, start[i], start[i + 1]));
    return pal_tpl_out_string(h, &o);
}

tpl_value pal_tpl_slice(tpl_heap *h, tpl_value of, tpl_value from, tpl_value to, tpl_value by) {
    size_t length;
    const bool sequence = of.kind == TPL_STRING || of.kind == TPL_LIST || of.kind == TPL_TUPLE || of.kind == TPL_RANGE;
    if (of.kind == TPL_UNDEFINED)
        pal_tpl_fail(h, "'%s' is undefined: it has no elements", of.as.missing ? of.as.missing : "the value");
    if (!sequence || !pal_tpl_length(of, &length)) return pal_tpl_undefined("an element");
    const tpl_value bounds[] = { from, to, by };
    for (size_t i = 0; i < 3; i++) /* a TypeError, which jinja2 turns into an undefined value */
        if (bounds[i].kind != TPL_NONE && bounds[i].kind != TPL_INT && bounds[i].kind != TPL_BOOL)
            return pal_tpl_undefined("an element");
    const int64_t count = (int64_t)length;
    int64_t step = by.kind == TPL_NONE ? 1 : pal_tpl_whole(h, by, "a slice");
    if (!step) pal_tpl_fail(h, "a slice with steps of 0");
    if (step > count + 1) step = count + 1;
    if (step < -count - 1) step = -count - 1;
    const int64_t first = bound(h, from, count, step < 0, step < 0 ? count - 1 : 0);
    const int64_t last = bound(h, to, count, step < 0, step < 0 ? -1 : count);
    if (of.kind == TPL_STRING) return slice_text(h, of.as.string->text, first, last, step);
    const tpl_value part = pal_tpl_new_list(h, of.kind, 0);
    for (int64_t i = first; step > 0 ? i < last : i > last; i += step)
        pal_tpl_append(h, part.as.list, of.as.list->item[i]);
    return part;
}
