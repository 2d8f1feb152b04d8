/* SPDX-License-Identifier: MIT */
#include "text/pattern.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <oniguruma.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"

struct pal_pattern {
    regex_t *code;
};

/* What matching may cost, in steps back of the engine: a hostile pattern ends with a sentence. RETRIES is for one
 * place, and the package's own limit. That alone would let each place of a text take a third of a second, so a text has
 * an allowance, too: patterns in use take less than ten steps for a byte, on long runs of digits some a thousand. */
enum { RETRIES = 10000000, TEXT_STEPS = 4000000, BYTE_STEPS = 2000, STACK_MAX = 1 << 22 };
/* Possessive repeats and looking ahead read on without a step back, so time counts, too: it suffices for that many
 * steps on a machine half as fast as most. The engine looks at the clock at each place of the text, by a callout in
 * front of the pattern: what is too slow takes what it may, and one place. */
static const double text_seconds = 0.3, byte_seconds = 150e-6;
static const char look[] = "(?{clock})";
enum { TOO_SLOW = -99999 }; /* next to Oniguruma's errors */

/* Options in front, such as (?I), some of which are allowed nowhere else. */
static size_t options_size(pal_slice source) {
    size_t n = 2;
    if (source.size < 3 || memcmp(source.data, "(?", 2) != 0) return 0;
    while (n < source.size && (isalpha(source.data[n]) || source.data[n] == '-')) n++;
    return n < source.size && source.data[n] == ')' ? n + 1 : 0;
}

/* The pattern is compiled alone, so that it is refused when it is wrong alone, and then with the callout in front,
 * where every place of a text begins: with the first of its alternatives. */
static int compile(regex_t **code, pal_slice source, OnigErrorInfo *where) {
    pal_bytes watched = { 0 };
    const size_t front = options_size(source);
    int result = onig_new(code, source.data, source.data + source.size, ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                          ONIG_SYNTAX_ONIGURUMA, where);
    if (result != ONIG_NORMAL) return result;
    onig_free(*code);
    *code = NULL;
    if (pal_bytes_append(&watched, source.data, front, NULL) || pal_bytes_append(&watched, look, strlen(look), NULL) ||
        pal_bytes_append(&watched, source.data + front, source.size - front, NULL))
        result = ONIGERR_MEMORY;
    else
        result = onig_new(code, watched.data, watched.data + watched.size, ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                          ONIG_SYNTAX_ONIGURUMA, where);
    pal_bytes_free(&watched);
    return result;
}

pal_status pal_pattern_new(pal_pattern **out, const char *name, pal_slice source, pal_error *err) {
    OnigErrorInfo where;
    OnigEncoding utf8 = ONIG_ENCODING_UTF8;
    pal_status st;
    void *block = NULL;
    *out = NULL;
    for (size_t i = 0; i + 1 < source.size; i++)
        if (source.data[i] == '\\' && source.data[++i] == 'R')
            return pal_fail(
                err, PAL_E_UNSUPPORTED,
                "%s: a pattern has \\R, which versions of Oniguruma repeat differently; it is not supported", name);
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_pattern), "a pattern", err))) return st;
    pal_pattern *p = block;
    int code = onig_initialize(&utf8, 1);
    if (code == ONIG_NORMAL) code = compile(&p->code, source, &where);
    if (code == ONIGERR_MEMORY) {
        pal_free(block);
        return pal_fail(err, PAL_E_MEMORY, "%s: out of memory for a pattern", name);
    }
    if (code != ONIG_NORMAL) {
        OnigUChar why[ONIG_MAX_ERROR_MESSAGE_LEN] = "";
        onig_error_code_to_str(why, code, &where);
        pal_free(block);
        return pal_fail(err, PAL_E_FORMAT, "%s: a pattern cannot be compiled: %s", name, (const char *)why);
    }
    *out = p;
    return PAL_OK;
}

void pal_pattern_free(pal_pattern *p) {
    if (!p) return;
    onig_free(p->code);
    pal_free(p);
}

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The callout. The processor's time is dear to ask for; it goes no faster than the clock. */
static int look_at_clock(OnigCalloutArgs *args, void *scratch) {
    (void)args;
    pal_tokenizer_scratch *s = scratch;
    const double now = pal_seconds();
    if (now < s->look_again) return ONIG_CALLOUT_SUCCESS;
    const double left = s->deadline - processor_seconds();
    s->look_again = now + left;
    return left < 0 ? TOO_SLOW : ONIG_CALLOUT_SUCCESS;
}

static pal_status prepare(pal_tokenizer_scratch *s, pal_error *err) {
    if (s->region && s->limits) return PAL_OK;
    OnigMatchParam *limits = onig_new_match_param();
    if (limits) {
        onig_initialize_match_param(limits);
        onig_set_retry_limit_in_match_of_match_param(limits, RETRIES);
        onig_set_match_stack_limit_size_of_match_param(limits, STACK_MAX);
        onig_set_progress_callout_of_match_param(limits, look_at_clock);
        onig_set_callout_user_data_of_match_param(limits, s);
    }
    s->region = onig_region_new();
    s->limits = limits;
    if (s->region && limits) return PAL_OK;
    pal_pattern_scratch_free(s);
    return pal_fail(err, PAL_E_MEMORY, "out of memory while matching a pattern");
}

void pal_pattern_begin(pal_tokenizer_scratch *s, size_t size) {
    const bool first = !s->steps_allowed;
    const uint64_t steps = first || s->steps_left > TEXT_STEPS ? TEXT_STEPS : s->steps_left;
    const double seconds = first || s->seconds_left > text_seconds ? text_seconds : s->seconds_left;
    s->steps_allowed = s->steps_left = steps + (uint64_t)BYTE_STEPS * size;
    s->seconds_allowed = seconds + byte_seconds * (double)size;
    s->deadline = processor_seconds() + s->seconds_allowed;
    s->look_again = pal_seconds() + s->seconds_allowed;
}

void pal_pattern_end(pal_tokenizer_scratch *s) {
    const double left = s->deadline - processor_seconds();
    s->seconds_left = left > 0 ? left : 0;
}

/* The engine does not say what a search cost. It is begun with few steps and again with four times as many until they
 * suffice: at most six times what it needs is taken from the allowance. */
static int search(const pal_pattern *p, pal_tokenizer_scratch *s, pal_slice text, size_t from) {
    const unsigned char *end = text.data + text.size;
    int at = ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER;
    for (uint64_t steps = 64; at == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER && steps <= s->steps_left; steps *= 4) {
        s->steps_left -= steps;
        onig_set_retry_limit_in_search_of_match_param(s->limits, (unsigned long)steps);
        at = onig_search_with_param(p->code, text.data, end, text.data + from, end, s->region, ONIG_OPTION_NONE,
                                    s->limits);
    }
    return at;
}

/* Oniguruma forgets one of a region's two blocks when it has out of memory for the other. */
static void clear_region(OnigRegion *region) {
    if (region->allocated) return;
    free(region->beg);
    free(region->end);
    region->beg = region->end = NULL;
}

void pal_pattern_scratch_free(pal_tokenizer_scratch *s) {
    if (s->region) onig_region_free(s->region, 1);
    if (s->limits) onig_free_match_param(s->limits);
    s->region = s->limits = NULL;
}

pal_status pal_pattern_next(const pal_pattern *p, pal_tokenizer_scratch *s, pal_slice text, pal_matches *m, bool *found,
                            pal_error *err) {
    pal_status st;
    *found = false;
    if (text.size > INT_MAX)
        return pal_fail(err, PAL_E_ARGUMENT, "a text of %zu bytes for the tokenizer's pattern; at most %d are accepted",
                        text.size, INT_MAX);
    if ((st = prepare(s, err))) return st;
    while (m->from <= text.size) {
        const int at = search(p, s, text, m->from);
        if (at == ONIG_MISMATCH) break;
        if (at == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER)
            return pal_fail(err, PAL_E_ARGUMENT,
                            "the tokenizer's pattern gives up on this text: it takes more than %" PRIu64 " steps",
                            s->steps_allowed);
        if (at == TOO_SLOW)
            return pal_fail(err, PAL_E_ARGUMENT,
                            "the tokenizer's pattern gives up on this text: it takes more than %.1f s",
                            s->seconds_allowed);
        if (at == ONIGERR_MEMORY) {
            clear_region(s->region);
            return pal_fail(err, PAL_E_MEMORY, "out of memory while matching a pattern");
        }
        if (at < 0) {
            OnigUChar why[ONIG_MAX_ERROR_MESSAGE_LEN] = "";
            onig_error_code_to_str(why, at);
            return pal_fail(err, PAL_E_ARGUMENT, "the tokenizer's pattern gives up on this text at byte %zu: %s",
                            m->from, (const char *)why);
        }
        const OnigRegion *region = s->region;
        const size_t start = (size_t)region->beg[0], stop = (size_t)region->end[0];
        if (start == stop && m->any && stop == m->end) { /* one character on, to avoid an endless loop */
            do m->from++;
            while (m->from < text.size && (text.data[m->from] & 0xC0) == 0x80);
            continue;
        }
        *m = (pal_matches){ .from = stop, .start = start, .end = stop, .any = true };
        *found = true;
        return PAL_OK;
    }
    m->from = text.size + 1;
    return PAL_OK;
}
