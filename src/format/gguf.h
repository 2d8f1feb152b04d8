/* SPDX-License-Identifier: MIT */
/* GGUF files of architecture mamba2. */
#ifndef PAL_FORMAT_GGUF_H
#define PAL_FORMAT_GGUF_H

#include "format/source.h"

/* The configuration and the names are those of a Hugging Face Mamba2, with norm_groups = n_groups. */
pal_status pal_gguf_open(pal_source *out, const char *path, pal_error *err);

#endif
