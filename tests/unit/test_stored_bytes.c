/* SPDX-License-Identifier: MIT */
/* Bytes that must never change: fingerprints, config.json, weights and saved states of the recorded models, and the
 * config.json of every preset. Changing one of them makes saved memories, checkpoints or runs unreadable. */
#include "base/hash.h"
#include "model/config.h"
#include "model/model.h"
#include "model/state.h"
#include "support/files.h"

typedef struct {
    const char *name;
    uint64_t fingerprint, config, weights, state;
} recorded_model;

/* Regenerate with PALIMPSA_TEST_PRINT=1; a changed number needs a reason that users would accept. */
static const recorded_model models[] = {
    { "gated_deltanet", 0x58fcabca81daf0a9, 0x69e36c09a458fe81, 0xee11f4e3401978ce, 0xf7477706479ee71f },
    { "hybrid_m", 0x5c84cf0870189e4e, 0xbb4d10fb3a490452, 0xe083e367f325b3ae, 0x11ef36d1a226ebbf },
    { "mamba2_official", 0xdd71e2e92672d444, 0xbcdb806c14b72efe, 0xba11c8784594e487, 0x7ef59b7984a9d0a7 },
    { "mqar_gdn", 0x02c88e897b7d64ed, 0xfc03fd889c59479b, 0xa04903528c4f5103, 0x08ff6d54a1275e8f },
    { "mqar_palimpsa_d", 0x5b7acf7284787528, 0x9b31aa42b3923044, 0x9d42f57ba6ad88dd, 0x53a939b6c4638d13 },
    { "mqar_palimpsa_d_wo_meta", 0x237c4e66c39c4d07, 0x3389726e845a86b8, 0x704928d4a7b62f17, 0x47bb23790318307f },
    { "mqar_palimpsa_m", 0xf5e0ee95e13e7b06, 0x7e2ede96d7ffd866, 0xbf4693a9ee672ab9, 0x24559f930a76c355 },
    { "mqar_palimpsa_m_wo_meta", 0x3840ce074ada8b0e, 0xf3ba145ef6f896b2, 0xe92a0d0d154a1750, 0x31fbe1b1f77f45b6 },
    { "palimpsa_d", 0x747f1140be77e157, 0x0d94c2d0b64abcb9, 0x99dcdd193c798a5a, 0x41dd0244bd731db1 },
    { "palimpsa_d_wo_meta", 0xa664212310ca2741, 0x0c0d9d17153022b2, 0xa81c57630c5fc281, 0xbf50aed494d57244 },
    { "palimpsa_m", 0xbb0b37dd14fb0e1c, 0x5de564dbaa5aedb2, 0xb9c40b51317d8d4c, 0x386dac66592796dd },
    { "palimpsa_m_wo_meta", 0x3671186fa0056a01, 0x53d90ba0c3bb10d7, 0x4feb04097787537f, 0x908c732c61bc7b4d },
    { "transformer", 0xfe029f575595299c, 0x0f8d714d0dcbc108, 0x4b4229a462b0d2d6, 0x142c5810fac7ea99 },
};

static uint64_t hash_of(const char *root, const char *name) {
    const test_blob blob = test_slurp(root, name);
    const uint64_t hash = pal_hash(0, blob.bytes, blob.size);
    free(blob.bytes);
    return hash;
}

static recorded_model measure(const char *name, const char *root, const pal_context *cx) {
    pal_model *model;
    pal_state *s;
    char path[TEST_PATH];
    recorded_model m = { .name = name };
    snprintf(path, sizeof path, "%s/models/%s", PAL_TEST_GOLDEN, name);
    OK(pal_model_open(&model, path, PAL_FOR_INFERENCE, cx, err));
    m.fingerprint = pal_model_fingerprint(model);
    OK(pal_model_save(model, root, PAL_F32, err));
    m.config = hash_of(root, "config.json");
    m.weights = hash_of(root, "model.safetensors");
    /* Numbers that depend on no processor: the layout is what is recorded. */
    OK(pal_state_new(&s, model, 8, err));
    for (size_t i = 0; i < s->fixed; i++) s->data[i] = (float)(i % 4093);
    OK(pal_state_make_room(s, 8, err));
    size_t at = s->fixed;
    for (int i = 0; model->pages && i < model->pages->layers; i++, at = (at + 15) / 16 * 16)
        for (size_t row = 0; row < 8 * model->pages->of[i].strips; row++, at += model->pages->of[i].width)
            for (size_t c = 0; c < model->pages->of[i].width; c++)
                ((float *)(void *)pal_page_row(s->pages[0], &model->pages->of[i], row / 8, row % 8))[c] =
                    (float)((at + c) % 4093);
    s->position = 8;
    OK(pal_state_set_pending(s, 3, err));
    test_join(path, root, "state");
    OK(pal_state_save(s, path, err));
    m.state = hash_of(root, "state");
    pal_state_free(s);
    pal_model_close(model);
    return m;
}

static void recorded_models_keep_their_bytes(void **state) {
    (void)state;
    char root[256];
    pal_context *cx = test_context(2, NULL);
    test_directory(root);
    for (size_t i = 0; i < PAL_COUNT(models); i++) {
        const recorded_model *want = &models[i], got = measure(want->name, root, cx);
        if (getenv("PALIMPSA_TEST_PRINT"))
            printf("    { \"%s\", 0x%016llx, 0x%016llx,\n      0x%016llx, 0x%016llx },\n", got.name,
                   (unsigned long long)got.fingerprint, (unsigned long long)got.config, (unsigned long long)got.weights,
                   (unsigned long long)got.state);
        else if (got.fingerprint != want->fingerprint) fail_msg("%s: another fingerprint", want->name);
        else if (got.config != want->config) fail_msg("%s: another config.json", want->name);
        else if (got.weights != want->weights) fail_msg("%s: another model.safetensors", want->name);
        else if (got.state != want->state) fail_msg("%s: another state file", want->name);
    }
    test_remove(root);
    pal_context_free(cx);
}

static const uint64_t presets = 0x60c95cfac7964b27;

static void presets_keep_their_configuration(void **state) {
    (void)state;
    uint64_t hash = 0;
    const char *name;
    for (int i = 0; (name = pal_model_preset_at(i)); i++)
        for (int t = 0; t < 3; t++) {
            static const char *const tasks[] = { NULL, "mqar", "text" };
            pal_model_config c;
            pal_error error;
            if (pal_model_preset(&c, name, &(pal_preset_options){ .task = tasks[t] }, &error)) continue;
            json_t *json = pal_config_write(&c, NULL);
            char *text = json_dumps(json, JSON_SORT_KEYS);
            hash = pal_hash(hash, text, strlen(text));
            free(text);
            json_decref(json);
        }
    if (getenv("PALIMPSA_TEST_PRINT")) printf("presets 0x%016llx\n", (unsigned long long)hash);
    else assert_int_equal(hash, presets);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_models_keep_their_bytes),
        cmocka_unit_test(presets_keep_their_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
