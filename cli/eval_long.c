/* SPDX-License-Identifier: MIT */
/* Long prompts: which files there are. */
#include "eval_long.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "cli.h"
#include "format/json.h"
#include "text/strings.h"
#include "text_model.h"

long_kind long_kind_of(const char *tasks) {
    if (!tasks) return LONG_NONE;
    return strcmp(tasks, "ruler") == 0        ? LONG_RULER
           : strcmp(tasks, "longbench") == 0  ? LONG_LONGBENCH
           : strcmp(tasks, "longbench2") == 0 ? LONG_LONGBENCH2
                                              : LONG_NONE;
}

static bool is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static bool is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* DIR/name, or DIR/inner/name; false: neither is there. */
static bool find_file(char path[LONG_PATH], const char *directory, const char *inner, const char *name) {
    if (snprintf(path, LONG_PATH, "%s/%s", directory, name) < LONG_PATH && is_file(path)) return true;
    return snprintf(path, LONG_PATH, "%s/%s/%s", directory, inner, name) < LONG_PATH && is_file(path);
}

static int add_set(long_plan *p, const long_set *set) {
    pal_error err;
    void *block = p->sets;
    const pal_status st = pal_grow(&block, &p->capacity, p->count, p->count + 1, sizeof *p->sets, &err);
    p->sets = block;
    if (st) return cli_fail(&err);
    p->sets[p->count++] = *set;
    return CLI_OK;
}

/* Thirteen tasks below DATA/LENGTH, or their predictions below PREDICTIONS/LENGTH. */
static int find_ruler(long_plan *p, int length) {
    const eval_long_options *o = p->options;
    for (int t = 0; t < PAL_RULER_TASKS; t++) {
        long_set set = { .length = length, .task = &pal_ruler_tasks[t] };
        char name[128], directory[LONG_PATH];
        snprintf(set.name, sizeof set.name, "%s", set.task->name);
        if (o->predictions) {
            if (length) snprintf(set.answers, LONG_PATH, "%s/%d/%s.jsonl", o->predictions, length, set.name);
            else snprintf(set.answers, LONG_PATH, "%s/%s.jsonl", o->predictions, set.name);
        }
        if (o->data) {
            if (length) snprintf(directory, LONG_PATH, "%s/%d", o->data, length);
            else snprintf(directory, LONG_PATH, "%s", o->data);
            snprintf(name, sizeof name, "%s/validation.jsonl", set.name);
            if (!find_file(set.data, directory, "data", name)) continue;
        } else if (!is_file(set.answers)) continue;
        const int code = add_set(p, &set);
        if (code) return code;
    }
    return CLI_OK;
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static int plan_ruler(long_plan *p) {
    enum { MOST = 64 };
    const char *root = p->options->data ? p->options->data : p->options->predictions;
    int lengths[MOST], n = 0, code;
    DIR *directory = opendir(root);
    if (!directory) return cli_error(CLI_USAGE, "%s: cannot be read as a directory", root);
    for (const struct dirent *entry; (entry = readdir(directory)) && n < MOST;) {
        char *end;
        const long length = isdigit((unsigned char)entry->d_name[0]) ? strtol(entry->d_name, &end, 10) : 0;
        if (length > 0 && length <= 1 << 30 && !*end) lengths[n++] = (int)length;
    }
    closedir(directory);
    qsort(lengths, (size_t)n, sizeof *lengths, by_number);
    if ((code = find_ruler(p, 0))) return code; /* a directory of one length */
    for (int i = 0; i < n && !code; i++) code = find_ruler(p, lengths[i]);
    if (code || p->count) return code;
    return cli_error(CLI_USAGE, "%s: no task of RULER in it: looked for %s", root,
                     p->options->data ? "LENGTH/TASK/validation.jsonl, such as 4096/niah_single_1/validation.jsonl"
                                      : "LENGTH/TASK.jsonl, such as 4096/niah_single_1.jsonl");
}

static int read_json(json_t **out, const char *path) {
    json_error_t why;
    if ((*out = pal_json_load(path, 0, &why, NULL))) return CLI_OK;
    return cli_error(CLI_USAGE, "%s: %s", path, why.text);
}

static int plan_longbench(long_plan *p) {
    const eval_long_options *o = p->options;
    const char *root = o->data ? o->data : o->predictions;
    const size_t end = strlen(root);
    const bool e_directory = !o->data && end > 2 && strcmp(root + end - 2, "_e") == 0;
    char path[LONG_PATH];
    int code = CLI_OK;
    for (int s = 0; s < PAL_LONGBENCH_SETS * 2 && !code; s++) {
        long_set set = { .set = &pal_longbench_sets[s / 2], .extended = s % 2 || e_directory };
        char name[128];
        if (s % 2 && !set.set->extended) continue;
        snprintf(set.name, sizeof set.name, "%s%s", set.set->name, s % 2 ? "_e" : "");
        snprintf(name, sizeof name, "%s.jsonl", set.name);
        if (o->predictions) snprintf(set.answers, LONG_PATH, "%s/%s", o->predictions, name);
        if (o->data ? !find_file(set.data, o->data, "data", name) : !is_file(set.answers)) continue;
        set.left_out = pal_longbench_cuts_words(set.set) && !p->chinese;
        if (set.left_out) fprintf(stderr, "%s is left out: its score needs Chinese words (--chinese DIR)\n", set.name);
        code = add_set(p, &set);
    }
    if (!code && !p->count)
        code = cli_error(CLI_USAGE,
                         "%s: no data set of LongBench in it: looked for narrativeqa.jsonl, qasper_e.jsonl and so on",
                         root);
    if (code || !o->data) return code;
    if (!find_file(path, o->data, "config", "dataset2prompt.json"))
        return cli_error(CLI_USAGE, "%s: LongBench's file dataset2prompt.json is missing, which holds the prompts",
                         o->data);
    if ((code = read_json(&p->prompts, path))) return code;
    if (find_file(path, o->data, "config", "dataset2maxlen.json")) code = read_json(&p->lengths, path);
    return code;
}

static int plan_longbench2(long_plan *p) {
    const eval_long_options *o = p->options;
    long_set set = { .name = "longbench2" };
    char path[LONG_PATH];
    if (!o->data) {
        DIR *directory = opendir(o->predictions);
        int code = CLI_OK;
        if (!directory) return cli_error(CLI_USAGE, "%s: cannot be read as a directory", o->predictions);
        for (const struct dirent *entry; (entry = readdir(directory)) && !code;) {
            const char *dot = strrchr(entry->d_name, '.');
            if (!dot || strcmp(dot, ".jsonl") != 0) continue;
            snprintf(set.name, sizeof set.name, "%.*s", (int)(dot - entry->d_name), entry->d_name);
            snprintf(set.answers, LONG_PATH, "%s/%s", o->predictions, entry->d_name);
            code = add_set(p, &set);
        }
        closedir(directory);
        if (!code && !p->count) code = cli_error(CLI_USAGE, "%s: no file that ends in .jsonl in it", o->predictions);
        return code;
    }
    if (!find_file(set.data, o->data, "data", "data.jsonl") && !find_file(set.data, o->data, "data", "data.json"))
        return cli_error(CLI_USAGE, "%s: neither data.json nor data.jsonl, which hold the questions of LongBench v2",
                         o->data);
    if (!find_file(path, o->data, "prompts", "0shot.txt"))
        return cli_error(CLI_USAGE, "%s: LongBench's file 0shot.txt is missing, which holds the prompt", o->data);
    if (o->predictions) snprintf(set.answers, LONG_PATH, "%s/longbench2.jsonl", o->predictions);
    const int code = text_read(path, &p->template);
    return code ? code : add_set(p, &set);
}

int long_plan_open(long_plan *p, const eval_long_options *o) {
    pal_error err;
    *p = (long_plan){ .options = o };
    if (strcmp(o->scoring, "lm-eval") == 0) p->scoring = PAL_RULER_LM_EVAL;
    else if (strcmp(o->scoring, "ruler") != 0)
        return cli_error(CLI_USAGE, "--scoring: expected ruler or lm-eval, found '%s'", o->scoring);
    if (p->scoring == PAL_RULER_LM_EVAL && o->kind != LONG_RULER)
        return cli_error(CLI_USAGE, "--scoring lm-eval goes with --tasks ruler");
    if (o->chinese && pal_chinese_open(&p->chinese, o->chinese, &err)) return cli_fail(&err);
    if (!is_directory(o->data ? o->data : o->predictions))
        return cli_error(CLI_USAGE, "%s: expected a directory", o->data ? o->data : o->predictions);
    return o->kind == LONG_RULER ? plan_ruler(p) : o->kind == LONG_LONGBENCH ? plan_longbench(p) : plan_longbench2(p);
}

void long_plan_close(long_plan *p) {
    for (size_t i = 0; i < p->count; i++) json_decref(p->sets[i].lines);
    pal_chinese_close(p->chinese);
    json_decref(p->prompts);
    json_decref(p->lengths);
    pal_bytes_free(&p->template);
    pal_free(p->sets);
}

int eval_long(const eval_long_options *o, const pal_context *cx) {
    long_plan plan;
    int code = long_plan_open(&plan, o);
    if (!code && o->model) code = long_answer(&plan, cx);
    for (size_t i = 0; i < plan.count && !code && !o->model; i++) code = long_read_lines(&plan.sets[i]);
    if (!code) code = long_score(&plan);
    if (!code && !(o->json && strcmp(o->json, "-") == 0)) long_print(&plan);
    if (!code && o->json) code = long_write_json(&plan);
    if (!code && o->figure) code = long_draw(&plan);
    long_plan_close(&plan);
    return code;
}
