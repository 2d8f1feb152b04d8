/* SPDX-License-Identifier: MIT */
/* A model directory: config.json, then model.safetensors, or the index of shards and two of those. What opens must also
 * read a token. */
#include "input.h"
#include "palimpsa/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_slice rest = { data, size }, part[4];
    pal_error err;
    pal_model *model;
    for (int i = 0; i < 4; i++) part[i] = fuzz_next(&rest);
    fuzz_file("model/config.json", part[0].data, part[0].size);
    if (part[2].size) {
        fuzz_no_file("model/model.safetensors");
        fuzz_file("model/model.safetensors.index.json", part[1].data, part[1].size);
        fuzz_file("model/a.safetensors", part[2].data, part[2].size);
        fuzz_file("model/b.safetensors", part[3].data, part[3].size);
    } else {
        fuzz_no_file("model/model.safetensors.index.json");
        fuzz_file("model/model.safetensors", part[1].data, part[1].size);
    }
    if (pal_model_open(&model, fuzz_path("model"), PAL_FOR_INFERENCE, fuzz_context(), &err)) return 0;
    pal_state *state;
    pal_work *work;
    const pal_work_options plan = { .tokens = 1, .sequences = 1 };
    const pal_model_config *config = pal_model_config_of(model);
    if (pal_state_new(&state, model, 4, &err) == PAL_OK) {
        if (pal_work_new(&work, model, fuzz_context(), &plan, &err) == PAL_OK) {
            float *logits = malloc((size_t)config->vocab_rows * sizeof *logits);
            const int32_t last = config->vocab - 1;
            FUZZ_CHECK(pal_model_step(model, work, &state, 1, &last, logits, &err) == PAL_OK);
            free(logits);
            pal_work_free(work);
        }
        pal_state_free(state);
    }
    pal_model_close(model);
    return 0;
}
