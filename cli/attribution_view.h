/* SPDX-License-Identifier: MIT */
/* inspect --attribution: which tokens of a text wrote what its last token reads. */
#ifndef PAL_CLI_ATTRIBUTION_VIEW_H
#define PAL_CLI_ATTRIBUTION_VIEW_H

#include <stdbool.h>

#include "palimpsa/context.h"

/* Returns an exit code. tokenizer NULL: the model's own, else ids. */
int attribution_show(const char *path, const char *tokenizer, const char *text, const pal_context *cx, bool json);

#endif
