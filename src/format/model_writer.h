/* SPDX-License-Identifier: MIT */
/* A model directory written tensor by tensor, in memory that does not grow with the model. Everything goes into a
 * directory next to the target, which is renamed into place once all of it is on disk: the target is there whole or not
 * at all. */
#ifndef PAL_FORMAT_MODEL_WRITER_H
#define PAL_FORMAT_MODEL_WRITER_H

#include <stdbool.h>

#include "format/source.h"

typedef struct pal_model_writer pal_model_writer;

/* `directory` must not exist, or be empty. The tensors' data is not looked at; their names are borrowed until the end.
 * The file is made in its full size, so that a disk too small is known at once. */
pal_status pal_model_writer_open(pal_model_writer **out, const char *directory, const pal_tensor *tensors, size_t count,
                                 pal_error *err);
/* Where the files are meanwhile: others (a tokenizer's) may be put there before the commit. */
const char *pal_model_writer_directory(const pal_model_writer *w);
/* The next bytes of tensor `index`. Tensors may come in any order, even mixed. */
pal_status pal_model_writer_put(pal_model_writer *w, size_t index, const void *bytes, size_t size, pal_error *err);
/* The next values of tensor `index` (F32, F16 or BF16), given in f32. */
pal_status pal_model_writer_put_f32(pal_model_writer *w, size_t index, const float *x, size_t count, pal_error *err);
/* All of tensor `index` from a tensor of a checkpoint, converted to the dtype announced. */
pal_status pal_model_writer_copy(pal_model_writer *w, size_t index, const pal_source *source, const pal_tensor *tensor,
                                 pal_error *err);
/* Writes config.json and closes the file, when every tensor is complete: the directory can be opened as a model. */
pal_status pal_model_writer_finish(pal_model_writer *w, const json_t *config, pal_error *err);
/* Finishes (unless that was done; config is not looked at then), syncs, renames. Ends the writer, whatever happens. */
pal_status pal_model_writer_commit(pal_model_writer *w, const json_t *config, pal_error *err);
void pal_model_writer_drop(pal_model_writer *w); /* removes what was written; NULL is fine */

/* Refuses a path that exists, unless it is an empty directory. */
pal_status pal_target_is_free(const char *path, bool directory, pal_error *err);

#endif
