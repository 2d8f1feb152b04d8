/* SPDX-License-Identifier: MIT */
/* The files that only training reads: trainer.json and optimizer.safetensors beside a sound model. Checksums are set
 * right first. */
#include <jansson.h>

#include "format/model_dir.h"
#include "format/run_dir.h"
#include "input.h"
#include "train/checkpoint.h"

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
        const pal_optimiser_options options = { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 };
        FUZZ_CHECK(pal_optimiser_new(&optimiser, saved, &options, NULL, &err) == PAL_OK);
        FUZZ_CHECK(pal_model_save(saved, fuzz_path("run/checkpoints/step-1"), PAL_F32, &err) == PAL_OK);
    }
    fuzz_file("run/checkpoints/step-1/optimizer.safetensors", rest.data, rest.size);
    json_t *root = json_loadb((const char *)json.data, json.size, 0, NULL);
    if (json_is_object(root) && pal_run_seal(fuzz_path("run/checkpoints/step-1"), root, &err) == PAL_OK)
        FUZZ_CHECK(pal_json_write(fuzz_path("run/checkpoints/step-1/trainer.json"), root, &err) == PAL_OK);
    else fuzz_written("run/checkpoints/step-1/trainer.json", json.data, json.size);
    json_decref(root);
    const char *run = fuzz_path("run");
    if (pal_checkpoint_open(run, fuzz_context(), &model, &trainer, &step, &err) == PAL_OK && model)
        pal_checkpoint_load_optimiser(run, step, optimiser, model, &err);
    pal_checkpoint_finished(run, &(bool){ false }, &err);
    json_decref(trainer);
    pal_model_close(model);
    return 0;
}
