/* SPDX-License-Identifier: MIT */
/* A run directory as files: RUN/checkpoints/step-N, each a model directory plus optimizer.safetensors and trainer.json,
 * which holds checksums of the other files and of itself. Training and everyone who opens a run find its newest
 * checkpoint here. */
#ifndef PAL_FORMAT_RUN_DIR_H
#define PAL_FORMAT_RUN_DIR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "palimpsa/status.h"

/* Steps of all checkpoints in this folder, newest first, for pal_free; NULL without memory. tidy: temporaries that a
 * killed process left are removed on the way. */
int64_t *pal_run_steps(const char *checkpoints, size_t *count, bool tidy);

/* Adds the checksums of the checkpoint in `folder` to what will be its trainer.json. */
pal_status pal_run_seal(const char *folder, json_t *trainer, pal_error *err);
/* Reads trainer.json and compares every checksum. *trainer is the caller's, NULL or not, whatever the result. */
pal_status pal_run_check(const char *folder, json_t **trainer, pal_error *err);

/* The folder of the newest checkpoint that passes pal_run_check. Where no checkpoint has a trainer.json, they are
 * models that a user laid out like a run, and the newest with model.safetensors or an index of shards counts.
 * PAL_E_IO where there are none at all. */
pal_status pal_run_newest(const char *run, char *folder, size_t size, pal_error *err);

#endif
