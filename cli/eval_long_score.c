/* SPDX-License-Identifier: MIT */
/* Answers to long prompts as scores, tables, a results file and a figure. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cli.h"
#include "eval.h"
#include "eval_long.h"
#include "format/json.h"
#include "plot/figure.h"
#include "stop.h"

enum { LENGTHS = 64 };
static const double good_average = 85.6; /* of Llama-2-7B at 4,096 tokens: RULER's bar for an effective length */

static int misfit(const long_set *set, size_t i, const pal_error *err) {
    return cli_error(CLI_USAGE, "%s: row %zu: %s", *set->answers ? set->answers : set->data, i + 1, err->text);
}

static pal_status text_in(const json_t *line, const char *field, pal_slice *out, pal_error *err) {
    const json_t *value = json_object_get(line, field);
    if (!json_is_string(value)) return pal_fail(err, PAL_E_FORMAT, "there is no text in field '%s'", field);
    *out = (pal_slice){ (const unsigned char *)json_string_value(value), json_string_length(value) };
    return PAL_OK;
}

static int score_ruler(const long_plan *p, long_set *set) {
    pal_ruler_sum sum = { 0 };
    const json_t *line;
    size_t i;
    pal_error err;
    json_array_foreach(set->lines, i, line) {
        pal_slice text;
        if (text_in(line, "pred", &text, &err) ||
            pal_ruler_count(set->task, p->scoring, text, json_object_get(line, "outputs"), &sum, NULL, &err))
            return misfit(set, i, &err);
    }
    set->score[0] = pal_ruler_score(p->scoring, &sum);
    set->count = sum.count;
    set->empty = sum.empty;
    return CLI_OK;
}

/* The classes of the last line are those of all, as in the original. */
static int score_longbench(const long_plan *p, long_set *set) {
    const size_t n = json_array_size(set->lines);
    const json_t *classes = n ? json_object_get(json_array_get(set->lines, n - 1), "all_classes") : NULL, *line;
    double *scores[PAL_LONGBENCH_BUCKETS] = { NULL };
    size_t counts[PAL_LONGBENCH_BUCKETS] = { 0 }, i;
    pal_error err;
    int code = CLI_OK;
    for (int b = 0; b < PAL_LONGBENCH_BUCKETS && !code; b++)
        if (pal_alloc_named((void **)&scores[b], n + 1, sizeof(double), "scores", &err)) code = cli_fail(&err);
    json_array_foreach(set->lines, i, line) {
        const json_t *length = json_object_get(line, "length");
        pal_slice text;
        const int b = set->extended ? pal_longbench_bucket(json_integer_value(length)) : 0;
        if (!code && cli_stopping())
            code = cli_error(CLI_INTERRUPTED, "interrupted in %s, at row %zu of %zu", set->name, i + 1, n);
        if (code) break;
        if (set->extended && !json_is_integer(length)) {
            (void)pal_fail(&err, PAL_E_FORMAT, "there is no number in field 'length'");
            code = misfit(set, i, &err);
        } else if (text_in(line, "pred", &text, &err) ||
                   pal_longbench_score(set->set, p->chinese, text, json_object_get(line, "answers"), classes,
                                       &scores[b][counts[b]], &err))
            code = misfit(set, i, &err);
        counts[b]++;
    }
    for (int b = 0; b < PAL_LONGBENCH_BUCKETS && !code; b++)
        set->score[b] = set->extended ? pal_longbench_percent_numpy(scores[b], counts[b])
                                      : pal_longbench_percent(scores[b], counts[b]);
    set->count = n;
    for (int b = 0; b < PAL_LONGBENCH_BUCKETS; b++) pal_free(scores[b]);
    return code;
}

static int score_longbench2(long_set *set) {
    pal_longbench2_sum sum = { 0 };
    const json_t *line;
    size_t i;
    pal_error err;
    json_array_foreach(set->lines, i, line) {
        pal_slice text;
        bool right;
        if (text_in(line, "response", &text, &err) ||
            pal_longbench2_count(&sum, line, pal_longbench2_answer(text), &right, &err))
            return misfit(set, i, &err);
    }
    for (int c = 0; c < PAL_LONGBENCH2_COLUMNS; c++) set->score[c] = pal_longbench2_score(&sum, c, false);
    set->compensated = pal_longbench2_score(&sum, 0, true);
    set->count = sum.count[0];
    set->empty = sum.none[0];
    return CLI_OK;
}

int long_score(long_plan *p) {
    int code = CLI_OK;
    for (size_t i = 0; i < p->count && !code; i++) {
        long_set *set = &p->sets[i];
        if (set->left_out) continue;
        code = set->task ? score_ruler(p, set) : set->set ? score_longbench(p, set) : score_longbench2(set);
    }
    return code;
}

static int lengths_of(const long_plan *p, int out[LENGTHS]) {
    int n = 0;
    for (size_t i = 0; i < p->count; i++)
        if ((!n || out[n - 1] != p->sets[i].length) && n < LENGTHS) out[n++] = p->sets[i].length;
    return n;
}

static const long_set *find_set(const long_plan *p, const pal_ruler_task *task, int length) {
    for (size_t i = 0; i < p->count; i++)
        if (p->sets[i].task == task && p->sets[i].length == length) return &p->sets[i];
    return NULL;
}

/* Mean over the tasks that are there; NaN unless *all: the thirteen. */
static double average_of(const long_plan *p, int length, int *tasks) {
    double sum = 0;
    *tasks = 0;
    for (size_t i = 0; i < p->count; i++)
        if (p->sets[i].length == length) sum += p->sets[i].score[0], ++*tasks;
    return *tasks ? sum / *tasks : NAN;
}

/* Tokens of prompts read in a second, at one length; 0: none was read. */
static double speed_of(const long_plan *p, int length) {
    double read = 0, seconds = 0;
    for (size_t i = 0; i < p->count; i++)
        if (p->sets[i].length == length) read += (double)p->sets[i].read, seconds += p->sets[i].read_seconds;
    return seconds > 0 ? read / seconds : 0;
}

static void length_name(char out[32], int length) {
    if (!length) snprintf(out, 32, "score");
    else if (length % 1024 == 0) snprintf(out, 32, "%dk", length / 1024);
    else snprintf(out, 32, "%d", length);
}

static void print_ruler(const long_plan *p) {
    const double percent = p->scoring == PAL_RULER_LM_EVAL ? 100 : 1;
    int lengths[LENGTHS], effective = 0, tasks;
    const int n = lengths_of(p, lengths);
    char name[32];
    printf("%-18s", "task");
    for (int l = 0; l < n; l++) length_name(name, lengths[l]), printf(" %8s", name);
    for (int t = 0; t < PAL_RULER_TASKS; t++) {
        bool any = false;
        for (int l = 0; l < n; l++) any |= find_set(p, &pal_ruler_tasks[t], lengths[l]) != NULL;
        if (!any) continue;
        printf("\n%-18s", pal_ruler_tasks[t].name);
        for (int l = 0; l < n; l++) {
            const long_set *set = find_set(p, &pal_ruler_tasks[t], lengths[l]);
            if (set && set->count) printf(" %8.2f", percent * set->score[0]);
            else printf(" %8s", "-");
        }
    }
    printf("\n%-18s", "average");
    for (int l = 0; l < n; l++) {
        const double average = percent * average_of(p, lengths[l], &tasks);
        printf(" %8.2f", average);
        if (tasks == PAL_RULER_TASKS && average >= good_average) effective = lengths[l];
    }
    if (p->read) {
        printf("\n%-18s", "tokens/s read");
        for (int l = 0; l < n; l++) printf(" %8.0f", speed_of(p, lengths[l]));
    }
    putchar('\n');
    printf("\nin percent, by the rules of %s\n",
           p->scoring == PAL_RULER_LM_EVAL ? "lm-evaluation-harness, whose fractions the JSON file has" : "RULER");
    if (effective)
        printf("effective length: %d tokens (the average of the thirteen tasks is at least 85.6)\n", effective);
}

static void print_longbench(const long_plan *p) {
    double sum[PAL_LONGBENCH_CATEGORIES] = { 0 };
    int n[PAL_LONGBENCH_CATEGORIES] = { 0 };
    printf("%-24s %6s %8s   %8s %8s %8s\n", "data set", "rows", "score", "0-4k", "4-8k", "8k+");
    for (size_t i = 0; i < p->count; i++) {
        const long_set *set = &p->sets[i];
        if (set->left_out) continue;
        printf("%-24s %6zu", set->name, set->count);
        if (!set->extended) {
            printf(" %8.2f\n", set->score[0]);
            sum[set->set->category] += set->score[0];
            n[set->set->category]++;
            continue;
        }
        printf(" %8s  ", "");
        for (int b = 0; b < PAL_LONGBENCH_BUCKETS; b++)
            if (isnan(set->score[b])) printf(" %8s", "-");
            else printf(" %8.2f", set->score[b]);
        putchar('\n');
    }
    for (int c = 0; c < PAL_LONGBENCH_CATEGORIES; c++)
        if (n[c]) printf("%-24s %6s %8.2f\n", pal_longbench_categories[c], "", sum[c] / n[c]);
}

static void print_longbench2(const long_plan *p) {
    printf("%-24s %6s", "", "rows");
    for (int c = 0; c < PAL_LONGBENCH2_COLUMNS; c++) printf(" %8s", pal_longbench2_columns[c]);
    putchar('\n');
    for (size_t i = 0; i < p->count; i++) {
        const long_set *set = &p->sets[i];
        char name[sizeof set->name]; /* of a file, by its author */
        snprintf(name, sizeof name, "%s", set->name);
        pal_tame(name);
        printf("%-24s %6zu", name, set->count);
        for (int c = 0; c < PAL_LONGBENCH2_COLUMNS; c++)
            if (isnan(set->score[c])) printf(" %8s", "-");
            else printf(" %8.1f", set->score[c]);
        printf("\n%-24s %zu without an answer, which count as wrong; as guesses: %.1f overall\n", "", set->empty,
               set->compensated);
    }
}

void long_print(const long_plan *p) {
    size_t cut = 0;
    if (p->options->kind == LONG_RULER) print_ruler(p);
    else if (p->options->kind == LONG_LONGBENCH) print_longbench(p);
    else print_longbench2(p);
    for (size_t i = 0; i < p->count; i++) cut += p->sets[i].cut;
    if (cut)
        printf("%zu prompt%s too long and lost the %s\n", cut, cut == 1 ? " was" : "s were",
               p->options->kind == LONG_RULER ? "beginning" : "middle");
    if (p->read)
        printf("%llu tokens read at %.0f tokens/s, %llu written\n", (unsigned long long)p->read,
               (double)p->read / p->read_seconds, (unsigned long long)p->written);
}

/* "4096,none", as lm-evaluation-harness names a metric and its filter. */
static void set_metric(json_t *row, const char *metric, double value) {
    char key[64];
    snprintf(key, sizeof key, "%s,none", metric);
    pal_json_set(row, key, pal_json_number(value));
}

static void add_result(json_t *results, const long_plan *p, const long_set *set) {
    json_t *row = json_object_get(results, set->name);
    char length[32];
    if (!row) pal_json_set(results, set->name, row = json_pack("{s:s}", "alias", set->name));
    if (set->task) {
        snprintf(length, sizeof length, "%d", set->length);
        set_metric(row, set->length ? length : "score", set->score[0]);
    } else if (set->set) {
        if (!set->extended) set_metric(row, "score", set->score[0]);
        for (int b = 0; b < PAL_LONGBENCH_BUCKETS && set->extended; b++)
            set_metric(row, pal_longbench_bucket_names[b], set->score[b]);
    } else {
        for (int c = 0; c < PAL_LONGBENCH2_COLUMNS; c++) set_metric(row, pal_longbench2_columns[c], set->score[c]);
        set_metric(row, "Compensated", set->compensated);
    }
    (void)p;
}

static json_t *sample_counts(const long_set *set) {
    return json_pack("{s:I, s:I, s:I}", "effective", (json_int_t)set->count, "empty", (json_int_t)set->empty, "cut",
                     (json_int_t)set->cut);
}

int long_write_json(const long_plan *p) {
    static const char *const names[] = { "", "ruler", "longbench", "longbench2" };
    const eval_long_options *o = p->options;
    json_t *results = json_object(), *samples = json_object(), *left_out = json_array();
    for (size_t i = 0; i < p->count; i++) {
        const long_set *set = &p->sets[i];
        char key[128];
        if (set->left_out) {
            pal_json_append(left_out, json_string(set->name));
            continue;
        }
        add_result(results, p, set);
        if (set->length) snprintf(key, sizeof key, "%s,%d", set->name, set->length);
        else snprintf(key, sizeof key, "%s", set->name);
        pal_json_set(samples, key, sample_counts(set));
    }
    json_t *root = json_pack("{s:o, s:o, s:o, s:{s:s, s:s, s:o, s:o}}", "results", results, "n-samples", samples,
                             "left_out", left_out, "config", "tasks", names[o->kind], "scoring", o->scoring, "limit",
                             o->limit ? json_integer(o->limit) : json_null(), "context",
                             o->context ? json_integer(o->context) : json_null());
    pal_json_set(root, "model_name", o->model ? pal_json_text(o->model) : json_null());
    pal_json_set(root, "palimpsa_version", json_string(pal_version()));
    pal_json_set(root, "tokens",
                 json_pack("{s:I, s:I, s:f, s:f}", "read", (json_int_t)p->read, "written", (json_int_t)p->written,
                           "read_seconds", p->read_seconds, "write_seconds", p->write_seconds));
    const int code = eval_write_json(root, o->json);
    json_decref(root);
    return code;
}

int long_draw(const long_plan *p) {
    const double percent = p->scoring == PAL_RULER_LM_EVAL ? 100 : 1;
    int lengths[LENGTHS], tasks;
    const int n = lengths_of(p, lengths);
    double x[LENGTHS], y[PAL_RULER_TASKS + 1][LENGTHS];
    pal_series series[PAL_RULER_TASKS + 1];
    size_t count = 0;
    pal_error err;
    for (int l = 0; l < n; l++) x[l] = lengths[l];
    for (int t = 0; t <= PAL_RULER_TASKS; t++) {
        bool any = t == PAL_RULER_TASKS;
        for (int l = 0; l < n; l++) {
            const long_set *set = t < PAL_RULER_TASKS ? find_set(p, &pal_ruler_tasks[t], lengths[l]) : NULL;
            y[t][l] = t == PAL_RULER_TASKS ? percent * average_of(p, lengths[l], &tasks)
                      : set                ? percent * set->score[0]
                                           : NAN;
            any |= set != NULL;
        }
        if (any)
            series[count++] = (pal_series){ .label = t < PAL_RULER_TASKS ? pal_ruler_tasks[t].name : "average",
                                            .count = (size_t)n,
                                            .x = x,
                                            .y = y[t],
                                            .colour = t,
                                            .points = true,
                                            .dashed = t == PAL_RULER_TASKS };
    }
    const pal_panel panel = { .kind = PAL_PANEL_LINES,
                              .x = { .label = "length (tokens)", .log = true },
                              .y = { .label = "score (percent)" },
                              .lines = { .series = series, .series_count = count } };
    const pal_figure figure = { .title = "RULER", .panels = &panel, .panel_count = 1, .columns = 1 };
    const char *path = p->options->figure, *dot = strrchr(path, '.');
    if (dot && strcmp(dot, ".png") == 0 ? pal_figure_write_png(&figure, 2, path, &err)
                                        : pal_figure_write_svg(&figure, path, &err))
        return cli_fail_writing(&err);
    fprintf(stderr, "%s written\n", path);
    return CLI_OK;
}
