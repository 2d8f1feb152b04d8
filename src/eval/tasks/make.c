/* SPDX-License-Identifier: MIT */
/* Documents into requests: by a template, or by the few rules that a template does not cover. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/text.h"
#include "eval/python_text.h"
#include "eval/tasks/task.h"

void pal_task_doc_free(pal_task_doc *d) {
    pal_strings_free(&d->texts);
    *d = (pal_task_doc){ 0 };
}

static void begin(pal_task_doc *d) {
    d->texts.bytes.size = d->texts.count = d->count = 0;
    d->gold = 0;
    d->words = d->bytes = 0;
}

static const json_t *find(const json_t *row, const char *field) {
    const char *dot = strchr(field, '.');
    if (!dot) return json_object_get(row, field);
    char outer[64];
    snprintf(outer, sizeof outer, "%.*s", (int)(dot - field), field);
    return json_object_get(json_object_get(row, outer), dot + 1);
}

static pal_status text_of(const json_t *value, const char *field, pal_slice *text, pal_error *err) {
    *text = (pal_slice){ 0 };
    if (!value) return pal_fail(err, PAL_E_FORMAT, "there is no field '%s'", field);
    if (!json_is_string(value)) return pal_fail(err, PAL_E_FORMAT, "field '%s' is not a text", field);
    *text = (pal_slice){ (const unsigned char *)json_string_value(value), json_string_length(value) };
    return PAL_OK;
}

pal_status pal_task_field(const json_t *row, const char *field, pal_slice *text, pal_error *err) {
    return text_of(find(row, field), field, text, err);
}

pal_status pal_task_add(pal_task_doc *d, pal_slice context, pal_slice choice, pal_error *err) {
    pal_status st;
    if (d->count == PAL_TASK_CHOICES) return pal_fail(err, PAL_E_FORMAT, "more than %d choices", PAL_TASK_CHOICES);
    if ((st = pal_strings_add(&d->texts, context.data, context.size, err)) ||
        (st = pal_bytes_append(&d->texts.bytes, " ", 1, err)) ||
        (st = pal_strings_add(&d->texts, choice.data, choice.size, err)))
        return st;
    d->characters[d->count++] = (uint32_t)pal_py_length(choice);
    return PAL_OK;
}

pal_status pal_task_gold(const json_t *row, const char *field, int from, size_t choices, int *gold, pal_error *err) {
    const json_t *value = find(row, field);
    const char *text = json_string_value(value);
    char *end = NULL;
    double number = NAN; /* tables write 1.0 where a row of the column is empty */
    if (!value) return pal_fail(err, PAL_E_FORMAT, "there is no field '%s'", field);
    if (json_is_number(value)) number = json_number_value(value);
    else if (text && *text && !strpbrk(text, "xX")) number = strtod(text, &end); /* strtod reads hexadecimal, too */
    if ((end && *end) || !(number == floor(number)))
        return pal_fail(err, PAL_E_FORMAT, "field '%s' is not a whole number%s%s%s", field, text ? ": '" : "",
                        text ? text : "", text ? "'" : "");
    if (number < from || number >= from + (double)choices)
        return pal_fail(err, PAL_E_FORMAT, "field '%s' is %.17g, expected %d to %d", field, number, from,
                        from + (int)choices - 1);
    *gold = (int)(number - from);
    return PAL_OK;
}

/* The place of the answer's label among the labels. */
static pal_status gold_by_label(const json_t *row, const char *field, size_t choices, int *gold, pal_error *err) {
    const json_t *labels = find(row, "choices.label");
    pal_slice answer;
    pal_status st;
    if ((st = pal_task_field(row, field, &answer, err))) return st;
    if (!json_is_array(labels) || json_array_size(labels) != choices)
        return pal_fail(err, PAL_E_FORMAT, "field 'choices.label' is not a list of %zu texts", choices);
    for (size_t i = 0; i < choices; i++) {
        const json_t *label = json_array_get(labels, i);
        if (json_is_string(label) && json_string_length(label) == answer.size &&
            memcmp(json_string_value(label), answer.data, answer.size) == 0) {
            *gold = (int)i;
            return PAL_OK;
        }
    }
    return pal_fail(err, PAL_E_FORMAT, "field '%s' is '%s', which is none of the labels", field,
                    (const char *)answer.data);
}

/* boolq: a boolean "answer", or SuperGLUE's number "label"; in a table, a word. */
static pal_status gold_by_truth(const json_t *row, const char *field, int *gold, pal_error *err) {
    const json_t *value = json_object_get(row, field);
    const char *text = json_string_value(value);
    if (!value) return pal_task_gold(row, "label", 0, 2, gold, err);
    if (!json_is_boolean(value) && !(text && (strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0)))
        return pal_fail(err, PAL_E_FORMAT, "field '%s' is neither true nor false", field);
    *gold = json_is_true(value) || (text && tolower(text[0]) == 't');
    return PAL_OK;
}

static pal_status fill_template(pal_bytes *out, const char *template, const json_t *row, pal_error *err) {
    pal_status st = PAL_OK;
    for (const char *at = template; *at && !st;) {
        const char *end = *at == '{' ? strchr(at, '}') : NULL;
        if (!end) {
            st = pal_bytes_append(out, at++, 1, err);
            continue;
        }
        char field[64];
        pal_slice text;
        snprintf(field, sizeof field, "%.*s", (int)(end - at - 1), at + 1);
        if (!(st = pal_task_field(row, field, &text, err))) st = pal_bytes_append(out, text.data, text.size, err);
        at = end + 1;
    }
    return st;
}

static pal_status add_list(pal_task_doc *d, pal_slice context, const json_t *row, const char *field, pal_error *err) {
    const json_t *list = find(row, field);
    pal_status st = PAL_OK;
    if (!json_is_array(list)) return pal_fail(err, PAL_E_FORMAT, "there is no list in field '%s'", field);
    if (!json_array_size(list)) return pal_fail(err, PAL_E_FORMAT, "field '%s' is an empty list", field);
    for (size_t i = 0; i < json_array_size(list) && !st; i++) {
        pal_slice choice;
        if (!(st = text_of(json_array_get(list, i), field, &choice, err))) st = pal_task_add(d, context, choice, err);
    }
    return st;
}

pal_status pal_make_template(const pal_eval_task *task, const json_t *row, pal_task_doc *d, pal_error *err) {
    pal_bytes context = { 0 };
    begin(d);
    pal_status st = fill_template(&context, task->context, row, err);
    if (!st && !task->choices[1]) st = add_list(d, pal_slice_of(&context), row, task->choices[0], err);
    else
        for (size_t i = 0; i < 4 && task->choices[i] && !st; i++) {
            pal_slice choice = pal_slice_text(task->choices[i] + 1);
            if (task->choices[i][0] != '=') st = pal_task_field(row, task->choices[i], &choice, err);
            if (!st) st = pal_task_add(d, pal_slice_of(&context), choice, err);
        }
    pal_bytes_free(&context);
    if (st) return st;
    return task->gold_from == -1   ? gold_by_label(row, task->gold, d->count, &d->gold, err)
           : task->gold_from == -2 ? gold_by_truth(row, task->gold, &d->gold, err)
                                   : pal_task_gold(row, task->gold, task->gold_from, d->count, &d->gold, err);
}

/* Deletes [...] up to the nearest bracket in the same line. */
static pal_status delete_tags(pal_bytes *out, pal_slice t, pal_error *err) {
    pal_status st = PAL_OK;
    size_t end = 0; /* of the last search: brackets before it find nothing else */
    for (size_t i = 0; i < t.size && !st;) {
        const bool opens = t.data[i] == '[';
        if (opens && end <= i)
            for (end = i + 1; end < t.size && t.data[end] != ']' && t.data[end] != '\n';) end++;
        if (opens && end < t.size && t.data[end] == ']') i = end + 1;
        else st = pal_bytes_append(out, t.data + i++, 1, err);
    }
    return st;
}

pal_status pal_hellaswag_clean(pal_bytes *out, pal_slice text, pal_error *err) {
    pal_bytes titled = { 0 }, bare = { 0 };
    pal_status st;
    if (!(st = pal_py_replace(&titled, pal_py_strip(text), " [title]", ". ", err)) &&
        !(st = delete_tags(&bare, pal_slice_of(&titled), err)))
        st = pal_py_replace(out, pal_slice_of(&bare), "  ", " ", err);
    pal_bytes_free(&titled);
    pal_bytes_free(&bare);
    return st;
}

pal_status pal_make_hellaswag(const pal_eval_task *task, const json_t *row, pal_task_doc *d, pal_error *err) {
    pal_slice label, a, b;
    pal_bytes raw = { 0 }, context = { 0 }, choice = { 0 };
    pal_status st;
    const json_t *endings = json_object_get(row, "endings");
    begin(d);
    if ((st = pal_task_field(row, "activity_label", &label, err)) || (st = pal_task_field(row, "ctx_a", &a, err)) ||
        (st = pal_task_field(row, "ctx_b", &b, err)))
        return st;
    if (!json_is_array(endings) || !json_array_size(endings))
        return pal_fail(err, PAL_E_FORMAT, "there is no list in field 'endings'");
    if ((st = pal_bytes_append(&raw, label.data, label.size, err)) || (st = pal_bytes_append(&raw, ": ", 2, err)) ||
        (st = pal_bytes_append(&raw, a.data, a.size, err)) || (st = pal_bytes_append(&raw, " ", 1, err)) ||
        (st = pal_py_capitalize(&raw, b, err)) || (st = pal_hellaswag_clean(&context, pal_slice_of(&raw), err)))
        goto done;
    for (size_t i = 0; i < json_array_size(endings) && !st; i++) {
        pal_slice ending;
        choice.size = 0;
        if (!(st = text_of(json_array_get(endings, i), "endings", &ending, err)) &&
            !(st = pal_hellaswag_clean(&choice, ending, err)))
            st = pal_task_add(d, pal_slice_of(&context), pal_slice_of(&choice), err);
    }
    if (!st) st = pal_task_gold(row, task->gold, 0, d->count, &d->gold, err);
done:
    pal_bytes_free(&raw);
    pal_bytes_free(&context);
    pal_bytes_free(&choice);
    return st;
}

/* The options stand in the contexts; what follows is the same for both. */
pal_status pal_make_winogrande(const pal_eval_task *task, const json_t *row, pal_task_doc *d, pal_error *err) {
    pal_slice sentence, option;
    pal_bytes context = { 0 };
    pal_status st;
    begin(d);
    if ((st = pal_task_field(row, "sentence", &sentence, err))) return st;
    const unsigned char *gap = memchr(sentence.data, '_', sentence.size);
    if (!gap) return pal_fail(err, PAL_E_FORMAT, "field 'sentence' has no gap '_'");
    const size_t before = (size_t)(gap - sentence.data);
    const pal_slice rest = pal_py_strip((pal_slice){ gap + 1, sentence.size - before - 1 });
    for (size_t i = 0; i < 2 && !st; i++) {
        context.size = 0;
        if (!(st = pal_task_field(row, task->choices[i], &option, err)) &&
            !(st = pal_bytes_append(&context, sentence.data, before, err)) &&
            !(st = pal_bytes_append(&context, option.data, option.size, err)))
            st = pal_task_add(d, pal_slice_of(&context), rest, err);
    }
    pal_bytes_free(&context);
    return st ? st : pal_task_gold(row, task->gold, task->gold_from, 2, &d->gold, err);
}

/* The context ends before the last blank; without one it is empty. */
pal_status pal_make_last_word(const pal_eval_task *task, const json_t *row, pal_task_doc *d, pal_error *err) {
    pal_slice text;
    pal_status st;
    (void)task;
    begin(d);
    if ((st = pal_task_field(row, "text", &text, err))) return st;
    const unsigned char *blank = text.size ? memrchr(text.data, ' ', text.size) : NULL;
    const size_t before = blank ? (size_t)(blank - text.data) : 0, word = blank ? before + 1 : 0;
    return pal_task_add(d, (pal_slice){ text.data, before }, (pal_slice){ text.data + word, text.size - word }, err);
}

pal_status pal_make_wikitext(const pal_eval_task *task, const json_t *row, pal_task_doc *d, pal_error *err) {
    pal_slice page;
    pal_bytes text = { 0 };
    pal_status st;
    (void)task;
    begin(d);
    if ((st = pal_task_field(row, "page", &page, err))) return st;
    d->words = pal_text_words(page);
    d->bytes = page.size;
    d->count = 1;
    if (!(st = pal_wikitext_detokenize(&text, page, err))) st = pal_strings_add(&d->texts, text.data, text.size, err);
    pal_bytes_free(&text);
    return st;
}
