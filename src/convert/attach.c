/* SPDX-License-Identifier: MIT */
#include "convert/attach.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/context.h"
#include "base/map.h"
#include "text/side_files.h"
#include "text/tokenizer.h"

enum { PATH_MAX_TEXT = 4400 };

static const char generation_file[] = "generation_config.json";

static bool is_file(const char *directory, const char *name) {
    char path[PATH_MAX_TEXT];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

pal_status pal_attachment_find(pal_attachment *out, const pal_source *source, const char *given, size_t vocab,
                               pal_error *err) {
    *out = (pal_attachment){ .directory = source->one_file ? NULL : source->path };
    if (given && strcmp(given, "none") == 0) return PAL_OK;
    if (!given && !source->one_file && !pal_tokenizer_file_in(source->path)) return PAL_OK;
    pal_status st = given ? pal_tokenizer_open(&out->tokenizer, given, err)
                          : pal_tokenizer_open_path(&out->tokenizer, source->path, err);
    if (!st && given && !source->one_file && (st = pal_tokenizer_add_from(out->tokenizer, source->path, err)))
        pal_attachment_close(out);
    if (st && !given && source->one_file) return PAL_OK; /* a GGUF file without a vocabulary */
    if (st) return st;
    out->copy = !given && !source->one_file;
    const size_t size = pal_tokenizer_size(out->tokenizer);
    if (size <= vocab) return PAL_OK;
    pal_attachment_close(out);
    return pal_fail(err, PAL_E_ARGUMENT, "%s: the tokenizer has %zu ids, the model %s a vocabulary of %zu",
                    given ? given : source->path, size, source->path, vocab);
}

static pal_status copy_file(const char *name, const char *from, const char *to, pal_error *err) {
    char path[PATH_MAX_TEXT];
    pal_map map;
    pal_writer w;
    pal_status st;
    if (!is_file(from, name)) return PAL_OK;
    snprintf(path, sizeof path, "%s/%s", from, name);
    if ((st = pal_map_open(&map, path, err))) return st;
    snprintf(path, sizeof path, "%s/%s", to, name);
    if (!(st = pal_writer_open(&w, path, err))) {
        if (map.size) fwrite(map.data, 1, map.size, w.stream);
        st = pal_writer_commit(&w, err);
    }
    pal_map_close(&map);
    return st;
}

pal_status pal_attachment_write(const pal_attachment *a, const char *directory, pal_error *err) {
    pal_status st = a->tokenizer && !a->copy ? pal_tokenizer_save(a->tokenizer, directory, err) : PAL_OK;
    for (size_t i = 0; a->copy && pal_tokenizer_files[i] && !st; i++)
        st = copy_file(pal_tokenizer_files[i], a->directory, directory, err);
    return st || !a->directory ? st : copy_file(generation_file, a->directory, directory, err); /* the model's counts */
}

void pal_attachment_close(pal_attachment *a) {
    pal_tokenizer_close(a->tokenizer);
    *a = (pal_attachment){ 0 };
}
