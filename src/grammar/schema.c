/* SPDX-License-Identifier: MIT */
/* Each schema becomes a rule. What is written is a part of what the schema allows: properties in its order, blanks and
 * line breaks at few places. */
#include "grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "format/json.h"
#include "text/strings.h"

/* JSON in general. Strings hold no surrogates and no zero, numbers no exponents that a double has not. */
static const char common[] = "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
                             "object ::= \"{\" ws (member (\",\" ws member)*)? ws \"}\"\n"
                             "member ::= string \":\" \" \"? value\n"
                             "array ::= \"[\" ws (value (\",\" ws value)*)? ws \"]\"\n"
                             "string ::= \"\\\"\" char* \"\\\"\"\n"
                             "raw ::= [^\"\\\\\\x00-\\x1F]\n"
                             "char ::= raw | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" ([1-9a-cA-CefEF] hex{3} | [dD] [0-7] "
                             "hex{2} | \"0\" [1-9a-fA-F] hex{2}"
                             " | \"00\" ([1-9a-fA-F] hex | \"0\" [1-9a-fA-F])))\n"
                             "hex ::= [0-9a-fA-F]\n"
                             "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
                             "number ::= integer (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?\n"
                             "ws ::= (\" \" | \"\\n\" \" \"{0,32})?\n";

pal_status pal_schema_say(schema_writer *w, pal_bytes *out, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    const int size = vsnprintf(text, sizeof text, format, list); /* ours: numbers and short words */
    va_end(list);
    if (w->rules.size + out->size > PAL_GRAMMAR_TEXT) return pal_schema_refuse(w, "the schema is too large");
    return pal_bytes_append(out, text, (size_t)size < sizeof text ? (size_t)size : sizeof text - 1, w->err);
}

pal_status pal_schema_refuse(schema_writer *w, const char *format, ...) {
    char text[300];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return pal_fail(w->err, PAL_E_ARGUMENT, "%s: %s", w->path, text);
}

pal_status pal_schema_literal(schema_writer *w, pal_bytes *out, const char *text, size_t size) {
    pal_status st = pal_bytes_append(out, "\"", 1, w->err);
    for (size_t i = 0; i < size && !st; i++) {
        const bool quoted = text[i] == '"' || text[i] == '\\';
        if (quoted) st = pal_bytes_append(out, "\\", 1, w->err);
        if (!st) st = pal_bytes_append(out, text + i, 1, w->err);
    }
    return st ? st : pal_bytes_append(out, "\"", 1, w->err);
}

pal_status pal_schema_json_literal(schema_writer *w, pal_bytes *out, const json_t *value) {
    char *text = pal_json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text) return pal_fail(w->err, PAL_E_MEMORY, "out of memory for a schema");
    const pal_status st = pal_schema_literal(w, out, text, strlen(text));
    free(text);
    return st;
}

pal_status pal_schema_rule_new(schema_writer *w, uint32_t *number) {
    *number = (uint32_t)w->paths.count;
    if (*number == SCHEMA_RULES) return pal_schema_refuse(w, "the schema needs more than %d rules", SCHEMA_RULES);
    return pal_strings_add(&w->paths, w->path, strlen(w->path), w->err);
}

pal_status pal_schema_rule_end(schema_writer *w, pal_bytes *body) {
    pal_status st = pal_schema_say(w, body, "\n");
    if (!st) st = pal_bytes_append(&w->rules, body->data, body->size, w->err);
    pal_bytes_free(body);
    return st;
}

pal_status pal_schema_part(schema_writer *w, const char *keyword, const char *name, const json_t *schema,
                           uint32_t *rule) {
    const size_t before = strlen(w->path), room = sizeof w->path - before;
    snprintf(w->path + before, room, name ? "/%s/%s" : "/%s", keyword, name);
    const pal_status st = pal_schema_value(w, schema, rule);
    if (!st) w->path[before] = 0; /* an error's path stays */
    return st;
}

pal_status pal_schema_count(schema_writer *w, const json_t *schema, const char *keyword, uint32_t *out, bool *given) {
    const json_t *value = json_object_get(schema, keyword);
    const double number = json_number_value(value);
    if (given) *given |= value != NULL;
    if (!value) return PAL_OK;
    if (!json_is_number(value) || !(number >= 0 && number <= 1000000) || number != (double)(uint32_t)number)
        return pal_schema_refuse(w, "'%s': expected a whole number, 0 to 1000000", keyword);
    *out = (uint32_t)number;
    return PAL_OK;
}

const json_t *pal_schema_resolve(const schema_writer *w, const char *pointer) {
    const json_t *at = w->root;
    if (*pointer++ != '#') return NULL;
    while (at && *pointer == '/') {
        char name[256];
        size_t n = 0;
        for (pointer++; *pointer && *pointer != '/' && n + 1 < sizeof name; pointer++) {
            const bool escaped = *pointer == '~' && (pointer[1] == '0' || pointer[1] == '1');
            name[n++] = !escaped ? *pointer : *++pointer == '0' ? '~' : '/';
        }
        name[n] = 0;
        at = json_is_array(at) ? json_array_get(at, (size_t)strtoul(name, NULL, 10)) : json_object_get(at, name);
    }
    return *pointer ? NULL : at;
}

/* What says nothing about values. */
static bool is_annotation(const char *key) {
    static const char *const known[] = { "$schema",  "$id",         "$comment",     "$defs",    "definitions",
                                         "title",    "description", "default",      "examples", "deprecated",
                                         "readOnly", "writeOnly",   "discriminator" };
    for (size_t i = 0; i < PAL_COUNT(known); i++)
        if (strcmp(known[i], key) == 0) return true;
    return false;
}

typedef struct {
    const char *key, *type; /* of the values it is about; NULL: of all */
} keyword;
static const keyword keywords[] = { { "minLength", "string" },
                                    { "maxLength", "string" },
                                    { "pattern", "string" },
                                    { "format", "string" },
                                    { "minimum", "number" },
                                    { "maximum", "number" },
                                    { "exclusiveMinimum", "number" },
                                    { "exclusiveMaximum", "number" },
                                    { "properties", "object" },
                                    { "required", "object" },
                                    { "additionalProperties", "object" },
                                    { "items", "array" },
                                    { "prefixItems", "array" },
                                    { "minItems", "array" },
                                    { "maxItems", "array" },
                                    { "uniqueItems", "array" },
                                    { "type", NULL },
                                    { "enum", NULL },
                                    { "const", NULL },
                                    { "$ref", NULL },
                                    { "anyOf", NULL },
                                    { "oneOf", NULL },
                                    { "allOf", NULL } };

static const keyword *find_keyword(const char *key) {
    for (size_t i = 0; i < PAL_COUNT(keywords); i++)
        if (strcmp(keywords[i].key, key) == 0) return &keywords[i];
    return NULL;
}

static bool is_of(const char *type, const char *keyword_type) {
    return strcmp(type, keyword_type) == 0 || (strcmp(type, "integer") == 0 && strcmp(keyword_type, "number") == 0);
}

/* Every keyword is known. `alone`: the only one but annotations, and `type` where with_type. */
static pal_status check_keywords(schema_writer *w, const json_t *schema, const char *alone, bool with_type) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value) {
        if (is_annotation(key)) continue;
        if (!find_keyword(key)) return pal_schema_refuse(w, "'%.60s' is not supported", key);
        if (alone && strcmp(key, alone) != 0 && !(with_type && strcmp(key, "type") == 0))
            return pal_schema_refuse(w, "'%s' together with '%s' is not supported", alone, key);
    }
    return PAL_OK;
}

static const char *const types[] = { "object", "array", "string", "number", "integer", "boolean", "null" };

static bool value_is(const json_t *value, const char *type) {
    const double number = json_number_value(value);
    switch (json_typeof(value)) {
    case JSON_OBJECT: return strcmp(type, "object") == 0;
    case JSON_ARRAY: return strcmp(type, "array") == 0;
    case JSON_STRING: return strcmp(type, "string") == 0;
    case JSON_INTEGER: return is_of(type, "number");
    case JSON_REAL:
        return strcmp(type, "number") == 0 || (strcmp(type, "integer") == 0 && number == (double)(int64_t)number);
    case JSON_NULL: return strcmp(type, "null") == 0;
    default: return strcmp(type, "boolean") == 0;
    }
}

static bool has_type(const json_t *type, const json_t *value) {
    if (!type) return true;
    if (json_is_string(type)) return value_is(value, json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *one = json_string_value(json_array_get(type, i));
        if (one && value_is(value, one)) return true;
    }
    return false;
}

static pal_status write_values(schema_writer *w, const json_t *schema, pal_bytes *out) {
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    const json_t *type = json_object_get(schema, "type");
    size_t count = 0;
    pal_status st = check_keywords(w, schema, one ? "const" : "enum", true);
    if (!st && !one && !json_array_size(list)) st = pal_schema_refuse(w, "'enum': expected a list of values");
    for (size_t i = 0; i < (one ? 1 : json_array_size(list)) && !st; i++) {
        const json_t *value = one ? one : json_array_get(list, i);
        if (!has_type(type, value)) continue;
        if (count++ && (st = pal_schema_say(w, out, " | "))) break;
        st = pal_schema_json_literal(w, out, value);
    }
    if (!st && !count) st = pal_schema_refuse(w, "no value of 'enum' or 'const' has the 'type'");
    return st;
}

static pal_status write_choice(schema_writer *w, const json_t *schema, const char *key, pal_bytes *out) {
    const json_t *list = json_object_get(schema, key);
    const size_t count = json_array_size(list);
    char index[24];
    pal_status st = check_keywords(w, schema, key, false);
    if (!st && !count) st = pal_schema_refuse(w, "'%s': expected a list of schemas", key);
    if (!st && strcmp(key, "allOf") == 0 && count > 1)
        st = pal_schema_refuse(w, "'allOf' of several schemas is not supported");
    for (size_t i = 0; i < count && !st; i++) {
        uint32_t rule;
        for (size_t k = 0; strcmp(key, "oneOf") == 0 && k < i && !st; k++)
            if (!pal_schema_apart(w, json_array_get(list, k), json_array_get(list, i)))
                st = pal_schema_refuse(
                    w,
                    "'oneOf': a value may be of both %zu and %zu; expected different types, or a required "
                    "property with different constants; or use anyOf",
                    k, i);
        snprintf(index, sizeof index, "%zu", i);
        if (!st) st = pal_schema_part(w, key, index, json_array_get(list, i), &rule);
        if (!st) st = pal_schema_say(w, out, i ? " | r%u" : "r%u", rule);
    }
    return st;
}

static pal_status write_reference(schema_writer *w, const json_t *schema, pal_bytes *out) {
    const char *pointer = json_string_value(json_object_get(schema, "$ref"));
    const json_t *to = pointer ? pal_schema_resolve(w, pointer) : NULL;
    uint32_t rule;
    pal_status st = check_keywords(w, schema, "$ref", false);
    if (st) return st;
    if (!to)
        return pal_schema_refuse(w, "'$ref': \"%.100s\" is not there; expected a part of this schema, as #/$defs/name",
                                 pointer ? pointer : "");
    for (size_t i = 0; i < w->made_count; i++)
        if (w->made[i].of == to) return pal_schema_say(w, out, "r%u", w->made[i].number);
    const size_t before = strlen(w->path);
    char kept[sizeof w->path];
    memcpy(kept, w->path, sizeof kept);
    snprintf(w->path, sizeof w->path, "%s", pointer);
    if ((st = pal_schema_value(w, to, &rule))) return st;
    memcpy(w->path, kept, before + 1);
    return pal_schema_say(w, out, "r%u", rule);
}

static pal_status write_type(schema_writer *w, const json_t *schema, const char *type, pal_bytes *out) {
    if (strcmp(type, "object") == 0) return pal_schema_object(w, schema, out);
    if (strcmp(type, "array") == 0) return pal_schema_array(w, schema, out);
    if (strcmp(type, "string") == 0) return pal_schema_string(w, schema, out);
    if (strcmp(type, "number") == 0) return pal_schema_number(w, schema, false, out);
    if (strcmp(type, "integer") == 0) return pal_schema_number(w, schema, true, out);
    return pal_schema_say(w, out, strcmp(type, "null") == 0 ? "\"null\"" : "\"true\" | \"false\"");
}

/* Of a schema without types: those that its keywords are about. */
static bool speaks_of(const json_t *schema, const char *type) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value) {
        const keyword *k = find_keyword(key);
        if (k && k->type && strcmp(k->type, type) == 0) return true;
    }
    return false;
}

static pal_status write_types(schema_writer *w, const json_t *schema, pal_bytes *out) {
    const json_t *type = json_object_get(schema, "type");
    size_t count = 0, given = json_is_array(type) ? json_array_size(type) : 1;
    pal_status st = check_keywords(w, schema, NULL, false);
    for (size_t i = 0; type && i < given && !st; i++) {
        const char *name = json_string_value(json_is_array(type) ? json_array_get(type, i) : type);
        bool known = false;
        for (size_t k = 0; k < PAL_COUNT(types) && name; k++) known |= strcmp(types[k], name) == 0;
        if (!known)
            return pal_schema_refuse(
                w, "'type': expected object, array, string, number, integer, boolean, null, or a list of these");
        if (count++ && (st = pal_schema_say(w, out, " | "))) break;
        st = write_type(w, schema, name, out);
    }
    for (size_t k = 0; !type && k < PAL_COUNT(types) && !st; k++) {
        if (!speaks_of(schema, types[k])) continue;
        if (count++ && (st = pal_schema_say(w, out, " | "))) break;
        st = write_type(w, schema, types[k], out);
    }
    if (!st && type && !count) st = pal_schema_refuse(w, "'type': expected a type, or a list of them");
    return st || count ? st : pal_schema_say(w, out, "value");
}

static pal_status write_schema(schema_writer *w, const json_t *schema, pal_bytes *out) {
    static const char *const choices[] = { "anyOf", "oneOf", "allOf" };
    if (json_is_true(schema)) return pal_schema_say(w, out, "value");
    if (!json_is_object(schema)) return pal_schema_refuse(w, "expected a schema: an object, or true");
    if (json_object_get(schema, "$ref")) return write_reference(w, schema, out);
    for (size_t i = 0; i < PAL_COUNT(choices); i++)
        if (json_object_get(schema, choices[i])) return write_choice(w, schema, choices[i], out);
    if (json_object_get(schema, "const") || json_object_get(schema, "enum")) return write_values(w, schema, out);
    return write_types(w, schema, out);
}

pal_status pal_schema_value(schema_writer *w, const json_t *schema, uint32_t *rule) {
    pal_bytes body = { 0 };
    pal_status st;
    if (w->depth == SCHEMA_DEPTH) return pal_schema_refuse(w, "more than %d schemas in each other", SCHEMA_DEPTH);
    if ((st = pal_grow((void **)&w->made, &w->made_room, w->made_count, w->made_count + 1, sizeof *w->made, w->err)))
        return st;
    if ((st = pal_schema_rule_new(w, rule))) return st;
    if (json_is_object(schema)) w->made[w->made_count++] = (schema_rule){ schema, *rule };
    w->depth++;
    st = pal_schema_say(w, &body, "r%u ::= ", *rule);
    if (!st) st = write_schema(w, schema, &body);
    if (!st) st = pal_schema_rule_end(w, &body);
    pal_bytes_free(&body);
    w->depth--;
    return st;
}

pal_status pal_schema_finish(schema_writer *w, const char *root, pal_grammar **out) {
    pal_status st = pal_bytes_append(&w->rules, "root ::= ", 9, w->err);
    if (!st) st = pal_bytes_append(&w->rules, root, strlen(root), w->err);
    if (!st) st = pal_bytes_append(&w->rules, "\n", 1, w->err);
    if (!st) st = pal_bytes_append(&w->rules, common, sizeof common - 1, w->err);
    if (!st) st = pal_grammar_read(out, (const char *)w->rules.data, w->rules.size, w->err);
    return st;
}

void pal_schema_blame(const schema_writer *w, pal_status st, pal_error *err) {
    unsigned number;
    int at = 0;
    if (sscanf(w->err->text, "rule 'r%u' %n", &number, &at) != 1 || !at || number >= w->paths.count) {
        (void)pal_fail(err, st, "%s", w->err->text);
        return;
    }
    const pal_slice path = pal_strings_at(&w->paths, number);
    (void)pal_fail(err, st, "%.*s: %s", (int)path.size, (const char *)path.data, w->err->text + at);
}

void pal_schema_writer_free(schema_writer *w) {
    pal_bytes_free(&w->rules);
    pal_strings_free(&w->paths);
    pal_free(w->made);
}

pal_status pal_grammar_from_schema(pal_grammar **out, const char *schema, size_t size, pal_error *err) {
    json_error_t why;
    bool starved = false;
    char root[24];
    uint32_t rule;
    pal_error inner;
    *out = NULL;
    if (size > PAL_GRAMMAR_TEXT)
        return pal_fail(err, PAL_E_ARGUMENT, "a schema of %zu bytes: expected at most %d", size, PAL_GRAMMAR_TEXT);
    json_t *value = pal_json_parse(schema, size, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why, &starved);
    if (!value && starved) return pal_fail(err, PAL_E_MEMORY, "out of memory for a schema");
    if (!value) return pal_fail(err, PAL_E_ARGUMENT, "the schema is not JSON: line %d: %s", why.line, why.text);
    schema_writer w = { .root = value, .path = "#", .err = &inner };
    pal_status st = pal_schema_value(&w, value, &rule);
    if (!st) {
        snprintf(root, sizeof root, "r%u", rule);
        st = pal_schema_finish(&w, root, out);
    }
    if (st) pal_schema_blame(&w, st, err);
    pal_schema_writer_free(&w);
    json_decref(value);
    return st;
}

pal_status pal_grammar_json_object(pal_grammar **out, pal_error *err) {
    schema_writer w = { .path = "#", .err = err };
    *out = NULL;
    const pal_status st = pal_schema_finish(&w, "object", out);
    pal_bytes_free(&w.rules);
    return st;
}
