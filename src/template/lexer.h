/* SPDX-License-Identifier: MIT */
/* The text of a template as tokens, with the white space around tags already dealt with. */
#ifndef PAL_TEMPLATE_LEXER_H
#define PAL_TEMPLATE_LEXER_H

#include "template/value.h"

typedef enum tpl_token_kind {
    TPL_T_DATA, /* text between tags */
    TPL_T_BLOCK_BEGIN,
    TPL_T_BLOCK_END,
    TPL_T_PRINT_BEGIN,
    TPL_T_PRINT_END,
    TPL_T_NAME,
    TPL_T_TEXT, /* a string, in quotes */
    TPL_T_INT,
    TPL_T_FLOAT,
    TPL_T_OPERATOR,
    TPL_T_END
} tpl_token_kind;

typedef struct tpl_token {
    tpl_token_kind kind;
    uint32_t at;      /* in the source */
    const char *text; /* size bytes; an operator is its characters */
    size_t size;
} tpl_token;

/* Of h->source; the last one is TPL_T_END. */
const tpl_token *pal_tpl_tokens(tpl_heap *h);

#endif
