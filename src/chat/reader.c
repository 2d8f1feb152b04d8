/* SPDX-License-Identifier: MIT */
#include "chat/reader.h"

#include <string.h>

#include "text/strings.h"

void pal_reader_begin(pal_reader *r, const pal_reader_options *options) {
    *r = (pal_reader){ .options = *options };
    r->phase = !options->think_close ? PAL_READER_SAYS : options->thinking ? PAL_READER_THINKS : PAL_READER_BEGIN;
}

void pal_reader_free(pal_reader *r) {
    pal_bytes_free(&r->held), pal_bytes_free(&r->reasoning), pal_bytes_free(&r->content);
    pal_calls_free(&r->calls);
    *r = (pal_reader){ 0 };
}

static void drop(pal_reader *r, size_t size) {
    if (size) memmove(r->held.data, r->held.data + size, r->held.size -= size);
}

static pal_status move(pal_reader *r, pal_bytes *to, size_t size, pal_error *err) {
    const pal_status st = size ? pal_bytes_append(to, r->held.data, size, err) : PAL_OK;
    if (!st) drop(r, size);
    return st;
}

static size_t blanks(const pal_reader *r) {
    size_t n = 0;
    while (n < r->held.size && strchr(" \n\t\r", r->held.data[n]) && r->held.data[n]) n++;
    return n;
}

/* Where blanks end that a text of so many bytes ends with, seen from its end. */
static size_t without_blanks(const pal_reader *r, size_t size) {
    while (size && r->held.data[size - 1] && strchr(" \n\t\r", r->held.data[size - 1])) size--;
    return size;
}

static const unsigned char *find(const pal_reader *r, const char *text) {
    return r->held.size ? memmem(r->held.data, r->held.size, text, strlen(text)) : NULL;
}

/* How much of a text the held one ends with. */
static size_t begun(const pal_reader *r, const char *text) {
    const size_t size = strlen(text);
    for (size_t n = r->held.size < size ? r->held.size : size - 1; n; n--)
        if (memcmp(r->held.data + r->held.size - n, text, n) == 0) return n;
    return 0;
}

/* An answer may begin with thinking. */
static pal_status begin(pal_reader *r, bool last) {
    const char *open = r->options.think_open;
    if (!r->held.size) {
        r->phase = PAL_READER_SAYS;
        return PAL_OK;
    }
    const size_t skipped = blanks(r), size = strlen(open), left = r->held.size - skipped;
    const bool same = memcmp(r->held.data + skipped, open, left < size ? left : size) == 0;
    if (same && left < size && !last) return PAL_OK;
    r->phase = same && left >= size ? PAL_READER_THINKS : PAL_READER_SAYS;
    if (r->phase == PAL_READER_THINKS) drop(r, skipped + size);
    return PAL_OK;
}

static pal_status think(pal_reader *r, bool last, pal_error *err) {
    const char *close = r->options.think_close;
    if (!r->reasoning.size) drop(r, blanks(r));
    const unsigned char *found = find(r, close);
    size_t size = r->held.size;
    if (found) size = without_blanks(r, (size_t)(found - r->held.data));
    else if (!last) size = without_blanks(r, size - begun(r, close));
    const size_t end = found ? (size_t)(found - r->held.data) + strlen(close) - size : 0;
    const pal_status st = move(r, &r->reasoning, size, err);
    if (!st && found) drop(r, end), r->phase = PAL_READER_THOUGHT;
    return st;
}

/* The first place where calls may begin; the text's size: there is none. `open`: as far as its beginning may be at the
 * end. */
static size_t next_call(const pal_reader *r, size_t from, size_t *open) {
    const pal_call_syntax *syntax = r->options.syntax;
    *open = r->held.size;
    if (!syntax) return r->held.size;
    const char *opener = pal_call_opener(syntax);
    const size_t size = strlen(opener);
    const unsigned char *found = r->held.size - from ? memmem(r->held.data + from, r->held.size - from, opener, size)
                                                     : NULL;
    *open -= begun(r, opener);
    if (found && syntax->bare) { /* only an answer that is nothing else */
        const size_t at = (size_t)(found - r->held.data);
        return !r->content.size && without_blanks(r, at) == 0 ? at : r->held.size;
    }
    return found ? (size_t)(found - r->held.data) : r->held.size;
}

/* In the model's own syntax, or in another that begins with the same text. */
static pal_parse parse(pal_reader *r, size_t at, bool last, size_t *taken) {
    const pal_call_syntax *own = r->options.syntax;
    const pal_slice text = { r->held.data + at, r->held.size - at };
    pal_parse found = pal_calls_parse(own, r->options.tools, text, last, &r->calls, taken);
    for (size_t i = 0; i < pal_call_syntax_count && found == PAL_PARSE_NO && !r->options.strict; i++) {
        const pal_call_syntax *other = &pal_call_syntaxes[i];
        const bool strict = other->kind == PAL_CALL_JSON || *other->call;
        if (other == own || !strict || strcmp(pal_call_opener(other), pal_call_opener(own)) != 0) continue;
        found = pal_calls_parse(other, r->options.tools, text, last, &r->calls, taken);
    }
    return found;
}

/* Text and calls. Blanks before a call are not part of the text, nor are those between calls. */
static pal_status say(pal_reader *r, bool last, pal_error *err) {
    size_t from = 0, open, taken;
    pal_status st;
    for (;;) {
        const size_t at = next_call(r, from, &open);
        if (at == r->held.size) break;
        const bool waits = !last && r->waits_for > r->held.size;
        const pal_parse found = waits ? PAL_PARSE_MORE : parse(r, at, last, &taken);
        if (found == PAL_PARSE_STARVED) return pal_fail(err, PAL_E_MEMORY, "out of memory for a call");
        if (found == PAL_PARSE_NO) {
            from = at + 1;
            r->waits_for = 0;
            continue;
        }
        const size_t text = without_blanks(r, at);
        if ((st = move(r, &r->content, text, err))) return st;
        if (text) r->called = false;
        if (found == PAL_PARSE_MORE && !waits) r->waits_for = r->held.size + r->held.size / 64;
        if (found == PAL_PARSE_MORE) return PAL_OK;
        r->waits_for = 0;
        drop(r, at - text + taken);
        r->called = true;
        from = 0;
    }
    const size_t text = without_blanks(r, r->held.size);
    if (last && r->called && !text) drop(r, r->held.size);
    if (last || !r->options.syntax) return move(r, &r->content, r->held.size, err);
    const size_t sure = without_blanks(r, open);
    if (sure) r->called = false;
    return move(r, &r->content, sure, err);
}

pal_status pal_reader_push(pal_reader *r, const void *text, size_t size, bool last, pal_error *err) {
    pal_status st = size ? pal_bytes_append(&r->held, text, size, err) : PAL_OK;
    if (!st && r->phase == PAL_READER_BEGIN && (r->held.size || last)) st = begin(r, last);
    if (!st && r->phase == PAL_READER_THINKS) st = think(r, last, err);
    if (!st && r->phase == PAL_READER_THOUGHT) {
        drop(r, blanks(r));
        if (r->held.size) r->phase = PAL_READER_SAYS;
    }
    if (!st && r->phase == PAL_READER_SAYS) st = say(r, last, err);
    return st;
}
