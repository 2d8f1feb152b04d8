/* SPDX-License-Identifier: MIT */
/* What people give in place of a model's path, and what they should give. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "model/model.h"

static bool ends_in(const char *path, const char *end) {
    const size_t n = strlen(path), m = strlen(end);
    return n >= m && strcmp(path + n - m, end) == 0;
}

/* The directory, where path is one of the files of a model directory: "" otherwise. */
static void directory_of_part(const char *path, char out[4096]) {
    const char *slash = strrchr(path, '/');
    if (slash) snprintf(out, 4096, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    else snprintf(out, 4096, ".");
    if ((!ends_in(path, ".safetensors") && !ends_in(path, ".bin") && !ends_in(path, ".json")) ||
        !pal_directory_has(out, "config.json"))
        *out = '\0';
}

/* OWNER/NAME, and nothing here is called OWNER. */
static bool on_the_hub(const char *path, const char *slash) {
    char owner[256];
    struct stat info;
    if (!slash || !slash[1] || slash == path || strchr(path, '/') != slash || strchr("./~", *path)) return false;
    return snprintf(owner, sizeof owner, "%.*s", (int)(slash - path), path) < (int)sizeof owner &&
           stat(owner, &info) != 0;
}

pal_status pal_model_not_opened(const char *path, pal_status st, pal_error *err) {
    char text[4200];
    struct stat info;
    pal_model_config config;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (st == PAL_E_MEMORY) return st;
    if (stat(path, &info) != 0) {
        if (pal_model_preset(&config, name, &(pal_preset_options){ 0 }, NULL))
            return on_the_hub(path, slash) ? pal_fail(err, st,
                                                      "%s: no such file or directory; a model of the Hugging Face hub "
                                                      "is downloaded first, as 'hf download %s' does",
                                                      path, path)
                                           : st;
        return pal_fail(
            err, st,
            "%s: no such file or directory; '%s' is the name of a size, which training and inspecting know. "
            "Trained weights must be downloaded: docs/tutorials/03-your-mamba2-checkpoint.md",
            path, name);
    }
    snprintf(text, sizeof text, "%s/snapshots", path);
    if (S_ISDIR(info.st_mode) && stat(text, &info) == 0 && S_ISDIR(info.st_mode))
        return pal_fail(err, st, "%s: keeps downloads of several versions; give the directory of one: %s/...", path,
                        text);
    directory_of_part(path, text);
    if (*text) return pal_fail(err, st, "%s: is a part of a model; give the directory: %s", path, text);
    return st;
}
