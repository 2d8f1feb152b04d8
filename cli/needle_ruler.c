/* SPDX-License-Identifier: MIT */
/* palimpsa needle --ruler: rows for RULER's thirteen tasks at given lengths, as files that RULER itself would write. */
#include "needle_ruler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/directory.h"
#include "base/map.h"
#include "base/nearest.h"
#include "cli.h"
#include "eval/ruler/make.h"

enum { LENGTHS = 16, PATH = 4096 };

typedef struct {
    bool wanted[PAL_RULER_TASKS];
    int lengths[LENGTHS], length_count;
} selection;

/* "4096", "32k" */
static int read_lengths(selection *s, const char *list) {
    for (const char *at = list; *at;) {
        char *end;
        long n = strtol(at, &end, 10);
        if (end != at && (*end == 'k' || *end == 'K'))
            n = n > 0 && n <= PAL_RULER_LONGEST / 1024 ? n * 1024 : -1, end++;
        if (end == at || (*end && *end != ',') || n < PAL_RULER_SHORTEST || n > PAL_RULER_LONGEST)
            return cli_error(CLI_USAGE, "--lengths expects numbers of %d to %d tokens, such as 4096,32k; found '%s'",
                             PAL_RULER_SHORTEST, PAL_RULER_LONGEST, at);
        if (s->length_count == LENGTHS) return cli_error(CLI_USAGE, "--lengths expects at most %d numbers", LENGTHS);
        s->lengths[s->length_count++] = (int)n;
        at = *end ? end + 1 : end;
    }
    return s->length_count ? CLI_OK : cli_error(CLI_USAGE, "--lengths expects at least one number");
}

static int read_tasks(selection *s, const char *list) {
    const char *names[PAL_RULER_TASKS + 2] = { "all" };
    for (int i = 0; i < PAL_RULER_TASKS; i++) names[i + 1] = pal_ruler_tasks[i].name;
    if (!*list) return cli_error(CLI_USAGE, "--ruler expects all, or names such as niah_single_1,vt, found nothing");
    for (const char *at = list; *at;) {
        char name[64];
        const size_t n = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)(n < 63 ? n : 63), at);
        const pal_ruler_task *task = pal_ruler_find(name);
        if (!task && strcmp(name, "all") != 0) {
            const char *near = pal_nearest(name, names);
            return near ? cli_error(CLI_USAGE, "--ruler: no task '%s'; did you mean '%s'?", name, near)
                        : cli_error(CLI_USAGE, "--ruler: no task '%s'; expected all, or names such as niah_single_1,vt",
                                    name);
        }
        for (int i = 0; i < PAL_RULER_TASKS; i++) s->wanted[i] |= !task || task == &pal_ruler_tasks[i];
        at += n + (at[n] == ',');
    }
    return CLI_OK;
}

/* OUT/LENGTH/TASK/validation.jsonl, with its directories. */
static int make_path(char path[PATH], const char *out, int length, const char *task) {
    pal_error err;
    if (snprintf(path, PATH, "%s/%d/%s/validation.jsonl", out, length, task) >= PATH)
        return cli_error(CLI_USAGE, "--out: the name is too long");
    char *name = strrchr(path, '/');
    *name = '\0';
    const pal_status st = pal_make_directory(path, &err);
    *name = '/';
    return st ? cli_fail_writing(&err) : CLI_OK;
}

static int write_task(const needle_ruler_options *o, pal_ruler_maker *m, const char *path) {
    pal_writer w = { 0 };
    pal_bytes line = { 0 };
    pal_error err;
    int code = pal_writer_open(&w, path, &err) ? cli_fail_writing(&err) : CLI_OK;
    for (int i = 0; i < o->count && !code; i++) {
        pal_ruler_sample sample;
        line.size = 0;
        if (pal_ruler_make(m, &sample, &err) || pal_ruler_write(&sample, &line, &err)) code = cli_fail(&err);
        else if (fwrite(line.data, 1, line.size, w.stream) != line.size)
            code = cli_error(CLI_FAILED, "%s: cannot write", path);
    }
    if (!code && pal_writer_commit(&w, &err)) code = cli_fail_writing(&err);
    pal_writer_drop(&w);
    pal_bytes_free(&line);
    return code;
}

static int write_tasks(const needle_ruler_options *o, const selection *s, const pal_tokenizer *tok,
                       const pal_ruler_templates *templates, const pal_ruler_sources *sources) {
    const bool all = strcmp(o->tasks, "all") == 0;
    pal_error err;
    int code = CLI_OK;
    for (int l = 0; l < s->length_count; l++)
        for (int t = 0; t < PAL_RULER_TASKS && !code; t++) {
            const pal_ruler_task *task = &pal_ruler_tasks[t];
            const char *lacks = pal_ruler_lacks(sources, task);
            pal_ruler_maker *m = NULL;
            char path[PATH];
            if (!s->wanted[t]) continue;
            if (lacks && all) {
                if (!l) fprintf(stderr, "%s is left out: it needs %s\n", task->name, lacks);
                continue;
            }
            const pal_status st = pal_ruler_maker_new(&m, task, templates, sources, tok, s->lengths[l], o->seed, &err);
            if (st == PAL_E_ARGUMENT && all) fprintf(stderr, "left out: %s\n", err.text);
            else if (st) code = cli_fail(&err);
            else if (!(code = make_path(path, o->out, s->lengths[l], task->name)) && !(code = write_task(o, m, path)))
                printf("%s: %d row%s of at most %d tokens\n", path, o->count, o->count == 1 ? "" : "s", s->lengths[l]);
            pal_ruler_maker_free(m);
        }
    return code;
}

int needle_ruler(const needle_ruler_options *o) {
    selection s = { 0 };
    pal_ruler_templates templates = { 0 };
    pal_ruler_sources sources = { 0 };
    pal_tokenizer *tok = NULL;
    pal_error err;
    int code = read_tasks(&s, o->tasks);
    if (!code) code = read_lengths(&s, o->lengths);
    if (code) return code;
    if (pal_tokenizer_open(&tok, o->tokenizer, &err) || pal_ruler_templates_read(&templates, o->templates, &err) ||
        (o->text && pal_ruler_read_text(&sources, o->text, o->cuts, &err)) ||
        (o->words && pal_ruler_read_words(&sources, o->words, &err)) ||
        (o->squad && pal_ruler_read_squad(&sources, o->squad, &err)) ||
        (o->hotpot && pal_ruler_read_hotpot(&sources, o->hotpot, &err)))
        code = cli_fail(&err);
    if (!code) code = write_tasks(o, &s, tok, &templates, &sources);
    pal_ruler_sources_free(&sources);
    pal_ruler_templates_free(&templates);
    pal_tokenizer_close(tok);
    return code;
}
