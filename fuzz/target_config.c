/* SPDX-License-Identifier: MIT */
/* config.json of every kind: what is read, can be written, and reads the same again; its weights can be listed. One of a
 * published family becomes a list of blocks first, and goes through the metadata of a GGUF file. */
#include <jansson.h>

#include "format/families/family.h"
#include "input.h"
#include "model/config.h"
#include "model/weights.h"

/* A configuration of theirs through GGUF's metadata. */
static void through_gguf(const pal_family *family, const json_t *root) {
    json_t *pairs = NULL, *back = NULL, *blocks = NULL;
    pal_error err;
    if (family->gguf && pal_family_to_gguf(&pairs, family, root, "config.json", &err) == PAL_OK &&
        pal_family_from_gguf(&back, family, pairs, 64, true, "model.gguf", &err) == PAL_OK)
        (void)pal_family_read(&blocks, family, back, "model.gguf", &err);
    json_decref(pairs);
    json_decref(back);
    json_decref(blocks);
}

/* Of a family: the configuration of blocks in its place, or NULL. */
static json_t *as_blocks(json_t *root) {
    const pal_family *family = pal_family_of(root);
    json_t *blocks = NULL;
    pal_error err;
    if (!family) return root;
    through_gguf(family, root);
    (void)pal_family_read(&blocks, family, root, "config.json", &err);
    json_decref(root);
    return blocks;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_model_config config, again;
    pal_error err;
    json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (root) root = as_blocks(root);
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
