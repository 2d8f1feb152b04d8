/* SPDX-License-Identifier: MIT */
#include "plot/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

enum { COLUMNS = 32, MODEL = -1, IGNORED = -2 };

typedef struct {
    const char *path;
    size_t line; /* from 1 */
    int column[COLUMNS], columns;
    bool by_position;
} reader;

bool pal_is_table(const char *path) {
    const size_t n = strlen(path);
    return n > 4 && strcasecmp(path + n - 4, ".csv") == 0;
}

/* The next line of text, without its end; NULL after the last. */
static char *next_line(char **text) {
    char *line = strsep(text, "\n");
    if (line) line[strcspn(line, "\r")] = '\0';
    return line && !*line && !*text ? NULL : line;
}

static pal_status read_head(reader *r, char *line, pal_error *err) {
    bool model = false, step = false;
    for (char *word; (word = strsep(&line, ","));) {
        if (r->columns == COLUMNS) return pal_fail(err, PAL_E_FORMAT, "%s: more than %d columns", r->path, COLUMNS);
        const bool position = strcmp(word, "position") == 0;
        int meaning = strcmp(word, "model") == 0 ? MODEL : position ? PAL_METRIC_STEP : IGNORED;
        if (meaning == IGNORED && pal_metric_find(word) >= 0) meaning = pal_metric_find(word);
        r->by_position |= position;
        model |= meaning == MODEL;
        step |= meaning == PAL_METRIC_STEP;
        r->column[r->columns++] = meaning;
    }
    if (model && step) return PAL_OK;
    return pal_fail(err, PAL_E_FORMAT, "%s: its first line names no column '%s'", r->path, model ? "step" : "model");
}

/* One line's name, numbers and which of them are there. */
static pal_status read_row(const reader *r, char *line, const char **name, double value[PAL_METRICS], uint32_t *present,
                           pal_error *err) {
    int at = 0;
    *name = "";
    *present = 0;
    for (int k = 0; k < PAL_METRICS; k++) value[k] = NAN;
    for (char *word; (word = strsep(&line, ",")); at++) {
        const int meaning = at < r->columns ? r->column[at] : IGNORED;
        if (meaning == MODEL) *name = word;
        if (meaning < 0 || !*word) continue;
        char *end;
        value[meaning] = strtod(word, &end);
        if (*end) return pal_fail(err, PAL_E_FORMAT, "%s: line %zu: '%s' is not a number", r->path, r->line, word);
        *present |= 1u << meaning;
    }
    if (at != r->columns)
        return pal_fail(err, PAL_E_FORMAT, "%s: line %zu has %d fields, expected %d", r->path, r->line, at, r->columns);
    if (!**name || strlen(*name) >= PAL_TABLE_NAME)
        return pal_fail(err, PAL_E_FORMAT, "%s: line %zu: expected a model's name of 1 to %d bytes", r->path, r->line,
                        PAL_TABLE_NAME - 1);
    if (!(value[PAL_METRIC_STEP] >= 0))
        return pal_fail(err, PAL_E_FORMAT, "%s: line %zu: expected a step of at least 0", r->path, r->line);
    return PAL_OK;
}

/* The run of that name, at the end of the list if it is new. */
static pal_status find_run(pal_table *t, const reader *r, const char *name, size_t *run, pal_error *err) {
    for (*run = 0; *run < t->count; ++*run)
        if (strcmp(t->names[*run], name) == 0) return PAL_OK;
    if (t->count == PAL_TABLE_RUNS)
        return pal_fail(err, PAL_E_FORMAT, "%s: more than %d models", r->path, PAL_TABLE_RUNS);
    memcpy(t->names[t->count++], name, strlen(name) + 1);
    return PAL_OK;
}

/* Every line of the text, which is cut up; with `rows`, only counts each run's. */
static pal_status walk(pal_table *t, reader *r, char *text, size_t *rows, pal_error *err) {
    pal_status st;
    *r = (reader){ .path = r->path };
    for (char *line; (line = next_line(&text));) {
        const char *name;
        double value[PAL_METRICS];
        uint32_t present;
        size_t run;
        if (++r->line == 1) {
            if ((st = read_head(r, line, err))) return st;
            continue;
        }
        if ((st = read_row(r, line, &name, value, &present, err)) || (st = find_run(t, r, name, &run, err))) return st;
        if (rows) rows[run]++;
        else pal_metrics_add(&t->metrics[run], value, present);
    }
    if (!t->count) return pal_fail(err, PAL_E_FORMAT, "%s: no rows of numbers", r->path);
    t->by_position = r->by_position;
    return PAL_OK;
}

pal_status pal_table_read(pal_table *t, const char *path, pal_error *err) {
    char *text = NULL, *copy = NULL;
    size_t size = 0, rows[PAL_TABLE_RUNS] = { 0 };
    reader r = { .path = path };
    *t = (pal_table){ 0 };
    pal_status st = pal_metrics_text(path, &text, &size, err);
    if (st || (st = pal_alloc_named((void **)&copy, size + 1, 1, path, err)) ||
        (st = pal_alloc_named((void **)&t->names, PAL_TABLE_RUNS, sizeof *t->names, path, err)))
        goto done;
    memcpy(copy, text, size);
    if ((st = walk(t, &r, copy, rows, err)) ||
        (st = pal_alloc_named((void **)&t->metrics, t->count, sizeof *t->metrics, path, err)))
        goto done;
    for (size_t i = 0; i < t->count && !st; i++) st = pal_metrics_room(&t->metrics[i], rows[i], path, err);
    if (!st) st = walk(t, &r, text, NULL, err);
done:
    pal_free(copy);
    pal_free(text);
    if (st) pal_table_free(t);
    return st;
}

void pal_table_free(pal_table *t) {
    for (size_t i = 0; t->metrics && i < t->count; i++) pal_metrics_free(&t->metrics[i]);
    pal_free(t->metrics);
    pal_free(t->names);
    *t = (pal_table){ 0 };
}
