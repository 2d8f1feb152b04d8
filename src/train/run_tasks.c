/* SPDX-License-Identifier: MIT */
/* Tasks of lm-evaluation-harness at the evaluations of a training. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/plan.h"
#include "format/json.h"
#include "train/run.h"

enum { LIMIT = 100, CONTEXT = 2048 };
static const size_t memory = (size_t)128 << 20; /* of the scorer's states, in addition to training */

struct pal_run_tasks {
    pal_eval_plan plan;
    pal_run *run;
    int context; /* of the training */
    const pal_model *model;
    pal_scorer *scorer; /* made for `model` at the first evaluation, and kept */
    pal_encoder encoder;
};

static pal_status open_plan(pal_eval_plan *plan, const pal_train_settings *o, pal_error *err) {
    const pal_eval_plan_options options = { .tasks = o->eval_tasks,
                                            .data = o->eval_data,
                                            .limit = o->eval_limit ? o->eval_limit : LIMIT };
    return pal_eval_plan_open(plan, &options, err);
}

/* What is wrong with the files is said before anything is made, not at the first evaluation. */
static pal_status check_files(const pal_train_settings *o, pal_error *err) {
    pal_eval_plan plan;
    pal_task_doc doc = { 0 };
    pal_status st = open_plan(&plan, o, err);
    for (int i = 0; i < plan.count && !st; i++)
        for (size_t d = plan.tasks[i].from; d < plan.tasks[i].to && !st; d++)
            st = pal_task_data_read(plan.tasks[i].data, d, &doc, NULL, err);
    pal_task_doc_free(&doc);
    pal_eval_plan_close(&plan);
    return st;
}

pal_status pal_run_tasks_check(const pal_train_settings *o, pal_error *err) {
    if (!o->eval_tasks != !o->eval_data)
        return pal_fail(err, PAL_E_ARGUMENT, "--eval-tasks LIST and --eval-data DIR go together");
    if (o->eval_limit < 0)
        return pal_fail(err, PAL_E_ARGUMENT, "--eval-limit expects at least 1, found %d", o->eval_limit);
    if (o->eval_limit && !o->eval_tasks) return pal_fail(err, PAL_E_ARGUMENT, "--eval-limit goes with --eval-tasks");
    return o->eval_tasks ? check_files(o, err) : PAL_OK;
}

void pal_run_tasks_close(pal_run_tasks *e) {
    if (!e) return;
    pal_scorer_free(e->scorer);
    pal_encoder_free(&e->encoder);
    pal_eval_plan_close(&e->plan);
    free(e);
}

/* The same for what the tokenizer makes of a document. */
static pal_status check_documents(pal_run_tasks *e, const pal_planned_task *t, pal_error *err) {
    pal_task_doc doc = { 0 };
    pal_ids ids = { 0 };
    pal_pairs windows = { 0 };
    pal_pair pair;
    pal_error why;
    pal_status st = PAL_OK;
    for (size_t i = t->from; i < t->to && !st; i++) {
        if ((st = pal_task_data_read(t->data, i, &doc, NULL, err))) break;
        for (size_t c = 0; c < doc.count && !st; c++) {
            ids.count = windows.count = 0;
            if (t->task->kind == PAL_TASK_ROLLING)
                st = pal_encode_rolling(&e->encoder, pal_task_context(&doc, 0), &ids, &windows, &why);
            else
                st = pal_encode_pair(&e->encoder, pal_task_context(&doc, c), pal_task_continuation(&doc, c), &ids,
                                     &pair, &why);
            if (st) pal_fail(err, st, "%s: document %zu: %s", pal_task_data_path(t->data), i, why.text);
        }
    }
    pal_task_doc_free(&doc);
    pal_ids_free(&ids);
    pal_pairs_free(&windows);
    return st;
}

/* Tokens that a request may read. */
static int context_for(const pal_run_tasks *e, const pal_model_config *model) {
    return pal_model_grows(model) ? e->context : CONTEXT;
}

pal_status pal_run_tasks_open(pal_run_tasks **out, pal_run *r, const pal_train_settings *o,
                              const pal_model_config *model, const pal_tokenizer *tokenizer, pal_error *err) {
    pal_status st;
    *out = NULL;
    if (!o->eval_tasks) return PAL_OK;
    pal_run_tasks *e = calloc(1, sizeof *e);
    if (!e) return pal_fail(err, PAL_E_MEMORY, "out of memory for tasks");
    *out = e;
    e->run = r;
    e->context = o->context;
    const int most = model ? context_for(e, model) : CONTEXT;
    if ((st = pal_encoder_new(&e->encoder, tokenizer, (size_t)most, err)) || (st = open_plan(&e->plan, o, err)))
        return st;
    for (int i = 0; i < e->plan.count && model && !st; i++) st = check_documents(e, &e->plan.tasks[i], err);
    return st;
}

static bool go_on(void *user, size_t done, size_t total) {
    (void)done, (void)total;
    return pal_run_goes_on(user);
}

static pal_status prepare(pal_run_tasks *e, const pal_model *model, pal_error *err) {
    if (e->scorer && e->model == model) return PAL_OK;
    pal_scorer_free(e->scorer);
    e->scorer = NULL;
    e->model = model;
    const int context = context_for(e, pal_model_config_of(model));
    e->encoder.most = (size_t)context;
    const pal_scorer_options options = { .memory = memory, .context = context, .progress = go_on, .user = e->run };
    return pal_scorer_new(&e->scorer, model, e->run->cx, &options, err);
}

static void add_metric(json_t *metrics, const char *task, const char *metric, const char *suffix, double value) {
    char key[96];
    snprintf(key, sizeof key, "%s/%s%s", task, metric, suffix);
    pal_json_set(metrics, key, pal_json_number(value));
}

static pal_status run_task(pal_run_tasks *e, const pal_planned_task *t, json_t *metrics, char *line, size_t size,
                           pal_error *err) {
    pal_task_sums sums = { 0 };
    uint64_t cut = 0;
    pal_eval_result result = { 0 };
    const pal_task_run run = {
        .task = t->task, .data = t->data, .from = t->from, .to = t->to, .scorer = e->scorer, .encoder = &e->encoder
    };
    pal_status st = pal_task_measure(&run, &sums, &cut, err);
    if (!st) pal_eval_take(&result, t->task, &sums, e->run->cx);
    else if (st == PAL_E_FORMAT) st = PAL_OK; /* the documents were checked: the weights are not numbers */
    for (int k = 0; k < PAL_METRICS && !st; k++) {
        if (!(t->task->metrics >> k & 1)) continue;
        const char *name = pal_metric_name((pal_metric)k);
        add_metric(metrics, t->task->name, name, "", result.done ? result.value[k] : NAN);
        if (isfinite(result.error[k])) add_metric(metrics, t->task->name, name, "_stderr", result.error[k]);
    }
    const size_t used = strlen(line);
    if (result.done)
        snprintf(line + used, size - used, "%s%s: %s %.4g", used ? ", " : "tasks: ", t->task->name,
                 pal_metric_name(t->task->shown), result.value[t->task->shown]);
    pal_task_sums_free(&sums);
    return st;
}

pal_status pal_run_tasks_measure(void *user, const pal_model *model, json_t *metrics, pal_error *err) {
    pal_run_tasks *e = user;
    char line[1024] = "";
    pal_status st = prepare(e, model, err);
    for (int i = 0; i < e->plan.count && !st; i++) st = run_task(e, &e->plan.tasks[i], metrics, line, sizeof line, err);
    if (*line && !st) pal_run_tell(e->run, "%s", line);
    return st;
}
