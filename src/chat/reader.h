/* SPDX-License-Identifier: MIT */
/* What a model writes, taken apart as it comes: thinking, text for people, and calls of tools. Nothing is lost: what
 * begins like a call and is none becomes text. */
#ifndef PAL_CHAT_READER_H
#define PAL_CHAT_READER_H

#include "chat/calls.h"

typedef struct pal_reader_options {
    const pal_call_syntax *syntax;        /* NULL: no calls */
    const json_t *tools;                  /* of the request; borrowed */
    const char *think_open, *think_close; /* NULL: no thinking; borrowed */
    bool thinking;                        /* the prompt has begun it */
    bool strict;                          /* no other syntax that begins with the same text */
} pal_reader_options;

typedef enum pal_reader_phase {
    PAL_READER_BEGIN,
    PAL_READER_THINKS,
    PAL_READER_THOUGHT,
    PAL_READER_SAYS
} pal_reader_phase;

typedef struct pal_reader {
    pal_reader_options options;
    pal_reader_phase phase;
    bool called; /* what came last was a call */
    pal_bytes held;
    size_t waits_for;             /* bytes of it before a long call is parsed again: all together in linear time */
    pal_bytes reasoning, content; /* these only grow, and so do calls */
    pal_calls calls;
} pal_reader;

void pal_reader_begin(pal_reader *r, const pal_reader_options *options); /* of a zeroed one */
void pal_reader_free(pal_reader *r);
/* More of the text; last: nothing follows. */
pal_status pal_reader_push(pal_reader *r, const void *text, size_t size, bool last, pal_error *err);

#endif
