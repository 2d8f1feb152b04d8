/* SPDX-License-Identifier: MIT */
/* Objects and arrays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "grammar/schema.h"
#include "text/strings.h"
#include "text/utf8.h"

enum { MOST_NAME = 400 };

/* Names of an object's properties that another property must not have, sorted. */
typedef struct {
    pal_slice *name;
    size_t count;
} names;

/* A rule for the rest of a name: of those that begin with the same `at` bytes none may come out. Names are written
 * without escapes. */
static pal_status other_name(schema_writer *w, names n, size_t at, uint32_t *rule) {
    pal_bytes body = { 0 };
    pal_ids first = { 0 };
    pal_status st = pal_schema_rule_new(w, rule);
    const bool ends = n.count && n.name[0].size == at; /* the shortest comes first: this name may not end here */
    if (!st)
        st = pal_schema_say(w, &body, ends ? "r%u ::= [^\"\\\\\\x00-\\x1F" : "r%u ::= \"\" | [^\"\\\\\\x00-\\x1F",
                            *rule);
    for (size_t i = ends; i < n.count && !st;) {
        uint32_t code = 0;
        size_t end = i + 1;
        const size_t size = pal_utf8_read(n.name[i].data + at, n.name[i].size - at, &code);
        while (end < n.count && n.name[end].size >= at + size &&
               memcmp(n.name[end].data + at, n.name[i].data + at, size) == 0)
            end++;
        const names inner = { n.name + i, end - i };
        i = end;
        uint32_t deeper = 0;
        if (code < 0x20 || code == '"' || code == '\\') continue; /* needs an escape */
        if (!(st = pal_schema_say(w, &body, "\\U%08X", code)) && !(st = other_name(w, inner, at + size, &deeper)) &&
            !(st = pal_ids_append(&first, code, w->err)))
            st = pal_ids_append(&first, deeper, w->err);
    }
    if (!st) st = pal_schema_say(w, &body, "] raw*");
    for (size_t i = 0; i < first.count && !st; i += 2)
        st = pal_schema_say(w, &body, " | [\\U%08X] r%u", first.data[i], first.data[i + 1]);
    if (!st) st = pal_schema_rule_end(w, &body);
    pal_bytes_free(&body);
    pal_ids_free(&first);
    return st;
}

static int by_bytes(const void *a, const void *b) {
    const pal_slice *x = a, *y = b;
    const int order = memcmp(x->data, y->data, x->size < y->size ? x->size : y->size);
    return order ? order : x->size < y->size ? -1 : x->size > y->size;
}

static pal_status write_other(schema_writer *w, const json_t *properties, const json_t *schema, uint32_t *rule) {
    names n = { .name = pal_alloc(json_object_size(properties) + 1, sizeof *n.name) };
    pal_bytes body = { 0 };
    uint32_t name = 0, value = 0;
    const char *key;
    json_t *one;
    if (!n.name) return pal_fail(w->err, PAL_E_MEMORY, "out of memory for a schema");
    json_object_foreach((json_t *)properties, key, one) if (strlen(key) > MOST_NAME) {
        pal_free(n.name);
        return pal_schema_refuse(w, "'additionalProperties' next to a name of more than %d bytes is not supported",
                                 MOST_NAME);
    }
    json_object_foreach((json_t *)properties, key, one)
        n.name[n.count++] = (pal_slice){ (const unsigned char *)key, strlen(key) };
    qsort(n.name, n.count, sizeof *n.name, by_bytes);
    pal_status st = other_name(w, n, 0, &name);
    if (!st) st = pal_schema_part(w, "additionalProperties", NULL, schema, &value);
    if (!st) st = pal_schema_rule_new(w, rule);
    if (!st) st = pal_schema_say(w, &body, "r%u ::= \"\\\"\" r%u \"\\\":\" \" \"? r%u", *rule, name, value);
    if (!st) st = pal_schema_rule_end(w, &body);
    pal_bytes_free(&body);
    pal_free(n.name);
    return st;
}

static bool is_required(const json_t *required, const char *key) {
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name && strcmp(name, key) == 0) return true;
    }
    return false;
}

static pal_status check_object(schema_writer *w, const json_t *properties, const json_t *required) {
    if (properties && !json_is_object(properties))
        return pal_schema_refuse(w, "'properties': expected an object of schemas");
    if (required && !json_is_array(required)) return pal_schema_refuse(w, "'required': expected a list of names");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (!name || !json_object_get(properties, name))
            return pal_schema_refuse(w, "'required': expected names of 'properties', found %s%.80s%s", name ? "\"" : "",
                                     name ? name : "another value", name ? "\"" : "");
    }
    return PAL_OK;
}

typedef struct {
    uint32_t member; /* rule of "name": value */
    bool required;
} property;

/* What may follow when property i is next: `after` a comma is needed. Rules are made from the last to the first. */
static pal_status write_chain(schema_writer *w, const property *p, size_t count, uint32_t other, bool has_other,
                              pal_bytes *out) {
    uint32_t first = 0, after = 0, next_first = 0, next_after = 0;
    pal_status st = PAL_OK;
    for (size_t i = count + 1; i-- > 0 && !st;) {
        pal_bytes body = { 0 };
        if ((st = pal_schema_rule_new(w, &first)) || (st = pal_schema_rule_new(w, &after))) break;
        if (i == count) {
            if (!has_other) st = pal_schema_say(w, &body, "r%u ::= \"\"\nr%u ::= \"\"", first, after);
            else
                st = pal_schema_say(w, &body, "r%u ::= (r%u (\",\" ws r%u)*)?\nr%u ::= (\",\" ws r%u)*", first, other,
                                    other, after, other);
        } else if (p[i].required) {
            st = pal_schema_say(w, &body, "r%u ::= r%u r%u\nr%u ::= \",\" ws r%u r%u", first, p[i].member, next_after,
                                after, p[i].member, next_after);
        } else {
            st = pal_schema_say(w, &body, "r%u ::= r%u r%u | r%u\nr%u ::= \",\" ws r%u r%u | r%u", first, p[i].member,
                                next_after, next_first, after, p[i].member, next_after, next_after);
        }
        next_first = first, next_after = after;
        if (!st) st = pal_schema_rule_end(w, &body);
        pal_bytes_free(&body);
    }
    return st ? st : pal_schema_say(w, out, "\"{\" ws r%u ws \"}\"", first);
}

pal_status pal_schema_object(schema_writer *w, const json_t *schema, pal_bytes *out) {
    const json_t *properties = json_object_get(schema, "properties"), *required = json_object_get(schema, "required");
    const json_t *other = json_object_get(schema, "additionalProperties");
    const size_t size = json_object_size(properties);
    size_t count = 0;
    const char *key;
    json_t *one;
    uint32_t other_rule = 0;
    pal_status st = check_object(w, properties, required);
    if (st) return st;
    if (!properties && !other) return pal_schema_say(w, out, "object");
    property *p = pal_alloc(size + 1, sizeof *p);
    if (!p) return pal_fail(w->err, PAL_E_MEMORY, "out of memory for a schema");
    json_object_foreach((json_t *)properties, key, one) {
        pal_bytes body = { 0 };
        uint32_t value;
        json_t *name = json_string(key);
        if (!(st = pal_schema_part(w, "properties", key, one, &value)) &&
            !(st = pal_schema_rule_new(w, &p[count].member)) &&
            !(st = pal_schema_say(w, &body, "r%u ::= ", p[count].member)) &&
            !(st = pal_schema_json_literal(w, &body, name)) &&
            !(st = pal_schema_say(w, &body, " \":\" \" \"? r%u", value)))
            st = pal_schema_rule_end(w, &body);
        p[count++].required = is_required(required, key);
        json_decref(name);
        pal_bytes_free(&body);
        if (st) break;
    }
    const bool has_other = other && !json_is_false(other);
    if (!st && has_other) st = write_other(w, properties, other, &other_rule);
    if (!st) st = write_chain(w, p, size, other_rule, has_other, out);
    pal_free(p);
    return st;
}

/* Items that repeat, `before` others; a comma comes before all but an array's first. */
static pal_status write_items(schema_writer *w, uint32_t item, bool before, uint32_t least, uint32_t most,
                              pal_bytes *out) {
    char bound[16] = "";
    pal_status st = PAL_OK;
    if (!most) return PAL_OK;
    if (!before && (st = pal_schema_say(w, out, " (r%u", item))) return st;
    const uint32_t less = before ? 0 : 1;
    if (most != PAL_NO_BOUND) snprintf(bound, sizeof bound, "%u", most - less);
    st = pal_schema_say(w, out, " (\",\" ws r%u){%u,%s}", item, least > less ? least - less : 0, bound);
    if (!st && !before) st = pal_schema_say(w, out, least ? ")" : ")?");
    return st;
}

pal_status pal_schema_array(schema_writer *w, const json_t *schema, pal_bytes *out) {
    const json_t *items = json_object_get(schema, "items"), *prefix = json_object_get(schema, "prefixItems");
    const size_t fixed = json_array_size(prefix);
    uint32_t least = 0, most = PAL_NO_BOUND, rule = 0;
    pal_bytes body = { 0 };
    pal_status st;
    if ((st = pal_schema_count(w, schema, "minItems", &least, NULL)) ||
        (st = pal_schema_count(w, schema, "maxItems", &most, NULL)))
        return st;
    if (json_is_true(json_object_get(schema, "uniqueItems")))
        return pal_schema_refuse(w, "'uniqueItems' is not supported");
    if (least > most) return pal_schema_refuse(w, "'minItems' is %u, above 'maxItems' of %u", least, most);
    if (prefix && !json_is_array(prefix)) return pal_schema_refuse(w, "'prefixItems': expected a list of schemas");
    if (fixed > most) return pal_schema_refuse(w, "'prefixItems' has %zu items, above 'maxItems' of %u", fixed, most);
    if (json_is_false(items) || (!items && fixed)) { /* only what must be follows the first ones */
        if (json_is_false(items) && least > fixed)
            return pal_schema_refuse(w, "'minItems' is %u, but there are only %zu", least, fixed);
        most = least > fixed ? least : (uint32_t)fixed;
    }
    for (size_t i = 0; i < fixed && !st; i++) {
        char index[24];
        uint32_t one;
        snprintf(index, sizeof index, "%zu", i);
        if (!(st = pal_schema_part(w, "prefixItems", index, json_array_get(prefix, i), &one)))
            st = pal_schema_say(w, &body, i ? " \",\" ws r%u" : " r%u", one);
    }
    const uint32_t left = most == PAL_NO_BOUND ? most : most - (uint32_t)fixed;
    if (!st && left) {
        st = pal_schema_part(w, "items", NULL, items && !json_is_false(items) ? items : json_true(), &rule);
        if (!st) st = write_items(w, rule, fixed > 0, least > fixed ? least - (uint32_t)fixed : 0, left, &body);
    }
    if (!st) st = pal_schema_say(w, out, "\"[\" ws");
    if (!st) st = pal_bytes_append(out, body.data, body.size, w->err);
    if (!st) st = pal_schema_say(w, out, " ws \"]\"");
    pal_bytes_free(&body);
    return st;
}
