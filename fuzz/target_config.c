/* SPDX-License-Identifier: MIT */
/* config.json of every kind: what is read, can be written, and reads the same again; its weights can be listed. */
#include <jansson.h>

#include "input.h"
#include "model/config.h"
#include "model/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_model_config config, again;
    pal_error err;
    json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (root && pal_config_read(&config, root, &(pal_shapes){ 0 }, "config.json", &err) == PAL_OK) {
        json_t *written = pal_config_write(&config, NULL);
        FUZZ_CHECK(written);
        err.text[0] = 0;
        const pal_status st = pal_config_read(&again, written, &(pal_shapes){ 0 }, "written", &err);
        if (st) fprintf(stderr, "%s\n", err.text);
        FUZZ_CHECK(st == PAL_OK);
        json_t *twice = pal_config_write(&again, NULL);
        FUZZ_CHECK(json_equal(written, twice));
        json_decref(written);
        json_decref(twice);
        pal_weight_table table;
        if (config.layers <= 64 && pal_weights_list(&table, &config, NULL, NULL, &err) == PAL_OK)
            pal_weights_release(&table);
    }
    json_decref(root);
    return 0;
}
