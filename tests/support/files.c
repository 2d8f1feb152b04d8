/* SPDX-License-Identifier: MIT */
#include "support/files.h"

#include <unistd.h>

static char folder[256];

static char *make_directory(char path[256]) {
    const char *base = getenv("TMPDIR");
    snprintf(path, 256, "%s/palimpsa-test-XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(path);
}

static int remove_all(const char *path) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    return system(command);
}

void test_directory(char path[256]) { assert_non_null(make_directory(path)); }
void test_remove(const char *path) { assert_int_equal(remove_all(path), 0); }

int test_folder_make(void **state) {
    (void)state;
    return make_directory(folder) ? 0 : -1;
}

int test_folder_remove(void **state) {
    (void)state;
    return remove_all(folder);
}

const char *test_folder(void) { return folder; }

const char *in_folder(const char *name) {
    static char paths[8][TEST_PATH];
    static int next;
    char *path = paths[next++ % 8];
    assert_true(snprintf(path, TEST_PATH, "%s/%s", folder, name) < TEST_PATH);
    return path;
}

void test_write_file(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    if (!file) fail_msg("%s cannot be written", path);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void test_write_text(const char *path, const char *text) { test_write_file(path, text, strlen(text)); }

unsigned char *test_read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s cannot be read", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    bytes[*size] = 0;
    fclose(file);
    return bytes;
}

test_blob test_slurp(const char *directory, const char *name) {
    char path[600];
    test_blob b;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    b.bytes = (char *)test_read_file(path, &b.size);
    return b;
}

void test_spill(const char *directory, const char *name, const void *bytes, size_t size) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    test_write_file(path, bytes, size);
}

void test_join(char out[512], const char *directory, const char *name) { snprintf(out, 512, "%s/%s", directory, name); }
