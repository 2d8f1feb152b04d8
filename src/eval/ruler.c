/* SPDX-License-Identifier: MIT */
#include "eval/ruler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/strings.h"

const pal_ruler_task pal_ruler_tasks[PAL_RULER_TASKS] = {
    { "niah_single_1", 128, false, PAL_RULER_NOISE, 1, 1, 1, false, false, 0 },
    { "niah_single_2", 128, false, PAL_RULER_ESSAY, 1, 1, 1, false, false, 0 },
    { "niah_single_3", 128, false, PAL_RULER_ESSAY, 1, 1, 1, false, true, 0 },
    { "niah_multikey_1", 128, false, PAL_RULER_ESSAY, 4, 1, 1, false, false, 0 },
    { "niah_multikey_2", 128, false, PAL_RULER_NEEDLES, 1, 1, 1, false, false, 0 },
    { "niah_multikey_3", 128, false, PAL_RULER_NEEDLES, 1, 1, 1, true, true, 0 },
    { "niah_multivalue", 128, false, PAL_RULER_ESSAY, 1, 4, 1, false, false, 0 },
    { "niah_multiquery", 128, false, PAL_RULER_ESSAY, 4, 1, 4, false, false, 0 },
    { "vt", 30, false, PAL_RULER_VARIABLES, 0, 0, 0, false, false, 0 },
    { "cwe", 120, false, PAL_RULER_COMMON, 0, 0, 0, false, false, 0 },
    { "fwe", 50, false, PAL_RULER_FREQUENT, 0, 0, 0, false, false, 0 },
    { "qa_1", 32, true, PAL_RULER_DOCUMENTS, 0, 0, 0, false, false, 0 },
    { "qa_2", 32, true, PAL_RULER_DOCUMENTS, 0, 0, 0, false, false, 1 },
};

const pal_ruler_task *pal_ruler_find(const char *name) {
    for (int i = 0; i < PAL_RULER_TASKS; i++)
        if (strcmp(pal_ruler_tasks[i].name, name) == 0) return &pal_ruler_tasks[i];
    return NULL;
}

/* Stripped, control characters as line breaks, stripped again, and in lower case. */
static pal_status clean(pal_bytes *out, pal_slice prediction, pal_error *err) {
    pal_bytes plain = { 0 };
    prediction = pal_py_strip(prediction);
    pal_status st = pal_bytes_append(&plain, prediction.data, prediction.size, err);
    for (size_t i = 0; i < plain.size && !st; i++)
        if (plain.data[i] < 0x20) plain.data[i] = '\n';
    if (!st) st = pal_py_lower(out, pal_py_strip(pal_slice_of(&plain)), err);
    pal_bytes_free(&plain);
    return st;
}

pal_status pal_ruler_count(const pal_ruler_task *task, pal_ruler_scoring scoring, pal_slice prediction,
                           const json_t *references, pal_ruler_sum *sum, double *score, pal_error *err) {
    const size_t count = json_array_size(references);
    pal_bytes text = { 0 }, reference = { 0 };
    size_t hits = 0;
    if (!json_is_array(references) || !count)
        return pal_fail(err, PAL_E_FORMAT, "expected a list of answers, found %s",
                        json_is_array(references) ? "an empty one" : "none");
    if (!sum->count) sum->unknown = json_is_null(json_array_get(references, 0));
    pal_status st = clean(&text, prediction, err);
    for (size_t i = 0; i < count && !st; i++) {
        const json_t *r = json_array_get(references, i);
        if (json_is_null(r)) continue;
        if (!json_is_string(r)) {
            st = pal_fail(err, PAL_E_FORMAT, "answer %zu is not a text", i + 1);
            break;
        }
        reference.size = 0;
        st = pal_py_lower(&reference, (pal_slice){ (const unsigned char *)json_string_value(r), json_string_length(r) },
                          err);
        hits += !st && pal_py_contains(pal_slice_of(&text), pal_slice_of(&reference));
    }
    if (!st) {
        const bool best = task->any && scoring == PAL_RULER_OWN;
        const double own = best ? hits > 0 : (double)hits / (double)count;
        sum->score += own;
        sum->count++;
        sum->empty += text.size == 0;
        if (score) *score = own;
    }
    pal_bytes_free(&text);
    pal_bytes_free(&reference);
    return st;
}

double pal_ruler_score(pal_ruler_scoring scoring, const pal_ruler_sum *sum) {
    char text[32];
    if (!sum->count) return NAN;
    if (scoring == PAL_RULER_LM_EVAL) return sum->score / (double)sum->count;
    if (sum->unknown) return 0;
    snprintf(text, sizeof text, "%.2f", sum->score / (double)sum->count * 100);
    return strtod(text, NULL);
}

static bool ends_in_space(const pal_bytes *text) {
    return !text->size || pal_py_rstrip(pal_slice_of(text)).size < text->size;
}

pal_status pal_ruler_prompt(const json_t *row, pal_ruler_scoring scoring, pal_bytes *prompt, pal_error *err) {
    const json_t *input = json_object_get(row, "input"), *prefix = json_object_get(row, "answer_prefix");
    if (!json_is_string(input)) return pal_fail(err, PAL_E_FORMAT, "there is no text in field 'input'");
    if (prefix && !json_is_string(prefix))
        return pal_fail(err, PAL_E_FORMAT, "there is no text in field 'answer_prefix'");
    pal_status st = pal_bytes_append(prompt, json_string_value(input), json_string_length(input), err);
    if (st || !prefix) return st;
    const pal_slice behind = { (const unsigned char *)json_string_value(prefix), json_string_length(prefix) };
    if (scoring == PAL_RULER_LM_EVAL && behind.size && !ends_in_space(prompt) &&
        pal_py_lstrip(behind).size == behind.size && (st = pal_bytes_append(prompt, " ", 1, err)))
        return st;
    return pal_bytes_append(prompt, behind.data, behind.size, err);
}
