/* SPDX-License-Identifier: MIT */
/* Models as files: what is written is read again, by us and by others; what is broken is refused. */
#include "support/support.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/half.h"
#include "base/log.h"
#include "base/random.h"
#include "format/model_dir.h"
#include "model/model.h"
#include "support/files.h"
#include "support/models.h"

enum { V = TEST_VOCAB, LENGTH = 11, MOST_ROWS = 32 };

/* Logits of the last of LENGTH fixed tokens. */
static void last_logits(const pal_model *model, const pal_context *cx, float out[MOST_ROWS]) {
    int32_t ids[LENGTH];
    test_ids(ids, LENGTH, V, 3);
    test_last_logits(model, cx, ids, LENGTH, out);
}

static void saving_loading_and_saving_gives_identical_bytes(void **state) {
    (void)state;
    static const pal_dtype dtypes[] = { PAL_F32, PAL_BF16, PAL_F16 };
    pal_context *cx = test_context(2, NULL);
    char root[256], first[512], second[512], command[1400];
    test_directory(root);
    test_join(first, root, "first");
    test_join(second, root, "second");
    for (size_t k = 0; k < test_kind_count; k++)
        for (size_t d = 0; d < PAL_COUNT(dtypes); d++) {
            if (d && k % 5) continue;
            pal_model *model = test_model(&test_kinds[k], PAL_FOR_TRAINING, cx), *again;
            float before[MOST_ROWS], after[MOST_ROWS];
            last_logits(model, cx, before);
            OK(pal_model_save(model, first, dtypes[d], err));
            const size_t parameters = pal_model_parameters(model);
            pal_model_close(model);
            OK(pal_model_open(&again, first, d ? PAL_FOR_INFERENCE : PAL_FOR_TRAINING, cx, err));
            assert_int_equal(pal_model_parameters(again), parameters);
            const size_t rows = (size_t)pal_model_config_of(again)->vocab_rows;
            last_logits(again, cx, after);
            if (d == 0) test_same_bits(test_kinds[k].name, after, before, rows);
            else test_near(test_kinds[k].name, after, before, rows, 0.2);
            OK(pal_model_save(again, second, dtypes[d], err));
            pal_model_close(again);
            static const char *const files[] = { "model.safetensors", "config.json" };
            for (int i = 0; i < 2; i++) {
                const test_blob a = test_slurp(first, files[i]), b = test_slurp(second, files[i]);
                if (a.size != b.size || memcmp(a.bytes, b.bytes, a.size) != 0)
                    fail_msg("%s: %s changed", test_kinds[k].name, files[i]);
                free(a.bytes);
                free(b.bytes);
            }
            snprintf(command, sizeof command, "python3 '%s/../project/read_model.py' '%s' > /dev/null", PAL_TEST_GOLDEN,
                     second);
            if (system(command) != 0) fail_msg("%s: another reader cannot read what was written", test_kinds[k].name);
        }
    test_remove(root);
    pal_context_free(cx);
}

/* The reader pads by 8 where no multiple is given; 20 tokens make 24 rows so, and 32 by 16. */
static void official_models_without_a_padding_key_keep_their_rows(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    char root[256], first[512], second[512];
    test_directory(root);
    test_join(first, root, "first");
    test_join(second, root, "second");
    const pal_preset_options options = { .vocab = 20, .hidden = 20, .layers = 2, .head_dim = 10, .state_size = 6 };
    pal_model_config c;
    pal_model *model;
    OK(pal_model_preset(&c, "mamba2-130m", &options, err));
    c.vocab_rows = 24;
    OK(pal_model_new(&model, &c, 1, PAL_FOR_TRAINING, cx, err));
    OK(pal_model_save(model, first, PAL_F32, err));
    pal_model_close(model);
    char path[600];
    snprintf(path, sizeof path, "%s/config.json", first);
    json_t *config;
    OK(pal_json_read(&config, path, err));
    json_object_del(config, "pad_vocab_size_multiple");
    OK(pal_json_write(path, config, err));
    json_decref(config);
    const char *const folders[] = { first, second };
    for (int i = 0; i < 2; i++) {
        OK(pal_model_open(&model, folders[i], PAL_FOR_TRAINING, cx, err));
        assert_int_equal(pal_model_config_of(model)->vocab_rows, 24);
        if (i == 0) OK(pal_model_save(model, second, PAL_F32, err));
        pal_model_close(model);
    }
    test_remove(root);
    pal_context_free(cx);
}

static void paths_that_do_not_fit_are_refused(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    pal_model *model = test_model(&test_kinds[0], PAL_FOR_TRAINING, cx);
    pal_model_dir dir;
    pal_error err;
    char path[5001] = "";
    memset(path, 'x', sizeof path - 1);
    assert_int_equal(pal_model_save(model, path, PAL_F32, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "the path is too long (5018 bytes)"));
    assert_int_equal(pal_model_dir_open(&dir, path, false, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "the path is too long (5000 bytes)"));
    pal_model_close(model);
    pal_context_free(cx);
}

static void inference_reads_matrices_where_the_file_has_them(void **state) {
    (void)state;
    pal_context *cx = test_context(2, NULL);
    char root[256];
    test_directory(root);
    for (size_t k = 0; k < test_kind_count; k++) {
        pal_model *model = test_model(&test_kinds[k], PAL_FOR_TRAINING, cx), *mapped;
        float a[MOST_ROWS], b[MOST_ROWS];
        last_logits(model, cx, a);
        OK(pal_model_save(model, root, PAL_F32, err));
        OK(pal_model_open(&mapped, root, PAL_FOR_INFERENCE, cx, err));
        last_logits(mapped, cx, b);
        test_near(test_kinds[k].name, b, a, (size_t)pal_model_config_of(model)->vocab_rows, 1e-5);
        size_t matrices = 0;
        for (size_t i = 0; i < pal_model_weight_count(mapped); i++)
            matrices += pal_model_weight(mapped, i)->quantisable ? pal_model_weight(mapped, i)->count : 0;
        assert_true(mapped->table.flat <=
                    pal_model_parameters(mapped) - matrices + 16 * pal_model_weight_count(mapped));
        assert_true(pal_model_fingerprint(mapped) == pal_model_fingerprint(model));
        model->parameters[5] += 1;
        assert_true(pal_model_fingerprint(mapped) != pal_model_fingerprint(model));
        pal_model_close(mapped);
        pal_model_close(model);
    }
    test_remove(root);
    pal_context_free(cx);
}

/* Tensors of a directory in memory, with one changed dtype each, to be written as anything. */
typedef struct {
    pal_model_dir dir;
    pal_tensor tensors[128];
    size_t count;
    void *blocks[128];
} unpacked;

static void unpack(unpacked *u, const char *directory) {
    OK(pal_model_dir_open(&u->dir, directory, true, err));
    assert_true(u->dir.count <= PAL_COUNT(u->tensors));
    u->count = u->dir.count;
    for (size_t i = 0; i < u->count; i++) u->tensors[i] = *u->dir.tensors[i], u->blocks[i] = NULL;
}

static void unpack_done(unpacked *u) {
    for (size_t i = 0; i < u->count; i++) free(u->blocks[i]);
    pal_model_dir_close(&u->dir);
}

static void convert(unpacked *u, size_t i, pal_dtype dtype) {
    pal_tensor *t = &u->tensors[i];
    const float *from = t->data;
    u->blocks[i] = malloc(t->count * 8);
    for (size_t j = 0; j < t->count; j++) {
        if (dtype == PAL_F64) ((double *)u->blocks[i])[j] = (double)from[j];
        else ((uint16_t *)u->blocks[i])[j] = dtype == PAL_BF16 ? pal_f32_to_bf16(from[j]) : pal_f32_to_f16(from[j]);
    }
    t->data = u->blocks[i];
    t->dtype = dtype;
}

static void shards_and_other_dtypes_are_read(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    char root[256], path[512];
    float a[MOST_ROWS], b[MOST_ROWS];
    unpacked u;
    pal_error why;
    test_directory(root);
    pal_model *model = test_model(&test_kinds[3], PAL_FOR_TRAINING, cx), *sharded;
    /* Values that f16 and bf16 hold exactly. */
    for (size_t i = 0; i < pal_model_flat(model); i++)
        model->parameters[i] = pal_bf16_to_f32(pal_f32_to_bf16(pal_f16_to_f32(pal_f32_to_f16(model->parameters[i]))));
    last_logits(model, cx, a);
    OK(pal_model_save(model, root, PAL_F32, err));
    unpack(&u, root);
    for (size_t i = 0; i < u.count; i++)
        if (i % 4) convert(&u, i, i % 4 == 1 ? PAL_F64 : i % 4 == 2 ? PAL_BF16 : PAL_F16);
    const size_t half = u.count / 2;
    json_t *map = json_object();
    for (size_t i = 0; i < u.count; i++)
        json_object_set_new(
            map, u.tensors[i].name,
            json_string(i < half ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors"));
    test_join(path, root, "model-00001-of-00002.safetensors");
    OK(pal_safetensors_write(path, u.tensors, half, NULL, err));
    test_join(path, root, "model-00002-of-00002.safetensors");
    OK(pal_safetensors_write(path, u.tensors + half, u.count - half, NULL, err));
    json_t *index = json_pack("{s:{s:i}, s:O}", "metadata", "total_size", 1, "weight_map", map);
    test_join(path, root, "model.safetensors.index.json");
    assert_int_equal(json_dump_file(index, path, 0), 0);
    unpack_done(&u);
    test_join(path, root, "model.safetensors");
    unlink(path);
    for (int use = PAL_FOR_INFERENCE; use <= PAL_FOR_TRAINING; use++) {
        if (pal_model_open(&sharded, root, (pal_model_use)use, cx, &why)) fail_msg("%s", why.text);
        last_logits(sharded, cx, b);
        test_near("shards", b, a, (size_t)pal_model_config_of(model)->vocab_rows, 1e-6);
        pal_model_close(sharded);
    }
    json_object_set_new(map, "a.tensor.that.is.not.there", json_string("model-00001-of-00002.safetensors"));
    test_join(path, root, "model.safetensors.index.json");
    json_dump_file(index, path, 0);
    assert_int_equal(pal_model_open(&sharded, root, PAL_FOR_INFERENCE, cx, &why), PAL_E_FORMAT);
    assert_non_null(strstr(why.text, "a.tensor.that.is.not.there"));
    json_object_set_new(map, "a.tensor.that.is.not.there", json_string("../etc/passwd"));
    json_dump_file(index, path, 0);
    assert_int_equal(pal_model_open(&sharded, root, PAL_FOR_INFERENCE, cx, &why), PAL_E_FORMAT);
    json_object_set_new(map, "a.tensor.that.is.not.there", json_string("model-00003.safetensors"));
    json_dump_file(index, path, 0);
    assert_int_equal(pal_model_open(&sharded, root, PAL_FOR_INFERENCE, cx, &why), PAL_E_IO);
    assert_non_null(strstr(why.text, "model-00003.safetensors"));
    json_decref(index);
    json_decref(map);
    pal_model_close(model);
    test_remove(root);
    pal_context_free(cx);
}

static void everything_wrong_with_tensors_is_in_one_sentence(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    char root[256], path[512];
    unpacked u;
    pal_error why;
    pal_model *model = test_model(&test_kinds[0], PAL_FOR_TRAINING, cx), *broken;
    test_directory(root);
    OK(pal_model_save(model, root, PAL_F32, err));
    pal_model_close(model);
    unpack(&u, root);
    char missing[160] = "", wrong[160] = "", typed[160] = "";
    for (size_t i = 0; i < u.count; i++) {
        pal_tensor *t = &u.tensors[i];
        if (strstr(t->name, "1.attn.k_proj"))
            snprintf(missing, sizeof missing, "%s", t->name), t->name = "an.unknown.tensor";
        else if (strstr(t->name, "0.mlp.down_proj"))
            snprintf(wrong, sizeof wrong, "%s", t->name), t->shape[0] = t->shape[0] * t->shape[1], t->rank = 1;
        else if (strstr(t->name, "0.attn.A_log")) snprintf(typed, sizeof typed, "%s", t->name), t->dtype = PAL_I32;
    }
    test_join(path, root, "model.safetensors");
    OK(pal_safetensors_write(path, u.tensors, u.count, NULL, err));
    unpack_done(&u);
    assert_int_equal(pal_model_open(&broken, root, PAL_FOR_INFERENCE, cx, &why), PAL_E_FORMAT);
    assert_null(broken);
    if (!strstr(why.text, missing) || !strstr(why.text, wrong) || !strstr(why.text, typed) ||
        !strstr(why.text, "an.unknown.tensor"))
        fail_msg("%s", why.text);
    test_remove(root);
    pal_context_free(cx);
}

static void tied_heads_are_handled_both_ways(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    char root[256], path[512];
    unpacked u;
    pal_error why;
    pal_model *model = test_model(&test_kinds[3], PAL_FOR_TRAINING, cx), *again;
    test_directory(root);
    test_join(path, root, "model.safetensors");
    OK(pal_model_save(model, root, PAL_F32, err));
    unpack(&u, root);
    size_t embedding = 0;
    while (!strstr(u.tensors[embedding].name, "embeddings")) embedding++;
    u.tensors[u.count] = u.tensors[embedding];
    u.tensors[u.count].name = "lm_head.weight";
    OK(pal_safetensors_write(path, u.tensors, u.count + 1, NULL, err)); /* tied and stored twice */
    OK(pal_model_open(&again, root, PAL_FOR_INFERENCE, cx, err));
    pal_model_close(again);
    const pal_tensor table = u.tensors[embedding];
    double *wide = malloc(table.count * sizeof *wide);
    assert_non_null(wide);
    for (size_t i = 0; i < table.count; i++) wide[i] = ((const float *)table.data)[i];
    u.tensors[u.count].dtype = PAL_F64;
    u.tensors[u.count].data = wide;
    OK(pal_safetensors_write(path, u.tensors, u.count + 1, NULL, err)); /* the same numbers in another dtype */
    OK(pal_model_open(&again, root, PAL_FOR_INFERENCE, cx, err));
    pal_model_close(again);
    wide[table.count - 1] += 1;
    OK(pal_safetensors_write(path, u.tensors, u.count + 1, NULL, err));
    assert_int_equal(pal_model_open(&again, root, PAL_FOR_INFERENCE, cx, &why), PAL_E_FORMAT);
    assert_non_null(strstr(why.text, "lm_head.weight"));
    free(wide);
    u.tensors[u.count] = table; /* the same bytes, lying the other way */
    u.tensors[u.count].name = "lm_head.weight";
    u.tensors[u.count].shape[0] = table.shape[1];
    u.tensors[u.count].shape[1] = table.shape[0];
    OK(pal_safetensors_write(path, u.tensors, u.count + 1, NULL, err));
    assert_int_equal(pal_model_open(&again, root, PAL_FOR_INFERENCE, cx, &why), PAL_E_FORMAT);
    u.tensors[u.count] = table;
    u.tensors[u.count].name = "lm_head.weight";
    float *other = malloc(table.count * sizeof *other);
    memcpy(other, table.data, table.count * sizeof *other);
    other[3] += 1;
    u.tensors[u.count].data = other;
    OK(pal_safetensors_write(path, u.tensors, u.count + 1, NULL, err)); /* tied, but not the same */
    assert_int_equal(pal_model_open(&again, root, PAL_FOR_INFERENCE, cx, &why), PAL_E_FORMAT);
    assert_non_null(strstr(why.text, "lm_head.weight"));
    test_blob config = test_slurp(root, "config.json");
    char *key = strstr(config.bytes, "\"tie_word_embeddings\": true");
    assert_non_null(key);
    memcpy(key, "\"tie_word_embeddings\":false", 26);
    test_spill(root, "config.json", config.bytes, config.size);
    OK(pal_model_open(&again, root, PAL_FOR_TRAINING, cx, err)); /* untied */
    assert_true(pal_model_parameters(again) == pal_model_parameters(model) + table.count);
    pal_model_close(again);
    OK(pal_safetensors_write(path, u.tensors, u.count, NULL, err)); /* untied and absent */
    assert_int_equal(pal_model_open(&again, root, PAL_FOR_INFERENCE, cx, &why), PAL_E_FORMAT);
    free(other);
    free(config.bytes);
    unpack_done(&u);
    pal_model_close(model);
    test_remove(root);
    pal_context_free(cx);
}

/* Every size that tensors say is taken from them when config.json is silent. */
static void sizes_come_from_tensors_when_unstated(void **state) {
    (void)state;
    static const char *const silent[] = {
        "hidden_size",       "num_hidden_layers",  "vocab_size", "num_heads", "num_kv_heads",
        "head_dim",          "expand_v",           "expand",     "conv_size", "conv_kernel",
        "intermediate_size", "beta_step_rank",     "state_size", "d_model",   "n_layer",
        "n_layers",          "tie_word_embeddings"
    };
    pal_context *cx = test_context(1, NULL);
    char root[256], path[512];
    test_directory(root);
    test_join(path, root, "config.json");
    for (size_t k = 0; k < test_kind_count; k++) {
        if (test_kinds[k].blocks) continue; /* a list of blocks states all sizes */
        pal_model *model = test_model(&test_kinds[k], PAL_FOR_TRAINING, cx);
        pal_model_config back;
        OK(pal_model_save(model, root, PAL_F32, err));
        json_t *config = json_load_file(path, 0, NULL), *mixer = json_object_get(config, "sequence_mixer"),
               *ssm = json_object_get(config, "ssm_cfg");
        const bool attention = pal_model_grows(pal_model_config_of(model));
        for (size_t i = 0; i < PAL_COUNT(silent); i++) {
            if (attention && strcmp(silent[i], "num_heads") == 0) continue; /* no tensor says them */
            if (ssm && strcmp(silent[i], "vocab_size") == 0) continue;      /* nor what is padding */
            json_object_del(config, silent[i]);
            if (mixer) json_object_del(mixer, silent[i]);
            if (ssm) json_object_del(ssm, silent[i]);
        }
        if (ssm) json_object_del(ssm, "d_state"), json_object_del(ssm, "headdim");
        assert_int_equal(json_dump_file(config, path, 0), 0);
        json_decref(config);
        OK(pal_model_read_config(&back, root, err));
        pal_model_config expected = *pal_model_config_of(model);
        expected.init_range = back.init_range; /* says nothing about what is stored */
        expected.block[0].mixer[0].rank = back.block[0].mixer[0].rank = 0; /* without a gate no tensor says its rank */
        if (memcmp(&expected, &back, sizeof back) != 0) fail_msg("%s: sizes were not found again", test_kinds[k].name);
        pal_model_close(model);
    }
    test_remove(root);
    pal_context_free(cx);
}

static int warnings;
static void count_warning(void *user, const char *sentence) {
    (void)user;
    if (strstr(sentence, "NaN") && strstr(sentence, "norm")) warnings++;
}

static void weights_of_nan_are_warned_of(void **state) {
    (void)state;
    pal_context *cx = test_context(2, NULL);
    char root[256];
    test_directory(root);
    pal_model *model = test_model(&test_kinds[0], PAL_FOR_TRAINING, cx), *again;
    model->parameters[pal_model_find_weight(model, "model.norm.weight")->offset + 2] = NAN;
    OK(pal_model_save(model, root, PAL_F32, err));
    pal_log_listen(count_warning, NULL);
    OK(pal_model_open(&again, root, PAL_FOR_INFERENCE, cx, err));
    pal_log_listen(NULL, NULL);
    assert_int_equal(warnings, 1);
    pal_model_close(again);
    pal_model_close(model);
    test_remove(root);
    pal_context_free(cx);
}

static void a_file_cut_at_any_byte_is_refused(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    char root[256];
    pal_error why;
    test_directory(root);
    pal_model *model = test_model(&test_kinds[9], PAL_FOR_TRAINING, cx), *cut;
    OK(pal_model_save(model, root, PAL_BF16, err));
    pal_model_close(model);
    const test_blob whole = test_slurp(root, "model.safetensors");
    const size_t stride = getenv("PALIMPSA_TEST_LONG") ? 1 : 37;
    for (size_t size = 0; size < whole.size; size += size < 64 ? 1 : stride) {
        test_spill(root, "model.safetensors", whole.bytes, size);
        if (pal_model_open(&cut, root, PAL_FOR_INFERENCE, cx, &why) == PAL_OK)
            fail_msg("a file of %zu instead of %zu bytes was accepted", size, whole.size);
    }
    test_spill(root, "model.safetensors", whole.bytes, whole.size);
    const test_blob config = test_slurp(root, "config.json");
    for (size_t size = 0; size + 2 < config.size; size++) {
        test_spill(root, "config.json", config.bytes, size);
        assert_int_not_equal(pal_model_open(&cut, root, PAL_FOR_INFERENCE, cx, &why), PAL_OK);
    }
    free(whole.bytes);
    free(config.bytes);
    test_remove(root);
    pal_context_free(cx);
}

/* In config.json and in the header: an error or the same values. In the data: that value. */
static void a_flipped_bit_is_refused_or_changes_one_value(void **state) {
    (void)state;
    static const char *const files[] = { "config.json", "model.safetensors" };
    pal_context *cx = test_context(1, NULL);
    char root[256], path[512];
    pal_error why;
    test_directory(root);
    pal_model *model = test_model(&test_kinds[9], PAL_FOR_TRAINING, cx), *flipped;
    OK(pal_model_save(model, root, PAL_F32, err));
    const size_t values = pal_model_flat(model);
    pal_log_listen(count_warning, NULL); /* of values that are not finite any more */
    for (int f = 0; f < 2; f++) {
        const test_blob whole = test_slurp(root, files[f]);
        uint64_t header = whole.size;
        if (f) memcpy(&header, whole.bytes, sizeof header), header += 8;
        int refused = 0, changed = 0;
        pal_rng rng = pal_rng_at(3, (uint64_t)f);
        test_join(path, root, files[f]);
        const int fd = open(path, O_WRONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        for (int i = 0; i < test_cases(300, 10000); i++) {
            const size_t at = pal_rng_below(&rng, (uint32_t)(i % 2 ? whole.size : header));
            const unsigned bit = pal_rng_below(&rng, 8);
            const unsigned char byte = (unsigned char)((unsigned char)whole.bytes[at] ^ 1u << bit);
            assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
            why.text[0] = 0;
            if (pal_model_open(&flipped, root, PAL_FOR_TRAINING, cx, &why)) {
                refused++;
                if (!why.text[0] || at >= header)
                    fail_msg("%s, byte %zu, bit %u: refused with '%s'", files[f], at, bit, why.text);
            } else {
                size_t differences = 0;
                assert_int_equal(pal_model_flat(flipped), values);
                for (size_t k = 0; k < values; k++)
                    if (memcmp(&flipped->parameters[k], &model->parameters[k], sizeof(float)) != 0) differences++;
                changed += differences > 0;
                if (differences > (size_t)(at >= header))
                    fail_msg("%s, byte %zu, bit %u: %zu values changed", files[f], at, bit, differences);
                pal_model_close(flipped);
            }
            assert_int_equal(pwrite(fd, &whole.bytes[at], 1, (off_t)at), 1);
        }
        close(fd);
        assert_true(refused > 20 && (!f || changed > 20));
        free(whole.bytes);
    }
    pal_log_listen(NULL, NULL);
    pal_model_close(model);
    test_remove(root);
    pal_context_free(cx);
}

static void a_run_directory_means_its_newest_checkpoint(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    char root[256], path[512];
    test_directory(root);
    test_join(path, root, "checkpoints");
    mkdir(path, 0777);
    test_spill(root, "config.json", "{}", 2);
    static const struct {
        const char *name;
        float mark;
    } steps[] = { { "checkpoints/step-9", 9 }, { "checkpoints/step-100", 100 }, { "checkpoints/step-20", 20 } };
    for (size_t i = 0; i < PAL_COUNT(steps); i++) {
        pal_model *model = test_model(&test_kinds[9], PAL_FOR_TRAINING, cx);
        model->parameters[0] = steps[i].mark;
        test_join(path, root, steps[i].name);
        OK(pal_model_save(model, path, PAL_F32, err));
        pal_model_close(model);
    }
    test_join(path, root, "checkpoints/step-300"); /* never finished */
    mkdir(path, 0777);
    pal_model *newest;
    OK(pal_model_open(&newest, root, PAL_FOR_INFERENCE, cx, err));
    float first;
    pal_weight_read(pal_model_weight(newest, 0), 0, 1, &first);
    assert_true(first == 100);
    pal_model_close(newest);
    test_remove(root);
    pal_context_free(cx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saving_loading_and_saving_gives_identical_bytes),
        cmocka_unit_test(official_models_without_a_padding_key_keep_their_rows),
        cmocka_unit_test(paths_that_do_not_fit_are_refused),
        cmocka_unit_test(inference_reads_matrices_where_the_file_has_them),
        cmocka_unit_test(shards_and_other_dtypes_are_read),
        cmocka_unit_test(everything_wrong_with_tensors_is_in_one_sentence),
        cmocka_unit_test(tied_heads_are_handled_both_ways),
        cmocka_unit_test(sizes_come_from_tensors_when_unstated),
        cmocka_unit_test(weights_of_nan_are_warned_of),
        cmocka_unit_test(a_file_cut_at_any_byte_is_refused),
        cmocka_unit_test(a_flipped_bit_is_refused_or_changes_one_value),
        cmocka_unit_test(a_run_directory_means_its_newest_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
