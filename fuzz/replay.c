/* SPDX-License-Identifier: MIT */
/* Instead of the fuzzer: runs the target on files, and on every file of the directories, that are given. */
#include <dirent.h>
#include <sys/stat.h>

#include "input.h"

static int replayed;

static void replay(const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (!file || fstat(fileno(file), &info)) {
        perror(path);
        exit(2);
    }
    const size_t size = (size_t)info.st_size;
    uint8_t *data = malloc(size ? size : 1); /* of this size, so that a sanitizer sees a read after it */
    if (!data || fread(data, 1, size, file) != size) {
        perror(path);
        exit(2);
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    replayed++;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (!folder) {
            replay(argv[i]);
            continue;
        }
        for (const struct dirent *entry; (entry = readdir(folder));) {
            char path[4096];
            if (*entry->d_name == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            replay(path);
        }
        closedir(folder);
    }
    printf("%d inputs\n", replayed);
    return replayed ? 0 : 2;
}
