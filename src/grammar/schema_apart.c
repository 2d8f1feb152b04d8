/* SPDX-License-Identifier: MIT */
/* Schemas that no value can satisfy both: what oneOf needs. */
#include <string.h>

#include "grammar/schema.h"

static const json_t *follow(const schema_writer *w, const json_t *schema) {
    for (int i = 0; i < 16 && json_object_get(schema, "$ref"); i++) {
        const char *pointer = json_string_value(json_object_get(schema, "$ref"));
        schema = pointer ? pal_schema_resolve(w, pointer) : NULL;
    }
    return schema;
}

/* The only values that it can have: a list, or one (of const); NULL: others. */
static const json_t *values_of(const json_t *schema, bool *list) {
    const json_t *one = json_object_get(schema, "const");
    *list = !one;
    return one ? one : json_object_get(schema, "enum");
}

static bool values_apart(const json_t *a, const json_t *b) {
    bool many_a, many_b;
    const json_t *x = values_of(a, &many_a), *y = values_of(b, &many_b);
    if (!x || !y) return false;
    for (size_t i = 0; i < (many_a ? json_array_size(x) : 1); i++)
        for (size_t k = 0; k < (many_b ? json_array_size(y) : 1); k++) {
            const json_t *one = many_a ? json_array_get(x, i) : x, *other = many_b ? json_array_get(y, k) : y;
            if (json_equal(one, other) || (json_is_number(one) && json_is_number(other))) return false;
        }
    return true;
}

/* A bit for each type that a value can have; -1: not known. */
static int types_of(const json_t *schema) {
    static const char *const names[] = { "object", "array", "string", "number", "boolean", "null" };
    const json_t *type = json_object_get(schema, "type");
    int bits = 0;
    for (size_t i = 0; i < (json_is_array(type) ? json_array_size(type) : 1); i++) {
        const char *name = json_string_value(json_is_array(type) ? json_array_get(type, i) : type);
        if (!name) return -1;
        if (strcmp(name, "integer") == 0) name = "number";
        for (size_t k = 0; k < PAL_COUNT(names); k++)
            if (strcmp(names[k], name) == 0) bits |= 1 << k;
    }
    return bits;
}

static bool requires(const json_t *schema, const char *key) {
    const json_t *required = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name && strcmp(name, key) == 0) return true;
    }
    return false;
}

bool pal_schema_apart(const schema_writer *w, const json_t *a, const json_t *b) {
    const char *key;
    json_t *one;
    a = follow(w, a), b = follow(w, b);
    if (!json_is_object(a) || !json_is_object(b)) return false;
    if (!(types_of(a) & types_of(b)) || values_apart(a, b)) return true;
    if (types_of(a) != 1 || types_of(b) != 1) return false; /* objects alone can differ in what they hold */
    json_object_foreach(json_object_get(a, "properties"), key, one) {
        const json_t *other = json_object_get(json_object_get(b, "properties"), key);
        if (other && requires(a, key) && requires(b, key) && values_apart(follow(w, one), follow(w, other)))
            return true;
    }
    return false;
}
