/* SPDX-License-Identifier: MIT */
/* Chat templates: the part of Jinja that templates of language models use, as transformers sets it up (blocks trimmed,
 * sandboxed, nothing escaped). Reading refuses what it does not know, with line and column. Rendering has limits on
 * steps, depth, memory and output, and keeps apart what the template says and what the messages say. */
#ifndef PAL_TEMPLATE_TEMPLATE_H
#define PAL_TEMPLATE_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "palimpsa/status.h"

typedef struct pal_template pal_template;

enum { PAL_TEMPLATE_MOST = 4 << 20 }; /* bytes of a template */

pal_status pal_template_read(pal_template **out, const void *text, size_t size, pal_error *err);
void pal_template_free(pal_template *t); /* NULL is fine */
/* Its text, with line ends as the template sees them. */
const char *pal_template_source(const pal_template *t, size_t *size);

/* What a template sees. Values are borrowed; NULL is None. Whatever `kwargs` names comes before the rest. */
typedef struct pal_template_input {
    const json_t *messages, *tools, *documents, *kwargs;
    const char *bos, *eos; /* NULL: not defined */
    bool add_generation_prompt;
    const struct tm *now; /* NULL: the clock */
} pal_template_input;

/* The prompt. said[i] is 1 where byte i comes from the input (messages, tools, documents, kwargs), 0 where it comes
 * from the template. The name of a role, as messages carry it, counts as the template's. */
typedef struct pal_rendered {
    unsigned char *text, *said; /* one block, which `text` owns */
    size_t size;
} pal_rendered;
pal_status pal_template_render(const pal_template *t, const pal_template_input *in, pal_rendered *out, pal_error *err);
void pal_rendered_free(pal_rendered *r); /* fine on zeroes */

#endif
