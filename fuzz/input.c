/* SPDX-License-Identifier: MIT */
#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[256];

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static void remove_directory(void) { nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS); }

const char *fuzz_path(const char *name) {
    static char paths[8][512];
    static int turn;
    if (!*directory) {
        snprintf(directory, sizeof directory, "%s/palimpsa-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
        FUZZ_CHECK(mkdtemp(directory));
        atexit(remove_directory);
    }
    char *path = paths[turn++ % 8];
    FUZZ_CHECK(snprintf(path, sizeof paths[0], "%s/%s", directory, name) < (int)sizeof paths[0]);
    for (char *slash = path + strlen(directory) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        FUZZ_CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    return path;
}

const char *fuzz_file(const char *name, const void *data, size_t size) {
    const char *path = fuzz_path(name);
    const int file = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    FUZZ_CHECK(file >= 0 && write(file, data, size) == (ssize_t)size);
    close(file);
    return path;
}

void fuzz_no_file(const char *name) { unlink(fuzz_path(name)); }

pal_slice fuzz_next(pal_slice *rest) {
    const size_t mark = strlen(FUZZ_MARK);
    const unsigned char *at = rest->size ? memmem(rest->data, rest->size, FUZZ_MARK, mark) : NULL;
    const pal_slice part = { rest->data, at ? (size_t)(at - rest->data) : rest->size };
    const size_t used = at ? part.size + mark : part.size;
    *rest = (pal_slice){ rest->data + used, rest->size - used };
    return part;
}

const pal_context *fuzz_context(void) {
    static pal_context *cx;
    pal_error err;
    if (!cx) FUZZ_CHECK(pal_context_new(&cx, 1, NULL, &err) == PAL_OK);
    return cx;
}

pal_model *fuzz_model(const char *preset, pal_model_use use) {
    pal_model_config config;
    pal_model *model;
    pal_error err;
    const pal_preset_options options = {
        .task = "mqar", .vocab = 32, .hidden = 16, .layers = 2, .heads = 2, .head_dim = 8
    };
    if (pal_model_preset(&config, preset, &options, &err) ||
        pal_model_new(&model, &config, 1, use, fuzz_context(), &err)) {
        fprintf(stderr, "%s: %s\n", preset, err.text);
        abort();
    }
    return model;
}
