/* SPDX-License-Identifier: MIT */
#include "format/model_writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/directory.h"
#include "base/half.h"
#include "base/io.h"
#include "base/map.h"
#include "format/audit.h"
#include "format/model_dir.h"
#include "format/safetensors_header.h"

enum { PATH_MAX_TEXT = 4096, PIECE = 1 << 16 /* values converted at once */ };

struct pal_model_writer {
    char *target, *directory, *file; /* file: model.safetensors in the temporary directory */
    int fd;
    size_t count;
    pal_tensor *tensors;
    size_t *offset, *done; /* of each tensor: in the file, bytes so far */
    float *values;         /* (PIECE) */
    float *stored;         /* (PIECE) the same as they are read back */
    uint16_t *halves;      /* (PIECE) */
};

static pal_status is_empty(const char *path, bool *empty, pal_error *err) {
    *empty = true;
    DIR *dir = opendir(path);
    if (!dir) return pal_fail(err, PAL_E_IO, "%s: cannot open: %s", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) *empty = false;
    closedir(dir);
    return PAL_OK;
}

/* An empty directory is replaced by a rename, which does not reach through a link or a dot, takes the ground from under
 * the feet of those who stand in it, and fails where another file system begins. */
static pal_status check_replaceable(const char *path, const struct stat *info, pal_error *err) {
    char parent[PATH_MAX_TEXT + 4];
    struct stat here, above;
    if (stat(".", &here) == 0 && here.st_dev == info->st_dev && here.st_ino == info->st_ino)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: is the current directory, which cannot be replaced; name a new one",
                        path);
    snprintf(parent, sizeof parent, "%s/..", path);
    if (stat(parent, &above) == 0 && (above.st_dev != info->st_dev || above.st_ino == info->st_ino))
        return pal_fail(err, PAL_E_ARGUMENT,
                        "%s: a file system begins there, so it cannot be replaced; name a new "
                        "directory",
                        path);
    return PAL_OK;
}

pal_status pal_target_is_free(const char *path, bool directory, pal_error *err) {
    struct stat info;
    bool empty;
    pal_status st;
    if (!*path || strlen(path) > PATH_MAX_TEXT - 64)
        return pal_fail(err, PAL_E_ARGUMENT, "'%.40s': expected a path of 1 to %d bytes", path, PATH_MAX_TEXT - 64);
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? PAL_OK : pal_fail(err, PAL_E_ARGUMENT, "%s: cannot look: %s", path, strerror(errno));
    if (S_ISLNK(info.st_mode) && directory) stat(path, &info); /* a link to nothing stays a link */
    if (!directory || !S_ISDIR(info.st_mode))
        return pal_fail(err, PAL_E_ARGUMENT, "%s: exists already; nothing is overwritten", path);
    if ((st = is_empty(path, &empty, err))) return st;
    if (!empty)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: exists already and is not empty; nothing is overwritten", path);
    return check_replaceable(path, &info, err);
}

/* Makes target + a random suffix. */
static pal_status make_beside(pal_model_writer *w, pal_error *err) {
    enum { TRIES = 100 };
    const size_t bytes = strlen(w->target) + 16;
    if (!(w->directory = pal_alloc(bytes, 1)) || !(w->file = pal_alloc(bytes + 32, 1)))
        return pal_fail(err, PAL_E_MEMORY, "out of memory while writing %s", w->target);
    bool made = false;
    pal_make_parents(w->target);
    errno = EEXIST;
    for (int i = 0; i < TRIES && !made && errno == EEXIST; i++) {
        uint32_t suffix;
        if (getentropy(&suffix, sizeof suffix) != 0) break;
        snprintf(w->directory, bytes, "%s.%08" PRIx32, w->target, suffix);
        made = pal_io_mkdir(w->directory);
    }
    if (!made) {
        const int why = errno;
        pal_free(w->directory);
        w->directory = NULL;
        return pal_fail(err, PAL_E_IO, "%s: cannot make a directory next to it: %s", w->target, strerror(why));
    }
    snprintf(w->file, bytes + 32, "%s/model.safetensors", w->directory);
    return PAL_OK;
}

static pal_status write_at(const pal_model_writer *w, size_t offset, const void *bytes, size_t size, pal_error *err) {
    if (pal_io_write_at(w->fd, bytes, size, (int64_t)offset)) return PAL_OK;
    return pal_fail(err, PAL_E_IO, "%s: cannot write: %s", w->target, strerror(errno));
}

static pal_status begin_file(pal_model_writer *w, const pal_safetensors_head *head, pal_error *err) {
    w->fd = pal_io_open(w->file, O_WRONLY | O_CREAT | O_EXCL);
    if (w->fd < 0) return pal_fail(err, PAL_E_IO, "%s: cannot create: %s", w->file, strerror(errno));
    if (!pal_io_reserve(w->fd, head->file))
        return pal_fail(err, PAL_E_IO, "%s: no room for %zu bytes: %s", w->target, head->file, strerror(errno));
    return write_at(w, 0, head->bytes, head->size, err);
}

pal_status pal_model_writer_open(pal_model_writer **out, const char *directory, const pal_tensor *tensors, size_t count,
                                 pal_error *err) {
    static const char *const metadata[] = { "format", "pt", NULL };
    pal_status st;
    void *block;
    *out = NULL;
    if ((st = pal_target_is_free(directory, true, err))) return st;
    if ((st = pal_alloc_named(&block, 1, sizeof **out, "a writer", err))) return st;
    pal_model_writer *w = block;
    pal_safetensors_head head = { 0 };
    w->fd = -1;
    w->count = count;
    char *resolved = realpath(directory, NULL); /* of an empty directory that is there, what a rename replaces */
    w->target = pal_strdup(resolved ? resolved : directory);
    free(resolved);
    w->tensors = pal_alloc(count, sizeof *w->tensors);
    w->offset = pal_alloc(count, sizeof *w->offset);
    w->done = pal_alloc(count, sizeof *w->done);
    w->values = pal_alloc(PIECE, sizeof *w->values);
    w->stored = pal_alloc(PIECE, sizeof *w->stored);
    w->halves = pal_alloc(PIECE, sizeof *w->halves);
    if (!w->target || !w->tensors || !w->offset || !w->done || !w->values || !w->stored || !w->halves) {
        st = pal_fail(err, PAL_E_MEMORY, "out of memory while writing %s", directory);
        goto failed;
    }
    for (size_t n = strlen(w->target); n > 1 && w->target[n - 1] == '/'; n--) w->target[n - 1] = 0;
    if (count) memcpy(w->tensors, tensors, count * sizeof *tensors);
    if ((st = pal_safetensors_make_head(&head, w->offset, NULL, directory, tensors, count, metadata, false, err)))
        goto failed;
    if ((st = make_beside(w, err)) || (st = begin_file(w, &head, err))) goto failed;
    pal_free(head.bytes);
    *out = w;
    return PAL_OK;
failed:
    pal_free(head.bytes);
    pal_model_writer_drop(w);
    return st;
}

const char *pal_model_writer_directory(const pal_model_writer *w) { return w->directory; }

static size_t bytes_of(const pal_tensor *t) { return t->count * pal_dtype_size(t->dtype); }

pal_status pal_model_writer_put(pal_model_writer *w, size_t index, const void *bytes, size_t size, pal_error *err) {
    if (index >= w->count || size > bytes_of(&w->tensors[index]) - w->done[index])
        return pal_fail(err, PAL_E_ARGUMENT, "%s: more bytes for '%s' than it has", w->target,
                        index < w->count ? w->tensors[index].name : "a tensor that does not exist");
    const pal_status st = write_at(w, w->offset[index] + w->done[index], bytes, size, err);
    if (!st) w->done[index] += size;
    return st;
}

pal_status pal_model_writer_put_f32(pal_model_writer *w, size_t index, const float *x, size_t count, pal_error *err) {
    pal_status st = PAL_OK;
    const pal_dtype dtype = index < w->count ? w->tensors[index].dtype : PAL_F32;
    if (dtype == PAL_F32) return pal_model_writer_put(w, index, x, count * sizeof *x, err);
    if (dtype != PAL_F16 && dtype != PAL_BF16)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: '%s' is %s, which cannot be made from f32", w->target,
                        w->tensors[index].name, pal_dtype_name(dtype));
    for (size_t at = 0; at < count && !st; at += PIECE) {
        const size_t n = count - at < PIECE ? count - at : PIECE;
        if (dtype == PAL_BF16)
            for (size_t i = 0; i < n; i++) w->halves[i] = pal_f32_to_bf16(x[at + i]);
        else
            for (size_t i = 0; i < n; i++) w->halves[i] = pal_f32_to_f16(x[at + i]);
        st = pal_model_writer_put(w, index, w->halves, n * sizeof *w->halves, err);
    }
    return st;
}

pal_status pal_model_writer_copy(pal_model_writer *w, size_t index, const pal_source *source, const pal_tensor *t,
                                 pal_error *err) {
    pal_status st;
    if (index >= w->count || w->tensors[index].count != t->count)
        return pal_fail(err, PAL_E_ARGUMENT, "%s: '%s' does not have as many elements as announced", w->target,
                        t->name);
    if ((st = pal_source_check(source, t, err))) return st;
    const pal_dtype dtype = w->tensors[index].dtype;
    const bool as_it_is = t->data && t->dtype == dtype;
    pal_audit audit = { 0 };
    if (as_it_is && (st = pal_model_writer_put(w, index, t->data, bytes_of(t), err))) return st;
    for (size_t at = 0; at < t->count; at += PIECE) {
        const size_t n = t->count - at < PIECE ? t->count - at : PIECE;
        if ((st = pal_source_read(source, t, at, n, w->values, err))) return st;
        if (!as_it_is && (st = pal_model_writer_put_f32(w, index, w->values, n, err))) return st;
        const bool rounded = !as_it_is && dtype != PAL_F32;
        if (rounded) pal_values_decode(dtype, w->halves, 0, n, w->stored);
        pal_audit_values(&audit, w->values, rounded ? w->stored : w->values, n);
    }
    pal_audit_warn(&audit, source->path, t->name, pal_dtype_name(dtype));
    return PAL_OK;
}

/* Files that were put next to the tensors may still be in the page cache only. */
static pal_status sync_files(const pal_model_writer *w, pal_error *err) {
    char path[PATH_MAX_TEXT + 300];
    pal_status st = PAL_OK;
    DIR *dir = opendir(w->directory);
    if (!dir) return pal_fail(err, PAL_E_IO, "%s: cannot open: %s", w->directory, strerror(errno));
    for (struct dirent *entry; !st && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", w->directory, entry->d_name);
        st = pal_sync_file(path, err);
    }
    closedir(dir);
    return st;
}

pal_status pal_model_writer_finish(pal_model_writer *w, const json_t *config, pal_error *err) {
    char path[PATH_MAX_TEXT + 32];
    pal_status st = PAL_OK;
    for (size_t i = 0; i < w->count && !st; i++)
        if (w->done[i] != bytes_of(&w->tensors[i]))
            st = pal_fail(err, PAL_E_ARGUMENT, "%s: '%s' has %zu bytes, only %zu were written", w->target,
                          w->tensors[i].name, bytes_of(&w->tensors[i]), w->done[i]);
    snprintf(path, sizeof path, "%s/config.json", w->directory);
    if (!st) st = pal_json_write(path, config, err);
    if (!st) {
        const int fd = w->fd;
        w->fd = -1;
        if (close(fd) != 0) st = pal_fail(err, PAL_E_IO, "%s: cannot write: %s", w->target, strerror(errno));
    }
    return st;
}

pal_status pal_model_writer_commit(pal_model_writer *w, const json_t *config, pal_error *err) {
    char path[PATH_MAX_TEXT + 32];
    pal_status st = w->fd >= 0 ? pal_model_writer_finish(w, config, err) : PAL_OK;
    snprintf(path, sizeof path, "%s/config.json", w->directory);
    if (!st) st = sync_files(w, err);
    if (!st) st = pal_sync_directory_of(path, err);
    if (!st) {
        if (!pal_io_rename(w->directory, w->target)) {
            st = pal_fail(err, PAL_E_IO, "%s: cannot rename into place: %s", w->target, strerror(errno));
        } else {
            pal_free(w->directory);
            w->directory = NULL;
            st = pal_sync_directory_of(w->target, err);
        }
    }
    pal_model_writer_drop(w);
    return st;
}

void pal_model_writer_drop(pal_model_writer *w) {
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (w->directory) pal_remove_directory(w->directory);
    pal_free(w->target);
    pal_free(w->directory);
    pal_free(w->file);
    pal_free(w->tensors);
    pal_free(w->offset);
    pal_free(w->done);
    pal_free(w->values);
    pal_free(w->stored);
    pal_free(w->halves);
    pal_free(w);
}
