/* SPDX-License-Identifier: MIT */
/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF. And the classes of characters that
 * patterns use, by utf8proc's tables. */
#ifndef PAL_TEXT_UTF8_H
#define PAL_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <utf8proc.h>

/* Bytes of the character that s starts with, and its code point; 0 when there is none (n > 0). */
static inline size_t pal_utf8_read(const unsigned char *s, size_t n, uint32_t *code) {
    const uint32_t a = s[0];
    if (a < 0x80) {
        *code = a;
        return 1;
    }
    if (a < 0xC2 || a > 0xF4 || n < 2 || (s[1] & 0xC0) != 0x80) return 0;
    if (a < 0xE0) {
        *code = (a & 0x1F) << 6 | (s[1] & 0x3Fu);
        return 2;
    }
    if (n < 3 || (s[2] & 0xC0) != 0x80) return 0;
    if (a < 0xF0) {
        *code = (a & 0x0F) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
        return *code < 0x800 || (*code >= 0xD800 && *code < 0xE000) ? 0 : 3;
    }
    if (n < 4 || (s[3] & 0xC0) != 0x80) return 0;
    *code = (a & 0x07) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
    return *code < 0x10000 || *code > 0x10FFFF ? 0 : 4;
}

/* Writes a valid code point, at most 4 bytes; returns their number. */
static inline size_t pal_utf8_write(uint32_t code, unsigned char *s) {
    if (code < 0x80) {
        s[0] = (unsigned char)code;
        return 1;
    }
    if (code < 0x800) {
        s[0] = (unsigned char)(0xC0 | code >> 6);
        s[1] = (unsigned char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        s[0] = (unsigned char)(0xE0 | code >> 12);
        s[1] = (unsigned char)(0x80 | (code >> 6 & 0x3F));
        s[2] = (unsigned char)(0x80 | (code & 0x3F));
        return 3;
    }
    s[0] = (unsigned char)(0xF0 | code >> 18);
    s[1] = (unsigned char)(0x80 | (code >> 12 & 0x3F));
    s[2] = (unsigned char)(0x80 | (code >> 6 & 0x3F));
    s[3] = (unsigned char)(0x80 | (code & 0x3F));
    return 4;
}

/* The Unicode property White_Space, spelled out: it does not change between versions, and libraries disagree on U+180E.
 */
static inline int pal_is_blank(uint32_t c) {
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

enum {
    PAL_CLASS_OTHER = 0,
    PAL_CLASS_LETTER,
    PAL_CLASS_NUMBER,
    PAL_CLASS_BLANK
}; /* [^\s\p{L}\p{N}], \p{L}, \p{N}, \s */

static inline int pal_class_of(uint32_t c) {
    const int category = (int)utf8proc_category((utf8proc_int32_t)c);
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) return PAL_CLASS_LETTER;
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return PAL_CLASS_NUMBER;
    return pal_is_blank(c) ? PAL_CLASS_BLANK : PAL_CLASS_OTHER;
}

#endif
