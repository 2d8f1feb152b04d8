/* SPDX-License-Identifier: MIT */
/* Models as every command accepts them: the files of a checkpoint, or a preset's name. */
#ifndef PAL_CLI_NAMED_MODEL_H
#define PAL_CLI_NAMED_MODEL_H

#include "palimpsa/palimpsa.h"

/* Whether a name means files. A preset of the same name (mamba2-130m) is meant, unless a checkpoint lies in that
 * directory. */
bool cli_names_files(const char *model);
/* The configuration of a preset; what is like no name is refused as a directory that is not there. */
int cli_preset(pal_model_config *config, const char *name, const pal_preset_options *options);
/* The sizes of files cannot be chosen. */
int cli_refuse_sizes(const char *name, const pal_preset_options *options);
/* Files, whose options must be empty, or a preset with initial weights. */
int cli_open_model(pal_model **out, const char *name, const pal_preset_options *options, pal_model_use use,
                   const pal_context *cx);

#endif
