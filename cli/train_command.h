/* SPDX-License-Identifier: MIT */
#ifndef PAL_CLI_TRAIN_COMMAND_H
#define PAL_CLI_TRAIN_COMMAND_H

#include <jansson.h>

/* The command that makes a run of this config.json again; to be freed. NULL: of a task that is not known. For
 * pal_runs_options. */
char *train_command(const json_t *config, const char *directory);

#endif
