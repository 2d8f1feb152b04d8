/* SPDX-License-Identifier: MIT */
/* Files of tests: directories that go with everything in them, and whole files in one call. */
#ifndef PAL_TEST_FILES_H
#define PAL_TEST_FILES_H

#include "support/support.h"

enum { TEST_PATH = 512 }; /* room for a path in a test's directory */

/* A new directory below TMPDIR; removed with everything in it. */
void test_directory(char path[256]);
void test_remove(const char *path);

/* One directory for all tests of a program; the two are for cmocka_run_group_tests. */
int test_folder_make(void **state);
int test_folder_remove(void **state);
const char *test_folder(void);
const char *in_folder(const char *name); /* a path in it; the eighth call after this one overwrites it */

/* Or a failed test. What is read ends with a zero byte that size does not count; free() it. */
void test_write_file(const char *path, const void *data, size_t size);
void test_write_text(const char *path, const char *text);
unsigned char *test_read_file(const char *path, size_t *size);

/* A file of a directory, and a path in one. */
typedef struct test_blob {
    char *bytes; /* for free */
    size_t size;
} test_blob;
test_blob test_slurp(const char *directory, const char *name);
void test_spill(const char *directory, const char *name, const void *bytes, size_t size);
void test_join(char out[512], const char *directory, const char *name);

#endif
