/* SPDX-License-Identifier: MIT */
/* What goes along with a model's weights from one directory to another: the tokenizer, and how to generate. */
#ifndef PAL_CONVERT_ATTACH_H
#define PAL_CONVERT_ATTACH_H

#include <stdbool.h>

#include "format/source.h"
#include "palimpsa/tokenizer.h"

typedef struct pal_attachment {
    pal_tokenizer *tokenizer; /* NULL: there is none */
    const char *directory;    /* of the source, borrowed; NULL: it is a file */
    bool copy;                /* the tokenizer's files lie there and are copied as they are */
} pal_attachment;

/* given: as for pal_tokenizer_open; NULL: the source's own, if it has one; "none": none. A tokenizer that is damaged,
 * or has more ids than the model's vocabulary, is refused. */
pal_status pal_attachment_find(pal_attachment *out, const pal_source *source, const char *given, size_t vocab,
                               pal_error *err);
pal_status pal_attachment_write(const pal_attachment *a, const char *directory, pal_error *err);
void pal_attachment_close(pal_attachment *a); /* a zeroed one is fine */

#endif
