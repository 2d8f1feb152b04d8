/* SPDX-License-Identifier: MIT */
#include "format/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/directory.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/map.h"
#include "format/json.h"
#include "format/model_dir.h"

enum { PATH = 4096 };

static const char *const hashed_files[] = { "model.safetensors", "optimizer.safetensors", "config.json" };
enum { HASHED = sizeof hashed_files / sizeof hashed_files[0] };

static pal_status join(char out[PATH], const char *folder, const char *name, pal_error *err) {
    return pal_path(out, PATH, err, "%s/%s", folder, name);
}

/* "step-N" to N, or -1. */
static int64_t step_of(const char *name) {
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
    errno = 0;
    const long long step = strtoll(name + 5, &end, 10);
    return errno || *end ? -1 : step;
}

static int newest_first(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* What was being written or removed when a process ended. */
static bool is_temporary(const char *name) {
    const size_t size = strlen(name);
    return (strncmp(name, ".step-", 6) == 0 || strncmp(name, ".best", 5) == 0) && size > 4 &&
           strcmp(name + size - 4, ".tmp") == 0;
}

int64_t *pal_run_steps(const char *checkpoints, size_t *count, bool tidy) {
    *count = 0;
    DIR *dir = opendir(checkpoints);
    size_t room = 1;
    while (dir && readdir(dir)) room++;
    if (dir) rewinddir(dir);
    int64_t *steps = pal_alloc(room, sizeof *steps);
    for (struct dirent *entry; dir && steps && (entry = readdir(dir));) {
        const int64_t step = step_of(entry->d_name);
        if (step >= 0 && *count < room) steps[(*count)++] = step;
        else if (tidy && is_temporary(entry->d_name)) {
            char path[PATH];
            if (!join(path, checkpoints, entry->d_name, NULL)) pal_remove_directory(path);
        }
    }
    if (dir) closedir(dir);
    if (steps) qsort(steps, *count, sizeof *steps, newest_first);
    return steps;
}

static pal_status hash_file(const char *folder, const char *name, char hex[17], pal_error *err) {
    char path[PATH];
    pal_map map;
    pal_status st;
    if ((st = join(path, folder, name, err)) || (st = pal_map_open(&map, path, err))) return st;
    snprintf(hex, 17, "%016llx", (unsigned long long)pal_hash(0, map.data, map.size));
    pal_map_close(&map);
    return PAL_OK;
}

/* Of trainer.json itself, without the checksum in it. */
static pal_status hash_object(const json_t *object, char hex[17], pal_error *err) {
    json_t *rest = pal_json_copy(object);
    json_object_del(rest, "checksum");
    char *text = pal_json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    json_decref(rest);
    if (!text) return pal_fail(err, PAL_E_MEMORY, "out of memory for the checksum of trainer.json");
    snprintf(hex, 17, "%016llx", (unsigned long long)pal_hash(0, text, strlen(text)));
    free(text);
    return PAL_OK;
}

pal_status pal_run_seal(const char *folder, json_t *trainer, pal_error *err) {
    char hex[17];
    pal_status st;
    json_t *files = json_object();
    for (int i = 0; i < HASHED; i++) {
        if ((st = hash_file(folder, hashed_files[i], hex, err))) {
            json_decref(files);
            return st;
        }
        pal_json_set(files, hashed_files[i], json_string(hex));
    }
    pal_json_set(trainer, "files", files);
    if ((st = hash_object(trainer, hex, err))) return st;
    pal_json_set(trainer, "checksum", json_string(hex));
    return PAL_OK;
}

pal_status pal_run_check(const char *folder, json_t **trainer, pal_error *err) {
    char path[PATH], hex[17];
    json_error_t why;
    bool starved;
    pal_status st;
    *trainer = NULL;
    if ((st = join(path, folder, "trainer.json", err))) return st;
    *trainer = pal_json_load(path, 0, &why, &starved);
    if (starved) return pal_fail(err, PAL_E_MEMORY, "out of memory while reading %s", path);
    if (!*trainer) return pal_fail(err, PAL_E_FORMAT, "%s: %s", path, why.text);
    const char *own = json_string_value(json_object_get(*trainer, "checksum"));
    if ((st = hash_object(*trainer, hex, err))) return st;
    if (!own || strcmp(own, hex) != 0)
        return pal_fail(err, PAL_E_FORMAT, "%s: its checksum is %s, expected %s", path, hex, own ? own : "one");
    const json_t *files = json_object_get(*trainer, "files");
    for (int i = 0; i < HASHED; i++) {
        const char *expected = json_string_value(json_object_get(files, hashed_files[i]));
        if ((st = hash_file(folder, hashed_files[i], hex, err))) return st;
        if (!expected || strcmp(expected, hex) != 0)
            return pal_fail(err, PAL_E_FORMAT, "%s/%s: its checksum is %s, expected %s", folder, hashed_files[i], hex,
                            expected ? expected : "one");
    }
    return PAL_OK;
}

pal_status pal_run_newest(const char *run, char *folder, size_t size, pal_error *err) {
    char checkpoints[PATH], bare[PATH] = "";
    size_t count;
    pal_status st;
    if ((st = join(checkpoints, run, "checkpoints", err))) return st;
    int64_t *steps = pal_run_steps(checkpoints, &count, false);
    if (!steps) return pal_fail(err, PAL_E_MEMORY, "out of memory while listing %s", checkpoints);
    bool found = false, trained = false;
    pal_error last = { 0 };
    for (size_t i = 0; i < count && !found && !st; i++) {
        char name[64], path[PATH];
        json_t *trainer;
        snprintf(name, sizeof name, "step-%lld", (long long)steps[i]);
        if ((st = join(path, checkpoints, name, err))) break;
        if (!pal_directory_has(path, "trainer.json")) {
            if (!*bare && pal_has_safetensors(path)) memcpy(bare, path, sizeof bare);
            continue;
        }
        trained = true;
        found = pal_run_check(path, &trainer, &last) == PAL_OK;
        json_decref(trainer);
        if (found) memcpy(bare, path, sizeof bare);
        else if (last.status == PAL_E_MEMORY) /* it may be sound */
            st = pal_fail(err, PAL_E_MEMORY, "checkpoint %s cannot be read: %s", name, last.text);
        else pal_warn("checkpoint %s is not usable (%s); trying the one before it", name, last.text);
    }
    pal_free(steps);
    if (st) return st;
    if (trained && !found)
        return pal_fail(err, PAL_E_FORMAT, "%s: none of its checkpoints is usable; the last reason: %s", checkpoints,
                        last.text);
    if (!*bare) return pal_fail(err, PAL_E_IO, "%s: no checkpoint is there", checkpoints);
    return pal_path(folder, size, err, "%s", bare);
}
