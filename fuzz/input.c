/* SPDX-License-Identifier: MIT */
#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"
#include "palimpsa/state.h"

static char directory[256];

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static void remove_directory(void) { nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS); }

/* Makes the folders that lead to a path, once each: asking the system for every input costs more than some readers. */
static void make_folders(char *path) {
    static char made[8][512];
    static int turn;
    char *last = strrchr(path, '/');
    *last = 0;
    int i = 0;
    while (i < 8 && strcmp(made[i], path) != 0) i++;
    if (i == 8) {
        for (char *slash = path + strlen(directory); (slash = strchr(slash + 1, '/'));) {
            *slash = 0;
            FUZZ_CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
            *slash = '/';
        }
        FUZZ_CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
        snprintf(made[turn++ % 8], sizeof made[0], "%s", path);
    }
    *last = '/';
}

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
    make_folders(path);
    return path;
}

const char *fuzz_written(const char *name, const void *data, size_t size) {
    const char *path = fuzz_path(name);
    const int file = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    FUZZ_CHECK(file >= 0 && write(file, data, size) == (ssize_t)size);
    close(file);
    return path;
}

/* Files that pal_map_open finds here instead of on the disk; the linker sends its callers to __wrap_pal_map_open. */
enum { FILES = 16, MAPS = 64 };
static struct {
    char path[512];
    void *data;
    size_t size;
} files[FILES];
static void *maps[MAPS]; /* that are open */

static size_t find_file(const char *path) {
    size_t i = 0;
    while (i < FILES && strcmp(files[i].path, path) != 0) i++;
    return i;
}

static void *copy_of(const void *data, size_t size) {
    void *copy = malloc(size ? size : 1);
    FUZZ_CHECK(copy);
    if (size) memcpy(copy, data, size);
    return copy;
}

const char *fuzz_file(const char *name, const void *data, size_t size) {
    const char *path = fuzz_path(name);
    void *copy = copy_of(data, size); /* first: data may be a map of that file */
    size_t i = find_file(path);
    if (i == FILES) {
        FUZZ_CHECK((i = find_file("")) < FILES);
        fuzz_written(name, "", 0);
        snprintf(files[i].path, sizeof files[i].path, "%s", path);
    }
    free(files[i].data);
    files[i].data = copy;
    files[i].size = size;
    return path;
}

void fuzz_no_file(const char *name) {
    const char *path = fuzz_path(name);
    const size_t i = find_file(path);
    if (i == FILES) return;
    free(files[i].data);
    files[i].data = NULL;
    files[i].path[0] = 0;
    unlink(path);
}

static void *open_map(const void *data, size_t size) {
    size_t i = 0;
    while (i < MAPS && maps[i]) i++;
    FUZZ_CHECK(i < MAPS);
    return maps[i] = copy_of(data, size);
}

pal_status __real_pal_map_open(pal_map *map, const char *path, pal_error *err);
void __real_pal_map_close(pal_map *map);
pal_status __wrap_pal_map_open(pal_map *map, const char *path, pal_error *err);
void __wrap_pal_map_close(pal_map *map);

pal_status __wrap_pal_map_open(pal_map *map, const char *path, pal_error *err) {
    const size_t i = find_file(path);
    if (i == FILES) return __real_pal_map_open(map, path, err);
    const size_t size = files[i].size;
    *map = (pal_map){ .data = size ? open_map(files[i].data, size) : NULL, .size = size };
    return PAL_OK;
}

void __wrap_pal_map_close(pal_map *map) {
    for (size_t i = 0; i < MAPS && map->data; i++)
        if (maps[i] == map->data) {
            free(maps[i]);
            maps[i] = NULL;
            *map = (pal_map){ 0 };
            return;
        }
    __real_pal_map_close(map);
}

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

pal_model *fuzz_model(const char *preset, int layers, pal_model_use use) {
    pal_model_config config;
    pal_model *model;
    pal_error err;
    const bool mamba = strncmp(preset, "palimpsa-m", 10) == 0; /* has twice as many inner channels */
    const pal_preset_options options = {
        .task = "mqar", .vocab = 32, .hidden = 8, .layers = layers, .heads = 2, .head_dim = mamba ? 8 : 4
    };
    if (pal_model_preset(&config, preset, &options, &err) ||
        pal_model_new(&model, &config, 1, use, fuzz_context(), &err)) {
        fprintf(stderr, "%s: %s\n", preset, err.text);
        abort();
    }
    return model;
}

pal_optimiser *fuzz_optimiser(const pal_model *model) {
    const pal_optimiser_options options = { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .train_only = "*norm*" };
    pal_optimiser *optimiser;
    pal_error err;
    FUZZ_CHECK(pal_optimiser_new(&optimiser, model, &options, NULL, &err) == PAL_OK);
    return optimiser;
}

void fuzz_run_model(const char *path) {
    pal_model *model;
    pal_state *state;
    pal_work *work;
    pal_error err;
    const pal_work_options plan = { .tokens = 1, .sequences = 1 };
    if (pal_model_open(&model, path, PAL_FOR_INFERENCE, fuzz_context(), &err)) return;
    const pal_model_config *config = pal_model_config_of(model);
    if (pal_state_new(&state, model, 4, &err) == PAL_OK) {
        if (pal_work_new(&work, model, fuzz_context(), &plan, &err) == PAL_OK) {
            float *logits = malloc((size_t)config->vocab_rows * sizeof *logits);
            const int32_t last = config->vocab - 1;
            FUZZ_CHECK(pal_model_step(model, work, &state, 1, &last, logits, &err) == PAL_OK);
            free(logits);
            pal_work_free(work);
        }
        pal_state_free(state);
    }
    pal_model_close(model);
}
