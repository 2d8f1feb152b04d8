/* SPDX-License-Identifier: MIT */
/* Strings: of some length, of a pattern, of a format. */
#include <string.h>

#include "grammar/schema.h"
#include "text/strings.h"

#define TIME                                                                              \
    "([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] \":\" [0-5] [0-9] (\".\" [0-9]{1,6})? " \
    "(\"Z\" | [-+] ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9])"
#define DATE                                                                                              \
    "[12] [0-9]{3} \"-\" ((\"0\" [1-9] | \"1\" [0-2]) \"-\" (\"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8]) | " \
    "(\"0\" [13-9] | \"1\" [0-2]) \"-\" (\"29\" | \"30\") | (\"0\" [13578] | \"10\" | \"12\") \"-31\")"

static const struct {
    const char *name, *rule;
} formats[] = { { "date", DATE },
                { "time", TIME },
                { "date-time", DATE " \"T\" " TIME },
                { "uuid", "hex{8} (\"-\" hex{4}){3} \"-\" hex{12}" } };

static pal_status write_format(schema_writer *w, const json_t *format, pal_bytes *out) {
    const char *name = json_string_value(format);
    pal_status st;
    for (size_t i = 0; name && i < PAL_COUNT(formats); i++)
        if (strcmp(formats[i].name, name) == 0) {
            if ((st = pal_schema_say(w, out, "\"\\\"\" (")) ||
                (st = pal_bytes_append(out, formats[i].rule, strlen(formats[i].rule), w->err)))
                return st;
            return pal_schema_say(w, out, ") \"\\\"\"");
        }
    return pal_schema_refuse(w, "'format': expected date, time, date-time or uuid");
}

pal_status pal_schema_string(schema_writer *w, const json_t *schema, pal_bytes *out) {
    const json_t *pattern = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
    uint32_t least = 0, most = PAL_NO_BOUND;
    bool counted = false;
    pal_status st;
    if ((st = pal_schema_count(w, schema, "minLength", &least, &counted)) ||
        (st = pal_schema_count(w, schema, "maxLength", &most, &counted)))
        return st;
    if (least > most) return pal_schema_refuse(w, "'minLength' is %u, above 'maxLength' of %u", least, most);
    if ((pattern != NULL) + (format != NULL) + counted > 1)
        return pal_schema_refuse(w, "only one of 'pattern', 'format' and a length is supported");
    if (format) return write_format(w, format, out);
    if (pattern && !json_is_string(pattern)) return pal_schema_refuse(w, "'pattern': expected a text");
    if (pattern) return pal_schema_pattern(w, json_string_value(pattern), out);
    if (!counted) return pal_schema_say(w, out, "string");
    if (most == PAL_NO_BOUND) return pal_schema_say(w, out, "\"\\\"\" char{%u,} \"\\\"\"", least);
    return pal_schema_say(w, out, "\"\\\"\" char{%u,%u} \"\\\"\"", least, most);
}
