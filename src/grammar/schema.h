/* SPDX-License-Identifier: MIT */
/* JSON Schema to rules, as text that pal_grammar_read reads. */
#ifndef PAL_GRAMMAR_SCHEMA_H
#define PAL_GRAMMAR_SCHEMA_H

#include <jansson.h>
#include <stdarg.h>

#include "base/context.h"
#include "grammar/program.h"
#include "text/strings.h"

enum { SCHEMA_DEPTH = 100, SCHEMA_RULES = 20000 };

typedef struct schema_rule {
    const json_t *of;
    uint32_t number;
} schema_rule;

typedef struct schema_writer {
    const json_t *root;
    pal_bytes rules;   /* the text */
    schema_rule *made; /* schemas that have a rule, or get one now */
    size_t made_count, made_room;
    pal_strings paths; /* by rule */
    int depth;
    char path[512]; /* of what is read, from the root: "#/properties/age" */
    pal_error *err;
} schema_writer;

/* These append to a text. */
pal_status pal_schema_say(schema_writer *w, pal_bytes *out, const char *format, ...) PAL_PRINTF(3, 4);
pal_status pal_schema_literal(schema_writer *w, pal_bytes *out, const char *text, size_t size); /* quoted */
pal_status pal_schema_json_literal(schema_writer *w, pal_bytes *out, const json_t *value);      /* of its JSON */
pal_status pal_schema_refuse(schema_writer *w, const char *format, ...) PAL_PRINTF(2, 3);       /* with the path */

pal_status pal_schema_rule_new(schema_writer *w, uint32_t *number); /* it is named r and the number */
pal_status pal_schema_rule_end(schema_writer *w, pal_bytes *body);  /* adds the rule, and frees body */
pal_status pal_schema_value(schema_writer *w, const json_t *schema, uint32_t *rule);
/* The end: JSON in general, and what the text is, in rules. */
pal_status pal_schema_finish(schema_writer *w, const char *root, pal_grammar **out);
/* Hands on the writer's error; one that names a rule says which schema that is. */
void pal_schema_blame(const schema_writer *w, pal_status st, pal_error *err);
void pal_schema_writer_free(schema_writer *w);
/* The same as pal_schema_value of a part of a schema, which the path then names. */
pal_status pal_schema_part(schema_writer *w, const char *keyword, const char *name, const json_t *schema,
                           uint32_t *rule);
/* A whole number of a keyword that is not negative; absent leaves *out. */
pal_status pal_schema_count(schema_writer *w, const json_t *schema, const char *keyword, uint32_t *out, bool *given);

pal_status pal_schema_string(schema_writer *w, const json_t *schema, pal_bytes *out);             /* schema_text.c */
pal_status pal_schema_pattern(schema_writer *w, const char *pattern, pal_bytes *out);             /* schema_pattern.c */
pal_status pal_schema_number(schema_writer *w, const json_t *schema, bool whole, pal_bytes *out); /* schema_number.c */
pal_status pal_schema_object(schema_writer *w, const json_t *schema, pal_bytes *out);             /* schema_parts.c */
pal_status pal_schema_array(schema_writer *w, const json_t *schema, pal_bytes *out);
/* Whether no value can be of both. */
bool pal_schema_apart(const schema_writer *w, const json_t *a, const json_t *b); /* schema_apart.c */
const json_t *pal_schema_resolve(const schema_writer *w, const char *pointer);   /* of the root; NULL: nothing there */

#endif
