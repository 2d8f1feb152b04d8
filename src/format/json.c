/* SPDX-License-Identifier: MIT */
#include "format/json.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

json_t *pal_json_text(const char *text) {
    json_t *value = json_string(text);
    if (value) return value;
    const size_t size = strlen(text);
    char *hex = pal_alloc(2 * size + 1, 1);
    if (!hex) return NULL;
    for (size_t i = 0; i < size; i++) snprintf(hex + 2 * i, 3, "%02x", (unsigned char)text[i]);
    value = json_pack("{s:s#}", "bytes", hex, (int)(2 * size));
    pal_free(hex);
    return value;
}

static int digit(char c) {
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

json_t *pal_json_text_read(const json_t *value) {
    if (json_is_string(value)) return json_incref((json_t *)value);
    const json_t *bytes = json_object_size(value) == 1 ? json_object_get(value, "bytes") : NULL;
    const char *hex = json_string_value(bytes);
    const size_t length = json_string_length(bytes), size = length / 2;
    char *text = hex && length % 2 == 0 ? pal_alloc(size + 1, 1) : NULL;
    for (size_t i = 0; text && i < size; i++) {
        const int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
        if (high < 0 || low < 0 || high + low == 0) {
            pal_free(text);
            return NULL;
        }
        text[i] = (char)(16 * high + low);
    }
    json_t *read = text ? json_stringn_nocheck(text, size) : NULL;
    pal_free(text);
    return read;
}
