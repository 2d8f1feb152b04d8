/* SPDX-License-Identifier: MIT */
#include "format/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "format/gguf.h"
#include "format/model_dir.h"
#include "format/torch_bin.h"
#include "format/view.h"

enum { PATH_MAX_TEXT = 4096 };

static int by_name(const void *a, const void *b) {
    return strcmp(((const pal_tensor *)a)->name, ((const pal_tensor *)b)->name);
}

const pal_tensor *pal_source_find(const pal_source *source, const char *name) {
    const pal_tensor key = { .name = name };
    return source->count ? bsearch(&key, source->tensors, source->count, sizeof *source->tensors, by_name) : NULL;
}

const char *pal_source_stored(const pal_source *source, const pal_tensor *tensor) {
    return source->origin[tensor - source->tensors].stored;
}

const char *pal_source_name(const pal_source *source, const pal_tensor *tensor) {
    const char *name = source->origin[tensor - source->tensors].name;
    return name ? name : tensor->name;
}

const unsigned char *pal_source_gguf_bytes(const pal_source *source, const pal_tensor *tensor) {
    return source->origin[tensor - source->tensors].bytes;
}

size_t pal_tensor_bytes(const pal_tensor *t) {
    return t->count / pal_dtype_values(t->dtype) * pal_dtype_size(t->dtype);
}

void pal_values_decode(pal_dtype type, const void *data, size_t first, size_t count, float *to) {
    const pal_block_format *format = pal_block_format_of(type);
    const unsigned char *blocks = (const unsigned char *)data + first / format->values * format->bytes;
    float block[PAL_BLOCK_VALUES_MAX];
    const size_t skipped = first % format->values;
    if (skipped) {
        const size_t rest = format->values - skipped, n = count < rest ? count : rest;
        format->decode(blocks, block);
        memcpy(to, block + skipped, n * sizeof *to);
        blocks += format->bytes, to += n, count -= n;
    }
    const size_t whole = count / format->values * format->values;
    pal_blocks_decode(format, blocks, whole, to);
    if (whole == count) return;
    format->decode(blocks + whole / format->values * format->bytes, block);
    memcpy(to + whole, block, (count - whole) * sizeof *to);
}

pal_status pal_source_check(const pal_source *source, const pal_tensor *tensor, pal_error *err) {
    const size_t i = (size_t)(tensor - source->tensors);
    const pal_tensor_file *file = &source->files[source->origin[i].file];
    return file->check ? file->check(file->handle, source->origin[i].index, err) : PAL_OK;
}

pal_status pal_source_read(const pal_source *source, const pal_tensor *tensor, size_t first, size_t count, float *to,
                           pal_error *err) {
    const size_t i = (size_t)(tensor - source->tensors);
    const pal_tensor_file *file = &source->files[source->origin[i].file];
    const pal_status st = pal_source_check(source, tensor, err);
    if (st) return st;
    if (!count) return PAL_OK; /* there may be nothing to point at */
    if (!tensor->data) return file->read(file->handle, source->origin[i].index, first, count, to, err);
    if (pal_block_format_of(tensor->dtype)) {
        pal_values_decode(tensor->dtype, tensor->data, first, count, to);
        return PAL_OK;
    }
    pal_tensor piece = *tensor;
    piece.count = count;
    piece.data = (const unsigned char *)tensor->data + first * pal_dtype_size(tensor->dtype);
    return pal_tensor_to_f32(&piece, to, err);
}

pal_status pal_source_add_file(pal_source *source, const pal_tensor_file *file, size_t tensors, pal_error *err) {
    pal_status st;
    void *files, *list = NULL, *origin;
    if ((st = pal_alloc_named(&files, source->file_count + 1, sizeof *source->files, "the list of files", err)))
        return st;
    if ((st = pal_alloc_named(&list, source->count + tensors, sizeof *source->tensors, "the list of tensors", err)) ||
        (st = pal_alloc_named(&origin, source->count + tensors, sizeof *source->origin, "the list of tensors", err))) {
        pal_free(files);
        pal_free(list);
        return st;
    }
    if (source->file_count) memcpy(files, source->files, source->file_count * sizeof *source->files);
    if (source->count) memcpy(list, source->tensors, source->count * sizeof *source->tensors);
    if (source->count) memcpy(origin, source->origin, source->count * sizeof *source->origin);
    pal_free(source->files);
    pal_free(source->tensors);
    pal_free(source->origin);
    source->files = files;
    source->tensors = list;
    source->origin = origin;
    source->files[source->file_count++] = *file;
    return PAL_OK;
}

void pal_source_add(pal_source *source, const pal_tensor *tensor, size_t index, const char *stored) {
    source->origin[source->count].file = source->file_count - 1;
    source->origin[source->count].index = index;
    source->origin[source->count].stored = stored ? stored : pal_dtype_name(tensor->dtype);
    source->tensors[source->count++] = *tensor;
}

/* Both lists are sorted by way of one list of positions. */
typedef struct {
    const char *name;
    size_t at;
} place;

static int by_place(const void *a, const void *b) { return strcmp(((const place *)a)->name, ((const place *)b)->name); }

pal_status pal_source_sort(pal_source *source, pal_error *err) {
    pal_status st;
    void *places = NULL, *tensors = NULL, *origin = NULL;
    const size_t n = source->count;
    if ((st = pal_alloc_named(&places, n, sizeof(place), "the list of tensors", err)) ||
        (st = pal_alloc_named(&tensors, n, sizeof *source->tensors, "the list of tensors", err)) ||
        (st = pal_alloc_named(&origin, n, sizeof *source->origin, "the list of tensors", err))) {
        pal_free(places);
        pal_free(tensors);
        return st;
    }
    place *p = places;
    for (size_t i = 0; i < n; i++) p[i] = (place){ source->tensors[i].name, i };
    qsort(p, n, sizeof *p, by_place);
    for (size_t i = 0; i < n; i++) {
        ((pal_tensor *)tensors)[i] = source->tensors[p[i].at];
        memcpy((char *)origin + i * sizeof *source->origin, &source->origin[p[i].at], sizeof *source->origin);
        if (i && !st && strcmp(p[i - 1].name, p[i].name) == 0)
            st = pal_fail(err, PAL_E_FORMAT, "%s: tensor '%.200s' is there twice", source->path, p[i].name);
    }
    pal_free(places);
    pal_free(source->tensors);
    pal_free(source->origin);
    source->tensors = tensors;
    source->origin = origin;
    return st;
}

void pal_source_close(pal_source *source) {
    for (size_t i = 0; i < source->file_count; i++)
        if (source->files[i].close) source->files[i].close(source->files[i].handle);
    pal_free(source->files);
    pal_free(source->tensors);
    pal_free(source->origin);
    pal_free(source->path);
    json_decref(source->config);
    *source = (pal_source){ 0 };
}

static void close_directory(void *handle) {
    pal_model_dir_close(handle);
    pal_free(handle);
}

static pal_status open_safetensors(pal_source *source, const char *path, pal_error *err) {
    pal_status st;
    void *block;
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_model_dir), "a model directory", err))) return st;
    pal_model_dir *dir = block;
    const pal_tensor_file file = { .handle = dir, .close = close_directory };
    if ((st = pal_model_dir_open(dir, path, true, err))) {
        pal_free(dir);
        return st;
    }
    source->config = json_incref(dir->config);
    source->path = pal_strdup(dir->path);
    if (!source->path) st = pal_fail(err, PAL_E_MEMORY, "out of memory while opening %s", path);
    else st = pal_source_add_file(source, &file, dir->count, err);
    if (st) {
        close_directory(dir);
        return st;
    }
    for (size_t i = 0; i < dir->count; i++) pal_source_add(source, dir->tensors[i], i, NULL);
    return PAL_OK; /* sorted by the directory */
}

/* A directory of a published family becomes one of ours. */
static pal_status translate(pal_source *source, pal_error *err) {
    char path[PATH_MAX_TEXT + 16];
    json_t *blocks;
    const pal_family *family = pal_family_of(source->config);
    if (!family) return PAL_OK;
    snprintf(path, sizeof path, "%s/config.json", source->path);
    const pal_status st = pal_family_read(&blocks, family, source->config, path, err);
    if (st) return st;
    json_decref(source->config);
    source->config = blocks;
    return pal_view_import(source, family, false, PAL_VIEW_AS_IT_LIES, err);
}

static pal_status open_as(pal_source *out, const char *path, pal_view_use use, pal_error *err) {
    struct stat info;
    pal_status st;
    *out = (pal_source){ 0 };
    if (strlen(path) >= PATH_MAX_TEXT)
        return pal_fail(err, PAL_E_ARGUMENT, "the path is longer than %d bytes", PATH_MAX_TEXT);
    if (stat(path, &info) != 0) return pal_fail(err, PAL_E_IO, "%s: cannot open: %s", path, strerror(errno));
    const bool torch = S_ISDIR(info.st_mode) && !pal_has_safetensors(path) && pal_has_torch(path);
    if (torch) st = pal_torch_open(out, path, err);
    else if (S_ISREG(info.st_mode)) st = pal_gguf_open(out, path, use, err);
    else st = open_safetensors(out, path, err);
    if (!st && !out->one_file) st = translate(out, err);
    if (st) pal_source_close(out);
    return st;
}

pal_status pal_source_open(pal_source *out, const char *path, pal_error *err) {
    return open_as(out, path, PAL_VIEW_AS_IT_LIES, err);
}

pal_status pal_source_open_grouped(pal_source *out, const char *path, pal_error *err) {
    return open_as(out, path, PAL_VIEW_GROUPED, err);
}
