/* SPDX-License-Identifier: MIT */
/* GGUF files of architecture mamba2, of published families, and of our own. */
#ifndef PAL_FORMAT_GGUF_H
#define PAL_FORMAT_GGUF_H

#include <stdbool.h>

#include "format/source.h"
#include "format/view.h"

/* Files that hold config.json under palimpsa.config and tensors under the names that safetensors have. */
static const char *const pal_gguf_architectures[] = { "palimpsa", "metamamba2", "palimpsa-gdn", "palimpsa-transformer",
                                                      "palimpsa-blocks" };

/* Of architecture mamba2, configuration and names are those of a Hugging Face Mamba2, with norm_groups = n_groups. */
pal_status pal_gguf_open(pal_source *out, const char *path, pal_view_use use, pal_error *err);

/* The name in GGUF of a tensor of Mamba2 (official or Hugging Face's name); false: it has none. matrix: it may be
 * stored in few bits; decay: as -exp of its values. */
bool pal_gguf_name_of(char out[64], bool *matrix, bool *decay, const char *ours);

#endif
