/* SPDX-License-Identifier: MIT */
/* Texts by characters, as Python handles them; parts share the bytes and the marks of the whole. */
#ifndef PAL_TEMPLATE_STRINGS_H
#define PAL_TEMPLATE_STRINGS_H

#include "template/value.h"

static inline tpl_text pal_tpl_part(tpl_text t, size_t from, size_t to) {
    return (tpl_text){ .data = t.data + from, .mark = t.mark ? t.mark + from : NULL, .size = to - from };
}
static inline unsigned char pal_tpl_mark(tpl_text t, size_t at) { return t.mark ? t.mark[at] : 0; }
size_t pal_tpl_character(tpl_text t, size_t at); /* bytes of the character there; invalid ones count one by one */
size_t pal_tpl_characters(tpl_text t);
size_t pal_tpl_offset(tpl_text t, size_t characters); /* of the character with this index, or the end */
bool pal_tpl_is_space(uint32_t code);                 /* str.isspace() */
bool pal_tpl_is_line_end(uint32_t code);              /* for str.splitlines() */
uint32_t pal_tpl_code(tpl_text t, size_t at, size_t *size);
size_t pal_tpl_find(tpl_text t, tpl_text what, size_t from); /* SIZE_MAX: not there */

/* chars NULL: white space */
tpl_text pal_tpl_strip(tpl_text t, const tpl_text *chars, bool left, bool right);
void pal_tpl_replace(tpl_heap *h, tpl_out *o, tpl_text t, tpl_text from, tpl_text to, int64_t most); /* most < 0: all */
void pal_tpl_case(tpl_heap *h, tpl_out *o, tpl_text t, bool upper);
void pal_tpl_capitalize(tpl_heap *h, tpl_out *o, tpl_text t);
void pal_tpl_title(tpl_heap *h, tpl_out *o, tpl_text t, bool filter); /* the filter's or the method's rules */
/* HTML's five characters. */
void pal_tpl_escape(tpl_heap *h, tpl_out *o, tpl_text t);
void pal_tpl_lines(tpl_heap *h, tpl_text t, tpl_list *lines, bool keep_ends);
void pal_tpl_repr(tpl_heap *h, tpl_out *o, tpl_text t); /* in quotes */

#endif
