/* SPDX-License-Identifier: MIT */
/* A model directory as files: config.json and the tensors of model.safetensors or of shards with an index. What the
 * tensors mean is the model's business. */
#ifndef PAL_FORMAT_MODEL_DIR_H
#define PAL_FORMAT_MODEL_DIR_H

#include <jansson.h>
#include <stdbool.h>

#include "palimpsa/safetensors.h"

typedef struct pal_model_dir {
    char *path; /* resolved: of a run directory, its newest checkpoint */
    json_t *config;
    size_t shard_count;
    pal_safetensors **shards;
    size_t count;
    const pal_tensor **tensors; /* all shards, sorted by name */
} pal_model_dir;

/* Whether a directory holds tensors as safetensors, one file or shards. */
bool pal_has_safetensors(const char *directory);
/* Opens by mapping; no tensor is read. with_tensors false reads config.json alone. */
pal_status pal_model_dir_open(pal_model_dir *out, const char *path, bool with_tensors, pal_error *err);
void pal_model_dir_close(pal_model_dir *dir);                                     /* a zeroed one is fine */
const pal_tensor *pal_model_dir_find(const pal_model_dir *dir, const char *name); /* NULL if absent */

/* An index of shards: its "weight_map" names a file for every tensor. `files` (pal_free) points into the JSON
 * (json_decref). */
pal_status pal_index_read(json_t **out, const char ***files, size_t *count, const char *path, pal_error *err);

/* A JSON file, or one sentence. The bare word Infinity, which Python writes, is read as null. */
pal_status pal_json_read(json_t **out, const char *path, pal_error *err);
/* Written aside and renamed, indented by two, ending in a newline. */
pal_status pal_json_write(const char *path, const json_t *value, pal_error *err);

#endif
