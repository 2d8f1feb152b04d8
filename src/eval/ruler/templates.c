/* SPDX-License-Identifier: MIT */
#include <stddef.h>

#include "base/nearest.h"
#include "eval/ruler/inside.h"
#include "format/json.h"

/* Name in a file, our own words, and what must be filled in. */
static const struct {
    const char *name;
    size_t field;
    const char *ours;
    const char *needs[3];
} table[] = {
#define ROW(name) #name, offsetof(pal_ruler_templates, name)
    { ROW(noise),
      "Rain fell on the roof. A clock ticked in the hall. The tea went cold. Nobody came. The lamp burned low.",
      { NULL } },
    { ROW(needle), "The secret {type} of {key} is {value}.", { "key", "value" } },
    { ROW(one),
      "This text tells a secret {type}. Remember it, for it is asked for at the end.\n{text}\nWhat is the secret "
      "{type} "
      "of {query}?",
      { "text", "query" } },
    { ROW(one_answer), " The secret {type} of {query} is", { NULL } },
    { ROW(many),
      "This text tells secret {type}s. Remember them, for they are asked for at the end.\n{text}\nWhat are all the "
      "secret "
      "{type}s of {query}?",
      { "text", "query" } },
    { ROW(many_answer), " The secret {type}s of {query} are", { NULL } },
    { ROW(variable_first), "{name} stands for {value}.", { "name", "value" } },
    { ROW(variable_copy), "{name} stands for the same as {from}.", { "name", "from" } },
    { ROW(variables),
      "Some lines of this text say what a name stands for. Remember them.\n\n{text}\nWhich names stand for {value}?",
      { "text", "value" } },
    { ROW(variables_answer), " The {count} names that stand for {value} are:", { NULL } },
    { ROW(common),
      "This is a list of numbered words, in which some come more often than the others.\n{text}\nWhich 10 words come "
      "most "
      "often in the list?",
      { "text" } },
    { ROW(common_answer), " The 10 words that come most often are:", { NULL } },
    { ROW(frequent),
      "This is a text in an unknown language. Count how often each word comes, and pass over the dots.\n{text}\nWhich "
      "three words come most often?",
      { "text" } },
    { ROW(frequent_answer), " The three words that come most often are:", { NULL } },
    { ROW(document), "Document {number}:\n{text}", { "text" } },
    { ROW(question),
      "The documents below answer a question.\n\n{text}\n\nAnswer the question with a few words out of the "
      "documents.\n\nQuestion: {query}",
      { "text", "query" } },
    { ROW(question_answer), " Answer:", { NULL } },
#undef ROW
};
enum { ROWS = sizeof table / sizeof *table };

static const char **field_of(pal_ruler_templates *t, size_t row) {
    return (const char **)(void *)((char *)t + table[row].field);
}

void pal_ruler_templates_free(pal_ruler_templates *t) {
    json_decref(t->file);
    *t = (pal_ruler_templates){ 0 };
}

static pal_status take(pal_ruler_templates *t, const char *path, const char *key, const json_t *value, pal_error *err) {
    const char *names[ROWS + 1] = { NULL };
    size_t row = 0;
    while (row < ROWS && strcmp(table[row].name, key) != 0) names[row] = table[row].name, row++;
    if (row == ROWS) {
        const char *near = pal_nearest(key, names);
        return pal_fail(err, PAL_E_FORMAT, "%s: there is no template '%s'%s%s%s", path, key,
                        near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    const char *text = json_string_value(value);
    if (!text) return pal_fail(err, PAL_E_FORMAT, "%s: template '%s' is not a text", path, key);
    for (int i = 0; i < 3 && table[row].needs[i]; i++) {
        char sign[32];
        snprintf(sign, sizeof sign, "{%s}", table[row].needs[i]);
        if (!strstr(text, sign)) return pal_fail(err, PAL_E_FORMAT, "%s: template '%s' lacks %s", path, key, sign);
    }
    *field_of(t, row) = text;
    return PAL_OK;
}

pal_status pal_ruler_templates_read(pal_ruler_templates *t, const char *path, pal_error *err) {
    json_error_t why;
    const char *key;
    json_t *value;
    pal_status st = PAL_OK;
    *t = (pal_ruler_templates){ 0 };
    for (size_t row = 0; row < ROWS; row++) *field_of(t, row) = table[row].ours;
    if (!path) return PAL_OK;
    if (!(t->file = pal_json_load(path, JSON_REJECT_DUPLICATES, &why, NULL)))
        return pal_fail(err, why.line < 0 ? PAL_E_IO : PAL_E_FORMAT, "%s: %s", path, why.text);
    if (!json_is_object(t->file)) st = pal_fail(err, PAL_E_FORMAT, "%s: expected an object with templates", path);
    json_object_foreach(t->file, key, value) {
        if (!st) st = take(t, path, key, value, err);
    }
    if (st) pal_ruler_templates_free(t);
    return st;
}

pal_status pal_ruler_fill(pal_bytes *out, const char *template, const pal_fill *values, pal_error *err) {
    pal_status st = PAL_OK;
    while (*template && !st) {
        const pal_fill *v = values;
        if (*template == '{')
            while (v->name &&
                   (strncmp(template + 1, v->name, strlen(v->name)) != 0 || template[1 + strlen(v->name)] != '}'))
                v++;
        const bool filled = *template == '{' && v->name;
        const size_t plain = filled ? 0 : 1 + strcspn(template + 1, "{");
        st = filled ? pal_bytes_append(out, v->text.data, v->text.size, err)
                    : pal_bytes_append(out, template, plain, err);
        template += filled ? strlen(v->name) + 2 : plain;
    }
    return st;
}
