/* SPDX-License-Identifier: MIT */
/* Numbers between bounds, digit by digit. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "grammar/schema.h"

static const int64_t MOST_WHOLE = 9999999999999999; /* 16 digits */
static const int64_t MOST_REAL = 999999999;         /* with six decimals all differ as doubles */

/* Numbers of as many digits as low and high have. */
static pal_status same_length(schema_writer *w, pal_bytes *out, const char *low, const char *high) {
    const size_t rest = strlen(low) - 1;
    const bool from_zero = strspn(low + 1, "0") == rest, to_nine = strspn(high + 1, "9") == rest;
    char first = low[0], last = high[0];
    pal_status st = PAL_OK;
    if (!rest) return pal_schema_say(w, out, "[%c-%c]", first, last);
    if (from_zero && to_nine) return pal_schema_say(w, out, "[%c-%c] [0-9]{%zu}", first, last, rest);
    if (first == last) {
        if (!(st = pal_schema_say(w, out, "\"%c\" (", first))) st = same_length(w, out, low + 1, high + 1);
        return st ? st : pal_schema_say(w, out, ")");
    }
    char nines[24] = "", zeros[24] = "";
    memset(nines, '9', rest), memset(zeros, '0', rest);
    const char *between = "";
    if (!from_zero) {
        if ((st = pal_schema_say(w, out, "\"%c\" (", first++)) || (st = same_length(w, out, low + 1, nines))) return st;
        if ((st = pal_schema_say(w, out, ")"))) return st;
        between = " | ";
    }
    if (!to_nine) last--;
    if (first <= last) {
        if ((st = pal_schema_say(w, out, "%s[%c-%c] [0-9]{%zu}", between, first, last, rest))) return st;
        between = " | ";
    }
    if (to_nine) return PAL_OK;
    if ((st = pal_schema_say(w, out, "%s\"%c\" (", between, high[0])) || (st = same_length(w, out, zeros, high + 1)))
        return st;
    return pal_schema_say(w, out, ")");
}

/* Whole numbers, 0 <= low <= high. */
static pal_status whole_range(schema_writer *w, pal_bytes *out, int64_t low, int64_t high) {
    pal_status st = pal_schema_say(w, out, "(");
    const char *between = "";
    while (!st && low <= high) {
        char from[24], to[24];
        int64_t most = 9;
        while (most < low) most = 10 * most + 9;
        if (most > high) most = high;
        snprintf(from, sizeof from, "%lld", (long long)low);
        snprintf(to, sizeof to, "%lld", (long long)most);
        if (!(st = pal_schema_say(w, out, "%s", between))) st = same_length(w, out, from, to);
        between = " | ";
        low = most + 1;
    }
    return st ? st : pal_schema_say(w, out, ")");
}

typedef struct {
    int64_t low, high;
    bool above, below; /* the bound itself is excluded */
} bounds;

/* Adds an alternative: whole numbers with a fraction, which is `fraction`, after a sign. */
static pal_status add(schema_writer *w, pal_bytes *out, const char **between, const char *sign, int64_t low,
                      int64_t high, const char *fraction) {
    pal_status st;
    if (low > high) return PAL_OK;
    if ((st = pal_schema_say(w, out, "%s%s ", *between, sign)) || (st = whole_range(w, out, low, high))) return st;
    *between = " | ";
    return pal_schema_say(w, out, " %s", fraction);
}

/* Numbers of one sign, 0 <= low <= high. */
static pal_status magnitudes(schema_writer *w, pal_bytes *out, const char **between, const char *sign, bounds b,
                             bool whole) {
    const char *any = whole ? "" : "(\".\" [0-9]{1,6})?", *none = whole ? "" : "(\".\" \"0\"{1,6})?";
    pal_status st = PAL_OK;
    if (b.low > b.high || (b.low == b.high && (b.above || b.below))) return PAL_OK;
    if (whole) return add(w, out, between, sign, b.low + b.above, b.high - b.below, "");
    if (b.low == b.high) return add(w, out, between, sign, b.low, b.low, none);
    if (b.above) st = add(w, out, between, sign, b.low, b.low, "\".\" \"0\"{0,2} [1-9] [0-9]{0,3}");
    if (!st) st = add(w, out, between, sign, b.low + b.above, b.high - 1, any);
    if (!st && !b.below) st = add(w, out, between, sign, b.high, b.high, none);
    return st;
}

/* A bound as a whole number. `up`: a fraction leads to the next larger one, else to the next smaller. */
static pal_status read_bound(schema_writer *w, const json_t *schema, const char *key, bool whole, bool low,
                             int64_t *out, bool *excluded, bool *given) {
    const json_t *value = json_object_get(schema, key);
    const double most = whole ? (double)MOST_WHOLE : (double)MOST_REAL;
    const bool excludes = key[0] == 'e';
    if (!value) return PAL_OK;
    if (!json_is_number(value)) return pal_schema_refuse(w, "'%s': expected a number", key);
    const double x = json_is_integer(value) ? (double)json_integer_value(value) : json_real_value(value);
    if (!(fabs(x) <= most)) return pal_schema_refuse(w, "'%s' is %g, expected %g to %g", key, x, -most, most);
    const double rounded = low ? ceil(x) : floor(x);
    if (!whole && rounded != x) return pal_schema_refuse(w, "'%s' is %g, expected a whole number", key, x);
    const int64_t bound = json_is_integer(value) ? json_integer_value(value) : (int64_t)rounded;
    const bool now_excluded = excludes && rounded == x;
    const bool tighter = low ? bound > *out : bound < *out;
    if (!*given || tighter || (bound == *out && now_excluded)) *out = bound, *excluded = now_excluded;
    *given = true;
    return PAL_OK;
}

pal_status pal_schema_number(schema_writer *w, const json_t *schema, bool whole, pal_bytes *out) {
    const int64_t most = whole ? MOST_WHOLE : MOST_REAL;
    bounds b = { .low = -most, .high = most };
    bool has_low = false, has_high = false;
    pal_status st;
    if ((st = read_bound(w, schema, "minimum", whole, true, &b.low, &b.above, &has_low)) ||
        (st = read_bound(w, schema, "exclusiveMinimum", whole, true, &b.low, &b.above, &has_low)) ||
        (st = read_bound(w, schema, "maximum", whole, false, &b.high, &b.below, &has_high)) ||
        (st = read_bound(w, schema, "exclusiveMaximum", whole, false, &b.high, &b.below, &has_high)))
        return st;
    if (!has_low && !has_high) return pal_schema_say(w, out, whole ? "integer" : "number");
    const char *between = "";
    const size_t before = out->size;
    const bounds positive = { b.low > 0 ? b.low : 0, b.high, b.low >= 0 && b.above, b.below };
    const bounds negative = { b.high < 0 ? -b.high : 0, -b.low,
                              b.high < 0   ? b.below
                              : b.high > 0 ? false
                                           : b.below,
                              b.above };
    if (b.high >= 0) st = magnitudes(w, out, &between, "", positive, whole);
    bounds below_zero = negative; /* zero has no sign here */
    if (!below_zero.low && !below_zero.above) below_zero.above = true;
    if (!st && b.low < 0) st = magnitudes(w, out, &between, "\"-\"", below_zero, whole);
    if (!st && out->size == before) st = pal_schema_refuse(w, "no number is between the bounds");
    return st;
}
