/* SPDX-License-Identifier: MIT */
#include "eval/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/nearest.h"

const pal_eval_task pal_task_perplexity = {
    .name = "perplexity",
    .heading = "Text",
    .metrics = 1u << PAL_METRIC_PERPLEXITY | 1u << PAL_METRIC_WORD_PERPLEXITY | 1u << PAL_METRIC_BYTE_PERPLEXITY |
               1u << PAL_METRIC_BITS_PER_BYTE,
    .kind = PAL_TASK_ROLLING,
    .shown = PAL_METRIC_WORD_PERPLEXITY,
    .version = "1.0",
};

static pal_status add_task(pal_eval_plan *plan, const char *data, const pal_eval_task *task, bool must,
                           pal_error *err) {
    for (int i = 0; i < plan->count; i++)
        if (plan->tasks[i].task == task) return PAL_OK;
    pal_planned_task *t = &plan->tasks[plan->count];
    t->task = task;
    pal_error why;
    const pal_status st = pal_task_data_open(&t->data, task, data, must ? err : &why);
    if (!st) plan->count++;
    if (must) return st;
    if (st) pal_warn("%s is left out: %s", task->name, why.text);
    return PAL_OK;
}

static bool reads_text(const pal_eval_plan *plan) {
    for (int i = 0; i < plan->count; i++)
        if (plan->tasks[i].task == &pal_task_perplexity) return true;
    return false;
}

static pal_status add_perplexity(pal_eval_plan *plan, const char *text, pal_error *err) {
    if (!text) return pal_fail(err, PAL_E_ARGUMENT, "perplexity in a list of tasks needs a text: --text PATH of eval");
    if (!reads_text(plan)) plan->tasks[plan->count++].task = &pal_task_perplexity;
    return PAL_OK;
}

static pal_status unknown_task(const char *name, pal_error *err) {
    const char *names[PAL_EVAL_TASKS + 1] = { 0 };
    int count = 0;
    for (; pal_tasks[count].name; count++) names[count] = pal_tasks[count].name;
    names[count] = pal_task_perplexity.name;
    const char *near = pal_nearest(name, names);
    if (near) return pal_fail(err, PAL_E_ARGUMENT, "no task '%s'; did you mean '%s'?", name, near);
    return pal_fail(err, PAL_E_ARGUMENT, "no task '%s'; 'palimpsa eval --tasks list' shows what there is", name);
}

static pal_status add_named(pal_eval_plan *plan, const pal_eval_plan_options *o, const char *name, pal_error *err) {
    const char *data = o->data;
    const bool all = strcmp(name, "all") == 0, paper = strcmp(name, "paper") == 0;
    pal_status st = PAL_OK;
    for (const pal_eval_task *t = pal_tasks; t->name && (all || paper) && !st; t++)
        if (all || t->paper) st = add_task(plan, data, t, paper, err);
    if (all || paper) return st;
    if (strcmp(name, pal_task_perplexity.name) == 0) return add_perplexity(plan, o->text, err);
    const pal_eval_task *task = pal_task_find(strcmp(name, "lambada") == 0 ? "lambada_openai" : name);
    return task ? add_task(plan, data, task, true, err) : unknown_task(name, err);
}

static pal_status choose_tasks(pal_eval_plan *plan, const pal_eval_plan_options *o, pal_error *err) {
    pal_status st = PAL_OK;
    for (const char *at = o->tasks; *at && !st;) {
        const size_t length = strcspn(at, ",");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), at);
        st = add_named(plan, o, name, err);
        at += length + (at[length] == ',');
    }
    if (!st && o->text && !reads_text(plan))
        return pal_fail(err, PAL_E_ARGUMENT, "--text goes with perplexity in --tasks, found %s", o->tasks);
    if (!st && !plan->count) return pal_fail(err, PAL_E_ARGUMENT, "--tasks %s: there is no task to run", o->tasks);
    return st;
}

static pal_status read_range(const char *docs, long long *from, long long *to, pal_error *err) {
    char *end;
    errno = 0;
    *from = strtoll(docs, &end, 10);
    const bool good = end != docs && *end == ':';
    const char *second = good ? end + 1 : "";
    *to = good ? strtoll(second, &end, 10) : 0;
    if (!good || end == second || *end || errno || *from < 0 || *to <= *from)
        return pal_fail(err, PAL_E_ARGUMENT, "--docs expects FROM:TO with FROM below TO, found '%s'", docs);
    return PAL_OK;
}

static pal_status choose_documents(pal_eval_plan *plan, const pal_eval_plan_options *o, pal_error *err) {
    long long from = 0, to = o->limit ? o->limit : -1;
    pal_status st;
    if (o->docs && (st = read_range(o->docs, &from, &to, err))) return st;
    for (int i = 0; i < plan->count; i++) {
        pal_planned_task *t = &plan->tasks[i];
        if (!t->data) continue; /* a text is measured whole */
        const size_t count = pal_task_data_count(t->data);
        t->from = (size_t)from;
        t->to = to < 0 || (size_t)to > count ? count : (size_t)to;
        if (t->from >= t->to)
            return pal_fail(err, PAL_E_ARGUMENT, "--docs %s: %s has %zu document%s", o->docs,
                            pal_task_data_path(t->data), count, count == 1 ? "" : "s");
    }
    return PAL_OK;
}

static pal_status read_shots(pal_eval_plan *plan, const pal_eval_plan_options *o, pal_error *err) {
    for (int i = 0; i < plan->count && o->shots; i++) {
        pal_planned_task *t = &plan->tasks[i];
        pal_task_data *data;
        if (t->task->kind == PAL_TASK_ROLLING) continue;
        pal_status st = pal_task_data_open(&data, t->task, o->shots_file, err);
        if (st) return st;
        st = pal_task_shots(t->task, data, (size_t)o->shots, &t->shots, err);
        pal_task_data_close(data);
        if (st) return st;
    }
    return PAL_OK;
}

pal_status pal_eval_plan_open(pal_eval_plan *plan, const pal_eval_plan_options *o, pal_error *err) {
    pal_status st;
    *plan = (pal_eval_plan){ 0 };
    if (o->docs && o->limit)
        return pal_fail(err, PAL_E_ARGUMENT, "--docs and --limit: one of them chooses the documents");
    if (o->limit < 0) return pal_fail(err, PAL_E_ARGUMENT, "--limit expects at least 1 document, found %d", o->limit);
    if (o->shots < 0) return pal_fail(err, PAL_E_ARGUMENT, "--shots expects at least 1 example, found %d", o->shots);
    if ((o->shots > 0) != (o->shots_file != NULL))
        return pal_fail(err, PAL_E_ARGUMENT, "--shots N and --shots-file PATH go together");
    if ((st = choose_tasks(plan, o, err)) || (st = choose_documents(plan, o, err))) return st;
    return read_shots(plan, o, err);
}

void pal_eval_plan_close(pal_eval_plan *plan) {
    for (int i = 0; i < PAL_EVAL_TASKS; i++) {
        pal_task_data_close(plan->tasks[i].data);
        pal_bytes_free(&plan->tasks[i].shots);
    }
    *plan = (pal_eval_plan){ 0 };
}

void pal_eval_take(pal_eval_result *r, const pal_eval_task *task, const pal_task_sums *sums, const pal_context *cx) {
    for (int k = 0; k < PAL_METRICS; k++)
        if (task->metrics >> k & 1) {
            r->value[k] = pal_task_value(task, sums, (pal_metric)k);
            r->error[k] = pal_task_error(cx, task, sums, (pal_metric)k, PAL_BOOTSTRAP);
        }
    r->documents = sums->count;
    r->done = true;
}
