/* SPDX-License-Identifier: MIT */
#include "text/json_text.h"

#include "text/strings.h"
#include "text/utf8.h"

json_t *pal_json_bytes(const void *bytes, size_t size) {
    const unsigned char *s = bytes ? bytes : (const void *)"";
    json_t *whole = json_stringn((const char *)s, size); /* NULL when it is not UTF-8 */
    if (whole) return whole;
    pal_bytes clean = { 0 };
    for (size_t i = 0; i < size;) {
        uint32_t code;
        const size_t n = pal_utf8_read(s + i, size - i, &code);
        if (pal_bytes_append(&clean, n ? (const char *)s + i : "\xEF\xBF\xBD", n ? n : 3, NULL)) goto done;
        i += n ? n : 1;
    }
    whole = json_stringn((const char *)clean.data, clean.size);
done:
    pal_bytes_free(&clean);
    return whole;
}
