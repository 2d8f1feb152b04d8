/* SPDX-License-Identifier: MIT */
/* Results of tasks as tables, and as a file in the shape of lm-evaluation-harness. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "eval.h"
#include "format/json.h"
#include "format/model_dir.h"
#include "text/json_text.h"

enum { MOST_COLUMNS = 2 * EVAL_TASKS + 1, WIDTH = 10 };

static bool is_share(pal_metric m) { return m == PAL_METRIC_ACC || m == PAL_METRIC_ACC_NORM; }

/* A column of the paper's table: a metric of a task, or the average. */
typedef struct {
    int task; /* -1: average of the columns with accuracies */
    pal_metric metric;
} column;

static int choose_columns(const eval_plan *plan, column columns[MOST_COLUMNS]) {
    int n = 0, shares = 0;
    for (int t = 0; t < plan->count; t++) {
        const pal_eval_task *task = plan->tasks[t].task;
        if (task->kind == PAL_TASK_LAST_WORD) columns[n++] = (column){ t, PAL_METRIC_PERPLEXITY };
        columns[n++] = (column){ t, task->shown };
        shares += is_share(task->shown);
    }
    if (shares > 1) columns[n++] = (column){ -1, PAL_METRIC_ACC };
    return n;
}

/* In percent where it is a share. NaN: the model did not finish what it takes. */
static double cell_value(const eval_plan *plan, const eval_model *m, column c) {
    double sum = 0;
    int n = 0;
    if (c.task >= 0)
        return m->results[c.task].done ? (is_share(c.metric) ? 100 : 1) * m->results[c.task].value[c.metric] : NAN;
    for (int t = 0; t < plan->count; t++) {
        const pal_metric shown = plan->tasks[t].task->shown;
        if (!is_share(shown)) continue;
        sum += m->results[t].done ? 100 * m->results[t].value[shown] : NAN;
        n++;
    }
    return sum / n;
}

static double cell_error(const eval_model *m, column c) {
    if (c.task < 0 || !m->results[c.task].done) return NAN;
    return (is_share(c.metric) ? 100 : 1) * m->results[c.task].error[c.metric];
}

static bool better(pal_metric metric, double x, double than) {
    return isnan(than) || (pal_metric_higher_is_better(metric) ? x > than : x < than);
}

static double best_of(const eval_plan *plan, const eval_model *models, int count, column c) {
    double best = NAN;
    for (int i = 0; i < count; i++) {
        const double x = cell_value(plan, &models[i], c);
        if (!isnan(x) && better(c.metric, x, best)) best = x;
    }
    return best;
}

/* Two decimals where they fit. */
static void format_number(char text[32], double x, const char *sign) {
    if (isnan(x)) snprintf(text, 32, "%s", *sign ? "" : "-");
    else snprintf(text, 32, fabs(x) < 99999.995 ? "%s%.2f" : "%s%.2e", sign, x);
}

static int label_width(const eval_model *models, int count) {
    size_t width = 8;
    for (int i = 0; i < count; i++)
        if (strlen(models[i].label) > width) width = strlen(models[i].label);
    return (int)width;
}

static const char *short_name(pal_metric m) {
    return m == PAL_METRIC_PERPLEXITY || m == PAL_METRIC_WORD_PERPLEXITY ? "ppl" : pal_metric_name(m);
}

/* Models below each other, tasks side by side, as in the paper; standard errors in a separate line. */
static void print_overview(const eval_plan *plan, const eval_model *models, int count) {
    column columns[MOST_COLUMNS];
    const int n = choose_columns(plan, columns), width = label_width(models, count);
    printf("%-*s", width, "");
    for (int c = 0; c < n; c++)
        printf(" %*s ", WIDTH, columns[c].task < 0 ? "average" : plan->tasks[columns[c].task].task->heading);
    printf("\n%-*s", width, "model");
    for (int c = 0; c < n; c++) printf(" %*s ", WIDTH, columns[c].task < 0 ? "" : short_name(columns[c].metric));
    putchar('\n');
    for (int i = 0; i < count; i++) {
        char cell[32];
        printf("%-*s", width, models[i].label);
        for (int c = 0; c < n; c++) {
            const double x = cell_value(plan, &models[i], columns[c]);
            format_number(cell, x, "");
            printf(" %*s%c", WIDTH, cell,
                   count > 1 && !isnan(x) && x == best_of(plan, models, count, columns[c]) ? '*' : ' ');
        }
        printf("\n%-*s", width, "");
        for (int c = 0; c < n; c++) {
            format_number(cell, cell_error(&models[i], columns[c]), "+-");
            printf(" %*s ", WIDTH, cell);
        }
        putchar('\n');
    }
}

static size_t documents_of(const eval_model *models, int count, int task) {
    size_t most = 0;
    for (int i = 0; i < count; i++)
        if (models[i].results[task].documents > most) most = models[i].results[task].documents;
    return most;
}

/* Every metric of every task, models side by side. */
static void print_details(const eval_plan *plan, const eval_model *models, int count) {
    printf("\n%-18s %-16s %9s", "task", "metric", "documents");
    for (int i = 0; i < count; i++) {
        const size_t length = strlen(models[i].label);
        printf("  %27s ", models[i].label + (length > 27 ? length - 27 : 0));
    }
    putchar('\n');
    for (int t = 0; t < plan->count; t++)
        for (int k = 0; k < PAL_METRICS; k++) {
            const column c = { t, (pal_metric)k };
            const double best = best_of(plan, models, count, c);
            if (!(plan->tasks[t].task->metrics >> k & 1) || isnan(best)) continue;
            printf("%-18s %-16s %9zu", plan->tasks[t].task->name, pal_metric_name(c.metric),
                   documents_of(models, count, t));
            for (int i = 0; i < count; i++) {
                char cell[64];
                const double x = cell_value(plan, &models[i], c), error = cell_error(&models[i], c);
                if (isnan(x)) snprintf(cell, sizeof cell, "-");
                else if (isnan(error)) snprintf(cell, sizeof cell, "%.4f", x);
                else snprintf(cell, sizeof cell, "%.4f +- %.4f", x, error);
                printf("  %27s%c", cell, count > 1 && x == best ? '*' : ' ');
            }
            putchar('\n');
        }
}

/* Requests that were longer than the model reads. */
static uint64_t cut_requests(const eval_plan *plan, const eval_model *m) {
    uint64_t cut = 0;
    for (int t = 0; t < plan->count; t++) cut += m->results[t].cut;
    return cut;
}

void eval_print_table(const eval_plan *plan, const eval_model *models, int count) {
    print_overview(plan, models, count);
    print_details(plan, models, count);
    printf("\nacc and acc_norm in percent; +- is one standard error%s\n", count > 1 ? "; * marks the best" : "");
    for (int i = 0; i < count; i++) {
        const eval_model *m = &models[i];
        const uint64_t cut = cut_requests(plan, m);
        if (m->counts.read)
            printf("%s: %llu tokens sent, %llu read (%.2f times fewer), %.0f tokens/s read\n", m->label,
                   (unsigned long long)m->counts.sent, (unsigned long long)m->counts.read,
                   (double)m->counts.sent / (double)m->counts.read, (double)m->counts.read / m->seconds);
        if (cut)
            printf("%s: %llu request%s longer than %d tokens and lost the beginning\n", m->label,
                   (unsigned long long)cut, cut == 1 ? " was" : "s were", m->context);
    }
}

static json_t *number_json(double x) { return isnan(x) ? json_string("N/A") : pal_json_number(x); }
static json_t *text_json(const char *text) { return pal_json_bytes(text, strlen(text)); }

static json_t *result_json(const pal_eval_task *task, const eval_result *r) {
    json_t *row = json_pack("{s:s, s:I}", "alias", task->name, "sample_len", (json_int_t)r->documents);
    for (int k = 0; k < PAL_METRICS; k++) {
        char key[64];
        if (!(task->metrics >> k & 1)) continue;
        snprintf(key, sizeof key, "%s,none", pal_metric_name((pal_metric)k));
        pal_json_set(row, key, number_json(r->value[k]));
        snprintf(key, sizeof key, "%s_stderr,none", pal_metric_name((pal_metric)k));
        pal_json_set(row, key, number_json(r->error[k]));
    }
    return row;
}

static json_t *directions_json(const pal_eval_task *task) {
    json_t *directions = json_object();
    for (int k = 0; k < PAL_METRICS; k++)
        if (task->metrics >> k & 1)
            pal_json_set(directions, pal_metric_name((pal_metric)k),
                         json_boolean(pal_metric_higher_is_better((pal_metric)k)));
    return directions;
}

static json_t *model_json(const eval_plan *plan, const eval_plan_options *o, const eval_model *m) {
    json_t *results = json_object(), *versions = json_object(), *shots = json_object(), *higher = json_object(),
           *samples = json_object(), *configs = json_object(), *subtasks = json_object();
    for (int t = 0; t < plan->count; t++) {
        const eval_task *p = &plan->tasks[t];
        const char *name = p->task->name;
        if (!m->results[t].done) continue;
        pal_json_set(results, name, result_json(p->task, &m->results[t]));
        pal_json_set(subtasks, name, json_array());
        pal_json_set(higher, name, directions_json(p->task));
        pal_json_set(versions, name, json_real(strtod(p->task->version, NULL)));
        pal_json_set(shots, name, json_integer(p->shots.size ? o->shots : 0));
        pal_json_set(configs, name,
                     json_pack("{s:s, s:o}", "task", name, "dataset_path",
                               text_json(p->data ? pal_task_data_path(p->data) : o->text)));
        const size_t effective = m->results[t].documents;
        pal_json_set(samples, name,
                     json_pack("{s:I, s:I}", "original",
                               (json_int_t)(p->data ? pal_task_data_count(p->data) : effective), "effective",
                               (json_int_t)effective));
    }
    json_t *config = json_pack("{s:s, s:o, s:o, s:o, s:i, s:i}", "model", "palimpsa", "model_args", text_json(m->name),
                               "limit", o->limit ? json_integer(o->limit) : json_null(), "docs",
                               o->docs ? json_string(o->docs) : json_null(), "bootstrap_iters", (int)PAL_BOOTSTRAP,
                               "num_fewshot", o->shots);
    json_t *root = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "results", results, "group_subtasks", subtasks,
                             "configs", configs, "versions", versions, "n-shot", shots, "higher_is_better", higher,
                             "n-samples", samples, "config", config);
    pal_json_set(root, "date", json_real((double)time(NULL)));
    pal_json_set(root, "model_source", json_string("palimpsa"));
    pal_json_set(root, "model_name", text_json(m->name));
    pal_json_set(root, "max_length", json_integer(m->context));
    pal_json_set(root, "palimpsa_version", json_string(pal_version()));
    pal_json_set(root, "total_evaluation_time_seconds", json_real(m->seconds));
    pal_json_set(root, "truncated", json_integer((json_int_t)cut_requests(plan, m)));
    pal_json_set(root, "tokens",
                 json_pack("{s:I, s:I, s:I}", "sent", (json_int_t)m->counts.sent, "read", (json_int_t)m->counts.read,
                           "scored", (json_int_t)m->counts.scored));
    return root;
}

int eval_write_json(const json_t *root, const char *path) {
    pal_error err;
    if (strcmp(path, "-") != 0) return pal_json_write(path, root, &err) ? cli_fail_writing(&err) : CLI_OK;
    return cli_print_json(json_incref((json_t *)(uintptr_t)root), JSON_INDENT(2));
}

int eval_write_results(const eval_plan *plan, const eval_plan_options *o, const eval_model *models, int count,
                       const char *path) {
    json_t *root = count == 1 ? model_json(plan, o, models) : json_array();
    for (int i = 0; count > 1 && i < count; i++) pal_json_append(root, model_json(plan, o, &models[i]));
    const int code = eval_write_json(root, path);
    json_decref(root);
    return code;
}
