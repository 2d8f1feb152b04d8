/* SPDX-License-Identifier: MIT */
/* Configurations, presets, the table of weights and initial values: what can be said about a model before it runs. */
#include "support/support.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>

#include "base/alloc.h"
#include "model/weights.h"

static size_t parameters_of(const pal_model_config *c) {
    pal_weight_table table;
    pal_error err;
    if (pal_weights_list(&table, c, NULL, NULL, &err)) fail_msg("%s", err.text);
    const size_t n = table.parameters;
    pal_weights_release(&table);
    return n;
}

static pal_model_config preset(const char *name, pal_preset_options options) {
    pal_model_config c;
    pal_error err;
    if (pal_model_preset(&c, name, &options, &err)) fail_msg("%s", err.text);
    return c;
}

static void presets_have_the_published_sizes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double expand_v;
        size_t parameters;
    } published[] = {
        { "palimpsa-d-170m", 0, 172337792 },     { "palimpsa-d-170m", 2, 206717456 },
        { "palimpsa-d-760m", 0, 776248880 },     { "palimpsa-d-wo-meta-170m", 0, 172337792 },
        { "palimpsa-m-170m", 0, 170353248 },     { "palimpsa-m-760m", 0, 785468896 },
        { "gated-deltanet-170m", 0, 170936048 }, { "gated-deltanet-170m", 2, 204615296 },
        { "gated-deltanet-760m", 0, 767842976 }, { "gated-deltanet-760m", 1, 633244544 },
        { "transformer-170m", 0, 166165248 },    { "transformer-760m", 0, 757019136 },
        { "mamba2-2.7b", 0, 2702599680 },        { "mamba2-130m", 0, 128989632 },
    };
    for (size_t i = 0; i < PAL_COUNT(published); i++) {
        const pal_model_config c = preset(published[i].name, (pal_preset_options){ .expand_v = published[i].expand_v });
        const size_t found = parameters_of(&c);
        if (found != published[i].parameters)
            fail_msg("%s (expand_v %g): %zu parameters, published %zu", published[i].name, published[i].expand_v, found,
                     published[i].parameters);
    }
    for (int i = 0; pal_model_preset_at(i); i++) {
        const pal_model_config c = preset(pal_model_preset_at(i), (pal_preset_options){ .task = "text" });
        assert_true(parameters_of(&c) > 0);
    }
}

static void bare_names_take_the_size_of_their_task(void **state) {
    (void)state;
    const pal_model_config d = preset("palimpsa-d", (pal_preset_options){ .task = "mqar" });
    assert_true(d.mqar && d.vocab == 8192 && d.hidden == 128 && d.layers == 2 && d.block[0].mixer[0].heads == 8 &&
                d.block[0].mixer[0].dk == 16 && d.block[0].mixer[0].dv == 32 && d.block[0].mixer[0].rank == 8 &&
                d.block[0].mlp == 0);
    const pal_model_config m = preset("palimpsa-m-wo-meta", (pal_preset_options){ .task = "mqar" });
    assert_true(m.block[0].mixer[0].dk == 16 && m.block[0].mixer[0].dv == 32 && m.block[0].mixer[0].heads == 8 &&
                m.block[0].mixer[0].key_heads == 8 && m.block[0].mixer[0].proj_bias && !m.block[0].mixer[0].conv_bias &&
                !m.metaplasticity);
    const pal_model_config wide = preset("palimpsa-d",
                                         (pal_preset_options){ .task = "mqar", .hidden = 64, .heads = 4 });
    assert_true(wide.block[0].mixer[0].heads == 4 && wide.block[0].mixer[0].dk == 16 &&
                wide.block[0].mixer[0].rank == 4);
    const pal_model_config delta = preset("palimpsa-d", (pal_preset_options){ .task = "mqar", .rule = "delta" });
    assert_string_equal(pal_model_layer_rule(&delta, 0), "delta");
}

static void any_width_gets_heads_that_share_it(void **state) {
    (void)state;
    for (int i = 0; pal_model_preset_at(i); i++)
        for (int hidden = 16; hidden <= 128; hidden += 16) {
            const pal_model_config c = preset(pal_model_preset_at(i),
                                              (pal_preset_options){ .task = "text", .hidden = hidden });
            if (c.block[0].mixer[0].kind == PAL_MIXER_ATTENTION)
                assert_int_equal(c.block[0].mixer[0].heads * c.block[0].mixer[0].dk, hidden);
            if (c.block[0].mixer[0].kind == PAL_MIXER_M)
                assert_int_equal(c.block[0].mixer[0].heads * c.block[0].mixer[0].dv, 2 * hidden);
        }
}

static void wrong_names_are_refused_with_the_nearest(void **state) {
    (void)state;
    pal_model_config c;
    pal_error err;
    assert_int_equal(pal_model_preset(&c, "palimsa-d-170m", NULL, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "palimpsa-d-170m"));
    assert_int_equal(pal_model_preset(&c, "palimpsa-d", NULL, &err), PAL_E_ARGUMENT);
    assert_int_equal(pal_model_preset(&c, "palimpsa-d-mqar", NULL, &err), PAL_E_ARGUMENT);
    assert_int_equal(pal_model_preset(&c, "mamba2", &(pal_preset_options){ .task = "text" }, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "mamba2-130m")); /* and not that names begin with mamba2 */
    assert_int_equal(
        pal_model_preset(&c, "palimpsa-d", &(pal_preset_options){ .task = "mqar", .rule = "attention" }, &err),
        PAL_E_ARGUMENT);
    assert_int_equal(pal_model_preset(&c, "transformer-170m", &(pal_preset_options){ .rule = "delta" }, &err),
                     PAL_E_ARGUMENT);
    assert_int_equal(pal_model_preset(&c, "transformer-170m", &(pal_preset_options){ .heads = 7 }, &err),
                     PAL_E_ARGUMENT);
}

/* Sizes that no int holds are refused as what they are, not as what is left of them. */
static void sizes_beyond_counting_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *name;
        pal_preset_options options;
        const char *found;
    } cases[] = { { "palimpsa-d-170m", { .expand_v = 1e9 }, "value width of a head is 2147483647" },
                  { "gated-deltanet-170m", { .expand_v = 1e300 }, "value width of a head is 2147483647" },
                  { "mamba2-130m", { .vocab = INT_MAX }, "2147483647" },
                  { "palimpsa-d-170m", { .hidden = INT_MAX, .heads = 16, .head_dim = 48, .mlp = 8 }, "2147483647" } };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_model_config c;
        pal_error err;
        assert_int_equal(pal_model_preset(&c, cases[i].name, &cases[i].options, &err), PAL_E_ARGUMENT);
        if (!strstr(err.text, cases[i].found)) fail_msg("%s: %s", cases[i].name, err.text);
    }
}

static void configurations_survive_json(void **state) {
    (void)state;
    for (int i = 0; pal_model_preset_at(i); i++)
        for (int mqar = 0; mqar < 2; mqar++) {
            pal_model_config c, back;
            pal_error err;
            const char *name = pal_model_preset_at(i);
            if (mqar && strncmp(name, "mamba2", 6) == 0) continue;
            if (pal_model_preset(&c, name, &(pal_preset_options){ .task = mqar ? "mqar" : "text" }, &err))
                fail_msg("%s", err.text);
            if (i % 2 && c.block[0].mixer[0].kind <= PAL_MIXER_M && !c.official) c.listed = c.metaplastic[1] = true;
            json_t *json = pal_config_write(&c, NULL);
            if (pal_config_read(&back, json, NULL, name, &err)) fail_msg("%s", err.text);
            if (memcmp(&c, &back, sizeof c) != 0)
                fail_msg("%s%s changed on its way through JSON", name, mqar ? " (mqar)" : "");
            json_decref(json);
        }
}

static void mesa_tolerance_survives_json_and_needs_its_rule(void **state) {
    (void)state;
    pal_model_config c, back;
    pal_error err;
    pal_preset_options o = { .task = "text", .rule = "mesa", .mesa_tolerance = 1e-3 };
    if (pal_model_preset(&c, "palimpsa-d", &o, &err)) fail_msg("%s", err.text);
    json_t *json = pal_config_write(&c, NULL);
    if (pal_config_read(&back, json, NULL, "test", &err)) fail_msg("%s", err.text);
    assert_memory_equal(&c, &back, sizeof c);
    json_decref(json);
    o.mesa_tolerance = 1;
    assert_int_equal(pal_model_preset(&c, "palimpsa-d", &o, &err), PAL_E_ARGUMENT);
    o = (pal_preset_options){ .task = "text", .mesa_tolerance = 1e-3 };
    assert_int_equal(pal_model_preset(&c, "palimpsa-d", &o, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "rule mesa"));
}

static void forgetting_and_norm_groups_are_chosen_by_name(void **state) {
    (void)state;
    pal_model_config c, back;
    pal_error err;
    const pal_preset_options o = { .task = "mqar", .forgetting = "normal", .norm_groups = 8 };
    c = preset("palimpsa-m", o);
    assert_true(c.forgetting == PAL_FORGET_NORMAL && c.block[0].mixer[0].norm_groups == 8);
    json_t *json = pal_config_write(&c, NULL);
    if (pal_config_read(&back, json, NULL, "test", &err)) fail_msg("%s", err.text);
    assert_memory_equal(&c, &back, sizeof c);
    json_decref(json);
    assert_int_equal(preset("palimpsa-m", (pal_preset_options){ .task = "mqar" }).block[0].mixer[0].norm_groups, 1);
    static const struct {
        const char *name, *says;
        pal_preset_options options;
    } refused[] = {
        { "palimpsa-d", "expected small, normal or very_small", { .task = "mqar", .forgetting = "large" } },
        { "palimpsa-d", "only models for recall", { .task = "text", .forgetting = "normal" } },
        { "palimpsa-d", "only Mamba2's norm has groups", { .task = "mqar", .norm_groups = 8 } },
        { "palimpsa-m", "3 norm groups", { .task = "mqar", .norm_groups = 3 } },
    };
    for (size_t i = 0; i < PAL_COUNT(refused); i++) {
        assert_int_equal(pal_model_preset(&c, refused[i].name, &refused[i].options, &err), PAL_E_ARGUMENT);
        if (!strstr(err.text, refused[i].says)) fail_msg("%s", err.text);
    }
}

static void unknown_keys_are_kept(void **state) {
    (void)state;
    pal_error err;
    pal_model_config c;
    json_t *json = json_loads(
        "{\"model_type\":\"transformer\",\"hidden_size\":8,\"num_heads\":2,\"num_hidden_layers\":1,\"vocab_size\":10,"
        "\"hidden_ratio\":4,\"bos_token_id\":7}",
        0, NULL);
    if (pal_config_read(&c, json, NULL, "test", &err)) fail_msg("%s", err.text);
    assert_int_equal(c.block[0].mlp, 256);
    json_t *again = pal_config_write(&c, json);
    assert_int_equal(json_integer_value(json_object_get(again, "bos_token_id")), 7);
    json_decref(again);
    json_decref(json);
}

static void check_refusals(const char *const (*bad)[2], size_t count) {
    for (size_t i = 0; i < count; i++) {
        pal_model_config c;
        pal_error err = { 0 };
        json_t *json = json_loads(bad[i][0], 0, NULL);
        assert_non_null(json);
        if (pal_config_read(&c, json, NULL, "config.json", &err) == PAL_OK) fail_msg("accepted %s", bad[i][0]);
        if (!strstr(err.text, bad[i][1])) fail_msg("'%s' does not speak of %s", err.text, bad[i][1]);
        json_decref(json);
    }
}

static void bad_configurations_get_one_sentence(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        { "[]", "object" },
        { "{}", "model_type" },
        { "{\"model_type\":\"bert\"}", "bert" },
        { "{\"model_type\":\"palimpsa\"}", "hidden_size" },
        { "{\"model_type\":\"palimpsa\",\"hidden_size\":64,\"vocab_size\":9,\"num_hidden_layers\":1,\"num_heads\":4,"
          "\"head_dim\":0}",
          "head_dim" },
        { "{\"model_type\":\"palimpsa\",\"hidden_size\":64,\"vocab_size\":9,\"num_hidden_layers\":1000000000,\"num_"
          "heads\":4,\"head_dim\":8}",
          "layers" },
        { "{\"model_type\":\"palimpsa\",\"hidden_size\":64,\"vocab_size\":9,\"num_hidden_layers\":1e300,\"num_heads\":"
          "4,\"head_dim\":8}",
          "num_hidden_layers" },
        { "{\"model_type\":\"palimpsa\",\"hidden_size\":64,\"vocab_size\":9,\"num_hidden_layers\":1,\"num_heads\":4,"
          "\"head_dim\":8,\"rule\":\"attention\"}",
          "attention" },
        { "{\"model_type\":\"palimpsa\",\"hidden_size\":64,\"vocab_size\":9,\"num_hidden_layers\":1,\"num_heads\":4,"
          "\"head_dim\":8,\"num_v_heads\":8}",
          "num_v_heads" },
        { "{\"model_type\":\"palimpsa\",\"hidden_size\":64,\"vocab_size\":9,\"num_hidden_layers\":2,\"num_heads\":4,"
          "\"head_dim\":8,\"metaplastic_layers\":[2]}",
          "metaplastic_layers" },
        { "{\"model_type\":\"palimpsa\",\"hidden_size\":64,\"vocab_size\":9,\"num_hidden_layers\":2,\"num_heads\":4,"
          "\"head_dim\":8,\"use_gate\":false}",
          "use_gate" },
        { "{\"model_type\":\"palimpsa\",\"hidden_size\":\"many\",\"vocab_size\":9}", "hidden_size" },
        { "{\"model_type\":\"transformer\",\"hidden_size\":64,\"vocab_size\":9,\"num_hidden_layers\":1,\"num_heads\":"
          "5}",
          "num_heads" },
        { "{\"model_type\":\"transformer\",\"hidden_size\":64,\"vocab_size\":9,\"num_hidden_layers\":1,\"num_heads\":4,"
          "\"window_size\":3}",
          "window_size" },
        { "{\"ssm_cfg\":{\"layer\":\"Mamba1\"},\"d_model\":8,\"n_layer\":1,\"vocab_size\":9}", "Mamba2" },
        { "{\"ssm_cfg\":{\"layer\":\"Mamba2\"},\"d_model\":8,\"n_layer\":1,\"vocab_size\":9,\"attn_layer_idx\":[1]}",
          "attn_layer_idx" },
        { "{\"ssm_cfg\":{\"layer\":\"Mamba2\",\"activation\":\"gelu\"},\"d_model\":8,\"n_layer\":1,\"vocab_size\":9}",
          "ssm_cfg.activation" },
        { "{\"ssm_cfg\":{\"layer\":\"Mamba2\",\"headdim\":7},\"d_model\":8,\"n_layer\":1,\"vocab_size\":9}",
          "headdim" },
        { "{\"mqar\":true,\"block_type\":\"Other\"}", "block_type" },
    };
    check_refusals(bad, PAL_COUNT(bad));
}

/* Each number alone may stand in a file; what is computed of them must not overflow on the way to its refusal. */
static void sizes_of_configurations_do_not_overflow(void **state) {
    (void)state;
#define D_MODEL "{\"model_type\":\"palimpsa\",\"vocab_size\":9,\"num_hidden_layers\":1,\"num_heads\":4,"
#define M_MODEL "{\"model_type\":\"meta_mamba2\",\"vocab_size\":9,\"num_hidden_layers\":1,"
    static const char *const bad[][2] = {
        { D_MODEL "\"hidden_size\":64,\"head_dim\":8,\"hidden_ratio\":-1e300}", "hidden_ratio" },
        { D_MODEL "\"hidden_size\":64,\"head_dim\":8,\"hidden_ratio\":0}", "hidden_ratio" },
        { D_MODEL "\"hidden_size\":64,\"head_dim\":8,\"hidden_ratio\":1e300}", "width of the MLP" },
        { D_MODEL "\"hidden_size\":64,\"head_dim\":8,\"expand_k\":-2}", "expand_k" },
        { D_MODEL "\"hidden_size\":64,\"head_dim\":8,\"expand_v\":1e300}", "value width" },
        { D_MODEL "\"hidden_size\":1073741824,\"head_dim\":1073741824,\"expand_k\":4}", "hidden size" },
        { "{\"model_type\":\"gated_deltanet\",\"vocab_size\":9,\"num_hidden_layers\":1,\"num_heads\":4,"
          "\"hidden_size\":64,\"head_dim\":1073741824}",
          "key width" },
        { M_MODEL "\"hidden_size\":1073741824}", "hidden size" },
        { M_MODEL "\"hidden_size\":1073741824,\"expand\":4,\"head_dim\":1}", "hidden size" },
        { M_MODEL "\"hidden_size\":64,\"expand\":1e300}", "head_dim" },
        { M_MODEL "\"hidden_size\":64,\"expand\":-2}", "expand" },
        { "{\"ssm_cfg\":{\"layer\":\"Mamba2\"},\"d_model\":1073741824,\"n_layer\":1,\"vocab_size\":9}", "hidden size" },
        { "{\"ssm_cfg\":{\"layer\":\"Mamba2\"},\"d_model\":64,\"n_layer\":1,\"vocab_size\":1073741824,"
          "\"pad_vocab_size_multiple\":1073741823}",
          "vocabulary" },
    };
#undef D_MODEL
#undef M_MODEL
    check_refusals(bad, PAL_COUNT(bad));
}

static void odd_values_get_one_sentence(void **state) {
    (void)state;
#define RECALL(kind, root, mixer)                                                                     \
    "{\"mqar\":true,\"block_type\":\"" kind "\",\"d_model\":32,\"n_layers\":2,\"vocab_size\":64" root \
    ",\"sequence_mixer\":{\"head_dim\":8,\"num_heads\":4" mixer "}}"
#define D(root, mixer) RECALL("PalimpsaBlock", root, mixer)
#define TEXT(kind, more) \
    "{\"model_type\":\"" kind "\",\"hidden_size\":64,\"vocab_size\":9,\"num_hidden_layers\":1" more "}"
    static const char *const bad[][2] = {
        { D(",\"max_position_embeddings\":5", ""), "learned positions are not supported" },
        { D(",\"layer_norm_epsilon\":1e-3", ""), "equal to block_norm_eps" },
        { D(",\"block_norm_eps\":2,\"layer_norm_epsilon\":2", ""), "norm_eps is 2" },
        { D(",\"block_norm_eps\":\"x\"", ""), "block_norm_eps must be a number" },
        { D(",\"forgetting\":7", ""), "small, normal or very_small" },
        { D(",\"forgetting\":\"huge\"", ""), "small, normal or very_small" },
        { D("", ",\"rule\":7"), "the name of a memory rule" },
        { D("", ",\"rule\":\"a name that is much longer than the name of any rule could ever be\""), "memory rule" },
        { D("", ",\"metaplastic_layers\":7"), "a list of layer numbers" },
        { D("", ",\"metaplastic_layers\":[0.5]"), "layer numbers that exist" },
        { D("", ",\"metaplastic_layers\":[-1]"), "layer numbers that exist" },
        { D("", ",\"metaplasticity\":1"), "metaplasticity must be true or false" },
        { D("", ",\"mesa_tolerance\":2"), "mesa_tolerance is 2" },
        { D("", ",\"mesa_tolerance\":-1"), "mesa_tolerance is -1" },
        { D("", ",\"expand_v\":true"), "expand_v must be a number" },
        { RECALL("MetaMamba2Block", "", ",\"rule\":\"delta\""), "works on the D backbone only" },
        { "{\"mqar\":true,\"block_type\":7}", "block_type must be" },
        { "{\"mqar\":true,\"block_type\":\"PalimpsaBlock\"}", "sequence_mixer must be an object" },
        { "{\"mqar\":true,\"block_type\":\"PalimpsaBlock\",\"sequence_mixer\":[]}", "must be an object" },
        { "{\"mqar\":true,\"block_type\":\"PalimpsaBlock\",\"sequence_mixer\":{}}", "d_model is not stated" },
        { "{\"ssm_cfg\":7}", "ssm_cfg must be an object" },
        { TEXT("palimpsa", ",\"num_heads\":4,\"head_dim\":8,\"hidden_act\":7"), "silu or swish" },
        { TEXT("palimpsa", ",\"num_heads\":4,\"head_dim\":8,\"hidden_act\":\"relu\""), "silu or swish" },
        { TEXT("palimpsa", ",\"num_heads\":4,\"head_dim\":8,\"initializer_range\":-1"), "initializer_range is -1" },
        { TEXT("palimpsa", ",\"num_heads\":4,\"head_dim\":8,\"unpadded_vocab_size\":10"), "at most vocab_size" },
        { TEXT("palimpsa", ""), "num_heads is not stated" },
        { TEXT("palimpsa", ",\"num_heads\":4"), "head_dim is not stated" },
        { TEXT("transformer", ""), "num_heads is not stated" },
        { TEXT("transformer", ",\"num_heads\":4,\"rope_theta\":0"), "rope_theta is 0" },
        { TEXT("transformer", ",\"num_heads\":64"), "even head width" },
        { TEXT("transformer", ",\"num_heads\":4,\"qkv_bias\":true"), "qkv_bias must be false" },
        { TEXT("mamba2", ",\"time_step_limit\":[1]"), "two numbers" },
        { TEXT("mamba2", ",\"time_step_limit\":[\"a\",1]"), "two numbers" },
        { TEXT("mamba2", ",\"time_step_limit\":[1,\"x\"]"), "two numbers" },
        { TEXT("mamba2", ",\"time_step_limit\":[1,{\"__float__\":\"NaN\"}]"), "two numbers" },
        { TEXT("mamba2", ",\"time_step_limit\":[1,true]"), "two numbers" },
        { TEXT("mamba2", ",\"time_step_limit\":[2,1]"), "time_step_limit is [2, 1]" },
        { TEXT("mamba2", ",\"time_step_limit\":[-1,1]"), "time_step_limit is [-1, 1]" },
        { TEXT("mamba2", ",\"num_heads\":3"), "expand * hidden_size / head_dim" },
        { TEXT("mamba2", ",\"head_dim\":500"), "a divisor of" },
        { TEXT("gated_deltanet", ",\"num_heads\":4,\"head_dim\":8,\"num_v_heads\":2"), "num_v_heads" },
    };
    check_refusals(bad, PAL_COUNT(bad));
    /* Written without a number for it, the limit is infinite; a rank may be left to the width. */
    static const char *const good[] = {
        TEXT("mamba2", ",\"time_step_limit\":[0,{\"__float__\":\"Infinity\"}]"),
        TEXT("mamba2", ",\"time_step_limit\":[0,\"inf\"]"),
        TEXT("mamba2", ",\"time_step_limit\":[0,\"Infinity\"]"),
        TEXT("mamba2", ",\"time_step_limit\":[0,null]"),
        TEXT("mamba2", ",\"time_step_limit\":[0,1e39]"),
        TEXT("palimpsa", ",\"num_heads\":4,\"head_dim\":8,\"beta_step_rank\":\"auto\",\"hidden_act\":\"swish\""),
        D(",\"forgetting\":\"normal\"", ""),
        D(",\"forgetting\":\"very_small\"", ",\"metaplastic_layers\":[0]"),
    };
    for (size_t i = 0; i < PAL_COUNT(good); i++) {
        pal_model_config c;
        json_t *json = json_loads(good[i], 0, NULL);
        OK(pal_config_read(&c, json, NULL, "config.json", err));
        assert_true(isinf(c.block[0].mixer[0].dt_high) && (i < 5 || c.block[0].mixer[0].kind == PAL_MIXER_D));
        json_decref(json);
    }
#undef RECALL
#undef D
#undef TEXT
}

/* What config.json has no words for would come back as another model. */
static void what_no_file_can_say_is_refused(void **state) {
    (void)state;
    pal_error err;
    const pal_preset_options mqar = { .task = "mqar" }, text = { .task = "text" };
    pal_model_config bad[] = { preset("palimpsa-d", mqar),  preset("palimpsa-m", mqar),  preset("palimpsa-d", mqar),
                               preset("mamba2-130m", text), preset("mamba2-130m", text), preset("mamba2-130m", text),
                               preset("palimpsa-d", text),  preset("palimpsa-d", text),  preset("gated-deltanet", text),
                               preset("palimpsa-m", text),  preset("transformer", text), preset("palimpsa-d", text),
                               preset("transformer", text), preset("palimpsa-d", text),  preset("palimpsa-d", text),
                               preset("palimpsa-d", text),  preset("transformer", text), preset("palimpsa-d", text),
                               preset("palimpsa-d", text),  preset("transformer", text), preset("mamba2-130m", text),
                               preset("palimpsa-d", text),  preset("palimpsa-d", text) };
    const char *const says[] = { "MQAR",   "MQAR",      "MQAR",        "official",       "official",
                                 "rank",   "key heads", "MLP",         "biases",         "MLP",
                                 "rotary", "time",      "groups",      "embedding rows", "number of heads",
                                 "rank",   "rotary",    "initializer", "initializer",    "rotary",
                                 "MQAR",   "biases",    "time" };
    size_t n = 0;
    bad[n++].vocab_rows += 8;
    bad[n++].tied = false;
    bad[n++].block[0].mlp = 256;
    bad[n++].block[0].mixer[0].norm_groups = 2;
    bad[n++].norm_eps = 1e-6;
    bad[n++].block[0].mixer[0].kind = PAL_MIXER_D;
    bad[n++].block[0].mixer[0].key_heads = 1;
    bad[n++].block[0].mlp = 0;
    bad[n++].block[0].mixer[0].conv_bias = true;
    bad[n++].block[0].mlp = 256;
    bad[n++].block[0].mixer[0].dk /= 2;
    bad[n++].block[0].mixer[0].dt_low = 0.1;
    bad[n++].block[0].mixer[0].norm_groups = 2;
    bad[n++].vocab_rows = 1;
    bad[n++].block[0].mixer[0].heads = 0;
    bad[n++].block[0].mixer[0].rank = -1;
    bad[n++].block[0].mixer[0].dv += 2;
    bad[n++].init_range = NAN;
    bad[n++].init_range = INFINITY;
    bad[n++].hidden *= 2;
    bad[n++].mqar = true;
    bad[n++].block[0].mixer[0].proj_bias = true;
    bad[n++].block[0].mixer[0].dt_high = 1;
    assert_int_equal(n, PAL_COUNT(bad));
    for (size_t i = 0; i < n; i++) {
        err.text[0] = 0;
        if (pal_model_config_check(&bad[i], &err) == PAL_OK) fail_msg("case %zu (%s) was accepted", i, says[i]);
        if (!strstr(err.text, says[i])) fail_msg("'%s' does not speak of '%s'", err.text, says[i]);
    }
}

typedef struct {
    pal_weight_table table;
    float *flat;
    pal_model_config config;
} weights;

static weights make_weights(const pal_model_config *c, int threads, uint64_t seed) {
    weights w = { .config = *c };
    pal_error err;
    pal_context *cx = test_context(threads, NULL);
    if (pal_weights_list(&w.table, c, NULL, NULL, &err)) fail_msg("%s", err.text);
    w.flat = pal_alloc(w.table.flat, sizeof *w.flat);
    pal_weights_init(&w.table, c, cx, seed, w.flat);
    pal_context_free(cx);
    return w;
}

static void free_weights(weights *w) {
    pal_free(w->flat);
    pal_weights_release(&w->table);
}

static const float *find(const weights *w, const char *name, size_t *count) {
    for (size_t i = 0; i < w->table.count; i++)
        if (strcmp(w->table.entries[i].view.name, name) == 0) {
            if (count) *count = w->table.entries[i].view.count;
            return w->flat + w->table.entries[i].view.offset;
        }
    fail_msg("no tensor '%s'", name);
    return NULL;
}

/* Mean, variance and fourth moment against those of the distribution, within six standard errors. */
static void check_normal(const weights *w, const char *name, double deviation) {
    size_t n = 0;
    const float *x = find(w, name, &n);
    double mean = 0, square = 0, fourth = 0;
    for (size_t i = 0; i < n; i++) {
        const double v = (double)x[i] / deviation;
        mean += v, square += v * v, fourth += v * v * v * v;
    }
    const double count = (double)n, slack = 6 / sqrt(count);
    assert_true(fabs(mean / count) < slack && fabs(square / count - 1) < 1.5 * slack &&
                fabs(fourth / count - 3) < 10 * slack);
}
static void check_uniform(const weights *w, const char *name, double low, double high) {
    size_t n = 0;
    const float *x = find(w, name, &n);
    double mean = 0, square = 0;
    for (size_t i = 0; i < n; i++) {
        const double v = ((double)x[i] - low) / (high - low);
        assert_true(v >= -1e-6 && v <= 1 + 1e-6);
        mean += v, square += v * v;
    }
    const double count = (double)n, slack = 6 / sqrt(count);
    assert_true(fabs(mean / count - 0.5) < 0.3 * slack && fabs(square / count - 1.0 / 3) < 0.3 * slack);
}

static void language_models_start_as_specified(void **state) {
    (void)state;
    pal_model_config c = preset("palimpsa-d",
                                (pal_preset_options){ .task = "text", .heads = 256, .head_dim = 1, .layers = 2 });
    weights w = make_weights(&c, 2, 11);
    check_normal(&w, "model.embeddings.weight", 0.02);
    check_normal(&w, "model.layers.1.attn.q_proj.weight", 0.02);
    check_normal(&w, "model.layers.0.attn.o_proj.weight", 0.02);
    check_normal(&w, "model.layers.0.attn.k_conv1d.weight", 0.02);
    check_normal(&w, "model.layers.0.mlp.down_proj.weight", 0.02);
    check_normal(&w, "model.layers.0.attn.b_rank_proj.weight", 0.02);
    check_uniform(&w, "model.layers.0.attn.b_proj.weight", -1 / sqrt((double)c.block[0].mixer[0].rank),
                  1 / sqrt((double)c.block[0].mixer[0].rank));
    const float *a = find(&w, "model.layers.0.attn.A_log", NULL), *bias = find(&w, "model.layers.0.attn.dt_bias", NULL);
    double mean = 0, log_mean = 0;
    for (int h = 0; h < 256; h++) {
        const double rate = exp((double)a[h]), dt = log1p(exp((double)bias[h]));
        assert_true(rate > 0 && rate < 16.001 && dt > 0.000999 && dt < 0.1001);
        mean += rate / 256, log_mean += log(dt) / 256;
    }
    assert_true(fabs(mean - 8) < 6 * 16 / sqrt(12 * 256) && fabs(log_mean - log(0.01)) < 6 * log(100) / sqrt(12 * 256));
    assert_true(find(&w, "model.layers.0.attn.D", NULL)[3] == 1.0f &&
                find(&w, "model.layers.0.attn.Ip_log", NULL)[3] == 0.0f);
    assert_true(find(&w, "model.layers.0.attn.b_scale", NULL)[3] == 1.0f &&
                find(&w, "model.norm.weight", NULL)[5] == 1.0f);
    free_weights(&w);
    c.finetuning = true;
    w = make_weights(&c, 2, 11);
    check_uniform(&w, "model.layers.0.attn.b_scale", 0.1, 1.0);
    free_weights(&w);

    c = preset("palimpsa-m", (pal_preset_options){ .task = "text" });
    w = make_weights(&c, 2, 12);
    const double bound = 1 / sqrt((double)c.block[0].mixer[0].heads * c.block[0].mixer[0].dv) / sqrt((double)c.layers);
    check_uniform(&w, "backbone.layers.3.mixer.out_proj.weight", -bound, bound);
    check_normal(&w, "backbone.layers.3.mixer.in_proj.weight", 0.02);
    assert_true(find(&w, "backbone.layers.3.mixer.conv1d.bias", NULL)[3] == 0.0f);
    free_weights(&w);

    c = preset("mamba2-130m", (pal_preset_options){ .layers = 2, .vocab = 100 });
    w = make_weights(&c, 2, 13);
    check_uniform(&w, "backbone.layers.0.mixer.in_proj.weight", -1 / sqrt(768.0), 1 / sqrt(768.0));
    check_uniform(&w, "backbone.layers.0.mixer.conv1d.weight", -0.5, 0.5);
    check_uniform(&w, "backbone.layers.0.mixer.conv1d.bias", -0.5, 0.5);
    for (int h = 0; h < 24; h++) assert_true(find(&w, "backbone.layers.0.mixer.A_log", NULL)[h] >= 0);
    free_weights(&w);

    c = preset("palimpsa-d", (pal_preset_options){ .task = "text", .rule = "mesa" });
    w = make_weights(&c, 2, 13);
    assert_true(fabs(log1p(exp((double)find(&w, "model.layers.0.attn.lam_raw", NULL)[9])) - 1) < 1e-6);
    free_weights(&w);
}

static void mqar_models_start_on_ramps(void **state) {
    (void)state;
    static const float a[8] = { -4.605170f, -3.460038f, -2.940162f, -2.599837f,
                                -2.346388f, -2.144361f, -1.976369f, -1.832581f };
    static const float dt[8] = { -2.252168f, -2.934457f, -3.604905f, -4.269274f,
                                 -4.930510f, -5.590128f, -6.248908f, -6.907255f };
    const pal_model_config c = preset("palimpsa-d", (pal_preset_options){ .task = "mqar" });
    weights w = make_weights(&c, 1, 1);
    test_near("A_log", find(&w, "backbone.layers.1.mixer.A_log", NULL), a, 8, 2e-7);
    test_near("dt_bias", find(&w, "backbone.layers.1.mixer.dt_bias", NULL), dt, 8, 2e-7);
    check_normal(&w, "backbone.layers.1.mixer.q_proj.weight", 1 / sqrt(128.0));
    check_normal(&w, "backbone.embeddings.word_embeddings.weight", 1 / sqrt(128.0));
    free_weights(&w);

    const pal_preset_options text = { .task = "text", .heads = 8, .head_dim = 32, .hidden = 128, .recall_init = true };
    const pal_model_config m = preset("palimpsa-m", text);
    assert_false(m.mqar);
    w = make_weights(&m, 1, 1);
    test_near("A_log", find(&w, "backbone.layers.1.mixer.A_log", NULL), a, 8, 2e-7);
    test_near("dt_bias", find(&w, "backbone.layers.1.mixer.dt_bias", NULL), dt, 8, 2e-7);
    check_normal(&w, "backbone.layers.1.mixer.in_proj.weight", 1 / sqrt(128.0));
    check_normal(&w, "backbone.layers.1.mixer.out_proj.weight", 1 / sqrt(128.0));
    check_normal(&w, "backbone.layers.1.mixer.conv1d.weight", 1 / sqrt(128.0));
    check_normal(&w, "backbone.embeddings.weight", 1 / sqrt(128.0));
    free_weights(&w);
    pal_model_config none;
    pal_error err;
    const pal_preset_options official = { .recall_init = true };
    assert_int_equal(pal_model_preset(&none, "mamba2-130m", &official, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "starts as its authors have it"));
}

static void initial_weights_do_not_depend_on_threads_or_on_other_tensors(void **state) {
    (void)state;
    pal_model_config c = preset("palimpsa-m", (pal_preset_options){ .task = "mqar" });
    weights one = make_weights(&c, 1, 5), three = make_weights(&c, 3, 5);
    test_same_bits("weights", three.flat, one.flat, one.table.flat);
    free_weights(&three);
    c.listed = c.metaplastic[1] = true; /* layer 0 has no importance gate now */
    weights hybrid = make_weights(&c, 2, 5);
    assert_true(hybrid.table.count < one.table.count);
    for (size_t i = 0; i < hybrid.table.count; i++) {
        const pal_weight *v = &hybrid.table.entries[i].view;
        test_same_bits(v->name, hybrid.flat + v->offset, find(&one, v->name, NULL), v->count);
    }
    free_weights(&hybrid);
    weights other = make_weights(&c, 1, 6);
    assert_true(find(&other, "backbone.layers.0.mixer.in_proj.weight", NULL)[0] !=
                find(&one, "backbone.layers.0.mixer.in_proj.weight", NULL)[0]);
    free_weights(&other);
    free_weights(&one);
}

static void projections_of_a_mixer_stand_together(void **state) {
    (void)state;
    const pal_model_config c = preset("palimpsa-d-170m", (pal_preset_options){ 0 });
    pal_weight_table t;
    pal_error err;
    assert_int_equal(pal_weights_list(&t, &c, NULL, NULL, &err), PAL_OK);
    size_t end = 0;
    for (size_t i = 0; i < t.count; i++) {
        const pal_weight *w = &t.entries[i].view;
        assert_true(t.entries[i].adjacent ? w->offset == end : w->offset % 16 == 0 && w->offset >= end);
        end = w->offset + w->count;
        assert_true(w->frozen == (strstr(w->name, "Ip_log") != NULL));
    }
    pal_weights_release(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_have_the_published_sizes),
        cmocka_unit_test(bare_names_take_the_size_of_their_task),
        cmocka_unit_test(any_width_gets_heads_that_share_it),
        cmocka_unit_test(wrong_names_are_refused_with_the_nearest),
        cmocka_unit_test(sizes_beyond_counting_are_refused),
        cmocka_unit_test(configurations_survive_json),
        cmocka_unit_test(mesa_tolerance_survives_json_and_needs_its_rule),
        cmocka_unit_test(forgetting_and_norm_groups_are_chosen_by_name),
        cmocka_unit_test(unknown_keys_are_kept),
        cmocka_unit_test(bad_configurations_get_one_sentence),
        cmocka_unit_test(sizes_of_configurations_do_not_overflow),
        cmocka_unit_test(odd_values_get_one_sentence),
        cmocka_unit_test(what_no_file_can_say_is_refused),
        cmocka_unit_test(language_models_start_as_specified),
        cmocka_unit_test(mqar_models_start_on_ramps),
        cmocka_unit_test(initial_weights_do_not_depend_on_threads_or_on_other_tensors),
        cmocka_unit_test(projections_of_a_mixer_stand_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
