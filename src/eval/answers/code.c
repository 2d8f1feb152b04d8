/* SPDX-License-Identifier: MIT */
/* Similarity of two lines of code: twice the characters in matching blocks over all characters, where blocks are those
 * of Python's difflib: the longest common block, then the same left and right of it. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "eval/answers/answers.h"

enum { POPULAR_FROM = 200 }; /* characters of a reference from which on frequent ones are no anchors */

typedef struct {
    const uint32_t *a, *b;
    const bool *anchor;    /* of b's characters: whether a block may begin with it */
    size_t *length, *last; /* (b + 1) of the block that ends before b[j], of this and of the last row */
} matcher;

typedef struct {
    size_t a0, a1, b0, b1;
} range;

static range longest_block(const matcher *m, range r) {
    size_t i0 = r.a0, j0 = r.b0, size = 0;
    size_t *now = m->length, *before = m->last;
    for (size_t j = r.b0; j <= r.b1; j++) now[j] = before[j] = 0;
    for (size_t i = r.a0; i < r.a1; i++) {
        size_t *swap = now;
        now = before, before = swap;
        now[r.b0] = 0;
        for (size_t j = r.b0; j < r.b1; j++) {
            now[j + 1] = m->anchor[j] && m->a[i] == m->b[j] ? before[j] + 1 : 0;
            if (now[j + 1] > size) size = now[j + 1], i0 = i + 1 - size, j0 = j + 1 - size;
        }
    }
    while (i0 > r.a0 && j0 > r.b0 && m->a[i0 - 1] == m->b[j0 - 1]) i0--, j0--, size++;
    while (i0 + size < r.a1 && j0 + size < r.b1 && m->a[i0 + size] == m->b[j0 + size]) size++;
    return (range){ i0, i0 + size, j0, j0 + size };
}

/* Characters in matching blocks. The stack holds at most one range for each character of a and one more. */
static size_t matching(const matcher *m, size_t na, size_t nb, range *stack) {
    size_t depth = 0, total = 0;
    stack[depth++] = (range){ 0, na, 0, nb };
    while (depth) {
        const range r = stack[--depth], block = longest_block(m, r);
        if (block.a0 == block.a1) continue;
        total += block.a1 - block.a0;
        if (r.a0 < block.a0 && r.b0 < block.b0) stack[depth++] = (range){ r.a0, block.a0, r.b0, block.b0 };
        if (block.a1 < r.a1 && block.b1 < r.b1) stack[depth++] = (range){ block.a1, r.a1, block.b1, r.b1 };
    }
    return total;
}

static int by_code(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* sorted takes the characters of b in order. */
static void find_anchors(bool *anchor, const uint32_t *b, size_t n, uint32_t *sorted) {
    for (size_t j = 0; j < n; j++) anchor[j] = true, sorted[j] = b[j];
    if (n < POPULAR_FROM) return;
    qsort(sorted, n, sizeof *sorted, by_code);
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from; to < n && sorted[to] == sorted[from];) to++;
        if (to - from <= n / 100 + 1) continue;
        for (size_t j = 0; j < n; j++)
            if (b[j] == sorted[from]) anchor[j] = false;
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

pal_status pal_answer_code(pal_slice prediction, pal_slice reference, double *score, pal_error *err) {
    const pal_slice line = code_line(prediction);
    uint32_t *characters = NULL;
    size_t *rows = NULL;
    bool *anchor = NULL;
    range *stack = NULL;
    if (line.size == reference.size && (!line.size || !memcmp(line.data, reference.data, line.size))) {
        *score = 1;
        return PAL_OK;
    }
    *score = 0;
    if (!line.size || !reference.size) return PAL_OK;
    pal_status st = pal_alloc_named((void **)&characters, line.size + 2 * reference.size, sizeof *characters,
                                    "a line of code", err);
    if (!st) st = pal_alloc_named((void **)&rows, 2 * (reference.size + 1), sizeof *rows, "a line of code", err);
    if (!st) st = pal_alloc_named((void **)&anchor, reference.size, sizeof *anchor, "a line of code", err);
    if (!st) st = pal_alloc_named((void **)&stack, line.size + 2, sizeof *stack, "a line of code", err);
    if (!st) {
        uint32_t *b = characters + line.size;
        const size_t na = read_characters(characters, line), nb = read_characters(b, reference);
        find_anchors(anchor, b, nb, b + reference.size);
        const matcher m = { characters, b, anchor, rows, rows + reference.size + 1 };
        *score = rint(100 * (2.0 * (double)matching(&m, na, nb, stack) / (double)(na + nb))) / 100;
    }
    pal_free(characters);
    pal_free(rows);
    pal_free(anchor);
    pal_free(stack);
    return st;
}
