/* SPDX-License-Identifier: MIT */
/* ROUGE-L of whole summaries, as Python's package rouge computes it. */
#include "base/alloc.h"
#include "base/size.h"
#include "eval/answers/answers.h"
#include "eval/answers/words.h"

/* Sentences as ranges of words. */
typedef struct {
    size_t *end; /* after the last word of each */
    size_t count, capacity;
} sentences;

/* Appends the words of a text. What stands between full stops is a sentence; blanks alone are one with an empty word,
 * nothing at all is none. */
static pal_status add_sentences(sentences *s, pal_strings *words, pal_slice text, pal_error *err) {
    pal_status st = PAL_OK;
    for (size_t at = 0; at <= text.size && !st;) {
        const unsigned char *dot = at < text.size ? memchr(text.data + at, '.', text.size - at) : NULL;
        const size_t size = dot ? (size_t)(dot - (text.data + at)) : text.size - at;
        if (size) {
            const size_t before = words->count;
            void *block = s->end;
            st = pal_split_words(words, (pal_slice){ text.data + at, size }, err);
            if (!st && words->count == before) st = pal_strings_add(words, "", 0, err);
            if (!st) st = pal_grow(&block, &s->capacity, s->count, s->count + 1, sizeof *s->end, err);
            s->end = block;
            if (!st) s->end[s->count++] = words->count;
        }
        at += size + 1;
    }
    return st;
}

static size_t distinct(const pal_word_numbers *n, size_t from, size_t to) {
    size_t count = 0;
    for (size_t i = from; i < to; i++) {
        count += !n->seen[n->number[i]];
        n->seen[n->number[i]] = true;
    }
    for (size_t i = from; i < to; i++) n->seen[n->number[i]] = false;
    return count;
}

/* Room for the walk back through a table of longest common subsequences. It ends after so many steps: of the table only
 * the directions in its last so many rows and columns are kept. */
typedef struct {
    size_t steps;
    uint32_t *row; /* (columns + 1) of the table: the one that was computed last */
    bool *goes_up; /* (the last rows, the last columns) */
} walker;

static size_t kept(const walker *w, size_t n) { return n < w->steps ? n : w->steps; }

static void fill(const walker *w, const uint32_t *x, size_t rows, const uint32_t *y, size_t columns) {
    const size_t width = kept(w, columns), rows_gone = rows - kept(w, rows), columns_gone = columns - width;
    memset(w->row, 0, (columns + 1) * sizeof *w->row);
    for (size_t i = 0; i < rows; i++) {
        bool *goes_up = i < rows_gone ? NULL : w->goes_up + (i - rows_gone) * width;
        uint32_t diagonal = 0;
        for (size_t j = 0; j < columns; j++) {
            const uint32_t up = w->row[j + 1], left = w->row[j];
            if (goes_up && j >= columns_gone) goes_up[j - columns_gone] = up > left;
            w->row[j + 1] = x[i] == y[j] ? diagonal + 1 : up > left ? up : left;
            diagonal = up;
        }
    }
}

/* Marks the words that the walk takes; *found counts new ones. False: the walk is too long. */
static bool walk(const walker *w, const uint32_t *x, size_t rows, const uint32_t *y, size_t columns, bool *taken,
                 size_t *found) {
    const size_t width = kept(w, columns), rows_gone = rows - kept(w, rows), columns_gone = columns - width;
    if (rows > w->steps && columns > w->steps) return false; /* whatever is in them */
    fill(w, x, rows, y, columns);
    size_t i = rows, j = columns;
    for (size_t step = 0; i && j; step++) {
        if (step >= w->steps) return false;
        if (x[i - 1] == y[j - 1]) {
            *found += !taken[x[i - 1]];
            taken[x[i - 1]] = true;
            i--, j--;
        } else if (w->goes_up[(i - 1 - rows_gone) * width + j - 1 - columns_gone]) i--;
        else j--;
    }
    return true;
}

static size_t longest(const sentences *s, size_t begin) {
    size_t most = 0;
    for (size_t i = 0; i < s->count; begin = s->end[i++])
        if (s->end[i] - begin > most) most = s->end[i] - begin;
    return most;
}

pal_status pal_answer_rouge(pal_slice prediction, pal_slice reference, size_t steps, size_t *work, double *score,
                            pal_error *err) {
    pal_strings words = { 0 };
    pal_word_numbers n = { 0 };
    sentences p = { 0 }, r = { 0 };
    walker w = { .steps = steps };
    *score = 0;
    pal_status st = add_sentences(&p, &words, prediction, err);
    const size_t first = words.count;
    if (!st) st = add_sentences(&r, &words, reference, err);
    if (!st) st = pal_number_words(&n, &words, err);
    if (st || !p.count || !r.count) goto done;
    *work = pal_size_add(*work, pal_size_mul(first, words.count - first));
    if (*work > PAL_ANSWER_WORK) {
        st = pal_fail(err, PAL_E_FORMAT,
                      "texts of %zu and %zu words are too long for ROUGE-L: their product is above %d, that of the "
                      "answers before included",
                      first, words.count - first, PAL_ANSWER_WORK);
        goto done;
    }
    const size_t columns_most = longest(&p, 0), room = kept(&w, longest(&r, first)) * kept(&w, columns_most);
    if ((st = pal_alloc_named((void **)&w.row, columns_most + 1, sizeof *w.row, "the table of ROUGE-L", err)) ||
        (st = pal_alloc_named((void **)&w.goes_up, room, sizeof *w.goes_up, "the table of ROUGE-L", err)))
        goto done;
    const size_t of_reference = distinct(&n, first, words.count), of_prediction = distinct(&n, 0, first);
    size_t common = 0;
    for (size_t i = 0, x = first; i < r.count; x = r.end[i++])
        for (size_t j = 0, y = 0; j < p.count; y = p.end[j++]) {
            const size_t rows = r.end[i] - x, columns = p.end[j] - y;
            if (!walk(&w, n.number + x, rows, n.number + y, columns, n.seen, &common)) goto done;
        }
    const double recall = (double)common / (double)of_reference, precision = (double)common / (double)of_prediction;
    *score = 2.0 * ((precision * recall) / (precision + recall + 1e-8));
done:
    pal_strings_free(&words);
    pal_word_numbers_free(&n);
    pal_free(p.end);
    pal_free(r.end);
    pal_free(w.row);
    pal_free(w.goes_up);
    return st;
}
