/* SPDX-License-Identifier: MIT */
/* Similarity of two lines of code: twice the characters in matching blocks over all characters, where blocks are those
 * of Python's difflib: the longest common block, then the same left and right of it. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "eval/answers/answers.h"

enum { POPULAR_FROM = 200 }; /* characters of a reference from which on frequent ones are not anchors */

typedef struct {
    size_t from, to;
} span;

typedef struct {
    const uint32_t *a, *b;
    const uint64_t *places; /* (b) each character of b with its place, sorted */
    const span *found;      /* (a) where among them those of this character are; nowhere if it is not an anchor */
    size_t *length, *last;  /* (b + 1) of the block that ends before b[j], of this and of the last row; 0 in between */
    size_t work;
} matcher;

typedef struct {
    size_t a0, a1, b0, b1;
} range;

static uint64_t placed(uint32_t character, size_t place) { return (uint64_t)character << 32 | (uint32_t)place; }
static size_t place_of(uint64_t placed) { return (uint32_t)placed; }

/* The first of n sorted numbers that is not below. */
static size_t first_from(const uint64_t *sorted, size_t n, uint64_t number) {
    size_t from = 0;
    for (size_t to = n; from < to;) {
        const size_t middle = from + (to - from) / 2;
        if (sorted[middle] < number) from = middle + 1;
        else to = middle;
    }
    return from;
}

/* Those places of a[i] that lie in the range. */
static span inside(const matcher *m, range r, size_t i) {
    const span s = m->found[i];
    const uint64_t *own = m->places + s.from;
    return (span){ s.from + first_from(own, s.to - s.from, placed(m->a[i], r.b0)),
                   s.from + first_from(own, s.to - s.from, placed(m->a[i], r.b1)) };
}

static void clear(const matcher *m, span s, size_t *row) {
    for (size_t k = s.from; k < s.to; k++) row[place_of(m->places[k]) + 1] = 0;
}

static range longest_block(matcher *m, range r) {
    size_t i0 = r.a0, j0 = r.b0, size = 0;
    size_t *now = m->length, *before = m->last;
    span was = { 0, 0 };
    for (size_t i = r.a0; i < r.a1 && m->work <= PAL_ANSWER_WORK; i++) {
        const span is = inside(m, r, i);
        for (size_t k = is.from; k < is.to; k++) {
            const size_t j = place_of(m->places[k]);
            now[j + 1] = before[j] + 1;
            if (now[j + 1] > size) size = now[j + 1], i0 = i + 1 - size, j0 = j + 1 - size;
        }
        clear(m, was, before);
        m->work += 1 + is.to - is.from;
        was = is;
        size_t *swap = now;
        now = before, before = swap;
    }
    clear(m, was, before);
    while (i0 > r.a0 && j0 > r.b0 && m->a[i0 - 1] == m->b[j0 - 1]) i0--, j0--, size++;
    while (i0 + size < r.a1 && j0 + size < r.b1 && m->a[i0 + size] == m->b[j0 + size]) size++;
    return (range){ i0, i0 + size, j0, j0 + size };
}

static pal_status too_long(size_t na, size_t nb, pal_error *err) {
    return pal_fail(err, PAL_E_FORMAT,
                    "lines of %zu and %zu characters are too long to be compared as code: more than %d steps", na, nb,
                    PAL_ANSWER_WORK);
}

/* Characters in matching blocks. The stack holds ranges with characters of their own: at most as many as the shorter
 * text has, and one more. */
static pal_status matching(matcher *m, size_t na, size_t nb, range *stack, size_t *total, pal_error *err) {
    size_t depth = 0;
    stack[depth++] = (range){ 0, na, 0, nb };
    *total = 0;
    while (depth) {
        const range r = stack[--depth], block = longest_block(m, r);
        if (m->work > PAL_ANSWER_WORK) return too_long(na, nb, err);
        if (block.a0 == block.a1) continue;
        *total += block.a1 - block.a0;
        if (r.a0 < block.a0 && r.b0 < block.b0) stack[depth++] = (range){ r.a0, block.a0, r.b0, block.b0 };
        if (block.a1 < r.a1 && block.b1 < r.b1) stack[depth++] = (range){ block.a1, r.a1, block.b1, r.b1 };
    }
    return PAL_OK;
}

static int by_number(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Where in b the characters of a are, except for those that are popular there. */
static void find_places(uint64_t *places, span *found, const uint32_t *a, size_t na, const uint32_t *b, size_t nb) {
    for (size_t j = 0; j < nb; j++) places[j] = placed(b[j], j);
    qsort(places, nb, sizeof *places, by_number);
    for (size_t i = 0; i < na; i++) {
        found[i] = (span){ first_from(places, nb, placed(a[i], 0)), first_from(places, nb, placed(a[i] + 1, 0)) };
        if (nb >= POPULAR_FROM && found[i].to - found[i].from > nb / 100 + 1) found[i].to = found[i].from;
    }
}

static size_t read_characters(uint32_t *out, pal_slice text) {
    size_t n = 0;
    for (size_t i = 0; i < text.size; n++) i += pal_py_character(text.data + i, text.size - i, &out[n]);
    return n;
}

/* The first line without a comment or a mark of formatted text. */
static pal_slice code_line(pal_slice p) {
    while (p.size && p.data[0] == '\n') p.data++, p.size--;
    for (;;) {
        const pal_slice line = { p.data, p.size && memchr(p.data, '\n', p.size)
                                             ? (size_t)((const unsigned char *)memchr(p.data, '\n', p.size) - p.data)
                                             : p.size };
        if (!pal_py_contains(line, pal_slice_text("`")) && !pal_py_contains(line, pal_slice_text("#")) &&
            !pal_py_contains(line, pal_slice_text("//")))
            return line;
        if (line.size == p.size) return (pal_slice){ NULL, 0 };
        p.data += line.size + 1;
        p.size -= line.size + 1;
    }
}

static pal_status compare(pal_slice line, pal_slice reference, size_t *work, double *score, pal_error *err) {
    const size_t most = line.size < reference.size ? line.size : reference.size;
    uint32_t *characters = NULL;
    uint64_t *places = NULL;
    size_t *rows = NULL, total = 0;
    span *found = NULL;
    range *stack = NULL;
    if (line.size > PAL_ANSWER_WORK || reference.size > PAL_ANSWER_WORK)
        return too_long(line.size, reference.size, err);
    pal_status st = pal_alloc_named((void **)&characters, line.size + reference.size, sizeof *characters,
                                    "a line of code", err);
    if (!st) st = pal_alloc_named((void **)&places, reference.size, sizeof *places, "a line of code", err);
    if (!st) st = pal_alloc_named((void **)&rows, 2 * (reference.size + 1), sizeof *rows, "a line of code", err);
    if (!st) st = pal_alloc_named((void **)&found, line.size, sizeof *found, "a line of code", err);
    if (!st) st = pal_alloc_named((void **)&stack, most + 1, sizeof *stack, "a line of code", err);
    if (!st) {
        uint32_t *a = characters, *b = characters + line.size;
        const size_t na = read_characters(a, line), nb = read_characters(b, reference);
        find_places(places, found, a, na, b, nb);
        matcher m = { a, b, places, found, rows, rows + reference.size + 1, *work };
        st = matching(&m, na, nb, stack, &total, err);
        *work = m.work;
        if (!st) *score = rint(100 * (2.0 * (double)total / (double)(na + nb))) / 100;
    }
    pal_free(characters);
    pal_free(places);
    pal_free(rows);
    pal_free(found);
    pal_free(stack);
    return st;
}

pal_status pal_answer_code(pal_slice prediction, pal_slice reference, size_t *work, double *score, pal_error *err) {
    const pal_slice line = code_line(prediction);
    *score = line.size == reference.size && (!line.size || !memcmp(line.data, reference.data, line.size));
    if (*score > 0 || !line.size || !reference.size) return PAL_OK;
    return compare(line, reference, work, score, err);
}
