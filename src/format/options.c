/* SPDX-License-Identifier: MIT */
#include "format/options.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "format/json.h"

void pal_option_key(char key[PAL_OPTION_KEY], const char *name) {
    snprintf(key, PAL_OPTION_KEY, "%s", name);
    for (char *c = key; *c; c++) *c = *c == '-' ? '_' : *c;
}

const pal_option *pal_option_find(const pal_option *options, size_t count, const char *name, size_t length) {
    for (size_t i = 0; i < count; i++)
        if (strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0) return &options[i];
    return NULL;
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

bool pal_option_differs(const pal_option *a, const pal_option *b) {
    switch (a->type) {
    case PAL_OPTION_FLAG: return *(bool *)a->value != *(bool *)b->value;
    case PAL_OPTION_INT: return *(int *)a->value != *(int *)b->value;
    case PAL_OPTION_LONG: return *(int64_t *)a->value != *(int64_t *)b->value;
    case PAL_OPTION_FLOAT: return memcmp(a->value, b->value, sizeof(double)) != 0; /* NaN equals itself */
    case PAL_OPTION_TEXT: return !same_text(*(const char **)a->value, *(const char **)b->value);
    case PAL_OPTION_LIST: break;
    }
    return false;
}

/* The text of a string, or of the bytes that stand for one that is not UTF-8; NULL: neither. */
static const char *kept_text(const json_t *value, json_t *kept) {
    json_t *text = pal_json_text_read(value);
    return text && pal_json_append(kept, text) ? json_string_value(text) : NULL;
}

static pal_status set_from_json(const pal_option *o, const char *path, const json_t *value, json_t *kept,
                                pal_error *err) {
    bool good = false;
    const char *text;
    if (json_is_null(value)) return PAL_OK; /* not set: the default stays */
    switch (o->type) {
    case PAL_OPTION_FLAG:
        if ((good = json_is_boolean(value))) *(bool *)o->value = json_is_true(value);
        break;
    case PAL_OPTION_INT:
        if ((good = json_is_integer(value) && json_integer_value(value) >= INT_MIN &&
                    json_integer_value(value) <= INT_MAX))
            *(int *)o->value = (int)json_integer_value(value);
        break;
    case PAL_OPTION_LONG:
        if ((good = json_is_integer(value))) *(int64_t *)o->value = json_integer_value(value);
        break;
    case PAL_OPTION_FLOAT:
        if ((good = json_is_number(value))) *(double *)o->value = json_number_value(value);
        break;
    case PAL_OPTION_TEXT:
        if ((good = (text = kept_text(value, kept)) != NULL)) *(const char **)o->value = text;
        break;
    case PAL_OPTION_LIST: {
        pal_option_list list = { .count = 0 };
        good = json_is_array(value) && json_array_size(value) <= PAL_OPTION_MOST;
        for (size_t i = 0; good && i < json_array_size(value); i++)
            if ((good = (text = kept_text(json_array_get(value, i), kept)) != NULL)) list.items[list.count++] = text;
        if (good) *(pal_option_list *)o->value = list;
        break;
    }
    }
    static const char *const kinds[] = { "true or false", "a whole number", "a whole number",
                                         "a number",      "a text",         "a list of texts" };
    return good ? PAL_OK : pal_fail(err, PAL_E_FORMAT, "%s: '%s' must be %s", path, o->name, kinds[o->type]);
}

pal_status pal_options_read(const pal_option *options, size_t count, const char *path, json_t *kept, pal_error *err) {
    json_error_t why;
    bool starved;
    json_t *config = pal_json_load(path, JSON_REJECT_DUPLICATES, &why, &starved);
    if (starved) return pal_fail(err, PAL_E_MEMORY, "out of memory while reading %s", path);
    if (!config && why.line < 0) return pal_fail(err, PAL_E_IO, "%s: %s", path, why.text);
    if (!config) return pal_fail(err, PAL_E_FORMAT, "%s: %s (line %d)", path, why.text, why.line);
    if (!pal_json_append(kept, config)) return pal_fail(err, PAL_E_MEMORY, "out of memory while reading %s", path);
    if (!json_is_object(config)) return pal_fail(err, PAL_E_FORMAT, "%s: expected a JSON object of options", path);
    const char *key;
    json_t *value;
    json_object_foreach(config, key, value) {
        char name[64];
        snprintf(name, sizeof name, "%s", key);
        for (char *c = name; *c; c++) *c = *c == '_' ? '-' : *c;
        const pal_option *o = pal_option_find(options, count, name, strlen(name));
        if (!o || o->transient)
            return pal_fail(err, PAL_E_FORMAT, "%s: '%s' is not an option that a configuration may set", path, key);
        const pal_status st = set_from_json(o, path, value, kept, err);
        if (st) return st;
    }
    return PAL_OK;
}

json_t *pal_options_json(const pal_option *options, size_t count) {
    json_t *config = json_object();
    for (size_t i = 0; i < count; i++) {
        const pal_option *o = &options[i];
        char key[PAL_OPTION_KEY];
        if (o->transient) continue;
        pal_option_key(key, o->name);
        switch (o->type) {
        case PAL_OPTION_FLAG: pal_json_set(config, key, json_boolean(*(bool *)o->value)); break;
        case PAL_OPTION_INT: pal_json_set(config, key, json_integer(*(int *)o->value)); break;
        case PAL_OPTION_LONG: pal_json_set(config, key, json_integer(*(int64_t *)o->value)); break;
        case PAL_OPTION_FLOAT: pal_json_set(config, key, pal_json_number(*(double *)o->value)); break;
        case PAL_OPTION_TEXT: {
            const char *text = *(const char **)o->value;
            pal_json_set(config, key, text ? pal_json_text(text) : json_null());
            break;
        }
        case PAL_OPTION_LIST: {
            json_t *list = json_array();
            for (int j = 0; j < ((pal_option_list *)o->value)->count; j++)
                pal_json_append(list, pal_json_text(((pal_option_list *)o->value)->items[j]));
            pal_json_set(config, key, list);
            break;
        }
        }
    }
    return pal_json_whole(config);
}
