/* SPDX-License-Identifier: MIT */
#include "base/lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/io.h"
#include "base/map.h"

/* The process that locked what is open as fd, or 0: /proc/locks has lines like "1: FLOCK ADVISORY WRITE PID
 * MAJOR:MINOR:INODE 0 EOF". Devices are not compared: those of layered file systems differ from stat's. */
static long holder(int fd) {
    char line[256];
    struct stat info;
    long found = 0;
    FILE *locks = fopen("/proc/locks", "re");
    if (!locks) return 0;
    while (!found && fstat(fd, &info) == 0 && fgets(line, sizeof line, locks)) {
        long pid;
        unsigned long long inode;
        if (sscanf(line, "%*d: FLOCK %*s %*s %ld %*x:%*x:%llu", &pid, &inode) == 2 && pid > 0 &&
            inode == (unsigned long long)info.st_ino)
            found = pid;
    }
    fclose(locks);
    return found;
}

/* "process PID (its command)", as far as is known. */
static void describe(long pid, char *out, size_t size) {
    char path[64], command[80] = "";
    snprintf(path, sizeof path, "/proc/%ld/cmdline", pid);
    FILE *file = pid ? fopen(path, "re") : NULL;
    if (file) {
        const size_t n = fread(command, 1, sizeof command - 1, file);
        for (size_t i = 0; i + 1 < n; i++)
            if ((unsigned char)command[i] < ' ') command[i] = ' ';
        fclose(file);
    }
    if (!pid) snprintf(out, size, "another process");
    else snprintf(out, size, *command ? "process %ld (%s)" : "process %ld", pid, command);
}

/* A file system without locks lets every process in. place: what the holder of the lock does there. */
static pal_status lock(int fd, const char *path, bool wait, const char *place, pal_error *err) {
    char who[128];
    while (flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) return PAL_OK;
        describe(holder(fd), who, sizeof who);
        return pal_fail(err, PAL_E_ARGUMENT, "%s: %s %s", path, who, place);
    }
    return PAL_OK;
}

pal_status pal_lock_file(int fd, const char *path, pal_error *err) {
    return lock(fd, path, false, "writes to this file", err);
}

pal_status pal_lock_directory(int *fd, const char *directory, bool wait, pal_error *err) {
    *fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0) return pal_fail(err, PAL_E_IO, "%s: cannot open: %s", directory, strerror(errno));
    const pal_status st = lock(*fd, directory, wait, "works in this directory", err);
    if (st) {
        close(*fd);
        *fd = -1;
    }
    return st;
}

/* Whether a path still names what was opened. */
static bool is_same(const char *path, int fd) {
    struct stat a, b;
    return stat(path, &a) == 0 && fstat(fd, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

pal_status pal_lock_new_directory(int *fd, bool *made, const char *directory, pal_error *err) {
    *fd = -1;
    *made = false;
    pal_make_parents(directory);
    for (;;) {
        *made = pal_io_mkdir(directory);
        if (!*made && errno != EEXIST)
            return pal_fail(err, errno == ENOTDIR ? PAL_E_ARGUMENT : PAL_E_IO, "%s: cannot make this directory: %s",
                            directory, strerror(errno));
        if (*made) pal_sync_directory_of(directory, NULL);
        if (pal_lock_directory(fd, directory, false, err)) {
            if (err) err->status = PAL_E_ARGUMENT; /* what is there cannot be entered: nothing failed to be written */
            return PAL_E_ARGUMENT;
        }
        if (is_same(directory, *fd)) return PAL_OK;
        close(*fd); /* its maker removed it before we locked it */
    }
}

/* Removes an unlocked temporary directory of this user; keeps it on a file system without locks. */
static void remove_abandoned(const char *path) {
    struct stat info;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &info) == 0 && info.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0 && is_same(path, fd))
        pal_remove_directory(path);
    close(fd);
}

static void remove_all_abandoned(const char *prefix) {
    char directory[4096], path[4096];
    const char *slash = strrchr(prefix, '/'), *name = slash ? slash + 1 : prefix;
    const size_t size = strlen(name);
    const int length = slash ? (int)(slash + 1 - prefix) : 1;
    if (pal_path(directory, sizeof directory, NULL, "%.*s", length, slash ? prefix : ".")) return;
    DIR *dir = opendir(directory);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *rest = entry->d_name + size;
        if (strncmp(entry->d_name, name, size) == 0 && *rest == '-' && strspn(rest + 1, "0123456789abcdef") == 8 &&
            !rest[9] && !pal_path(path, sizeof path, NULL, "%s%s", prefix, rest))
            remove_abandoned(path);
    }
    if (dir) closedir(dir);
}

pal_status pal_lock_temporary_directory(int *fd, char *path, size_t size, const char *prefix, pal_error *err) {
    *fd = -1;
    remove_all_abandoned(prefix);
    for (;;) {
        pal_status st = pal_make_temporary_directory(path, size, prefix, err);
        if (st) return st;
        st = pal_lock_directory(fd, path, false, err);
        if (!st && is_same(path, *fd)) return PAL_OK;
        if (st && st != PAL_E_ARGUMENT && access(path, F_OK) == 0) return st;
        if (*fd >= 0) close(*fd); /* another process took it for abandoned before we locked it */
    }
}

void pal_unlock_directory(int fd, const char *directory, bool made) {
    if (fd < 0) return;
    if (made) pal_io_rmdir(directory); /* when nothing is in it */
    close(fd);
}
