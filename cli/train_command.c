/* SPDX-License-Identifier: MIT */
/* The command that makes a run again, for reports. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "train/run.h"
#include "train_command.h"

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
    const pal_run_task *task = name ? pal_run_task_named(name) : NULL;
    char *text = NULL;
    size_t size;
    json_t *value;
    if (!task) return NULL;
    FILE *to = open_memstream(&text, &size);
    if (!to) return NULL;
    json_t *defaults = pal_run_default_config(task);
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
