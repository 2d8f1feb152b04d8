/* SPDX-License-Identifier: MIT */
/* How models write calls of tools: a table of syntaxes, and a parser for each kind of them. */
#ifndef PAL_CHAT_CALLS_H
#define PAL_CHAT_CALLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "palimpsa/tokenizer.h"

typedef struct pal_call {
    char *name;
    char *arguments; /* the text of a JSON object */
} pal_call;

typedef struct pal_calls {
    pal_call *list;
    size_t count, room;
} pal_calls;
void pal_calls_free(pal_calls *calls);

typedef enum pal_call_kind {
    PAL_CALL_JSON,   /* {"name": "f", "arguments": {...}}, or a list of these */
    PAL_CALL_NAMED,  /* a name and then the arguments as JSON */
    PAL_CALL_XML,    /* a name and then each argument between tags */
    PAL_CALL_PYTHON, /* [f(a="b"), g()] */
    PAL_CALL_KINDS
} pal_call_kind;

/* Texts that stand around the parts of a call; blanks may stand before each. An empty text is not written. */
typedef struct pal_call_syntax {
    const char *name;
    pal_call_kind kind;
    const char *open, *close; /* around all calls */
    const char *call, *after; /* NAMED, XML: before and after a call's name; JSON: its keys for name and arguments */
    const char *end;          /* NAMED, XML: after a call */
    const char *key, *key_end, *value, *value_end; /* XML: around an argument's name and value */
    bool list;                                     /* JSON: calls are written as a list */
    bool keyed;                                    /* JSON: as {"f": {...}} */
    bool lines;                                    /* XML: values on lines of their own */
    bool index;                                    /* NAMED: a name may end with : and a number */
    bool bare; /* JSON: nothing marks it; an answer that begins so and names a tool of the request is a call */
} pal_call_syntax;

extern const pal_call_syntax pal_call_syntaxes[];
extern const size_t pal_call_syntax_count;

const char *pal_call_opener(const pal_call_syntax *s); /* what its text begins with */

typedef enum pal_parse {
    PAL_PARSE_NO,   /* not a call */
    PAL_PARSE_MORE, /* it may become one */
    PAL_PARSE_DONE,
    PAL_PARSE_STARVED /* no memory */
} pal_parse;

/* The calls that a text begins with; *taken: its bytes. last: nothing follows, and what only lacks its end is whole.
 * tools: of the request, for the types of XML's values; NULL: not known. */
pal_parse pal_calls_parse(const pal_call_syntax *s, const json_t *tools, pal_slice text, bool last, pal_calls *out,
                          size_t *taken);

/* The parameters of a tool, or of one of its arguments; NULL: not known. */
const json_t *pal_tool_parameters(const json_t *tools, const char *name);

#endif
