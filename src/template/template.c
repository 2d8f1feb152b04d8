/* SPDX-License-Identifier: MIT */
#include "template/template.h"

#include <string.h>

#include "base/alloc.h"
#include "template/run.h"
#include "template/tojson.h"
#include "text/utf8.h"

struct pal_template {
    tpl_heap heap;
    char *source;
    const tpl_node *body;
};

/* Line ends become \n, and one at the very end is left out, as jinja2 has it. */
static size_t copy_source(char *to, const char *from, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        if (from[i] == '\r' && i + 1 < size && from[i + 1] == '\n') continue;
        to[n++] = from[i] == '\r' ? '\n' : from[i];
    }
    return n && to[n - 1] == '\n' ? n - 1 : n;
}

static bool is_utf8(const unsigned char *text, size_t size) {
    uint32_t code;
    for (size_t i = 0, n; i < size; i += n)
        if (!(n = pal_utf8_read(text + i, size - i, &code))) return false;
    return true;
}

static pal_status parse(pal_template *t, pal_error *err) {
    pal_error ignored;
    t->heap.err = err ? err : &ignored;
    if (setjmp(t->heap.leave)) return t->heap.err->status;
    t->body = pal_tpl_parse(&t->heap);
    return PAL_OK;
}

pal_status pal_template_read(pal_template **out, const void *text, size_t size, pal_error *err) {
    *out = NULL;
    if (size > PAL_TEMPLATE_MOST)
        return pal_fail(err, PAL_E_FORMAT, "a template of %zu bytes; at most %d are read", size, PAL_TEMPLATE_MOST);
    if (!is_utf8(text, size)) return pal_fail(err, PAL_E_FORMAT, "a template that is not UTF-8");
    pal_template *t = pal_alloc(1, sizeof *t);
    if (t) t->source = pal_alloc(size + 1, 1);
    if (!t || !t->source) {
        pal_template_free(t);
        return pal_fail(err, PAL_E_MEMORY, "out of memory for a template");
    }
    t->heap.source = t->source;
    t->heap.source_size = copy_source(t->source, text, size);
    const pal_status st = parse(t, err);
    if (st) pal_template_free(t);
    else *out = t;
    return st;
}

void pal_template_free(pal_template *t) {
    if (!t) return;
    pal_tpl_release(&t->heap);
    pal_free(t->source);
    pal_free(t);
}

const char *pal_template_source(const pal_template *t, size_t *size) {
    *size = t->heap.source_size;
    return t->source;
}

/* Names of roles that templates build markers from: these may not come from a message's own words. */
static bool is_role(tpl_value v) {
    static const char *const roles[] = { "system",   "developer", "user",      "assistant", "tool",
                                         "function", "ipython",   "documents", "critic",    NULL };
    for (size_t i = 0; roles[i]; i++)
        if (pal_tpl_is_text(v, roles[i])) return true;
    return false;
}

static tpl_value messages_value(tpl_heap *h, const json_t *messages) {
    const tpl_value all = pal_tpl_from_json(h, messages, 1);
    for (size_t i = 0; all.kind == TPL_LIST && i < all.as.list->count; i++) {
        const tpl_value one = all.as.list->item[i];
        const tpl_value *role = one.kind == TPL_DICT ? pal_tpl_get_name(one.as.dict, "role") : NULL;
        if (role && is_role(*role))
            pal_tpl_set(h, one.as.dict, pal_tpl_literal(h, "role"), pal_tpl_literal(h, pal_tpl_name_of(h, *role)));
    }
    return all;
}

static void define_inputs(tpl_run *r, const pal_template_input *in) {
    tpl_heap *h = &r->heap;
    const char *name;
    const json_t *value;
    pal_tpl_assign(r, &r->inputs, "messages", messages_value(h, in->messages));
    pal_tpl_assign(r, &r->inputs, "tools", pal_tpl_from_json(h, in->tools, 1));
    pal_tpl_assign(r, &r->inputs, "documents", pal_tpl_from_json(h, in->documents, 1));
    pal_tpl_assign(r, &r->inputs, "add_generation_prompt", pal_tpl_bool(in->add_generation_prompt));
    if (in->bos) pal_tpl_assign(r, &r->inputs, "bos_token", pal_tpl_literal(h, in->bos));
    if (in->eos) pal_tpl_assign(r, &r->inputs, "eos_token", pal_tpl_literal(h, in->eos));
    json_object_foreach((json_t *)in->kwargs, name, value)
        pal_tpl_assign(r, &r->inputs, name, pal_tpl_from_json(h, value, 1));
}

static pal_status render(tpl_run *r, const pal_template *t, const pal_template_input *in, tpl_out *out) {
    if (setjmp(r->heap.leave)) return r->heap.err->status;
    define_inputs(r, in);
    tpl_scope *top = pal_tpl_take(&r->heap, 1, sizeof *top);
    top->parent = &r->inputs;
    pal_tpl_run(r, t->body, top, out);
    return PAL_OK;
}

static pal_status keep(pal_rendered *to, const tpl_out *out, pal_error *err) {
    const pal_status st = pal_alloc_named((void **)&to->text, 2, out->size + 1, "a rendered template", err);
    if (st) return st;
    to->said = to->text + out->size + 1;
    to->size = out->size;
    if (out->size) {
        memcpy(to->text, out->data, out->size);
        memcpy(to->said, out->mark, out->size);
    }
    return PAL_OK;
}

pal_status pal_template_render(const pal_template *t, const pal_template_input *in, pal_rendered *out, pal_error *err) {
    pal_error ignored;
    tpl_out text = { 0 };
    const time_t seconds = time(NULL);
    *out = (pal_rendered){ 0 };
    tpl_run *r = pal_alloc(1, sizeof *r);
    if (!r) return pal_fail(err, PAL_E_MEMORY, "out of memory for a template");
    r->heap.err = err ? err : &ignored;
    r->heap.source = t->source;
    r->heap.source_size = t->heap.source_size;
    if (in->now) r->now = *in->now;
    else localtime_r(&seconds, &r->now);
    pal_status st = render(r, t, in, &text);
    if (!st) st = keep(out, &text, err);
    pal_tpl_release(&r->heap);
    pal_free(r);
    return st;
}

void pal_rendered_free(pal_rendered *r) {
    pal_free(r->text);
    *r = (pal_rendered){ 0 };
}
