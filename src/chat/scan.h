/* SPDX-License-Identifier: MIT */
/* Looking at a text from its beginning, of which more may come. */
#ifndef PAL_CHAT_SCAN_H
#define PAL_CHAT_SCAN_H

#include "chat/calls.h"
#include "text/strings.h"

typedef struct scan {
    const unsigned char *at, *end;
    bool last; /* nothing follows */
    const pal_call_syntax *syntax;
    const json_t *tools;
    pal_calls *calls;
} scan;

static inline bool pal_scan_is_digit(unsigned char c) { return c >= '0' && c <= '9'; }
static inline bool pal_scan_is_letter(unsigned char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }

/* What is said of a scan's place. MORE: it may become so; at the end of a text that is whole that is NO. */
pal_parse pal_scan_ended(const scan *s);
void pal_scan_blanks(scan *s);
/* Skips blanks and then this text; where there is something else the place stays. An empty text is there. */
pal_parse pal_scan_text(scan *s, const char *text);
/* What comes before this text, which is skipped. */
pal_parse pal_scan_until(scan *s, const char *text, pal_slice *before);
pal_parse pal_scan_name(scan *s, pal_slice *name); /* a function's */
/* An object or a list of JSON, checked, with control characters in its strings escaped. */
pal_parse pal_scan_json(scan *s, pal_bytes *value);

/* A literal of Python, as JSON; it does not end with the text. */
pal_parse pal_scan_literal(scan *s, pal_bytes *out);

/* Copies; the arguments are the text of a JSON object. STARVED or DONE. */
pal_parse pal_scan_call(scan *s, pal_slice name, pal_slice arguments);
pal_parse pal_scan_put(pal_bytes *to, const void *data, size_t size); /* DONE or STARVED */
pal_parse pal_scan_quoted(pal_bytes *to, pal_slice text);             /* as a string of JSON */

pal_parse pal_parse_json_calls(scan *s);
pal_parse pal_parse_named_calls(scan *s);
pal_parse pal_parse_xml_calls(scan *s);
pal_parse pal_parse_python_calls(scan *s);

#endif
