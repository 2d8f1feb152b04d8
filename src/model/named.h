/* SPDX-License-Identifier: MIT */
/* Models as people name them: the files of a checkpoint, or a preset. */
#ifndef PAL_MODEL_NAMED_H
#define PAL_MODEL_NAMED_H

#include "palimpsa/model.h"

/* Whether a name means files. A preset of the same name (mamba2-130m) is meant, unless a checkpoint lies in that
 * directory. */
bool pal_names_files(const char *model);
/* The configuration of a preset; what is like no name is refused as a directory that is not there. */
pal_status pal_named_preset(pal_model_config *config, const char *name, const pal_preset_options *options,
                            pal_error *err);
/* The sizes of files cannot be chosen. */
pal_status pal_refuse_sizes(const char *name, const pal_preset_options *options, pal_error *err);

#endif
