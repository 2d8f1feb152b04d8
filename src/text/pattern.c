/* SPDX-License-Identifier: MIT */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>

#include "base/alloc.h"

struct pal_pattern {
    pcre2_code *code;
};

/* White_Space, as the inside of a character class; PCRE2's own \s has U+180E in it. */
#define BLANKS \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

enum { JIT_STACK_START = 32 << 10, JIT_STACK_MAX = 16 << 20, MATCH_LIMIT = 20000000, PATTERN_MAX = 64 << 10 };

/* What an escape becomes outside and inside a class; NULL: cannot be said there. */
static const struct {
    char letter;
    const char *outside, *inside;
} escapes[] = {
    { 's', "[" BLANKS "]", BLANKS }, { 'S', "[^" BLANKS "]", "\\P{White_Space}" },
    { 'd', "\\p{Nd}", "\\p{Nd}" },   { 'D', "\\P{Nd}", "\\P{Nd}" },
    { 'w', "[" WORD "]", WORD },     { 'W', "[^" WORD "]", NULL },
};

static pal_status append_text(pal_bytes *out, const char *text, pal_error *err) {
    return pal_bytes_append(out, text, strlen(text), err);
}

static pal_status rewrite_escape(const char *name, char letter, bool in_class, pal_bytes *out, pal_error *err) {
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++) {
        if (escapes[i].letter != letter) continue;
        const char *text = in_class ? escapes[i].inside : escapes[i].outside;
        if (!text)
            return pal_fail(err, PAL_E_UNSUPPORTED, "%s: a pattern has \\%c inside a class, which is not supported",
                            name, letter);
        return append_text(out, text, err);
    }
    const bool letter_or_digit = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                                 (letter >= '0' && letter <= '9');
    if (letter_or_digit && !strchr("pPrntxbBAzZ", letter))
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: a pattern has the escape \\%c, which is not supported", name,
                        letter);
    if (letter == 'b' && !in_class) /* Oniguruma's word boundary, by the same \w as above */
        return append_text(out, "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))", err);
    if (letter == 'B')
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: a pattern has the escape \\B, which is not supported", name);
    return pal_bytes_append(out, (char[2]){ '\\', letter }, 2, err);
}

static pal_status rewrite(const char *name, pal_slice source, pal_bytes *out, pal_error *err) {
    pal_status st = PAL_OK;
    bool in_class = false;
    for (size_t i = 0; i < source.size && !st; i++) {
        const char c = (char)source.data[i], next = i + 1 < source.size ? (char)source.data[i + 1] : '\0';
        if (c == '\0') return pal_fail(err, PAL_E_FORMAT, "%s: a pattern holds a zero byte", name);
        if (c == '\\') {
            if (i + 1 == source.size) return pal_fail(err, PAL_E_FORMAT, "%s: a pattern ends with a backslash", name);
            st = rewrite_escape(name, next, in_class, out, err);
            i++;
            const unsigned char *close = i + 1 < source.size && source.data[i + 1] == '{'
                                             ? memchr(source.data + i, '}', source.size - i)
                                             : NULL;
            if (close && strchr("pPx", next) && !st) { /* \p{L}: the braces belong to the escape */
                const size_t length = (size_t)(close - source.data) - i;
                st = pal_bytes_append(out, source.data + i + 1, length, err);
                i += length;
            }
            continue;
        }
        if (in_class && (c == '[' || (c == '&' && next == '&')))
            return pal_fail(err, PAL_E_UNSUPPORTED, "%s: a pattern has a class within a class, which is not supported",
                            name);
        if (!in_class && c == '}' && next == '+')
            return pal_fail(err, PAL_E_UNSUPPORTED,
                            "%s: a pattern has {...}+, which has two meanings and is not supported", name);
        const bool opens = !in_class && c == '[';
        if (in_class && c == ']') in_class = false;
        st = pal_bytes_append(out, &c, 1, err);
        if (opens) {
            in_class = true;
            if (next == '^') { /* "[^]" and "[]" start with a literal ']' in both */
                if (!st) st = append_text(out, "^", err);
                i++;
            }
            if (!st && i + 1 < source.size && source.data[i + 1] == ']') {
                st = append_text(out, "\\]", err);
                i++;
            }
        }
    }
    return st;
}

pal_status pal_pattern_new(pal_pattern **out, const char *name, pal_slice source, pal_error *err) {
    pal_bytes text = { 0 };
    pal_status st;
    void *block = NULL;
    *out = NULL;
    if (source.size > PATTERN_MAX)
        return pal_fail(err, PAL_E_FORMAT, "%s: a pattern of %zu bytes; at most %d are accepted", name, source.size,
                        PATTERN_MAX);
    if ((st = rewrite(name, source, &text, err))) goto done;
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_pattern), "a pattern", err))) goto done;
    pal_pattern *p = block;
    int code;
    PCRE2_SIZE at;
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    p->code = pcre2_compile(text.data ? text.data : (const unsigned char *)"", text.size, options, &code, &at, NULL);
    if (!p->code) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(code, why, sizeof why);
        st = pal_fail(err, PAL_E_FORMAT, "%s: a pattern cannot be compiled: %s", name, (const char *)why);
        goto done;
    }
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* without it the interpreter gives the same matches */
    *out = p;
    block = NULL;
done:
    pal_free(block);
    pal_bytes_free(&text);
    return st;
}

void pal_pattern_free(pal_pattern *p) {
    if (!p) return;
    pcre2_code_free(p->code);
    pal_free(p);
}

static pal_status prepare(pal_tokenizer_scratch *s, pal_error *err) {
    if (s->match) return PAL_OK;
    s->match = pcre2_match_data_create(1, NULL);
    s->match_context = pcre2_match_context_create(NULL);
    if (!s->match || !s->match_context) return pal_fail(err, PAL_E_MEMORY, "no memory to match a pattern");
    pcre2_set_match_limit(s->match_context, MATCH_LIMIT);
    s->jit_stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL); /* NULL: no JIT here, none needed */
    if (s->jit_stack) pcre2_jit_stack_assign(s->match_context, NULL, s->jit_stack);
    return PAL_OK;
}

void pal_pattern_scratch_free(pal_tokenizer_scratch *s) {
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->match_context);
    pcre2_jit_stack_free(s->jit_stack);
    s->match = s->match_context = s->jit_stack = NULL;
}

pal_status pal_pattern_find(const pal_pattern *p, pal_tokenizer_scratch *s, pal_slice text, size_t from, size_t *start,
                            size_t *end, pal_error *err) {
    pal_status st;
    *start = *end = text.size;
    if ((st = prepare(s, err))) return st;
    while (from < text.size) {
        const int found = pcre2_match(p->code, text.data, text.size, from, PCRE2_NO_UTF_CHECK, s->match,
                                      s->match_context);
        if (found == PCRE2_ERROR_NOMATCH) return PAL_OK;
        if (found < 0 && found != PCRE2_ERROR_PARTIAL) {
            PCRE2_UCHAR why[128] = "";
            pcre2_get_error_message(found, why, sizeof why);
            return pal_fail(err, PAL_E_ARGUMENT, "the tokenizer's pattern gives up on this text at byte %zu: %s", from,
                            (const char *)why);
        }
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->match);
        if (range[1] > range[0]) {
            *start = range[0];
            *end = range[1];
            return PAL_OK;
        }
        from = (range[0] > from ? range[0] : from) + 1; /* an empty match splits nothing */
        while (from < text.size && (text.data[from] & 0xC0) == 0x80) from++;
    }
    return PAL_OK;
}
