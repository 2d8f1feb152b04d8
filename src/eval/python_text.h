/* SPDX-License-Identifier: MIT */
/* Text as Python treats it: what other programs count as white space or lower case decides whether an answer is right.
 * Texts are UTF-8; a byte that begins no character stands for itself. */
#ifndef PAL_EVAL_PYTHON_TEXT_H
#define PAL_EVAL_PYTHON_TEXT_H

#include <stdbool.h>
#include <string.h>

#include "palimpsa/tokenizer.h"
#include "text/utf8.h"

static inline bool pal_py_space(uint32_t c) { return pal_is_blank(c) || (c >= 0x1c && c <= 0x1f); }

/* Bytes of the character that s[0] begins, at least 1, and its code point. */
static inline size_t pal_py_character(const unsigned char *s, size_t n, uint32_t *code) {
    const size_t size = pal_utf8_read(s, n, code);
    if (size) return size;
    *code = 0xFFFD;
    return 1;
}

size_t pal_py_length(pal_slice text); /* in code points */
pal_slice pal_py_lstrip(pal_slice text);
pal_slice pal_py_rstrip(pal_slice text);
pal_slice pal_py_strip(pal_slice text);
bool pal_py_contains(pal_slice text, pal_slice part);

/* These append. lower is str.lower, capitalize str.capitalize, replace str.replace. */
pal_status pal_py_lower(pal_bytes *out, pal_slice text, pal_error *err);
pal_status pal_py_capitalize(pal_bytes *out, pal_slice text, pal_error *err);
pal_status pal_py_replace(pal_bytes *out, pal_slice text, const char *from, const char *to, pal_error *err);
/* bytes.decode(errors="replace"): each longest piece that begins a character and does not end it becomes U+FFFD. */
pal_status pal_py_valid(pal_bytes *out, pal_slice text, pal_error *err);

static inline pal_slice pal_slice_of(const pal_bytes *b) { return (pal_slice){ b->data, b->size }; }
static inline pal_slice pal_slice_text(const char *text) {
    return (pal_slice){ (const unsigned char *)text, strlen(text) };
}

#endif
