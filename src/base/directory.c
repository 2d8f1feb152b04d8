/* SPDX-License-Identifier: MIT */
#include "base/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/map.h"

enum { PATH = 4096 };

pal_status pal_path(char *out, size_t size, pal_error *err, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const pal_status st = pal_vpath(out, size, err, format, arguments);
    va_end(arguments);
    return st;
}

pal_status pal_vpath(char *out, size_t size, pal_error *err, const char *format, va_list arguments) {
    const int length = vsnprintf(out, size, format, arguments);
    if (length >= 0 && (size_t)length < size) return PAL_OK;
    return pal_fail(err, PAL_E_ARGUMENT, "%.200s...: the path is too long (%d bytes)", out, length);
}

bool pal_directory_has(const char *directory, const char *name) {
    char path[PATH];
    return snprintf(path, sizeof path, "%s/%s", directory, name) < (int)sizeof path && access(path, F_OK) == 0;
}

bool pal_directory_is_empty(const char *path) {
    DIR *dir = opendir(path);
    bool empty = true;
    for (struct dirent *entry; dir && empty && (entry = readdir(dir));)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (dir) closedir(dir);
    return empty;
}

void pal_make_parents(const char *path) {
    char part[PATH];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) return;
    for (char *slash = part + 1; *part && (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (pal_io_mkdir(part)) pal_sync_directory_of(part, NULL);
        *slash = '/';
    }
}

pal_status pal_make_directory(const char *path, pal_error *err) {
    struct stat info;
    pal_make_parents(path);
    if (pal_io_mkdir(path)) return pal_sync_directory_of(path, err); /* what will be in it needs its name */
    if (errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return PAL_OK;
    return pal_fail(err, PAL_E_IO, "%s: cannot make this directory: %s", path,
                    strerror(errno == EEXIST ? ENOTDIR : errno));
}

pal_status pal_make_temporary_directory(char *path, size_t size, const char *prefix, pal_error *err) {
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES; i++) {
        uint32_t suffix;
        pal_status st;
        if (getentropy(&suffix, sizeof suffix) != 0) break;
        if ((st = pal_path(path, size, err, "%s-%08" PRIx32, prefix, suffix))) return st;
        if (pal_io_mkdir_private(path)) return PAL_OK;
        if (errno != EEXIST) break;
    }
    return pal_fail(err, PAL_E_IO, "%s-...: cannot make this directory: %s", prefix, strerror(errno));
}

void pal_remove_directory(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) { /* a link goes, not what it leads to */
        struct stat info;
        if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode)) pal_io_unlink(path);
        return;
    }
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        char file[PATH];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (!pal_path(file, sizeof file, NULL, "%s/%s", path, entry->d_name)) pal_io_unlink(file);
    }
    closedir(dir);
    pal_io_rmdir(path);
}
