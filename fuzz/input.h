/* SPDX-License-Identifier: MIT */
/* What fuzz targets share: files made of the input, for readers that take paths, and inputs that hold several files. */
#ifndef PAL_FUZZ_INPUT_H
#define PAL_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "palimpsa/palimpsa.h"
#include "train/optimiser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A path in this process's directory, in memory where the system has such a place; valid until the next call but
 * seven. Folders in `name` are made. */
const char *fuzz_path(const char *name);
/* The file of that name, new or instead of what it held, for readers that map files: they get the bytes from a block of
 * their own, whose end sanitizers watch; on the disk it is empty. Returns its path. */
const char *fuzz_file(const char *name, const void *data, size_t size);
/* The same for readers that open it in another way. */
const char *fuzz_written(const char *name, const void *data, size_t size);
void fuzz_no_file(const char *name); /* takes one of fuzz_file's away */

/* An input may hold several files with a line "%%" between them. Takes the next one off. */
#define FUZZ_MARK "\n%%\n"
pal_slice fuzz_next(pal_slice *rest);

/* A promise of ours that the input broke: says which, and stops the fuzzer. */
#define FUZZ_CHECK(promise)                                                               \
    do {                                                                                  \
        if (!(promise)) {                                                                 \
            fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #promise); \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

/* A context of one thread, made once, and a small model of so many layers; or abort. */
const pal_context *fuzz_context(void);
pal_model *fuzz_model(const char *preset, int layers, pal_model_use use);
/* For norms alone: more moments cost time and find nothing. */
pal_optimiser *fuzz_optimiser(const pal_model *model);
/* A model that opens must also read a token. */
void fuzz_run_model(const char *path);

#endif
