/* SPDX-License-Identifier: MIT */
#include "eval/python_text.h"

#include "text/strings.h"

size_t pal_py_length(pal_slice text) {
    size_t length = 0;
    uint32_t code;
    for (size_t i = 0; i < text.size; length++) i += pal_py_character(text.data + i, text.size - i, &code);
    return length;
}

pal_slice pal_py_lstrip(pal_slice t) {
    uint32_t code;
    while (t.size) {
        const size_t n = pal_py_character(t.data, t.size, &code);
        if (!pal_py_space(code)) break;
        t.data += n;
        t.size -= n;
    }
    return t;
}

pal_slice pal_py_rstrip(pal_slice t) {
    while (t.size) {
        size_t at = t.size - 1;
        while (at && t.size - at < 4 && (t.data[at] & 0xC0) == 0x80) at--;
        uint32_t code;
        if (pal_utf8_read(t.data + at, t.size - at, &code) != t.size - at || !pal_py_space(code)) break;
        t.size = at;
    }
    return t;
}

pal_slice pal_py_strip(pal_slice t) { return pal_py_rstrip(pal_py_lstrip(t)); }

bool pal_py_contains(pal_slice text, pal_slice part) {
    return !part.size || (text.size && memmem(text.data, text.size, part.data, part.size) != NULL);
}

static pal_status append_code(pal_bytes *out, uint32_t code, pal_error *err) {
    unsigned char s[4];
    return pal_bytes_append(out, s, pal_utf8_write(code, s), err);
}

static bool is_cased(uint32_t c) {
    const int category = (int)utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT ||
           c == 0xAA || c == 0xBA || (c >= 0x2B0 && c <= 0x2B8) || (c >= 0x2160 && c <= 0x217F) ||
           (c >= 0x24B6 && c <= 0x24E9);
}

/* What neither ends nor begins a word for the final sigma: marks, modifiers, and a few signs. */
static bool is_case_ignorable(uint32_t c) {
    const int category = (int)utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME || category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' ||
           c == 0xB7 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
}

/* What precedes a capital sigma: each search continues where the last one stopped, so that many take linear time. */
typedef struct {
    size_t seen;
    bool cased;
} word_before;

/* Whether the capital sigma at byte `at` ends a word. It looks forward to the next sigma at most, which is cased. */
static bool sigma_is_final(pal_slice t, size_t at, word_before *before) {
    uint32_t code;
    while (before->seen < at) {
        before->seen += pal_py_character(t.data + before->seen, t.size - before->seen, &code);
        if (!is_case_ignorable(code)) before->cased = is_cased(code);
    }
    if (!before->cased) return false;
    for (size_t i = at + 2; i < t.size;) {
        i += pal_py_character(t.data + i, t.size - i, &code);
        if (!is_case_ignorable(code)) return !is_cased(code);
    }
    return true;
}

static pal_status lower_from(pal_bytes *out, pal_slice t, size_t from, pal_error *err) {
    pal_status st = PAL_OK;
    word_before before = { 0 };
    for (size_t i = from; i < t.size && !st;) {
        uint32_t code;
        const size_t n = pal_utf8_read(t.data + i, t.size - i, &code);
        if (!n) st = pal_bytes_append(out, t.data + i, 1, err);
        else if (code == 0x3A3) st = append_code(out, sigma_is_final(t, i, &before) ? 0x3C2 : 0x3C3, err);
        else if (code == 0x130) st = pal_bytes_append(out, "i\xCC\x87", 3, err);
        else st = append_code(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code), err);
        i += n ? n : 1;
    }
    return st;
}

pal_status pal_py_lower(pal_bytes *out, pal_slice t, pal_error *err) { return lower_from(out, t, 0, err); }

/* Letters that become two or three when they begin a title. */
static const char *long_title(uint32_t code) {
    static const char *const ligatures[] = { "Ff", "Fi", "Fl", "Ffi", "Ffl", "St", "St" };
    if (code == 0xDF) return "Ss";
    return code >= 0xFB00 && code <= 0xFB06 ? ligatures[code - 0xFB00] : NULL;
}

pal_status pal_py_capitalize(pal_bytes *out, pal_slice t, pal_error *err) {
    if (!t.size) return PAL_OK;
    uint32_t code;
    const size_t n = pal_utf8_read(t.data, t.size, &code);
    if (!n) return lower_from(out, t, 0, err);
    const char *several = long_title(code);
    const pal_status st = several ? pal_bytes_append(out, several, strlen(several), err)
                                  : append_code(out, (uint32_t)utf8proc_totitle((utf8proc_int32_t)code), err);
    return st ? st : lower_from(out, t, n, err);
}

pal_status pal_py_replace(pal_bytes *out, pal_slice t, const char *from, const char *to, pal_error *err) {
    const size_t length = strlen(from);
    pal_status st = PAL_OK;
    while (!st) {
        const unsigned char *hit = t.size >= length ? memmem(t.data, t.size, from, length) : NULL;
        const size_t before = hit ? (size_t)(hit - t.data) : t.size;
        if ((st = pal_bytes_append(out, t.data, before, err)) || !hit) return st;
        st = pal_bytes_append(out, to, strlen(to), err);
        t.data += before + length;
        t.size -= before + length;
    }
    return st;
}

/* Bytes of the broken character that s begins: its first and those that could still have continued it. */
static size_t broken_size(const unsigned char *s, size_t n) {
    const unsigned char a = s[0];
    const size_t whole = a >= 0xC2 && a < 0xE0 ? 2 : a >= 0xE0 && a < 0xF0 ? 3 : a >= 0xF0 && a <= 0xF4 ? 4 : 1;
    size_t size = 1;
    for (; size < whole && size < n && (s[size] & 0xC0) == 0x80; size++) {
        if (size > 1) continue;
        if ((a == 0xE0 && s[1] < 0xA0) || (a == 0xED && s[1] > 0x9F) || (a == 0xF0 && s[1] < 0x90) ||
            (a == 0xF4 && s[1] > 0x8F))
            break;
    }
    return size;
}

pal_status pal_py_valid(pal_bytes *out, pal_slice t, pal_error *err) {
    pal_status st = PAL_OK;
    for (size_t i = 0; i < t.size && !st;) {
        uint32_t code;
        const size_t n = pal_utf8_read(t.data + i, t.size - i, &code);
        st = n ? pal_bytes_append(out, t.data + i, n, err) : append_code(out, 0xFFFD, err);
        i += n ? n : broken_size(t.data + i, t.size - i);
    }
    return st;
}
