/* SPDX-License-Identifier: MIT */
/* Regular expressions of tokenizer files. They are written for Oniguruma, which the package `tokenizers` uses, and have
 * meanings that other engines do not share ((?m), {,n}, \w, scripts, (?i) in mid-pattern, folding of ligatures), so
 * Oniguruma runs them here, too. */
#ifndef PAL_TEXT_PATTERN_H
#define PAL_TEXT_PATTERN_H

#include "text/tokenizer.h"

pal_status pal_pattern_new(pal_pattern **out, const char *name, pal_slice source, pal_error *err);
void pal_pattern_free(pal_pattern *p);

/* Walks the matches in text that is valid UTF-8, empty ones included, in the order and number of the package: an empty
 * match right after another match does not count. Start from zeroes. */
typedef struct pal_matches {
    size_t from;       /* where the search continues */
    size_t start, end; /* the match */
    bool any;          /* there was one */
} pal_matches;
/* Before a text of so many bytes: what matching it may cost, which is something for each byte and what is left of a
 * fixed part that many short texts share. */
void pal_pattern_begin(pal_tokenizer_scratch *s, size_t size);
void pal_pattern_end(pal_tokenizer_scratch *s); /* after it */
/* The next match; *found is false after the last. */
pal_status pal_pattern_next(const pal_pattern *p, pal_tokenizer_scratch *s, pal_slice text, pal_matches *m, bool *found,
                            pal_error *err);
void pal_pattern_scratch_free(pal_tokenizer_scratch *s);

#endif
