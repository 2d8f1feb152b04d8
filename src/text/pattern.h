/* SPDX-License-Identifier: MIT */
/* Regular expressions of tokenizer files, which are written for Oniguruma, run by PCRE2. The few escapes on which the
 * two disagree are rewritten, what cannot be is refused when the pattern is compiled. */
#ifndef PAL_TEXT_PATTERN_H
#define PAL_TEXT_PATTERN_H

#include "text/tokenizer.h"

pal_status pal_pattern_new(pal_pattern **out, const char *name, pal_slice source, pal_error *err);
void pal_pattern_free(pal_pattern *p);

/* The first non-empty match at or after `from` in text that is valid UTF-8. *start == text.size: none. */
pal_status pal_pattern_find(const pal_pattern *p, pal_tokenizer_scratch *s, pal_slice text, size_t from, size_t *start,
                            size_t *end, pal_error *err);
void pal_pattern_scratch_free(pal_tokenizer_scratch *s);

#endif
