/* SPDX-License-Identifier: MIT */
/* Which tasks, and which documents of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "eval.h"

const pal_eval_task eval_perplexity = {
    .name = "perplexity",
    .heading = "Text",
    .metrics = 1u << PAL_METRIC_PERPLEXITY | 1u << PAL_METRIC_WORD_PERPLEXITY | 1u << PAL_METRIC_BYTE_PERPLEXITY |
               1u << PAL_METRIC_BITS_PER_BYTE,
    .kind = PAL_TASK_ROLLING,
    .shown = PAL_METRIC_WORD_PERPLEXITY,
    .version = "1.0",
};

static void append(char *text, size_t size, const char *more) {
    const size_t used = strlen(text);
    snprintf(text + used, size - used, "%s", more);
}

static void list_task(const pal_eval_task *t, const char *files) {
    char reports[96] = "";
    for (int m = 0; m < PAL_METRICS; m++)
        if (t->metrics >> m & 1) {
            append(reports, sizeof reports, reports[0] ? ", " : "");
            append(reports, sizeof reports, pal_metric_name((pal_metric)m));
        }
    printf("%-18s %-6s %-59s %s\n", t->name, t->paper ? "yes" : "", reports, files);
}

int eval_list_tasks(void) {
    printf("%-18s %-6s %-59s %s\n", "task", "paper", "reports", "file below --data");
    for (const pal_eval_task *t = pal_tasks; t->name; t++) {
        char files[256] = "";
        for (int i = 0; i < 4 && t->files[i]; i++) {
            append(files, sizeof files, i ? ", " : "");
            append(files, sizeof files, t->files[i]);
            if (!strstr(t->files[i], ".raw")) append(files, sizeof files, ".jsonl");
        }
        list_task(t, files);
    }
    list_task(&eval_perplexity, "any text: --text PATH; alone: --data PATH");
    puts("\nInstead of .jsonl, .json (JSON lines) and .csv (names in the first line) are read.");
    return CLI_OK;
}

static int add_task(eval_plan *plan, const char *data, const pal_eval_task *task, bool must) {
    pal_error err;
    for (int i = 0; i < plan->count; i++)
        if (plan->tasks[i].task == task) return CLI_OK;
    eval_task *t = &plan->tasks[plan->count];
    t->task = task;
    if (pal_task_data_open(&t->data, task, data, &err)) {
        if (must) return cli_fail(&err);
        fprintf(stderr, "palimpsa: %s is left out: %s\n", task->name, err.text);
        return CLI_OK;
    }
    plan->count++;
    return CLI_OK;
}

static bool reads_text(const eval_plan *plan) {
    for (int i = 0; i < plan->count; i++)
        if (plan->tasks[i].task == &eval_perplexity) return true;
    return false;
}

static int add_perplexity(eval_plan *plan, const char *text) {
    if (!text) return cli_error(CLI_USAGE, "perplexity in a list of tasks needs a text: --text PATH of eval");
    if (!reads_text(plan)) plan->tasks[plan->count++].task = &eval_perplexity;
    return CLI_OK;
}

static int unknown_task(const char *name) {
    const char *names[EVAL_TASKS + 1] = { 0 };
    int count = 0;
    for (; pal_tasks[count].name; count++) names[count] = pal_tasks[count].name;
    names[count] = eval_perplexity.name;
    const char *near = pal_nearest(name, names);
    if (near) return cli_error(CLI_USAGE, "no task '%s'; did you mean '%s'?", name, near);
    return cli_error(CLI_USAGE, "no task '%s'; 'palimpsa eval --tasks list' shows what there is", name);
}

static int add_named(eval_plan *plan, const eval_plan_options *o, const char *name) {
    const char *data = o->data;
    const bool all = strcmp(name, "all") == 0, paper = strcmp(name, "paper") == 0;
    int code = CLI_OK;
    for (const pal_eval_task *t = pal_tasks; t->name && (all || paper) && !code; t++)
        if (all || t->paper) code = add_task(plan, data, t, paper);
    if (all || paper) return code;
    if (strcmp(name, eval_perplexity.name) == 0) return add_perplexity(plan, o->text);
    const pal_eval_task *task = pal_task_find(strcmp(name, "lambada") == 0 ? "lambada_openai" : name);
    return task ? add_task(plan, data, task, true) : unknown_task(name);
}

static int choose_tasks(eval_plan *plan, const eval_plan_options *o) {
    int code = CLI_OK;
    for (const char *at = o->tasks; *at && !code;) {
        const size_t length = strcspn(at, ",");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), at);
        code = add_named(plan, o, name);
        at += length + (at[length] == ',');
    }
    if (!code && o->text && !reads_text(plan))
        return cli_error(CLI_USAGE, "--text goes with perplexity in --tasks, found %s", o->tasks);
    if (!code && !plan->count) return cli_error(CLI_USAGE, "--tasks %s: there is no task to run", o->tasks);
    return code;
}

static int read_range(const char *docs, long long *from, long long *to) {
    char *end;
    errno = 0;
    *from = strtoll(docs, &end, 10);
    const bool good = end != docs && *end == ':';
    const char *second = good ? end + 1 : "";
    *to = good ? strtoll(second, &end, 10) : 0;
    if (!good || end == second || *end || errno || *from < 0 || *to <= *from)
        return cli_error(CLI_USAGE, "--docs expects FROM:TO with FROM below TO, found '%s'", docs);
    return CLI_OK;
}

static int choose_documents(eval_plan *plan, const eval_plan_options *o) {
    long long from = 0, to = o->limit ? o->limit : -1;
    int code;
    if (o->docs && (code = read_range(o->docs, &from, &to))) return code;
    for (int i = 0; i < plan->count; i++) {
        eval_task *t = &plan->tasks[i];
        if (!t->data) continue; /* a text is measured whole */
        const size_t count = pal_task_data_count(t->data);
        t->from = (size_t)from;
        t->to = to < 0 || (size_t)to > count ? count : (size_t)to;
        if (t->from >= t->to)
            return cli_error(CLI_USAGE, "--docs %s: %s has %zu document%s", o->docs, pal_task_data_path(t->data), count,
                             count == 1 ? "" : "s");
    }
    return CLI_OK;
}

static int read_shots(eval_plan *plan, const eval_plan_options *o) {
    pal_error err;
    for (int i = 0; i < plan->count && o->shots; i++) {
        eval_task *t = &plan->tasks[i];
        pal_task_data *data;
        if (t->task->kind == PAL_TASK_ROLLING) continue;
        if (pal_task_data_open(&data, t->task, o->shots_file, &err)) return cli_fail(&err);
        const pal_status st = pal_task_shots(t->task, data, (size_t)o->shots, &t->shots, &err);
        pal_task_data_close(data);
        if (st) return cli_fail(&err);
    }
    return CLI_OK;
}

int eval_plan_open(eval_plan *plan, const eval_plan_options *o) {
    int code;
    *plan = (eval_plan){ 0 };
    if (o->docs && o->limit) return cli_error(CLI_USAGE, "--docs and --limit: one of them chooses the documents");
    if (o->limit < 0) return cli_error(CLI_USAGE, "--limit expects at least 1 document, found %d", o->limit);
    if (o->shots < 0) return cli_error(CLI_USAGE, "--shots expects at least 1 example, found %d", o->shots);
    if ((o->shots > 0) != (o->shots_file != NULL))
        return cli_error(CLI_USAGE, "--shots N and --shots-file PATH go together");
    if ((code = choose_tasks(plan, o)) || (code = choose_documents(plan, o))) return code;
    return read_shots(plan, o);
}

void eval_plan_close(eval_plan *plan) {
    for (int i = 0; i < EVAL_TASKS; i++) {
        pal_task_data_close(plan->tasks[i].data);
        pal_bytes_free(&plan->tasks[i].shots);
    }
    *plan = (eval_plan){ 0 };
}
