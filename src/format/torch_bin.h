/* SPDX-License-Identifier: MIT */
/* Torch's .bin files: a zip with a pickle and one member for each storage. */
#ifndef PAL_FORMAT_TORCH_BIN_H
#define PAL_FORMAT_TORCH_BIN_H

#include <stdbool.h>

#include "format/source.h"

/* Whether a directory holds tensors of that kind. */
bool pal_has_torch(const char *directory);
/* A directory with config.json and pytorch_model.bin, or the shards that pytorch_model.bin.index.json names. */
pal_status pal_torch_open(pal_source *out, const char *directory, pal_error *err);

#endif
