/* SPDX-License-Identifier: MIT */
#include "plot/clean.h"

#include <stdint.h>
#include <string.h>

/* Bytes of the character at p, or 0 when it is not well-formed UTF-8. */
static int utf8_length(const unsigned char *p) {
    static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (p[0] < 0x80) return 1;
    const int n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 0;
    if (n == 0 || p[0] > 0xf4) return 0;
    uint32_t code = p[0] & (0xffu >> (n + 1));
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    return code < smallest[n] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) ? 0 : n;
}

const char *pal_text_clean(char out[PAL_TEXT_MAX], const char *text) {
    size_t used = 0;
    for (const unsigned char *p = (const unsigned char *)(text ? text : ""); *p;) {
        const int n = utf8_length(p);
        if (used + 5 > PAL_TEXT_MAX) break;
        if (n == 0) {
            out[used++] = '?';
            p++;
        } else if (n == 1) {
            out[used++] = (char)(*p < 0x20 || *p == 0x7f ? ' ' : *p);
            p++;
        } else {
            memcpy(out + used, p, (size_t)n);
            used += (size_t)n;
            p += n;
        }
    }
    out[used] = '\0';
    return out;
}
