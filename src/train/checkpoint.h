/* SPDX-License-Identifier: MIT */
/* Checkpoints of a run: RUN/checkpoints/step-N/, each a model directory plus optimizer.safetensors and trainer.json.
 *
 * One is written under a temporary name, synced, and renamed; so a directory named step-N is complete. trainer.json
 * holds checksums of the other files and of itself, and a checkpoint that does not match them (or does not load) is
 * passed over for the one before it, with a warning. */
#ifndef PAL_TRAIN_CHECKPOINT_H
#define PAL_TRAIN_CHECKPOINT_H

#include <jansson.h>

#include "train/optimiser.h"

/* Lets the caller add files to a checkpoint's directory; save may be NULL. */
typedef struct pal_checkpoint_more {
    void *self;
    pal_status (*save)(void *self, const char *folder, bool resumable, pal_error *err);
} pal_checkpoint_more;

/* keep > 0: afterwards only the newest `keep` stay. trainer is borrowed; "files" and "checksum" are added to it. All
 * ranks call it, rank 0 writes; the gradients may be lost (pal_optimiser_save). */
pal_status pal_checkpoint_write(const char *run, int64_t step, pal_model *model, const pal_optimiser *optimiser,
                                json_t *trainer, int keep, pal_checkpoint_more more, const pal_comm *comm,
                                pal_error *err);
/* RUN/checkpoints/best: a model directory alone, exchanged in one operation where the file system can. */
pal_status pal_checkpoint_write_best(const char *run, const pal_model *model, pal_dtype dtype, pal_checkpoint_more more,
                                     pal_error *err);

/* Loads the newest sound checkpoint: the model, and its trainer.json. *model NULL when the run has none at all; an
 * error when it has some but none is sound. Warns of each that is passed over. partly: the model is opened for the
 * weights that these options train alone; NULL: for all. */
pal_status pal_checkpoint_open(const char *run, const pal_optimiser_options *partly, const pal_context *cx,
                               pal_model **model, json_t **trainer, int64_t *step, pal_error *err);
/* Whether the newest checkpoint says that the run came to its end; false when there is none. */
pal_status pal_checkpoint_finished(const char *run, bool *finished, pal_error *err);
/* The optimiser's part of checkpoint `step`, which pal_checkpoint_open found sound. All ranks call it, rank 0 reads. */
pal_status pal_checkpoint_load_optimiser(const char *run, int64_t step, pal_optimiser *optimiser, pal_model *model,
                                         pal_error *err);

#endif
