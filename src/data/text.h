/* SPDX-License-Identifier: MIT */
/* Text out of files: a plain file is one document, a line of a JSONL file is one (the string in one of its fields). "-"
 * is standard input. Reading is by blocks, so that a text of any size takes the same memory. */
#ifndef PAL_DATA_TEXT_H
#define PAL_DATA_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "palimpsa/tokenizer.h"
#include "text/cut.h"

/* JSONL when a field is named, or when the name ends in .jsonl or .ndjson (the field is then "text"); NULL: plain text.
 */
const char *pal_text_field(const char *path, const char *field);

/* Pieces that re.split(r'\s+', text) gives: runs of white space + 1, with empty ones at both ends. `blank`: whether the
 * text before this one ended in white space, updated; start with false. The sum over pieces of a text, + 1, is its
 * words. */
uint64_t pal_text_blanks(pal_slice text, bool *blank);
uint64_t pal_text_words(pal_slice text);

/* Where a block may end. */
typedef enum pal_text_unit {
    PAL_TEXT_LINES,
    PAL_TEXT_WHOLE,
    PAL_TEXT_WORDS,
    PAL_TEXT_WORDS_OR_LINES,
    PAL_TEXT_LETTERS_OR_LINES,
    PAL_TEXT_CHARACTERS
} pal_text_unit;
pal_text_unit pal_text_unit_of(pal_cut cut);

/* The reading position: enough to continue from here in another process. */
typedef struct pal_text_place {
    uint64_t offset; /* bytes before it */
    uint64_t line;   /* lines before it */
    bool inside;     /* a plain document has begun */
    bool blank;      /* its text so far ends in white space */
} pal_text_place;

typedef struct pal_text_block {
    pal_bytes bytes;      /* owned by the caller, used again by the next read */
    pal_text_place start; /* of its first byte */
    pal_text_place next;  /* of the byte after it */
    bool last;            /* the file ends here */
} pal_text_block;

typedef struct pal_text pal_text;
/* target: bytes of an ordinary block; most: of one that has no place to be cut before; beyond that is an error. */
pal_status pal_text_open(pal_text **out, const char *path, pal_text_unit unit, size_t target, size_t most,
                         const pal_text_place *from, pal_error *err);
void pal_text_close(pal_text *text);
/* The next block; *found false at the end. Blocks depend on the file and the arguments above alone. */
pal_status pal_text_read(pal_text *text, pal_text_block *block, bool *found, pal_error *err);

/* A field "prompt+response" means the strings of two fields with PAL_RESPONSE between them; training is then on what
 * is after its colon. */
#define PAL_RESPONSE "\n### Response:\n"
bool pal_text_field_pairs(const char *field);

/* The string of one JSON line. line: its number, for messages. The value lives in *owner (a json_t), which the caller
 * releases with pal_text_release. A line of blanks gives no string: data NULL. */
pal_status pal_text_parse(const char *path, const char *field, uint64_t line, pal_slice json, void **owner,
                          pal_slice *text, pal_error *err);
void pal_text_release(void *owner);
size_t pal_text_response(const void *owner); /* of a pair: bytes of its text before the response */

/* Whole documents, one by one, none larger than `most` bytes. field as pal_text_field gives it. */
typedef struct pal_documents pal_documents;
pal_status pal_documents_open(pal_documents **out, const char *path, const char *field, size_t most, pal_error *err);
void pal_documents_close(pal_documents *documents);
/* Borrowed until the next call; *found false at the end. Empty documents are passed over. */
pal_status pal_documents_next(pal_documents *documents, pal_slice *text, bool *found, pal_error *err);
/* The JSON object of a JSONL document given out (a json_t, borrowed until the next call). */
const void *pal_documents_row(const pal_documents *documents);
/* After the current document: its line is the last one read. */
pal_text_place pal_documents_place(const pal_documents *documents);

/* A document of this size or less may be asked for whole. */
#define PAL_DOCUMENT_MAX ((size_t)64 << 20)

#endif
