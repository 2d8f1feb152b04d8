/* SPDX-License-Identifier: MIT */
/* Grammars: which texts a model may write. A session that has one (pal_session_options.grammar) writes only tokens
 * after which the text can still become one of the grammar, and ends only where it is one.
 *
 * A grammar never changes after it is made: any number of sessions and threads may use it. */
#ifndef PALIMPSA_GRAMMAR_H
#define PALIMPSA_GRAMMAR_H

#include <stddef.h>

#include "palimpsa/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pal_grammar pal_grammar;

/* From rules like `root ::= "yes" | "no"` (docs/reference/grammars.md). An error names the line. */
PAL_API pal_status pal_grammar_read(pal_grammar **out, const char *text, size_t size, pal_error *err);
/* From the text of a JSON Schema: JSON that is valid under it. What a grammar cannot promise is refused, with the
 * path of the keyword in the schema. */
PAL_API pal_status pal_grammar_from_schema(pal_grammar **out, const char *schema, size_t size, pal_error *err);
/* Any JSON object. */
PAL_API pal_status pal_grammar_json_object(pal_grammar **out, pal_error *err);
PAL_API void pal_grammar_free(pal_grammar *grammar); /* after the sessions that use it */

#ifdef __cplusplus
}
#endif
#endif
