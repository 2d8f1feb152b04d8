/* SPDX-License-Identifier: MIT */
#include "support/pictures.h"

#include <ctype.h>

#include "support/files.h"

const char *test_xml_complaint(const char *p) {
    char open[64][64];
    int depth = 0, elements = 0;
    while (*p) {
        if (*p == '&' && strncmp(p, "&amp;", 5) != 0 && strncmp(p, "&lt;", 4) != 0 && strncmp(p, "&gt;", 4) != 0 &&
            strncmp(p, "&quot;", 6) != 0)
            return "a bare &";
        if (*p != '<') {
            if (depth == 0 && !isspace((unsigned char)*p)) return "text outside the root";
            p++;
            continue;
        }
        p++;
        if (*p == '?' || *p == '!') {
            while (*p && *p != '>') p++;
            if (*p) p++;
            continue;
        }
        const bool closing = *p == '/';
        p += closing;
        char name[64];
        size_t n = 0;
        while (isalnum((unsigned char)*p) || *p == ':' || *p == '-') {
            if (n < 63) name[n++] = *p;
            p++;
        }
        name[n] = '\0';
        if (n == 0) return "a tag without a name";
        while (*p && *p != '>' && *p != '/') {
            if (*p == '"') {
                p++;
                while (*p && *p != '"' && *p != '<') p++;
                if (*p != '"') return "an attribute that does not end";
            }
            p++;
        }
        const bool empty = *p == '/';
        p += empty;
        if (*p != '>') return "a tag that does not end";
        p++;
        if (closing) {
            if (depth == 0 || strcmp(open[depth - 1], name) != 0) return "tags that cross";
            depth--;
        } else {
            elements++;
            if (!empty) {
                if (depth == 64) return "too deep";
                snprintf(open[depth++], 64, "%s", name);
            }
        }
    }
    return depth ? "a tag that is not closed" : elements ? NULL : "no element";
}

void test_svg(const char *path) {
    size_t size;
    char *text = (char *)test_read_file(path, &size);
    assert_int_equal(strlen(text), size);
    assert_non_null(strstr(text, "<svg"));
    const char *complaint = test_xml_complaint(text);
    if (complaint) fail_msg("%s: %s", path, complaint);
    assert_null(strstr(text, " nan"));
    assert_null(strstr(text, " inf"));
    free(text);
}

void test_png(const char *path, unsigned width, unsigned height) {
    static const unsigned char signature[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };
    size_t size;
    unsigned char *data = test_read_file(path, &size);
    assert_true(size > 33);
    assert_memory_equal(data, signature, 8);
    assert_memory_equal(data + 12, "IHDR", 4);
    assert_int_equal(data[16] << 24 | data[17] << 16 | data[18] << 8 | data[19], width);
    assert_int_equal(data[20] << 24 | data[21] << 16 | data[22] << 8 | data[23], height);
    assert_memory_equal(data + size - 8, "IEND", 4);
    free(data);
}
