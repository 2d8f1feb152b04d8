/* SPDX-License-Identifier: MIT */
/* Which tasks there are, and which are asked for. */
#include <stdio.h>
#include <string.h>

#include "eval.h"
#include "eval_long.h"

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
    list_task(&pal_task_perplexity, "any text: --text PATH; alone: --data PATH");
    puts("\nInstead of .jsonl, .json (JSON lines) and .csv (names in the first line) are read.");
    return CLI_OK;
}

int eval_plan_open(eval_plan *plan, const eval_plan_options *options) {
    pal_error err;
    *plan = (eval_plan){ 0 };
    for (const char *at = options->tasks; *at; at += strspn(at, ",")) {
        char name[64];
        const size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), at);
        if (long_kind_of(name) != LONG_NONE)
            return cli_error(CLI_USAGE, "--tasks %s: %s has tables of its own and stands alone", options->tasks, name);
        at += length;
    }
    return pal_eval_plan_open(plan, options, &err) ? cli_fail(&err) : CLI_OK;
}
