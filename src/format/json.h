/* SPDX-License-Identifier: MIT */
/* What JSON cannot hold as it is: numbers that are not finite, and texts that are not UTF-8, as a path may be. */
#ifndef PAL_FORMAT_JSON_H
#define PAL_FORMAT_JSON_H

#include <jansson.h>
#include <math.h>

/* A number; null where it is not finite. */
static inline json_t *pal_json_number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

/* A text: a string, or {"bytes": "HEX"} where it is not UTF-8. NULL without memory. */
json_t *pal_json_text(const char *text);
/* The string of either form, to be released; its bytes may be any but zero. NULL: neither. */
json_t *pal_json_text_read(const json_t *value);

#endif
