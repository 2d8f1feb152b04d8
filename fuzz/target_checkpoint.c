/* SPDX-License-Identifier: MIT */
/* The files that only training reads: trainer.json and optimizer.safetensors next to a sound model. Checksums are set
 * right first; what opens makes an update. The model is the same for all inputs and opened once, or that would take
 * most of the time. */
#include <jansson.h>

#include "base/map.h"
#include "format/json.h"
#include "format/run_dir.h"
#include "input.h"
#include "train/checkpoint.h"
#include "train/run.h"

/* The linker sends the library's calls here. */
pal_status __real_pal_model_open(pal_model **out, const char *path, pal_model_use use, const pal_context *cx,
                                 pal_error *err);
pal_status __wrap_pal_model_open(pal_model **out, const char *path, pal_model_use use, const pal_context *cx,
                                 pal_error *err);

pal_status __wrap_pal_model_open(pal_model **out, const char *path, pal_model_use use, const pal_context *cx,
                                 pal_error *err) {
    static pal_model *model;
    if (!model) FUZZ_CHECK(__real_pal_model_open(&model, path, use, cx, err) == PAL_OK);
    *out = model;
    return PAL_OK;
}

#define FOLDER "run/checkpoints/step-1"

/* From now on a file of the sound model is read from memory. */
static void keep(const char *name) {
    pal_map map;
    pal_error err;
    FUZZ_CHECK(pal_map_open(&map, fuzz_path(name), &err) == PAL_OK);
    fuzz_file(name, map.data, map.size);
    pal_map_close(&map);
}

static int64_t most_steps(void *self, int stage) {
    (void)self, (void)stage;
    return PAL_MOST_STEPS;
}

/* Reads the record for the longest stages that there are, in a folder whose name says the same step. */
static void go_on(const json_t *trainer) {
    static const pal_task task = { .stages = 2, .steps = most_steps };
    const int64_t step = json_integer_value(json_object_get(trainer, "step"));
    int64_t total;
    pal_error err;
    if (pal_train_state_read(&task, trainer, step, &total, &err) == PAL_OK)
        FUZZ_CHECK(total >= step && step <= PAL_MOST_COUNT);
    pal_train_state_of(trainer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static pal_model *saved;
    static pal_optimiser *optimiser;
    pal_slice rest = { data, size };
    const pal_slice json = fuzz_next(&rest);
    pal_model *model = NULL;
    json_t *trainer = NULL;
    int64_t step;
    pal_error err;
    if (!saved) {
        saved = fuzz_model("palimpsa-d", 1, PAL_FOR_TRAINING);
        optimiser = fuzz_optimiser(saved);
        FUZZ_CHECK(pal_model_save(saved, fuzz_path(FOLDER), PAL_F32, &err) == PAL_OK);
        keep(FOLDER "/config.json");
        keep(FOLDER "/model.safetensors");
    }
    fuzz_file(FOLDER "/optimizer.safetensors", rest.data, rest.size);
    json_t *root = json_loadb((const char *)json.data, json.size, 0, NULL);
    char *sealed = NULL;
    if (json_is_object(root) && pal_run_seal(fuzz_path(FOLDER), root, &err) == PAL_OK)
        FUZZ_CHECK(sealed = pal_json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17)));
    const size_t bytes = sealed ? strlen(sealed) : json.size;
    fuzz_written(FOLDER "/trainer.json", sealed ? (const void *)sealed : json.data, bytes);
    free(sealed);
    json_decref(root);
    const char *run = fuzz_path("run");
    if (pal_checkpoint_open(run, NULL, fuzz_context(), &model, &trainer, &step, &err) == PAL_OK && model) {
        go_on(trainer);
        if (pal_checkpoint_load_optimiser(run, step, optimiser, model, &err) == PAL_OK)
            pal_optimiser_step(optimiser, model, fuzz_context(), 1, 0);
    }
    pal_checkpoint_finished(run, &(bool){ false }, &err);
    pal_model_close(model);
    json_decref(trainer);
    return 0;
}
