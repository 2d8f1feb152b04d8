/* SPDX-License-Identifier: MIT */
/* Models as every command accepts them: the files of a checkpoint, or a preset's name. */
#ifndef PAL_CLI_NAMED_MODEL_H
#define PAL_CLI_NAMED_MODEL_H

#include "model/named.h"

/* Files, whose options must be empty, or a preset with initial weights. */
int cli_open_model(pal_model **out, const char *name, const pal_preset_options *options, pal_model_use use,
                   const pal_context *cx);

#endif
