/* SPDX-License-Identifier: MIT */
/* Normalisers of tokenizer.json: the four Unicode forms, Prepend and Replace.
 *
 * Nearly all text is already normal. A scan skips what cannot change (ASCII eight bytes at a time) and only windows
 * around the rest, from one inert character to the next, go through decomposition, ordering and composition. Ordering
 * is a stable counting sort, so that a megabyte of combining marks takes linear time. Bytes that are not UTF-8 pass
 * unchanged. */
#include "base/alloc.h"
#include "base/context.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

/* Below this code point nothing changes and nothing joins what stands before it. */
static const uint32_t plain_below[] = { [PAL_NFC] = 0x300, [PAL_NFD] = 0xC0, [PAL_NFKC] = 0xA0, [PAL_NFKD] = 0xA0 };

/* Characters with a combining class, a mapping or a composition that came after Unicode 9. The package `tokenizers` has
 * the tables of that version and leaves them alone, so they are left alone here: ids are what counts. */
static const struct {
    uint32_t first, last;
} newer[] = {
    { 0x7FD, 0x7FD },     { 0x898, 0x89F },     { 0x8CA, 0x8D3 },     { 0x9FE, 0x9FE },     { 0xC3C, 0xC3C },
    { 0xD3B, 0xD3C },     { 0xEBA, 0xEBA },     { 0x1715, 0x1715 },   { 0x1ABF, 0x1ACE },   { 0x1DF6, 0x1DFA },
    { 0x32FF, 0x32FF },   { 0xA7F2, 0xA7F4 },   { 0xA82C, 0xA82C },   { 0xAB69, 0xAB69 },   { 0x10781, 0x10785 },
    { 0x10787, 0x107B0 }, { 0x107B2, 0x107BA }, { 0x10D24, 0x10D27 }, { 0x10EAB, 0x10EAC }, { 0x10EFD, 0x10EFF },
    { 0x10F46, 0x10F50 }, { 0x10F82, 0x10F85 }, { 0x11070, 0x11070 }, { 0x1133B, 0x1133B }, { 0x1145E, 0x1145E },
    { 0x11839, 0x1183A }, { 0x11930, 0x11930 }, { 0x11938, 0x11938 }, { 0x1193D, 0x1193E }, { 0x11943, 0x11943 },
    { 0x119E0, 0x119E0 }, { 0x11A34, 0x11A34 }, { 0x11A47, 0x11A47 }, { 0x11A99, 0x11A99 }, { 0x11D42, 0x11D42 },
    { 0x11D44, 0x11D45 }, { 0x11D97, 0x11D97 }, { 0x11F41, 0x11F42 }, { 0x16D63, 0x16D6A }, { 0x16FF0, 0x16FF1 },
    { 0x1E030, 0x1E06D }, { 0x1E08F, 0x1E08F }, { 0x1E130, 0x1E136 }, { 0x1E2AE, 0x1E2AE }, { 0x1E2EC, 0x1E2EF },
    { 0x1E4EC, 0x1E4EF }, { 0x1F16C, 0x1F16C }, { 0x1FBF0, 0x1FBF9 },
};

static bool is_newer(uint32_t c) {
    size_t low = 0, high = PAL_COUNT(newer);
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (c > newer[middle].last) low = middle + 1;
        else high = middle;
    }
    return low < PAL_COUNT(newer) && c >= newer[low].first;
}

/* A character that this normal form does not change and that never joins what stands before it. */
static bool inert(uint32_t c, pal_normal_kind kind) {
    if (c < plain_below[kind]) return true;
    if (c >= 0x1100 && c <= 0x11FF) return false;                               /* Hangul jamo */
    if (c >= 0xAC00 && c <= 0xD7A3) return kind == PAL_NFC || kind == PAL_NFKC; /* syllables, whole */
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)c);
    if (p->combining_class != 0 || (p->category >= UTF8PROC_CATEGORY_MN && p->category <= UTF8PROC_CATEGORY_ME))
        return is_newer(c);
    if (p->decomp_seqindex == UINT16_MAX) return true;
    if ((kind == PAL_NFC || kind == PAL_NFD) && p->decomp_type != 0)
        return true; /* a compatibility mapping, which these forms leave alone */
    return is_newer(c);
}

static int combining_class(int32_t c) { return (int)utf8proc_get_property(c)->combining_class; }

/* Stable order by combining class of marks without a starter among them; spare has room for n. */
static void order_marks(int32_t *marks, size_t n, int32_t *spare) {
    if (n < 32) {
        for (size_t i = 1; i < n; i++) {
            const int32_t c = marks[i];
            size_t at = i;
            for (; at > 0 && combining_class(marks[at - 1]) > combining_class(c); at--) marks[at] = marks[at - 1];
            marks[at] = c;
        }
        return;
    }
    size_t start[257] = { 0 };
    for (size_t i = 0; i < n; i++) start[combining_class(marks[i]) + 1]++;
    for (size_t i = 1; i < 257; i++) start[i] += start[i - 1];
    for (size_t i = 0; i < n; i++) spare[start[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, spare, n * sizeof *marks);
}

static pal_status codes_reserve(pal_tokenizer_scratch *s, size_t used, size_t need, pal_error *err) {
    void *block = s->codes;
    const pal_status st = pal_grow(&block, &s->codes_capacity, used, need, sizeof *s->codes, err);
    s->codes = block;
    return st;
}

/* Appends the normal form of a window of valid UTF-8. */
static pal_status normalize_window(pal_tokenizer_scratch *s, pal_slice window, pal_normal_kind kind, pal_bytes *out,
                                   pal_error *err) {
    enum { EXPANSION = 32 }; /* the longest decomposition has 18 code points */
    const bool compose = kind == PAL_NFC || kind == PAL_NFKC, compat = kind == PAL_NFKC || kind == PAL_NFKD;
    const utf8proc_option_t options = (utf8proc_option_t)(UTF8PROC_STABLE | (compat ? UTF8PROC_COMPAT : 0) |
                                                          (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE));
    size_t n = 0;
    pal_status st;
    for (size_t i = 0; i < window.size;) {
        uint32_t code = 0;
        int boundary = 0;
        i += pal_utf8_read(window.data + i, window.size - i, &code);
        if ((st = codes_reserve(s, n, n + EXPANSION, err))) return st;
        n += (size_t)utf8proc_decompose_char((utf8proc_int32_t)code, s->codes + n, EXPANSION, options, &boundary);
    }
    if ((st = codes_reserve(s, n, 2 * n + 1, err))) return st;
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && combining_class(s->codes[end]) != 0) end++;
        if (end > i + 1) order_marks(s->codes + i, end - i, s->codes + n);
        i = end > i ? end : i + 1;
    }
    if (compose) n = (size_t)utf8proc_normalize_utf32(s->codes, (utf8proc_ssize_t)n, options);
    if ((st = pal_bytes_reserve(out, 4 * n, err))) return st;
    for (size_t i = 0; i < n; i++) out->size += pal_utf8_write((uint32_t)s->codes[i], out->data + out->size);
    return PAL_OK;
}

/* Returns the first byte at or after i that is not part of a run of inert characters; *last: the start of the last
 * inert character before it (or i when there is none). Bytes that are not UTF-8 count as inert. */
static size_t skip_inert(pal_slice text, size_t i, pal_normal_kind kind, size_t *last) {
    *last = i;
    while (i < text.size) {
        uint64_t word;
        while (i + 8 <= text.size && (memcpy(&word, text.data + i, 8), (word & 0x8080808080808080u) == 0))
            *last = (i += 8) - 1;
        if (i == text.size) break;
        uint32_t code = 0;
        size_t length = pal_utf8_read(text.data + i, text.size - i, &code);
        if (length && !inert(code, kind)) break;
        *last = i;
        i += length ? length : 1;
    }
    return i;
}

static pal_status normalize_form(pal_tokenizer_scratch *s, pal_slice text, pal_normal_kind kind, pal_bytes *out,
                                 bool *changed, pal_error *err) {
    pal_status st;
    size_t last, at = skip_inert(text, 0, kind, &last);
    *changed = at < text.size;
    if (!*changed) return PAL_OK;
    out->size = 0;
    for (size_t done = 0;;) {
        uint32_t code;
        if (at == text.size) return pal_bytes_append(out, text.data + done, text.size - done, err);
        /* The starter in front may take up the marks that follow; a stray byte or a mark that is left alone may not. */
        const size_t begin = last < at && pal_utf8_read(text.data + last, text.size - last, &code) && !is_newer(code)
                                 ? last
                                 : at;
        if ((st = pal_bytes_append(out, text.data + done, begin - done, err))) return st;
        size_t end = at, length;
        while (end < text.size && (length = pal_utf8_read(text.data + end, text.size - end, &code)) &&
               (!inert(code, kind)))
            end += length;
        if ((st = normalize_window(s, (pal_slice){ text.data + begin, end - begin }, kind, out, err))) return st;
        done = end;
        at = skip_inert(text, end, kind, &last);
    }
}

pal_status pal_normalize(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_slice text, pal_slice *out,
                         pal_error *err) {
    pal_status st = PAL_OK;
    int free = 0; /* the buffer that text does not lie in: a step that changes nothing writes none */
    for (size_t i = 0; i < tok->normal_count && text.size && !st; i++) {
        const pal_normal_step *step = &tok->normal[i];
        pal_bytes *to = &s->normal[free];
        bool changed = true;
        if (step->kind == PAL_PREPEND) {
            to->size = 0;
            if (!(st = pal_bytes_append(to, step->to.data, step->to.size, err)))
                st = pal_bytes_append(to, text.data, text.size, err);
            if (!st) st = pal_growth_take(&s->growth, text.size, to->size, err);
        } else if (step->kind == PAL_REPLACE) {
            to->size = 0;
            st = pal_replace(text, (pal_slice){ step->from.data, step->from.size },
                             (pal_slice){ step->to.data, step->to.size }, &s->growth, to, err);
        } else {
            st = normalize_form(s, text, step->kind, to, &changed, err);
            if (!st && changed) st = pal_growth_take(&s->growth, text.size, to->size, err);
        }
        if (!changed) continue;
        text = (pal_slice){ to->data, to->size };
        free = 1 - free;
    }
    *out = text;
    return st;
}

void pal_normal_scratch_free(pal_tokenizer_scratch *s) {
    pal_bytes_free(&s->normal[0]);
    pal_bytes_free(&s->normal[1]);
    pal_free(s->codes);
}
