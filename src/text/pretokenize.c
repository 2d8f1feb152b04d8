/* SPDX-License-Identifier: MIT */
/* Pre-tokenizers: a segment of text becomes the stretches that merges work on.
 *
 * GPT-2's pattern is matched by hand (a test proves it equal to the pattern run by Oniguruma); others are
 * Oniguruma's work. A tokenizer with that one step, which is GPT-2 and GPT-NeoX, never builds a list of stretches.
 * Bytes that are not UTF-8 belong to no class that a pattern could name: by hand they are neither letter, number nor
 * blank. */
#include "text/pattern.h"
#include "text/utf8.h"

static const unsigned char ascii_class[128] = {
    ['\t'] = PAL_CLASS_BLANK,
    ['\n'] = PAL_CLASS_BLANK,
    ['\v'] = PAL_CLASS_BLANK,
    ['\f'] = PAL_CLASS_BLANK,
    ['\r'] = PAL_CLASS_BLANK,
    [' '] = PAL_CLASS_BLANK,
#define DIGITS(x) [x] = PAL_CLASS_NUMBER, [(x) + 1] = PAL_CLASS_NUMBER
    DIGITS('0'),
    DIGITS('2'),
    DIGITS('4'),
    DIGITS('6'),
    DIGITS('8'),
#define LETTERS(x) \
    [x] = PAL_CLASS_LETTER, [(x) + 1] = PAL_CLASS_LETTER, [(x) + 32] = PAL_CLASS_LETTER, [(x) + 33] = PAL_CLASS_LETTER
    LETTERS('A'),
    LETTERS('C'),
    LETTERS('E'),
    LETTERS('G'),
    LETTERS('I'),
    LETTERS('K'),
    LETTERS('M'),
    LETTERS('O'),
    LETTERS('Q'),
    LETTERS('S'),
    LETTERS('U'),
    LETTERS('W'),
    LETTERS('Y'),
};

static inline int class_at(const unsigned char *s, size_t n, size_t *length) {
    uint32_t code;
    if (s[0] < 0x80) {
        *length = 1;
        return ascii_class[s[0]];
    }
    if ((*length = pal_utf8_read(s, n, &code))) return pal_class_of(code);
    *length = 1;
    return PAL_CLASS_OTHER;
}

static inline size_t run_of(int class, const unsigned char *s, size_t n, size_t i) {
    size_t length;
    while (i < n && class_at(s + i, n - i, &length) == class) i += length;
    return i;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t pal_gpt2_next(const unsigned char *s, size_t n) {
    size_t length, end;
    if (s[0] == '\'' && n > 1) {
        if (s[1] == 's' || s[1] == 't' || s[1] == 'm' || s[1] == 'd') return 2;
        if (n > 2 && ((s[1] == 'r' && s[2] == 'e') || (s[1] == 'v' && s[2] == 'e') || (s[1] == 'l' && s[2] == 'l')))
            return 3;
    }
    int class = class_at(s, n, &length);
    if (s[0] == ' ' && n > 1) {
        class = class_at(s + 1, n - 1, &length);
        if (class != PAL_CLASS_BLANK) return run_of(class, s, n, 1 + length);
    }
    if (class != PAL_CLASS_BLANK) return run_of(class, s, n, length);
    /* Blanks: all of them at the end of the text, else all but the last, which goes with what follows or stands alone.
     */
    size_t last = 0;
    for (end = 0; end < n && class_at(s + end, n - end, &length) == PAL_CLASS_BLANK; end += length) last = end;
    return end == n || last == 0 ? end : last;
}

static pal_status add_span(pal_spans *spans, size_t start, size_t end, pal_error *err) {
    if (end <= start) return PAL_OK;
    void *block = spans->data;
    const pal_status st = pal_grow(&block, &spans->capacity, spans->count, spans->count + 1, sizeof *spans->data, err);
    spans->data = block;
    if (!st) spans->data[spans->count++] = (pal_span){ start, end - start };
    return st;
}

/* Matches and gaps come in order and cover the text; what becomes of them is the behaviour. */
typedef struct {
    pal_spans *out;
    pal_split_behaviour behaviour;
    bool invert;
    bool open;         /* a stretch that the next piece may join */
    bool open_matched; /* what the open stretch's last piece was */
    size_t start, end;
    pal_error *err;
} splitter;

static pal_status split_flush(splitter *sp) {
    const pal_status st = sp->open ? add_span(sp->out, sp->start, sp->end, sp->err) : PAL_OK;
    sp->open = false;
    return st;
}

/* A match may be empty: it ends a stretch all the same. */
static pal_status split_piece(splitter *sp, size_t start, size_t end, bool matched) {
    pal_status st = PAL_OK;
    bool join = false;
    matched = matched != sp->invert;
    switch (sp->behaviour) {
    case PAL_ISOLATED: break;
    case PAL_REMOVED:
        if (matched) return split_flush(sp);
        break;
    case PAL_WITH_PREVIOUS: join = matched && !sp->open_matched; break;
    case PAL_WITH_NEXT: join = !matched && sp->open_matched; break;
    case PAL_CONTIGUOUS: join = matched == sp->open_matched; break;
    }
    if (!sp->open || !join) {
        if ((st = split_flush(sp))) return st;
        sp->start = start;
    }
    sp->open = true;
    sp->open_matched = matched;
    sp->end = end;
    return PAL_OK;
}

/* The next match of a pattern or of a literal. */
static pal_status next_match(const pal_split_step *step, pal_tokenizer_scratch *s, pal_slice part, pal_matches *m,
                             bool *found, pal_error *err) {
    if (step->pattern) return pal_pattern_next(step->pattern, s, part, m, found, err);
    const unsigned char *hit = memmem(part.data + m->end, part.size - m->end, step->literal.data, step->literal.size);
    *found = hit != NULL;
    if (hit) m->start = (size_t)(hit - part.data), m->end = m->start + step->literal.size;
    return PAL_OK;
}

/* Matches of a pattern in text[from, to), which is cut at bytes that are not UTF-8. */
static pal_status split_pattern(const pal_split_step *step, pal_tokenizer_scratch *s, pal_slice text, size_t from,
                                size_t to, splitter *sp) {
    pal_status st;
    while (from < to) {
        size_t valid = from, length, at;
        uint32_t code;
        while (valid < to && (length = pal_utf8_read(text.data + valid, to - valid, &code))) valid += length;
        const pal_slice part = { text.data + from, valid - from };
        pal_matches m = { 0 };
        for (bool found = part.size > 0; found;) {
            at = m.end;
            if ((st = next_match(step, s, part, &m, &found, sp->err))) return st;
            const size_t gap_end = found ? m.start : part.size;
            if (gap_end > at && (st = split_piece(sp, from + at, from + gap_end, false))) return st;
            if (found && (st = split_piece(sp, from + m.start, from + m.end, true))) return st;
        }
        for (from = valid; from < to && !pal_utf8_read(text.data + from, to - from, &code);) from++;
        if (from > valid && (st = split_piece(sp, valid, from, false))) return st;
    }
    return PAL_OK;
}

static pal_status split_digits(pal_slice text, size_t from, size_t to, splitter *sp) {
    pal_status st = PAL_OK;
    for (size_t length; from < to && !st; from += length) {
        const bool digit = class_at(text.data + from, to - from, &length) == PAL_CLASS_NUMBER;
        size_t end = from + length, next;
        if (!digit) /* gaps are whole */
            while (end < to && class_at(text.data + end, to - end, &next) != PAL_CLASS_NUMBER) end += next;
        st = split_piece(sp, from, end, digit);
        length = end - from;
    }
    return st;
}

static pal_status split_gpt2(pal_slice text, size_t from, size_t to, pal_spans *out, pal_error *err) {
    pal_status st = PAL_OK;
    for (size_t length; from < to && !st; from += length) {
        length = pal_gpt2_next(text.data + from, to - from);
        st = add_span(out, from, from + length, err);
    }
    return st;
}

/* Steps that change the text write it anew: a blank in front, or the sign that stands for blanks. */
static pal_status rewrite_span(const pal_split_step *step, pal_slice text, pal_span span, bool first, pal_growth *g,
                               pal_bytes *to, pal_spans *out, pal_error *err) {
    pal_status st;
    const unsigned char *data = text.data + span.start;
    const size_t start = to->size;
    if (step->kind == PAL_SPLIT_BLANK_PREFIX) {
        if (data[0] != ' ' && (st = pal_bytes_append(to, " ", 1, err))) return st;
        if ((st = pal_bytes_append(to, data, span.size, err))) return st;
        if ((st = pal_growth_take(g, span.size, to->size - start, err))) return st;
        return add_span(out, start, to->size, err);
    }
    const pal_bytes *sign = &step->literal;
    const bool has_sign = data[0] == ' ' || (span.size >= sign->size && memcmp(data, sign->data, sign->size) == 0);
    if ((step->prefix == PAL_PREFIX_ALWAYS || (step->prefix == PAL_PREFIX_FIRST && first)) && !has_sign) {
        if ((st = pal_growth_take(g, 0, sign->size, err))) return st;
        if ((st = pal_bytes_append(to, sign->data, sign->size, err))) return st;
    }
    for (size_t i = 0, run; i < span.size; i += run) {
        for (run = 0; i + run < span.size && data[i + run] != ' ';) run++;
        if ((st = pal_bytes_append(to, data + i, run, err))) return st;
        if (i + run == span.size) break;
        if ((st = pal_growth_take(g, 1, sign->size, err))) return st;
        if ((st = pal_bytes_append(to, sign->data, sign->size, err))) return st;
        run++;
    }
    if (!step->each) return add_span(out, start, to->size, err);
    splitter sp = { .out = out, .behaviour = PAL_WITH_NEXT, .err = err };
    const pal_split_step at_sign = { .kind = PAL_SPLIT_PATTERN, .literal = *sign };
    if ((st = split_pattern(&at_sign, NULL, (pal_slice){ to->data, to->size }, start, to->size, &sp))) return st;
    return split_flush(&sp);
}

static pal_status split_step(const pal_split_step *step, pal_tokenizer_scratch *s, pal_slice text, pal_span span,
                             pal_spans *out, pal_error *err) {
    pal_status st;
    if (step->kind == PAL_SPLIT_GPT2) return split_gpt2(text, span.start, span.start + span.size, out, err);
    splitter sp = { .out = out, .behaviour = step->behaviour, .invert = step->invert, .err = err };
    if (step->kind == PAL_SPLIT_DIGITS) {
        sp.behaviour = step->each ? PAL_ISOLATED : PAL_CONTIGUOUS;
        st = split_digits(text, span.start, span.start + span.size, &sp);
    } else {
        st = split_pattern(step, s, text, span.start, span.start + span.size, &sp);
    }
    return st ? st : split_flush(&sp);
}

/* Without a pre-tokenizer the model sees the whole segment. Where no token reaches over the start of a word, words can
 * be encoded one after the other with the same result, and come from the cache. */
static pal_status encode_words(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_slice text, pal_ids *ids,
                               pal_error *err) {
    static const unsigned char sign[3] = { 0xE2, 0x96, 0x81 };
    pal_status st = PAL_OK;
    for (size_t start = 0, end; start < text.size && !st; start = end) {
        for (end = start; end + 3 <= text.size && memcmp(text.data + end, sign, 3) == 0;) end += 3;
        const unsigned char *next = memmem(text.data + end, text.size - end, sign, 3);
        end = next ? (size_t)(next - text.data) : text.size;
        st = pal_bpe_word(tok, s, text.data + start, end - start, ids, err);
    }
    return st;
}

pal_status pal_encode_segment(const pal_tokenizer *tok, pal_tokenizer_scratch *s, pal_slice text, bool first,
                              pal_ids *ids, pal_error *err) {
    pal_status st = PAL_OK;
    if (text.size == 0) return PAL_OK;
    if (tok->split_count == 1 && tok->split[0].kind == PAL_SPLIT_GPT2) {
        for (size_t i = 0, length; i < text.size && !st; i += length) {
            length = pal_gpt2_next(text.data + i, text.size - i);
            st = pal_bpe_word(tok, s, text.data + i, length, ids, err);
        }
        return st;
    }
    if (tok->split_count == 0)
        return tok->words ? encode_words(tok, s, text, ids, err) : pal_bpe_word(tok, s, text.data, text.size, ids, err);

    s->spans[0].count = 0;
    if ((st = add_span(&s->spans[0], 0, text.size, err))) return st;
    int now = 0, stage = 0;
    for (size_t k = 0; k < tok->split_count; k++) {
        const pal_split_step *step = &tok->split[k];
        const pal_spans *in = &s->spans[now];
        pal_spans *out = &s->spans[1 - now];
        const bool rewrites = step->kind == PAL_SPLIT_BLANK_PREFIX || step->kind == PAL_SPLIT_METASPACE;
        pal_bytes *to = &s->stage[stage];
        out->count = 0;
        to->size = 0;
        for (size_t i = 0; i < in->count; i++) {
            const bool at_start = first && in->data[i].start == 0;
            if (rewrites) st = rewrite_span(step, text, in->data[i], at_start, &s->growth, to, out, err);
            else st = split_step(step, s, text, in->data[i], out, err);
            if (st) return st;
        }
        if (rewrites) {
            text = (pal_slice){ to->data, to->size };
            stage = 1 - stage;
        }
        now = 1 - now;
    }
    for (size_t i = 0; i < s->spans[now].count && !st; i++)
        st = pal_bpe_word(tok, s, text.data + s->spans[now].data[i].start, s->spans[now].data[i].size, ids, err);
    return st;
}
