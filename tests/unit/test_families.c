/* SPDX-License-Identifier: MIT */
/* Published families: GGUF files compute what was recorded, as they lie and with their heads in the order of groups;
 * matrices stay mapped; what is not supported is refused by one sentence. Directories of theirs: `palimpsa selftest`.
 */
#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "format/families/family.h"
#include "format/json.h"
#include "format/model_dir.h"
#include "model/model.h"
#include "support/files.h"

static pal_context *cx;

static const char *const directories[] = {
    "qwen3_5_published", "qwen3_5_untied", "nemotron_h",     "granite_4_h", "granite_4_h_rope", "bamba",
    "falcon_h1",         "falcon_h1_norm", "falcon_h1_tied", "lfm2"
};
static const char *const files[] = { "granite", "nemotron", "qwen", "falcon", "falcon_norm", "lfm2" };

static const char *family(const char *name) {
    static char path[TEST_PATH];
    snprintf(path, sizeof path, "%s/families/%s", PAL_TEST_GOLDEN, name);
    return path;
}

/* Logits of one forward over all of a row of token ids. */
static float *logits_of(const char *path, pal_model_use use, const int32_t *ids, int tokens, size_t *count) {
    pal_model *model;
    pal_work *work;
    OK(pal_model_open(&model, path, use, cx, err));
    OK(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = tokens, .sequences = 1, .logits = tokens }, err));
    *count = (size_t)tokens * (size_t)pal_model_config_of(model)->vocab_rows;
    float *logits = malloc(*count * sizeof *logits);
    const int cu[2] = { 0, tokens };
    const pal_batch batch = { .tokens = tokens, .sequences = 1, .ids = ids, .cu_seqlens = cu };
    OK(pal_model_forward(model, work, &batch, NULL, tokens, logits, err));
    pal_work_free(work);
    pal_model_close(model);
    return logits;
}

/* The largest difference, as a part of the largest number. */
static double apart(const float *x, const double *y, size_t n) {
    double worst = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)x[i] - y[i]);
        if (!(d <= worst)) worst = d;
        if (fabs(y[i]) > largest) largest = fabs(y[i]);
    }
    return worst / largest;
}

static void gguf_files_compute_what_was_recorded(void **state) {
    (void)state;
    for (size_t f = 0; f < PAL_COUNT(files); f++) {
        char path[TEST_PATH];
        pal_safetensors *recorded;
        int32_t ids[12];
        size_t count;
        snprintf(path, sizeof path, "%s/families_gguf/%s.safetensors", PAL_TEST_GOLDEN, files[f]);
        OK(pal_safetensors_open(&recorded, path, err));
        for (int i = 0; i < 12; i++)
            ids[i] = (int32_t)((const int64_t *)pal_safetensors_find(recorded, "input_ids")->data)[i];
        const pal_tensor *expected = pal_safetensors_find(recorded, "logits");
        snprintf(path, sizeof path, "%s/families_gguf/%s.gguf", PAL_TEST_GOLDEN, files[f]);
        static const pal_model_use uses[] = { PAL_FOR_INFERENCE, PAL_FOR_TRAINING };
        for (size_t u = 0; u < PAL_COUNT(uses); u++) {
            float *logits = logits_of(path, uses[u], ids, 12, &count);
            assert_int_equal(count, expected->count);
            const double error = apart(logits, expected->data, count);
            if (!(error <= 1e-5)) fail_msg("%s, use %zu: %g of the largest logit apart", files[f], u, error);
            free(logits);
        }
        pal_safetensors_close(recorded);
    }
}

/* Inference reads matrices where the file has them, also those that are rows of a fused one. */
static void matrices_stay_mapped(void **state) {
    (void)state;
    for (size_t d = 0; d < PAL_COUNT(directories) + PAL_COUNT(files); d++) {
        char path[TEST_PATH];
        pal_model *model;
        if (d < PAL_COUNT(directories)) snprintf(path, sizeof path, "%s", family(directories[d]));
        else
            snprintf(path, sizeof path, "%s/families_gguf/%s.gguf", PAL_TEST_GOLDEN, files[d - PAL_COUNT(directories)]);
        OK(pal_model_open(&model, path, PAL_FOR_INFERENCE, cx, err));
        for (size_t i = 0; i < pal_model_weight_count(model); i++) {
            const pal_weight *w = pal_model_weight(model, i);
            const pal_tensor *t = pal_source_find(&model->source, w->name);
            if (w->quantisable && (!t->data || w->data != t->data)) fail_msg("%s: %s was copied", path, w->name);
        }
        pal_model_close(model);
    }
}

/* Tensors of a written directory that are not those of the original bit for bit; names may have another prefix. */
static size_t count_changed(const char *original, const char *written) {
    char path[TEST_PATH + 32];
    pal_safetensors *a, *b;
    size_t changed = 0;
    test_join(path, original, "model.safetensors");
    OK(pal_safetensors_open(&a, path, err));
    test_join(path, written, "model.safetensors");
    OK(pal_safetensors_open(&b, path, err));
    for (size_t i = 0; i < pal_safetensors_count(b); i++) {
        const pal_tensor *t = pal_safetensors_at(b, i), *from = pal_safetensors_find(a, t->name);
        char name[256];
        if (!from && strncmp(t->name, "model.", 6) == 0) {
            snprintf(name, sizeof name, "model.language_model.%s", t->name + 6);
            from = pal_safetensors_find(a, name);
        }
        if (!from) fail_msg("%s: '%s' is not in the original", written, t->name);
        changed += t->count != from->count || t->dtype != from->dtype || memcmp(t->data, from->data, 4 * t->count) != 0;
    }
    pal_safetensors_close(a);
    pal_safetensors_close(b);
    return changed;
}

static const char *convert(const char *from, const char *root, const char *name, pal_layout to) {
    static char paths[4][TEST_PATH];
    static int next;
    char *path = paths[next++ % 4];
    test_join(path, root, name);
    OK(pal_convert(from, path, &(pal_convert_options){ .to = to, .tokenizer = "none", .cx = cx }, NULL, err));
    return path;
}

/* Theirs -> theirs, -> ours -> theirs, -> GGUF -> theirs: the same tensors, and the same logits at every stop. */
static void families_survive_every_conversion(void **state) {
    (void)state;
    int32_t ids[24];
    for (int i = 0; i < 24; i++) ids[i] = (i * 37 + 11) % 288;
    for (size_t d = 0; d < PAL_COUNT(directories); d++) {
        char root[256], original[TEST_PATH];
        size_t count;
        snprintf(original, sizeof original, "%s", family(directories[d]));
        test_directory(root);
        const bool delta = strncmp(directories[d], "qwen", 4) == 0, folds = strncmp(directories[d], "falcon", 6) == 0;
        const char *ours = convert(original, root, "ours", PAL_LAYOUT_PALIMPSA);
        const char *gguf = convert(original, root, "model.gguf", PAL_LAYOUT_GGUF);
        assert_int_equal(count_changed(original, convert(original, root, "same", PAL_LAYOUT_HF)), 0);
        /* Norms less one are rounded on their way, and so are folded multipliers. */
        const size_t changed = count_changed(original, convert(ours, root, "back", PAL_LAYOUT_HF));
        if (delta ? changed > 11 : changed) fail_msg("%s: %zu tensors changed by way of ours", directories[d], changed);
        float *plain = logits_of(original, PAL_FOR_INFERENCE, ids, 24, &count);
        double *expected = malloc(count * sizeof *expected);
        for (size_t i = 0; i < count; i++) expected[i] = (double)plain[i];
        float *stops[2] = { logits_of(ours, PAL_FOR_INFERENCE, ids, 24, &count),
                            logits_of(gguf, PAL_FOR_INFERENCE, ids, 24, &count) };
        for (int s = 0; s < 2; s++) {
            const double error = apart(stops[s], expected, count);
            if (!(error <= (s == 0 ? 0 : delta ? 5e-5 : folds ? 1e-5 : 2e-6)))
                fail_msg("%s: %s is %g of the largest logit apart", directories[d], s ? "GGUF" : "ours", error);
            free(stops[s]);
        }
        free(plain);
        free(expected);
        test_remove(root);
    }
}

/* A configuration with one key set to a JSON text, next to the tensors of the original; the sentence it is refused by.
 */
static const struct {
    const char *directory, *key, *value, *sentence;
} refused[] = {
    { "granite_4_h", "num_local_experts", "64",
      "num_local_experts is 64, expected 0: of this family models without experts" },
    { "granite_4_h", "num_local_experts", NULL, "num_local_experts is absent, which means 8, expected 0" },
    { "granite_4_h", "position_embedding_type", "\"alibi\"",
      "position_embedding_type is \"alibi\", expected \"rope\" or \"nope\"" },
    { "granite_4_h", "hidden_act", "\"gelu\"",
      "hidden_act is \"gelu\", expected \"silu\", as all that this program runs" },
    { "granite_4_h", "attention_bias", "true", "attention_bias is true, expected false" },
    { "granite_4_h", "mamba_proj_bias", "true", "mamba_proj_bias is true, expected false" },
    { "granite_4_h", "mamba_n_heads", "7", "mamba_n_heads is 7, expected heads that share" },
    { "granite_4_h", "layer_types", "[\"mamba\"]", "expected a list of as many layers as num_hidden_layers" },
    { "granite_4_h", "layer_types", "[1, 2, 3, 4, 5]", "layer_types is [1,2,3,4,5], expected a list of \"mamba\"" },
    { "granite_4_h", "residual_multiplier", "0", "residual_multiplier is 0, expected a number other than 0" },
    { "granite_4_h", "hidden_size", "\"64\"", "hidden_size is \"64\", expected a whole number from 1 to 2^30" },
    { "granite_4_h", "hidden_size", "0", "hidden_size is 0, expected a whole number" },
    { "granite_4_h", "time_step_limit", "[1]", "time_step_limit is [1], expected two numbers" },
    { "granite_4_h_rope", "rope_parameters", "{\"rope_type\": \"yarn\", \"factor\": 4}",
      "rope_parameters is \"yarn\", expected rotary positions of type \"default\"" },
    { "bamba", "mlp_bias", "true", "mlp_bias is true, expected false" },
    { "bamba", "attn_layer_indices", "[\"1\"]", "attn_layer_indices is [\"1\"], expected a list of layer numbers" },
    { "nemotron_h", "layers_block_type", "[\"mamba\", \"moe\"]", "layers of experts (\"moe\") are not supported" },
    { "nemotron_h", "layers_block_type", NULL, "hybrid_override_pattern is absent, expected a list of" },
    { "nemotron_h", "mlp_hidden_act", "\"silu\"", "mlp_hidden_act is \"silu\", expected \"relu2\"" },
    { "nemotron_h", "sliding_window", "4096", "sliding_window is 4096, expected null" },
    { "nemotron_h", "use_bias", "true", "use_bias is true, expected false" },
    { "qwen3_5_untied", "layer_types", "[\"conv\", \"conv\", \"conv\", \"conv\"]",
      "expected a list of \"linear_attention\"" },
    { "qwen3_5_untied", "attention_bias", "true", "attention_bias is true, expected false" },
    { "qwen3_5_published", "text_config", "{\"model_type\": \"qwen3_5_text\", \"hidden_act\": \"gelu\"}",
      "config.json: text_config.hidden_act is \"gelu\", expected \"silu\"" },
    { "falcon_h1", "ssm_multipliers", "[1, 2]", "ssm_multipliers is [1,2], expected five numbers" },
    { "falcon_h1", "projectors_bias", "true", "projectors_bias is true, expected false" },
    { "falcon_h1", "mamba_d_ssm", "97", "mamba_n_heads is 6, expected heads that share the channels of mamba_d_ssm" },
    { "falcon_h1", "num_hidden_layers", "4", "tensor 'model.layers.3.input_layernorm.weight' is missing" },
    { "falcon_h1", "num_hidden_layers", "2", "is unexpected in a model of falcon_h1" },
    { "lfm2", "conv_bias", "true", "conv_bias is true, expected false" },
    { "lfm2", "intermediate_size", "113",
      "'model.layers.0.feed_forward.w1.weight' is [112,64], the configuration makes it [113,64]" },
};

/* root gets the tensors of a family and its configuration with one key set to a JSON text, or without it. */
static void change_config(const char *root, const char *name, const char *key, const char *value) {
    char path[TEST_PATH + 32], tensors[TEST_PATH + 32];
    json_t *config;
    snprintf(path, sizeof path, "%s/config.json", family(name));
    OK(pal_json_read(&config, path, err));
    if (value) json_object_set_new(config, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else json_object_del(config, key);
    snprintf(tensors, sizeof tensors, "%s/model.safetensors", family(name));
    test_join(path, root, "model.safetensors");
    assert_int_equal(symlink(tensors, path), 0);
    test_join(path, root, "config.json");
    OK(pal_json_write(path, config, err));
    json_decref(config);
}

static void what_is_not_supported_is_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < PAL_COUNT(refused); i++) {
        char root[256];
        pal_model *model;
        pal_error why;
        test_directory(root);
        change_config(root, refused[i].directory, refused[i].key, refused[i].value);
        const pal_status st = pal_model_open(&model, root, PAL_FOR_INFERENCE, cx, &why);
        if (st != PAL_E_UNSUPPORTED && st != PAL_E_FORMAT)
            fail_msg("%s with %s: status %d", refused[i].directory, refused[i].key, st);
        if (!strstr(why.text, refused[i].sentence) || !strstr(why.text, root))
            fail_msg("%s with %s: '%s', expected '%s'", refused[i].directory, refused[i].key, why.text,
                     refused[i].sentence);
        test_remove(root);
    }
}

/* GGUF files of families have no word for limits of time steps: such a model gets an architecture of ours. */
static void limits_of_time_steps_survive_gguf(void **state) {
    (void)state;
    static const char *const names[] = { "granite_4_h", "nemotron_h", "falcon_h1" };
    int32_t ids[24];
    for (int i = 0; i < 24; i++) ids[i] = (i * 37 + 11) % 288;
    for (size_t f = 0; f < PAL_COUNT(names); f++) {
        char root[256], original[TEST_PATH];
        size_t count;
        test_directory(root);
        snprintf(original, sizeof original, "%s", family(names[f]));
        change_config(root, names[f], "time_step_limit", "[0.01, 0.1]");
        const char *gguf = convert(root, root, "model.gguf", PAL_LAYOUT_GGUF);
        float *free_steps = logits_of(original, PAL_FOR_INFERENCE, ids, 24, &count);
        float *limited = logits_of(root, PAL_FOR_INFERENCE, ids, 24, &count);
        float *written = logits_of(gguf, PAL_FOR_INFERENCE, ids, 24, &count);
        double *expected = malloc(count * sizeof *expected);
        for (size_t i = 0; i < count; i++) expected[i] = (double)limited[i];
        assert_true(apart(free_steps, expected, count) > 1e-3);
        if (!(apart(written, expected, count) <= 1e-5)) fail_msg("%s: the limit is lost in GGUF", names[f]);
        free(free_steps);
        free(limited);
        free(written);
        free(expected);
        test_remove(root);
    }
}

/* Which layers attend: every so many-th, or as a list of true and false says, which may be numbers. */
static void gguf_files_may_list_recurrent_layers(void **state) {
    (void)state;
    static const char *const lists[] = { "[true, true, false, true]", "[1, 1, 0, 1]" };
    const pal_family *qwen = pal_family_of_gguf("qwen35");
    char path[TEST_PATH + 32];
    json_t *config, *pairs, *back;
    snprintf(path, sizeof path, "%s/config.json", family("qwen3_5_untied"));
    OK(pal_json_read(&config, path, err));
    OK(pal_family_to_gguf(&pairs, qwen, config, path, err));
    for (size_t i = 0; i < PAL_COUNT(lists); i++) {
        json_object_set_new(pairs, "attention.recurrent_layers", json_loads(lists[i], 0, NULL));
        OK(pal_family_from_gguf(&back, qwen, pairs, 288, true, "file.gguf", err));
        for (size_t k = 0; k < 4; k++) {
            const json_t *kind = json_array_get(json_object_get(back, "layer_types"), k);
            assert_string_equal(json_string_value(kind), k == 2 ? "full_attention" : "linear_attention");
        }
        json_decref(back);
    }
    json_decref(pairs);
    json_decref(config);
}

/* Converters state that a model has no experts, or leave it out. */
static void gguf_files_may_state_that_there_are_no_experts(void **state) {
    (void)state;
    static const struct {
        const char *key;
        int value;
        bool taken;
    } cases[] = { { NULL, 0, true }, { "expert_count", 0, true }, { "expert_count", 64, false } };
    const pal_family *granite = pal_family_of_gguf("granitehybrid");
    char path[TEST_PATH + 32];
    json_t *config, *pairs, *back;
    pal_error why;
    snprintf(path, sizeof path, "%s/config.json", family("granite_4_h"));
    OK(pal_json_read(&config, path, err));
    OK(pal_family_to_gguf(&pairs, granite, config, path, err));
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        if (cases[i].key) json_object_set_new(pairs, cases[i].key, json_integer(cases[i].value));
        const pal_status st = pal_family_from_gguf(&back, granite, pairs, 288, false, "file.gguf", &why);
        if (cases[i].taken != (st == PAL_OK)) fail_msg("case %zu: %s", i, st ? why.text : "was taken");
        if (st) assert_non_null(strstr(why.text, "file.gguf: granitehybrid.expert_count is 64, expected 0"));
        json_decref(back);
    }
    json_decref(pairs);
    json_decref(config);
}

static int make_context(void **state) {
    (void)state;
    pal_error err;
    return pal_context_new(&cx, 2, NULL, &err);
}

static int free_context(void **state) {
    (void)state;
    pal_context_free(cx);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_files_compute_what_was_recorded),
        cmocka_unit_test(matrices_stay_mapped),
        cmocka_unit_test(families_survive_every_conversion),
        cmocka_unit_test(what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(limits_of_time_steps_survive_gguf),
        cmocka_unit_test(gguf_files_may_state_that_there_are_no_experts),
        cmocka_unit_test(gguf_files_may_list_recurrent_layers),
    };
    return cmocka_run_group_tests(tests, make_context, free_context);
}
