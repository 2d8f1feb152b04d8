/* SPDX-License-Identifier: MIT */
#include "format/model_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/directory.h"
#include "base/map.h"
#include "format/json.h"
#include "format/run_dir.h"

enum { JSON_FILE_MAX = 64 << 20, SHARDS_MAX = 4096, PATH_MAX_TEXT = 4096 };

/* Python writes infinity and NaN as bare words, which are not JSON (time_step_limit of Mamba2 has one); they become
 * null, and an empty list. */
static json_t *load_with_bare_words(const pal_map *map, bool *short_of_memory) {
    static const char *const words[] = { "Infinity", "NaN" };
    if (!map->data) return NULL;
    char *text = pal_alloc(map->size, 1);
    if (!text) {
        *short_of_memory = true;
        return NULL;
    }
    memcpy(text, map->data, map->size);
    bool quoted = false;
    for (size_t i = 0; i < map->size; i++) {
        if (quoted && text[i] == '\\') i++;
        else if (text[i] == '"') quoted = !quoted;
        for (size_t k = 0; k < PAL_COUNT(words) && !quoted; k++) {
            const size_t length = strlen(words[k]);
            if (map->size - i < length || memcmp(text + i, words[k], length) != 0) continue;
            memcpy(text + i, length < 4 ? "[] " : "null    ", length); /* a list is refused where a number is needed */
            if (i && text[i - 1] == '-') text[i - 1] = ' ';
        }
    }
    json_t *json = pal_json_parse(text, map->size, JSON_REJECT_DUPLICATES, NULL, short_of_memory);
    pal_free(text);
    return json;
}

pal_status pal_json_read(json_t **out, const char *path, pal_error *err) {
    pal_map map;
    json_error_t why;
    *out = NULL;
    pal_status st = pal_map_open(&map, path, err);
    if (st) return st;
    if (map.size > JSON_FILE_MAX) {
        st = pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes of JSON, at most %d are read", path, map.size, JSON_FILE_MAX);
    } else {
        bool short_of_memory;
        const char *text = map.data ? (const char *)map.data : "";
        *out = pal_json_parse(text, map.size, JSON_REJECT_DUPLICATES, &why, &short_of_memory);
        if (!*out && !short_of_memory) *out = load_with_bare_words(&map, &short_of_memory);
        if (short_of_memory) st = pal_fail(err, PAL_E_MEMORY, "out of memory while reading %s", path);
        else if (!*out) st = pal_fail(err, PAL_E_FORMAT, "%s: not valid JSON: %s (line %d)", path, why.text, why.line);
    }
    pal_map_close(&map);
    return st;
}

pal_status pal_json_write(const char *path, const json_t *value, pal_error *err) {
    pal_writer w;
    char *text = pal_json_dumps(value, JSON_INDENT(2));
    if (!text) return pal_fail(err, PAL_E_MEMORY, "out of memory while writing %s", path);
    pal_status st = pal_writer_open(&w, path, err);
    if (!st) {
        fputs(text, w.stream);
        fputc('\n', w.stream);
        st = pal_writer_commit(&w, err);
    }
    free(text);
    return st;
}

bool pal_has_safetensors(const char *directory) {
    return pal_directory_has(directory, "model.safetensors") ||
           pal_directory_has(directory, "model.safetensors.index.json");
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const pal_tensor *const *)a)->name, (*(const pal_tensor *const *)b)->name);
}

const pal_tensor *pal_model_dir_find(const pal_model_dir *dir, const char *name) {
    const pal_tensor key = { .name = name }, *const pointer = &key;
    if (!dir->count) return NULL;
    const pal_tensor **found = bsearch(&pointer, dir->tensors, dir->count, sizeof *dir->tensors, by_name);
    return found ? *found : NULL;
}

static pal_status list_tensors(pal_model_dir *dir, pal_error *err) {
    pal_status st;
    void *block;
    for (size_t i = 0; i < dir->shard_count; i++) dir->count += pal_safetensors_count(dir->shards[i]);
    if ((st = pal_alloc_named(&block, dir->count, sizeof *dir->tensors, "the list of tensors", err))) return st;
    dir->tensors = block;
    size_t n = 0;
    for (size_t i = 0; i < dir->shard_count; i++)
        for (size_t j = 0; j < pal_safetensors_count(dir->shards[i]); j++)
            dir->tensors[n++] = pal_safetensors_at(dir->shards[i], j);
    qsort(dir->tensors, dir->count, sizeof *dir->tensors, by_name);
    for (size_t i = 1; i < dir->count; i++)
        if (strcmp(dir->tensors[i - 1]->name, dir->tensors[i]->name) == 0)
            return pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' is in two shards", dir->path, dir->tensors[i]->name);
    return PAL_OK;
}

static pal_status open_shard(pal_model_dir *dir, const char *name, pal_error *err) {
    char path[PATH_MAX_TEXT];
    pal_status st = pal_path(path, sizeof path, err, "%s/%s", dir->path, name);
    if (!st) st = pal_safetensors_open(&dir->shards[dir->shard_count], path, err);
    if (!st) dir->shard_count++;
    return st;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

pal_status pal_index_read(json_t **out, const char ***files_out, size_t *count, const char *path, pal_error *err) {
    json_t *index = NULL;
    *out = NULL;
    *files_out = NULL;
    *count = 0;
    pal_status st = pal_json_read(&index, path, err);
    if (st) return st;
    void *block = NULL;
    json_t *map = json_object_get(index, "weight_map"), *value;
    const char *name;
    size_t n = 0;
    if (!json_is_object(map) || !json_object_size(map)) {
        st = pal_fail(err, PAL_E_FORMAT, "%s: weight_map must be an object that names files", path);
        goto failed;
    }
    if ((st = pal_alloc_named(&block, json_object_size(map), sizeof(char *), "the list of shards", err))) goto failed;
    const char **files = block;
    json_object_foreach(map, name, value) {
        const char *file = json_string_value(value);
        if (!file) {
            st = pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' is not mapped to a file name", path, name);
            goto failed;
        }
        if (!*file || strchr(file, '/')) {
            st = pal_fail(err, PAL_E_FORMAT, "%s: the index names the file '%.100s', expected a name without slashes",
                          path, file);
            goto failed;
        }
        files[n++] = file;
    }
    qsort(files, n, sizeof *files, by_text);
    size_t distinct = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(files[i - 1], files[i]) != 0) files[distinct++] = files[i];
    if (distinct > SHARDS_MAX) {
        st = pal_fail(err, PAL_E_FORMAT, "%s: %zu shards, at most %d are read", path, distinct, SHARDS_MAX);
        goto failed;
    }
    *out = index;
    *files_out = files;
    *count = distinct;
    return PAL_OK;
failed:
    pal_free(block);
    json_decref(index);
    return st;
}

static pal_status open_index(pal_model_dir *dir, const char *path, pal_error *err) {
    json_t *index, *value;
    const char **files, *name;
    size_t n;
    void *shards;
    pal_status st = pal_index_read(&index, &files, &n, path, err);
    if (st) return st;
    if ((st = pal_alloc_named(&shards, n, sizeof *dir->shards, "the list of shards", err))) goto done;
    dir->shards = shards;
    for (size_t i = 0; i < n; i++)
        if ((st = open_shard(dir, files[i], err))) goto done;
    if ((st = list_tensors(dir, err))) goto done;
    json_object_foreach(json_object_get(index, "weight_map"), name, value) {
        if (pal_model_dir_find(dir, name)) continue;
        st = pal_fail(err, PAL_E_FORMAT, "%s: tensor '%s' is not in %s, where the index says it is", path, name,
                      json_string_value(value));
        goto done;
    }
done:
    pal_free(files);
    json_decref(index);
    return st;
}

static pal_status open_single(pal_model_dir *dir, pal_error *err) {
    void *block;
    pal_status st = pal_alloc_named(&block, 1, sizeof *dir->shards, "the list of shards", err);
    if (st) return st;
    dir->shards = block;
    if ((st = open_shard(dir, "model.safetensors", err))) return st;
    return list_tensors(dir, err);
}

pal_status pal_model_dir_open(pal_model_dir *out, const char *path, bool with_tensors, pal_error *err) {
    char resolved[PATH_MAX_TEXT], file[PATH_MAX_TEXT + 32];
    struct stat info;
    pal_status st;
    *out = (pal_model_dir){ 0 };
    if ((st = pal_path(resolved, sizeof resolved, err, "%s", path))) return st;
    if (stat(path, &info) != 0) return pal_fail(err, PAL_E_IO, "%s: cannot open: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return pal_fail(err, PAL_E_IO, "%s: not a directory; expected a model directory with config.json", path);
    st = with_tensors && !pal_has_safetensors(path) ? pal_run_newest(path, resolved, sizeof resolved, err) : PAL_OK;
    if (st == PAL_E_IO) {
        return pal_fail(
            err, PAL_E_IO,
            "%s: neither model.safetensors, nor pytorch_model.bin, nor an index of shards, nor a checkpoint is there",
            path);
    }
    if (st) return st;
    out->path = pal_strdup(resolved);
    if (!out->path) return pal_fail(err, PAL_E_MEMORY, "out of memory while opening %s", path);
    snprintf(file, sizeof file, "%s/config.json", resolved);
    if ((st = pal_json_read(&out->config, file, err))) goto failed;
    if (!with_tensors) return PAL_OK;
    snprintf(file, sizeof file, "%s/model.safetensors.index.json", resolved);
    /* A single file wins: an index next to it is a leftover. */
    st = pal_directory_has(resolved, "model.safetensors") ? open_single(out, err) : open_index(out, file, err);
    if (!st) return PAL_OK;
failed:
    pal_model_dir_close(out);
    return st;
}

void pal_model_dir_close(pal_model_dir *dir) {
    for (size_t i = 0; i < dir->shard_count; i++) pal_safetensors_close(dir->shards[i]);
    pal_free(dir->shards);
    pal_free(dir->tensors);
    pal_free(dir->path);
    json_decref(dir->config);
    *dir = (pal_model_dir){ 0 };
}
