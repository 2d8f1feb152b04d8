/* SPDX-License-Identifier: MIT */
/* A model directory: config.json, then model.safetensors, or the index of shards and two of those. What opens must also
 * read a token. */
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_slice rest = { data, size }, part[4];
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
    fuzz_run_model(fuzz_path("model"));
    return 0;
}
