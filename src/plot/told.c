/* SPDX-License-Identifier: MIT */
/* A report in words: what came out of the runs, and what made them. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/json.h"
#include "plot/ticks.h"
#include "plot/told.h"

enum { TEXT = 2000, NUMBER = 48, TOLD_RUNS = 12 };

const json_t *pal_run_setting(const json_t *config, const char *name) {
    const char *key;
    json_t *value;
    const json_t *found = json_object_get(config, name);
    if (found) return found;
    json_object_foreach((json_t *)config, key,
                        value) if (json_is_object(value) && (found = json_object_get(value, name))) return found;
    return NULL;
}

__attribute__((format(printf, 2, 3))) static void add(char text[TEXT], const char *format, ...) {
    const size_t n = strlen(text);
    va_list list;
    va_start(list, format);
    vsnprintf(text + n, TEXT - n, format, list);
    va_end(list);
}

/* The row where the last stage begins: stages differ in task, so that their values do not compare. */
static size_t last_stage(const pal_metrics *m) {
    const double *stage = m->column[PAL_METRIC_STAGE];
    size_t row = m->count - 1;
    while (row > 0 && !(stage[row - 1] < stage[m->count - 1])) row--;
    return row;
}

/* The finite values of a metric from a row on. */
typedef struct {
    size_t from, count, best_row;
    double first, last, low, high, best;
    bool broken; /* the last value is not a number */
} course;

static course course_of(const pal_metrics *m, pal_metric metric, bool highest) {
    course c = { .from = last_stage(m), .first = NAN, .last = NAN, .low = INFINITY, .high = -INFINITY, .best = NAN };
    for (size_t row = c.from; row < m->count; row++) {
        const double v = m->column[metric][row];
        if (!pal_metrics_has(m, row, metric)) continue;
        c.broken = !isfinite(v);
        if (c.broken) continue;
        if (!c.count++) c.first = v;
        c.last = v;
        c.low = fmin(c.low, v), c.high = fmax(c.high, v);
        if (isnan(c.best) || (highest ? v > c.best : v < c.best)) c.best = v, c.best_row = row;
    }
    return c;
}

/* Mean and variance of the mean of a course's values number from .. to-1. */
static void mean_of(const pal_metrics *m, pal_metric metric, const course *c, size_t from, size_t to, double *mean,
                    double *variance) {
    double sum = 0, square = 0;
    size_t at = 0;
    for (size_t row = c->from; row < m->count; row++) {
        const double v = m->column[metric][row];
        if (!pal_metrics_has(m, row, metric) || !isfinite(v)) continue;
        if (at >= from && at < to) sum += v, square += v * v;
        at++;
    }
    const double n = (double)(to - from);
    *mean = sum / n;
    *variance = n > 1 ? fmax(square / n - *mean * *mean, 0) / (n - 1) : 0;
}

/* Whether the last fifth of the values differs from the fifth before it: by more than a hundredth of the whole course,
 * and by more than twice the noise. */
static const char *tendency(const pal_metrics *m, pal_metric metric, const course *c) {
    const size_t fifth = c->count / 5;
    double before, after, noise[2];
    if (fifth < 1) return "";
    mean_of(m, metric, c, c->count - 2 * fifth, c->count - fifth, &before, &noise[0]);
    mean_of(m, metric, c, c->count - fifth, c->count, &after, &noise[1]);
    const double moved = after - before;
    if (fabs(moved) <= 0.01 * (c->high - c->low) || fabs(moved) <= 2 * sqrt(noise[0] + noise[1]))
        return ", level in the end";
    return moved > 0 ? ", still rising in the end" : ", still falling in the end";
}

static const struct {
    pal_metric metric;
    const char *name;
    int better; /* 1: higher, -1: lower, 0: neither */
} told[] = {
    { PAL_METRIC_ACCURACY, "accuracy", 1 },
    { PAL_METRIC_VALID_ACCURACY, "validation accuracy", 1 },
    { PAL_METRIC_VALID_LOSS, "validation loss", -1 },
    { PAL_METRIC_PERPLEXITY, "perplexity", -1 },
    { PAL_METRIC_LOSS, "training loss", -1 },
    { PAL_METRIC_N_T, "the memory window Nₜ, in tokens,", 0 },
    { PAL_METRIC_RATIO, "the metaplasticity ratio", 0 },
};
enum { TOLD = sizeof told / sizeof told[0] };

static void tell_metric(char text[TEXT], const pal_metrics *m, size_t i) {
    const course c = course_of(m, told[i].metric, told[i].better > 0);
    char first[NUMBER], last[NUMBER], best[NUMBER], step[NUMBER];
    if (!c.count && (!c.broken || !told[i].better)) return; /* a model without metaplasticity logs no ratio */
    add(text, *text ? "; " : "");
    if (!c.count) {
        add(text, "%s was never a number", told[i].name);
        return;
    }
    pal_number_text(first, sizeof first, c.first), pal_number_text(last, sizeof last, c.last);
    pal_number_text(best, sizeof best, c.best);
    if (c.count == 1) add(text, "%s is %s", told[i].name, last);
    else {
        add(text, "%s went from %s to %s%s", told[i].name, first, last, tendency(m, told[i].metric, &c));
        /* a training loss is that of one batch: its least is luck */
        if (told[i].better && told[i].metric != PAL_METRIC_LOSS && strcmp(best, last) != 0) {
            pal_number_text(step, sizeof step, m->column[PAL_METRIC_STEP][c.best_row]);
            add(text, " (best: %s at step %s)", best, step);
        }
    }
    if (c.broken) add(text, ", and is not a number in the end");
}

/* Which run ends best, by the first metric that all have. */
static void tell_best(const pal_runs *r, pal_report *report) {
    for (size_t k = 0; k < TOLD; k++) {
        size_t best = 0, worst = 0, have = 0;
        double values[2] = { 0 };
        for (size_t i = 0; i < r->count && told[k].better; i++) {
            const course c = course_of(&r->runs[i].metrics, told[k].metric, true);
            if (!c.count || c.broken) break;
            if (!have++) values[0] = values[1] = c.last;
            if (told[k].better * (c.last - values[0]) > 0) values[0] = c.last, best = i;
            if (told[k].better * (c.last - values[1]) < 0) values[1] = c.last, worst = i;
        }
        if (have < r->count) continue;
        char text[TEXT] = "", high[NUMBER], low[NUMBER];
        pal_number_text(high, sizeof high, values[0]), pal_number_text(low, sizeof low, values[1]);
        if (strcmp(high, low) == 0) add(text, "All %zu runs end with the same %s, %s.", r->count, told[k].name, high);
        else
            add(text, "Of %zu runs, %.100s (%s) ends with the best %s, %s, and %.100s (%s) with the worst, %s.",
                r->count, pal_base_name(r->runs[best].directory), r->groups[r->runs[best].group].label, told[k].name,
                high, pal_base_name(r->runs[worst].directory), r->groups[r->runs[worst].group].label, low);
        pal_report_text(report, text);
        return;
    }
}

void pal_runs_tell_outcome(const pal_runs *r, pal_report *report) {
    if (r->by_position) return;
    pal_report_heading(report, "Conclusion");
    if (r->count > 1) tell_best(r, report);
    for (size_t i = 0; i < r->count && i < TOLD_RUNS; i++) {
        const pal_metrics *m = &r->runs[i].metrics;
        char text[TEXT] = "", whole[TEXT + 500], steps[NUMBER], part[2 * NUMBER + 60];
        for (size_t k = 0; k < TOLD; k++) tell_metric(text, m, k);
        pal_number_text(steps, sizeof steps, m->column[PAL_METRIC_STEP][m->count - 1]);
        const size_t stage = last_stage(m);
        snprintf(part, sizeof part, "%s steps", steps);
        if (stage > 0) {
            char from[NUMBER];
            pal_number_text(from, sizeof from, m->column[PAL_METRIC_STEP][stage - 1]);
            snprintf(part, sizeof part, "the last stage, from step %s to %s", from, steps);
        }
        if (r->count > 1)
            snprintf(whole, sizeof whole, "%.100s (%s), %s: %s.", pal_base_name(r->runs[i].directory),
                     r->groups[r->runs[i].group].label, part, text);
        else snprintf(whole, sizeof whole, "In %s: %s.", part, text);
        if (*text) pal_report_text(report, whole);
    }
    if (r->count > TOLD_RUNS) pal_report_text(report, "The other runs are in the table.");
    pal_report_text(report,
                    "Level means that the last fifth of the values differs from the fifth before by no more than "
                    "a hundredth of the whole range, or by no more than twice its noise.");
}

static long long whole_number(const json_t *config, const char *key) {
    const json_t *value = pal_run_setting(config, key);
    return json_is_integer(value) ? (long long)json_integer_value(value) : 0;
}

/* "64:16:2500:32,256:64:700:8" in words. */
static void tell_stages(char text[TEXT], const char *stages, bool fixed_examples) {
    int length, pairs, batch, used;
    long long rounds;
    for (const char *then = ""; sscanf(stages, "%d:%d:%lld:%d%n", &length, &pairs, &rounds, &batch, &used) == 4;
         then = ", then ") {
        add(text, "%s%d pairs in %d tokens for %lld %s", then, pairs, length, rounds,
            fixed_examples ? "epochs" : "updates");
        stages += used + (stages[used] == ',');
    }
}

static void tell_task(const json_t *config, pal_report *report) {
    const char *task = json_string_value(pal_run_setting(config, "task")),
               *data = json_string_value(pal_run_setting(config, "data"));
    char text[TEXT] = "";
    if (!task) return;
    if (strcmp(task, "mqar") == 0) {
        add(text, "Task: recall (mqar). The model reads pairs of a key and a value and is then asked for the value of "
                  "keys that come again");
        const char *stages = json_string_value(pal_run_setting(config, "stages"));
        if (stages && *stages) {
            add(text, "; ");
            tell_stages(text, stages, whole_number(config, "examples") > 0);
            add(text, ", out of a vocabulary of %lld", whole_number(config, "vocab"));
        } else if (whole_number(config, "seq_len"))
            add(text, "; %lld pairs in %lld tokens out of a vocabulary of %lld", whole_number(config, "kv_pairs"),
                whole_number(config, "seq_len"), whole_number(config, "vocab"));
    } else if (strcmp(task, "text") == 0) {
        add(text, "Task: text. The model predicts the next token");
        if (data) add(text, " of %.600s", data);
        if (whole_number(config, "context")) add(text, ", %lld tokens at a time", whole_number(config, "context"));
    } else add(text, "Task: %.200s", task);
    add(text, ".");
    pal_report_text(report, text);
}

/* One row for each key that a group has, one column for each group. */
static pal_status settings_table(pal_runs *r, pal_report *report, pal_error *err) {
    json_t *keys = json_object(), *value;
    const char **head, **cells, *key;
    pal_status st = PAL_OK;
    for (size_t g = 0; g < r->group_count; g++)
        json_object_foreach(r->runs[r->groups[g].first].config, key, value) if (!json_is_null(value))
            pal_json_set(keys, key, json_null());
    if (!(keys = pal_json_whole(keys))) return pal_fail(err, PAL_E_MEMORY, "out of memory for a table of settings");
    const size_t columns = 1 + r->group_count, rows = json_object_size(keys);
    size_t at = 0;
    if (!(st = pal_runs_keep(r, (void **)&head, columns, sizeof *head, err)))
        st = pal_runs_keep(r, (void **)&cells, rows * columns, sizeof *cells, err);
    if (!st) head[0] = "setting";
    for (size_t g = 0; g < r->group_count && !st; g++) head[1 + g] = r->groups[g].label;
    json_object_foreach(keys, key, value) {
        for (size_t c = 0; c < columns && !st; c++) {
            char *cell;
            if ((st = pal_runs_keep(r, (void **)&cell, PAL_RUN_LABEL, 1, err))) break;
            cells[at++] = cell;
            if (c == 0) {
                snprintf(cell, PAL_RUN_LABEL, "%s", key);
                continue;
            }
            const json_t *now = json_object_get(r->runs[r->groups[c - 1].first].config, key);
            if (!now || json_is_string(now)) {
                snprintf(cell, PAL_RUN_LABEL, "%s", now ? json_string_value(now) : "");
                continue;
            }
            char *text = pal_json_dumps(now, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
            if (text) snprintf(cell, PAL_RUN_LABEL, "%s", text);
            else st = pal_fail(err, PAL_E_MEMORY, "out of memory for a table of settings");
            free(text);
        }
        if (st) break;
    }
    if (!st) pal_report_table(report, head, columns, cells, rows);
    json_decref(keys);
    return st;
}

pal_status pal_runs_tell_origin(pal_runs *r, const pal_runs_options *o, pal_report *report, pal_error *err) {
    bool configured = false;
    char text[TEXT] = "";
    pal_status st = PAL_OK;
    for (size_t g = 0; g < r->group_count; g++) configured |= r->runs[r->groups[g].first].config != NULL;
    if (configured) {
        pal_report_heading(report, r->count > 1 ? "How these runs were made" : "How this run was made");
        for (size_t i = 0; i < r->count && i < TOLD_RUNS && o->command; i++) {
            char *command = r->runs[i].config ? o->command(r->runs[i].config, r->runs[i].directory) : NULL;
            if (command) pal_report_code(report, command);
            free(command);
        }
        pal_report_fold(report, "All settings");
        st = settings_table(r, report, err);
        pal_report_fold_end(report);
    }
    add(text, "Written by palimpsa %s.", pal_version());
    if (!st) pal_report_text(report, text);
    return st;
}

void pal_runs_tell_task(const pal_runs *r, pal_report *report) {
    const json_t *first = r->runs[0].config;
    const json_t *task = first ? pal_run_setting(first, "task") : NULL;
    for (size_t i = 1; i < r->count; i++)
        if (!r->runs[i].config || !json_equal(task, pal_run_setting(r->runs[i].config, "task"))) return;
    if (first) tell_task(first, report);
}
