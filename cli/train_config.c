/* SPDX-License-Identifier: MIT */
/* palimpsa train: config.json, which defines a run, and whether a run may go on under another one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/map.h"
#include "train.h"

static void key_of(char key[64], const char *option) {
    snprintf(key, 64, "%s", option);
    for (char *c = key; *c; c++) *c = *c == '-' ? '_' : *c;
}

json_t *train_config(const cli_usage *usage, const train_task *task) {
    json_t *config = cli_make_config(usage);
    static const train_task *const tasks[] = { &train_mqar, &train_text };
    for (size_t i = 0; i < usage->option_count; i++)
        for (size_t k = 0; k < PAL_COUNT(tasks); k++) {
            const char *group = usage->options[i].group;
            char key[64];
            key_of(key, usage->options[i].name);
            if (tasks[k] != task && group && strcmp(group, tasks[k]->group) == 0) json_object_del(config, key);
        }
    return config;
}

/* The configuration of a run without any option. */
static json_t *default_config(const train_task *task) {
    train_options o;
    cli_option table[TRAIN_OPTIONS];
    task->defaults(&o);
    const cli_usage usage = { .options = table, .option_count = train_option_table(&o, table) };
    return train_config(&usage, task);
}

/* Keys that a run writes for itself. */
static bool is_note(const char *key) {
    return strcmp(key, "ranks") == 0 || strcmp(key, "weights") == 0 || strcmp(key, "data_checksum") == 0;
}

static void put_word(FILE *to, const char *text) {
    char word[4096];
    fprintf(to, " %s", cli_shell_word(text, word, sizeof word));
}

char *train_command(const json_t *config, const char *directory) {
    const char *name = json_string_value(json_object_get(config, "task")), *key;
    const train_task *task = name ? train_task_named(name) : NULL;
    char *text = NULL;
    size_t size;
    json_t *value;
    if (!task) return NULL;
    FILE *to = open_memstream(&text, &size);
    if (!to) return NULL;
    json_t *defaults = default_config(task);
    fprintf(to, "palimpsa train --task %s", name);
    json_object_foreach((json_t *)config, key, value) {
        char option[64];
        if (is_note(key) || json_is_null(value) || json_is_false(value) || strcmp(key, "task") == 0) continue;
        if (json_equal(value, json_object_get(defaults, key))) continue;
        snprintf(option, sizeof option, "--%s", key);
        for (char *c = option; *c; c++) *c = *c == '_' ? '-' : *c;
        put_word(to, option);
        if (json_is_string(value)) put_word(to, json_string_value(value));
        else if (json_is_integer(value)) fprintf(to, " %lld", (long long)json_integer_value(value));
        else if (json_is_real(value)) fprintf(to, " %.12g", json_real_value(value));
    }
    fputs(" --out", to);
    put_word(to, directory);
    json_decref(defaults);
    if (fclose(to) == 0) return text;
    free(text);
    return NULL;
}

int train_write_config(const char *path, const json_t *config) {
    pal_writer w;
    pal_error err;
    if (pal_writer_open(&w, path, &err)) return cli_fail_writing(&err);
    json_dumpf(config, w.stream, JSON_INDENT(1) | JSON_REAL_PRECISION(17)); /* commit looks at ferror */
    fputc('\n', w.stream);
    return pal_writer_commit(&w, &err) ? cli_fail_writing(&err) : CLI_OK;
}

/* Keys that say how long a run is. */
static bool is_length(const char *key) { return strcmp(key, "steps") == 0 || strcmp(key, "epochs") == 0; }

/* Keys that say on what a run is made: results then differ by rounding. */
static bool is_machine(const char *key) { return strcmp(key, "threads") == 0 || strcmp(key, "ranks") == 0; }

/* Names every key in which the wanted configuration differs from the stored one; *length: one that is_length does,
 * which is no difference where it may change. */
static int compare(const train_resumed *r, json_t *stored, bool may_grow, bool *length) {
    const char *key;
    json_t *value;
    char text[800] = "";
    int differences = 0;
    *length = false;
    /* An option that the run's version did not have was at its default. */
    json_t *by_default = default_config(r->task);
    json_object_update_missing(stored, by_default);
    json_decref(by_default);
    json_object_foreach((json_t *)r->wanted, key, value) {
        const json_t *old = json_object_get(stored, key);
        if (old && json_equal(old, value)) continue;
        if (is_length(key)) {
            *length = true;
            if (may_grow) continue;
        }
        if (is_machine(key)) {
            printf("%s: %lld before, now %lld; the run goes on with the same data, and equal to rounding\n", key,
                   (long long)json_integer_value(old), (long long)json_integer_value(value));
            continue;
        }
        const size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(9);
        char *before = old ? json_dumps(old, flags) : NULL, *after = json_dumps(value, flags);
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s was %s, now %s", differences++ ? "; " : "", key,
                 before ? before : "not set", after);
        free(before);
        free(after);
    }
    if (!differences) return CLI_OK;
    return cli_error(CLI_USAGE, "%s: this run cannot go on under another configuration: %s%s", r->path, text,
                     *length ? " (only a finished run at a constant rate can be given more steps: a schedule that ends "
                               "would have been another one)"
                             : "");
}

int train_may_resume(const train_resumed *r, bool *nothing, bool *extended) {
    json_error_t why;
    json_t *stored = json_load_file(r->path, 0, &why);
    if (!stored) return cli_error(CLI_USAGE, "%s: %s", r->path, why.text);
    const pal_train_state was = pal_train_state_of(r->state);
    bool length;
    const int code = compare(r, stored, was.finished && r->constant, &length);
    json_decref(stored);
    *nothing = *extended = false;
    if (code) return code;
    /* The checkpoint decides, not config.json: an extension that was killed before its first one has changed that
     * already. */
    if (!was.finished) return CLI_OK;
    if (was.planned < 0 ? !length : r->total == was.planned) {
        *nothing = true;
        return CLI_OK;
    }
    if (was.solved)
        return cli_error(CLI_USAGE,
                         "%s: --stop-score ended this run at step %lld, and would have with more steps as well",
                         r->path, (long long)r->step);
    if (r->total <= r->step)
        return cli_error(CLI_USAGE, "%s: %lld updates were asked for, and the run has made %lld", r->path,
                         (long long)r->total, (long long)r->step);
    *extended = true;
    return CLI_OK;
}
