/* SPDX-License-Identifier: MIT */
/* config.json, which defines a run, and whether a run may resume with different settings. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "format/json.h"
#include "train/run.h"

json_t *pal_run_config(const pal_train_settings *s, const pal_run_task *task) {
    pal_train_settings copy = *s;
    pal_option table[PAL_RUN_SETTINGS];
    const pal_run_task *other;
    const size_t count = pal_run_table(&copy, table);
    json_t *config = pal_options_json(table, count);
    for (size_t i = 0; i < count; i++)
        for (int k = 0; (other = pal_run_task_at(k)); k++) {
            char key[PAL_OPTION_KEY];
            pal_option_key(key, table[i].name);
            if (other != task && table[i].group && strcmp(table[i].group, other->group) == 0)
                json_object_del(config, key);
        }
    return config;
}

json_t *pal_run_default_config(const pal_run_task *task) {
    pal_train_settings s;
    task->defaults(&s);
    return pal_run_config(&s, task);
}

pal_status pal_run_write_config(const char *path, const json_t *config, pal_error *err) {
    pal_writer w;
    pal_status st;
    if ((st = pal_writer_open(&w, path, err))) return st;
    if (!pal_json_print(config, JSON_INDENT(1) | JSON_REAL_PRECISION(17), w.stream)) {
        pal_writer_drop(&w);
        return pal_fail(err, PAL_E_IO, "%s: cannot write: %s", path, strerror(errno));
    }
    return pal_writer_commit(&w, err);
}

/* Keys that say how long a run is. */
static bool is_length(const char *key) { return strcmp(key, "steps") == 0 || strcmp(key, "epochs") == 0; }

/* Keys that say on what a run is made: results then differ by rounding. */
static bool is_machine(const char *key) { return strcmp(key, "threads") == 0 || strcmp(key, "ranks") == 0; }

/* Names every key in which the wanted configuration differs from the stored one; *length: one that is_length does,
 * which is not a difference where it may change. */
static pal_status compare(const pal_run *run, const pal_run_resumed *r, json_t *stored, bool may_grow, bool *length,
                          pal_error *err) {
    const char *key;
    json_t *value;
    char text[800] = "";
    int differences = 0;
    *length = false;
    /* An option that the run's version did not have was at its default. */
    json_t *by_default = pal_run_default_config(r->task);
    json_object_foreach(by_default, key, value) {
        if (!json_object_get(stored, key)) pal_json_set(stored, key, json_incref(value));
    }
    by_default = pal_json_whole(by_default);
    if (!by_default) return pal_fail(err, PAL_E_MEMORY, "out of memory for %s", r->path);
    json_decref(by_default);
    json_object_foreach((json_t *)r->wanted, key, value) {
        const json_t *old = json_object_get(stored, key);
        if (old && json_equal(old, value)) continue;
        if (is_length(key)) {
            *length = true;
            if (may_grow) continue;
        }
        if (is_machine(key)) {
            pal_run_tell(run, "%s: %lld before, now %lld; the run continues with the same data, equal up to rounding",
                         key, (long long)json_integer_value(old), (long long)json_integer_value(value));
            continue;
        }
        const size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(9);
        char *before = old ? pal_json_dumps(old, flags) : NULL, *after = pal_json_dumps(value, flags);
        if ((old && !before) || !after) {
            free(before);
            free(after);
            return pal_fail(err, PAL_E_MEMORY, "out of memory for %s", r->path);
        }
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s was %s, now %s", differences++ ? "; " : "", key,
                 before ? before : "not set", after);
        free(before);
        free(after);
    }
    if (!differences) return PAL_OK;
    return pal_fail(err, PAL_E_ARGUMENT, "%s: this run cannot resume with another configuration: %s%s", r->path, text,
                    *length ? " (only a finished run at a constant rate can be given more steps: a schedule that ends "
                              "would have been a different run)"
                            : "");
}

pal_status pal_run_may_resume(const pal_run *run, const pal_run_resumed *r, bool *nothing, bool *extended,
                              pal_error *err) {
    json_error_t why;
    json_t *stored = pal_json_load(r->path, 0, &why, NULL);
    if (!stored) return pal_fail(err, PAL_E_FORMAT, "%s: %s", r->path, why.text);
    const pal_train_state was = pal_train_state_of(r->state);
    bool length;
    const pal_status st = compare(run, r, stored, was.finished && r->constant, &length, err);
    json_decref(stored);
    *nothing = *extended = false;
    if (st) return st;
    /* The checkpoint decides, not config.json: an extension that was killed before its first one has changed that
     * already. */
    if (!was.finished) return PAL_OK;
    if (was.planned < 0 ? !length : r->total == was.planned) {
        *nothing = true;
        return PAL_OK;
    }
    if (was.solved)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "%s: --stop-score ended this run at step %lld, and would have with more steps as well", r->path,
                        (long long)r->step);
    if (r->total <= r->step)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: %lld updates were asked for, and the run has made %lld", r->path,
                        (long long)r->total, (long long)r->step);
    *extended = true;
    return PAL_OK;
}
