/* SPDX-License-Identifier: MIT */
/* Models as lists of layers: patterns that name them, config.json with blocks both ways, and what is refused. */
#include "support/support.h"

#include <jansson.h>
#include <math.h>

#include "model/config.h"
#include "model/model.h"
#include "support/models.h"

static pal_model_config preset(const char *name, pal_preset_options options) {
    pal_model_config c;
    pal_error err;
    if (pal_model_preset(&c, name, &options, &err)) fail_msg("%s", err.text);
    return c;
}

static void patterns_name_layers(void **state) {
    (void)state;
    pal_model_config c = preset("palimpsa-m:3,attention:1", (pal_preset_options){ .task = "text" });
    assert_true(c.hybrid && c.layers == 8 && c.blocks == 2 && c.layer_block[3] == 1 && c.layer_block[4] == 0);
    assert_true(c.metaplastic[0] && !c.metaplastic[3] && c.hidden == 192 && c.rescale_residual);
    /* A kind that comes twice is one block; layers repeat and are cut. */
    c = preset("mamba2-60m,attention+mlp,mamba2,relu2", (pal_preset_options){ .layers = 6 });
    assert_true(c.layers == 6 && c.blocks == 3 && c.hidden == 512 && c.vocab == 32000);
    static const unsigned char layers[] = { 0, 1, 0, 2, 0, 1 };
    assert_memory_equal(c.layer_block, layers, sizeof layers);
    for (int i = 0; i < 6; i++) assert_false(c.metaplastic[i]);
    assert_true(c.block[1].form == PAL_MLP_SWIGLU && c.block[1].mlp == 1536 && c.block[2].mixers == 0 &&
                c.block[2].form == PAL_MLP_RELU2 && c.block[2].mlp == 2048);
    c = preset("palimpsa-m+attention+mlp", (pal_preset_options){ .task = "text", .layers = 2, .mlp = 48 });
    assert_true(c.blocks == 1 && c.block[0].mixers == 2 && c.block[0].mlp == 48 && c.metaplastic[1]);
    c = preset("mesa:2,longhorn,convolution,palimpsa", (pal_preset_options){ .task = "mqar", .mesa_tolerance = 1e-4 });
    static const char *const rules[] = { "mesa", "mesa", "longhorn", "none", "palimpsa" };
    assert_int_equal(c.layers, 5);
    for (int i = 0; i < 5; i++) assert_string_equal(pal_model_layer_rule(&c, i), rules[i]);
    assert_true(c.mqar && c.block[0].mixer[0].mesa_tolerance == 1e-4 && c.block[1].mixer[0].mesa_tolerance == 0);
    c = preset("gated-deltanet:2,palimpsa-d-wo-meta", (pal_preset_options){ .task = "text", .layers = 3 });
    assert_true(c.block[0].mixer[0].kind == PAL_MIXER_GDN && !c.metaplastic[2]);
}

static void wrong_patterns_get_one_sentence(void **state) {
    (void)state;
    static const struct {
        const char *name;
        pal_preset_options options;
        const char *says;
    } cases[] = {
        { "palimpsa-x:3,attention", { 0 }, "no layer is named 'palimpsa-x'; a layer is one of palimpsa-d" },
        { "palimpsa-m:0", { 0 }, "'palimpsa-m:0' ends in no number of layers; expected 1 to 1024" },
        { "palimpsa-m:2x,attention", { 0 }, "ends in no number of layers" },
        { "palimpsa-m:9999999999,attention", { 0 }, "ends in no number of layers" },
        { "palimpsa-m:1024,attention:1", { 0 }, "ends in no number of layers" },
        { "mlp+attention", { 0 }, "the MLP of a layer comes last, found 'attention' after it" },
        { "mlp+relu2", { 0 }, "a layer has one MLP, found two" },
        { "attention+palimpsa-m", { 0 }, "the first keeps a memory of fixed size and the second attends" },
        { "palimpsa-m+attention+attention", { 0 }, "at most two mixers, found a third, 'attention'" },
        { "palimpsa-m,,attention", { 0 }, "no layer is named ''" },
        { "palimpsa-m,attention", { .rule = "mesa" }, "as in 'mesa:3,attention'" },
        { "mlp,relu2,mesa,gla,delta,gdn,gdn_app,longhorn,palimpsa,attention,palimpsa-d,palimpsa-d-wo-meta,palimpsa-m,"
          "palimpsa-m-wo-meta,mamba2,gated-deltanet,convolution",
          { 0 },
          "more than 16 kinds of layers" },
        { "palimpsa-m,attention", { .heads = 7 }, "do not make" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_model_config c;
        pal_error err;
        pal_preset_options o = cases[i].options;
        o.task = "text";
        assert_int_equal(pal_model_preset(&c, cases[i].name, &o, &err), PAL_E_ARGUMENT);
        if (!strstr(err.text, cases[i].says)) fail_msg("%s: %s", cases[i].name, err.text);
    }
}

static void lists_survive_json(void **state) {
    (void)state;
    for (size_t k = 0; k < test_kind_count; k++) {
        if (!test_kinds[k].blocks) continue;
        const pal_model_config c = test_model_config(&test_kinds[k]);
        pal_model_config back;
        json_t *json = pal_config_write(&c, NULL);
        OK(pal_config_read(&back, json, NULL, "config.json", err));
        json_t *again = pal_config_write(&back, json);
        char *first = json_dumps(json, 0), *second = json_dumps(again, 0);
        if (memcmp(&c, &back, sizeof c) != 0) fail_msg("%s changed on its way through JSON", test_kinds[k].name);
        assert_string_equal(first, second); /* keys stay in their order */
        free(first), free(second);
        json_decref(json), json_decref(again);
    }
}

static void bad_lists_get_one_sentence(void **state) {
    (void)state;
#define ROOT(more, blocks, layers)                                                                       \
    "{\"model_type\":\"palimpsa_blocks\",\"hidden_size\":16,\"vocab_size\":9" more ",\"blocks\":" blocks \
    ",\"layers\":" layers "}"
#define LIST(blocks, layers) ROOT("", "[" blocks "]", "[" layers "]")
#define MIXER(kind, more)    "{\"kind\":\"" kind "\",\"heads\":2,\"head_dim\":8" more "}"
#define BLOCK(mixers, mlp)   "{\"mixers\":[" mixers "]" mlp "}"
#define M(more)              LIST(BLOCK(MIXER("mamba2", more), ""), "0")
#define D(more)              LIST(BLOCK(MIXER("palimpsa_d", ",\"rank\":2" more), ""), "0")
#define ATTENTION(more)      LIST(BLOCK(MIXER("attention", more), ""), "0")
#define CONV(more) \
    LIST(BLOCK("{\"kind\":\"short_convolution\",\"heads\":1,\"head_dim\":16" more "}", ""), "0")
#define MLP(form)            LIST(BLOCK("", ",\"mlp\":" form), "0")
#define FOUR                 BLOCK("", ",\"mlp\":{\"form\":\"relu2\",\"width\":8}")
#define FIVE                 FOUR "," FOUR "," FOUR "," FOUR
    static const char *const bad[][2] = {
        { LIST(FIVE "," FIVE "," FIVE "," FIVE "," FOUR, "0"), "blocks has 17 kinds, expected at most 16" },
        { ROOT("", "[]", "[0]"), "blocks must be a list of at least one kind" },
        { ROOT("", "7", "[0]"), "blocks must be a list" },
        { ROOT("", "[7]", "[0]"), "blocks[0]. must be an object" },
        { LIST(FOUR, "1"), "layers[0] must be the number of a block, 0 to 0" },
        { LIST(FOUR, "0,-1"), "layers[1] must be the number of a block" },
        { LIST(FOUR, "0.5"), "layers[0] must be the number of a block" },
        { LIST(FOUR, ""), "layers must be a list" },
        { LIST(BLOCK("", ""), "0"), "a block has neither a mixer nor an MLP" },
        { LIST(BLOCK("", ",\"norm\":1"), "0"), "blocks[0].norm is not a key that is known here" },
        { LIST("{\"mixers\":5}", "0"), "a list of at most two mixers" },
        { LIST(BLOCK(MIXER("mamba2", "") "," MIXER("attention", "") "," MIXER("attention", ""), ""), "0"),
          "a list of at most two mixers" },
        { LIST(BLOCK(MIXER("attention", "") "," MIXER("mamba2", ""), ""), "0"), "the second attends" },
        { LIST(BLOCK(MIXER("mamba2", "") "," MIXER("mamba2", ""), ""), "0"), "the second attends" },
        { LIST(BLOCK("7", ""), "0"), "blocks[0].mixers[0]. must be an object" },
        { LIST(BLOCK(MIXER("mamba3", ""), ""), "0"), "blocks[0].mixers[0].kind must be palimpsa_d, mamba2" },
        { LIST(BLOCK("{\"kind\":\"attention\",\"heads\":2}", ""), "0"), "head_dim must be a whole number" },
        { M(",\"head_dims\":8"), "mixers[0].head_dims is not a key that is known here" },
        { M(",\"heads\":0"), "heads must be a whole number from 1" },
        { M(",\"key_heads\":3"), "1 to 2" },
        { LIST(BLOCK("{\"kind\":\"mamba2\",\"heads\":6,\"head_dim\":4,\"key_heads\":4}", ""), "0"),
          "4 key heads or groups do not divide 6 heads" },
        { M(",\"norm\":\"before\""), "of_gated, then_gate or gate_without_norm" },
        { M(",\"norm_groups\":3"), "3 norm groups do not divide 16 inner channels" },
        { M(",\"in_multipliers\":[1]"), "in_multipliers must be an object" },
        { M(",\"in_multipliers\":{\"y\":1}"), "in_multipliers.y is not a key" },
        { M(",\"in_multipliers\":{\"z\":1e7}"), "a multiplier is not a finite number below a million" },
        { M(",\"out_multiplier\":-1e6"), "a multiplier is not a finite number below a million" },
        { M(",\"out_multiplier\":\"a\""), "out_multiplier must be a finite number" },
        { M(",\"proj_bias\":true,\"out_multiplier\":2"), "an output projection with a bias has no multiplier" },
        { M(",\"proj_bias\":true,\"in_multipliers\":{\"dt\":2}"),
          "an input projection with a bias has no multipliers" },
        { M(",\"rotary\":4"), "are attention's" },
        { M(",\"qk_norm\":true"), "are attention's" },
        { M(",\"time_step_limit\":[2,1]"), "time_step_limit is [2, 1]" },
        { M(",\"time_step_limit\":[2]"), "two numbers" },
        { M(",\"rule\":\"delta\""), "works on the D backbone only" },
        { D(",\"rule\":\"attention\""), "rule 'attention' is not one of" },
        { D(",\"norm\":\"then_gate\""), "only Mamba2's norm has other forms" },
        { D(",\"norm_groups\":2"), "only Mamba2's norm has groups" },
        { D(",\"conv_bias\":true"), "only Mamba2 has biases" },
        { D(",\"conv\":17"), "convolution taps is 17" },
        { ATTENTION(",\"conv\":4"), "convolution taps is 4" },
        { ATTENTION(",\"rotary\":3"), "an even head width, or an even part of it; found 3" },
        { ATTENTION(",\"rotary\":10"), "rotary width of a head is 10, expected 0 to 8" },
        { ATTENTION(",\"state_size\":4"), "4 channels a head and the values 8" },
        { ATTENTION(",\"scale\":1e999"), "" },
        { LIST(BLOCK(MIXER("attention", ",\"rotary\":4"), "") "," BLOCK(MIXER("attention", ""), ""), "0,1"),
          "rotary widths of 4 and 8 in one model" },
        { CONV(",\"scale\":2"), "a mixer without memory has one head" },
        { CONV(",\"key_heads\":2"), "key heads" },
        { MLP("7"), "mlp must be an object" },
        { MLP("{\"form\":\"gelu\",\"width\":8}"), "mlp.form must be none, swiglu or relu2" },
        { MLP("{\"form\":\"relu2\"}"), "mlp.width must be a whole number" },
        { MLP("{\"form\":\"relu2\",\"width\":8,\"gate_multiplier\":2}"), "only a gated MLP has a multiplier" },
        { MLP("{\"form\":\"relu2\",\"width\":8,\"down_multiplier\":1e6}"), "below a million" },
        { MLP("{\"form\":\"none\",\"down_multiplier\":2}"), "neither a mixer nor an MLP" },
        { ROOT(",\"embedding_multiplier\":1e6", "[" FOUR "]", "[0]"), "below a million" },
        { ROOT(",\"metaplastic_layers\":[0]", "[" FOUR "]", "[0]"), "a memory of kind palimpsa_d or mamba2" },
        { ROOT(",\"metaplastic_layers\":[5]", "[" FOUR "]", "[0]"), "a memory of kind palimpsa_d or mamba2" },
        { ROOT(",\"metaplastic_layers\":7", "[" FOUR "]", "[0]"), "metaplastic_layers must be a list" },
        { ROOT(",\"metaplastic_layers\":[0]", "[" BLOCK(MIXER("mamba2", ""), "") "]", "[0]"),
          "the rank of its importance gate is 0" },
        { ROOT(",\"metaplastic_layers\":[0]", "[" BLOCK(MIXER("palimpsa_d", ",\"rank\":2,\"rule\":\"delta\""), "") "]",
               "[0]"),
          "with rule palimpsa" },
        { ROOT(",\"forgetting\":\"huge\"", "[" FOUR "]", "[0]"), "small, normal or very_small" },
        { ROOT(",\"unpadded_vocab_size\":10", "[" FOUR "]", "[0]"), "at most vocab_size" },
        { ROOT(",\"norm_eps\":0", "[" FOUR "]", "[0]"), "norm_eps is 0" },
    };
    for (size_t i = 0; i < PAL_COUNT(bad); i++) {
        pal_model_config c;
        pal_error err = { 0 };
        json_error_t why;
        json_t *json = json_loads(bad[i][0], 0, &why);
        if (!json && !*bad[i][1]) continue; /* no number of JSON */
        if (!json) fail_msg("case %zu: %s", i, why.text);
        if (pal_config_read(&c, json, NULL, "config.json", &err) == PAL_OK) fail_msg("accepted %s", bad[i][0]);
        if (!strstr(err.text, bad[i][1])) fail_msg("'%s' does not say '%s'", err.text, bad[i][1]);
        json_decref(json);
    }
}

/* What only a caller in C can get wrong. */
static void odd_lists_are_refused(void **state) {
    (void)state;
    static const char *const says[] = { "a multiplier is not",     "a multiplier is not",      "a multiplier is not",
                                        "a multiplier is not",     "a multiplier is not",      "no mixer of kind",
                                        "no such form of the MLP", "no such form of the norm", "kinds of blocks",
                                        "kinds of blocks",         "layer 1 is of block 9",    "list of blocks",
                                        "list of blocks",          "even head width" };
    pal_model_config bad[PAL_COUNT(says)];
    for (size_t i = 0; i < PAL_COUNT(says); i++) bad[i] = test_model_config(test_kind_named("all multipliers"));
    size_t n = 0;
    bad[n++].block[0].mixer[0].scale = NAN;
    bad[n++].block[0].mixer[1].out_scale = INFINITY;
    bad[n++].block[0].mixer[0].in_scale[4] = -INFINITY;
    bad[n++].logit_scale = NAN;
    bad[n++].block[0].gate_scale = INFINITY;
    bad[n++].block[0].mixer[0].kind = PAL_MIXERS;
    bad[n++].block[1].form = PAL_MLP_FORMS;
    bad[n++].block[0].mixer[0].norm = PAL_MIXER_NORMS;
    bad[n++].blocks = PAL_MAX_BLOCKS + 1;
    bad[n++].blocks = 0;
    bad[n++].layer_block[1] = 9;
    bad[n++].hybrid = false; /* the older layouts have no words for it */
    bad[n] = test_model_config(test_kind_named("m without norm, and norm then gate"));
    bad[n].blocks = 1, memset(bad[n].layer_block, 0, sizeof bad[n].layer_block), bad[n++].hybrid = false;
    bad[n++].block[0].mixer[1].rotary = 5;
    assert_int_equal(n, PAL_COUNT(says));
    for (size_t i = 0; i < n; i++) {
        pal_error err = { 0 };
        if (pal_model_config_check(&bad[i], &err) == PAL_OK) fail_msg("case %zu (%s) was accepted", i, says[i]);
        if (!strstr(err.text, says[i])) fail_msg("case %zu: '%s' does not say '%s'", i, err.text, says[i]);
    }
}

static void layers_start_like_those_of_the_named_models(void **state) {
    (void)state;
    static const char *const pattern = "palimpsa-m,attention+mlp,convolution,mesa,relu2,palimpsa-d+attention";
    for (int mqar = 0; mqar < 2; mqar++) {
        const pal_model_config c = preset(pattern, (pal_preset_options){ .task = mqar ? "mqar" : "text" });
        const double expected = mqar ? 1 / sqrt(128.0) : 0.02;
        pal_context *cx = test_context(1, NULL);
        pal_model *model;
        OK(pal_model_new(&model, &c, 3, PAL_FOR_TRAINING, cx, err));
        for (size_t i = 0; i < pal_model_weight_count(model); i++) {
            const pal_weight *w = pal_model_weight(model, i);
            double sum = 0;
            for (size_t j = 0; j < w->count; j++)
                sum += (double)model->parameters[w->offset + j] * (double)model->parameters[w->offset + j];
            const double deviation = sqrt(sum / (double)w->count);
            const bool norm = strcmp(w->group, "norm") == 0 && !strstr(w->name, ".bias");
            const bool own = strstr(w->name, ".b_proj") || (strstr(w->name, "mamba.out_proj") && !mqar);
            if (norm && deviation != 1) fail_msg("%s starts at %g", w->name, deviation);
            if (w->quantisable && !own && !(fabs(deviation / expected - 1) < 0.2))
                fail_msg("%s has a deviation of %g, expected %g", w->name, deviation, expected);
        }
        pal_model_close(model);
        pal_context_free(cx);
    }
}

/* Rows (or columns) of a tensor in groups of `each`: group h of `to` is group order[h] of `from`. */
static void reorder(pal_model *to, const pal_model *from, const char *part, int layer, size_t each, bool columns) {
    static const size_t order[4] = { 0, 2, 1, 3 };
    char name[80];
    snprintf(name, sizeof name, "model.layers.%d.delta.%s", layer, part);
    const pal_weight *w = pal_model_find_weight(from, name);
    assert_non_null(w);
    const size_t row = columns ? 4 * each : w->count / (4 * each), rows = w->count / row;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < row; i++) {
            const size_t at = columns ? i : r, other = order[at / each] * each + at % each;
            to->parameters[w->offset + r * row + i] =
                from->parameters[w->offset + (columns ? r * row + other : other * row + i)];
        }
}

/* Tiled heads are heads in another order, and are not trained. */
static void tiled_heads_are_others_in_another_order(void **state) {
    (void)state;
    pal_model_config c = test_model_config(test_kind_named("gdn with key groups and gated attention"));
    pal_context *cx = test_context(2, NULL);
    pal_model *plain, *tiled, *none;
    pal_error why;
    OK(pal_model_new(&plain, &c, 5, PAL_FOR_INFERENCE, cx, err));
    c.block[0].mixer[0].tiled = true;
    OK(pal_model_new(&tiled, &c, 5, PAL_FOR_INFERENCE, cx, err));
    assert_int_equal(pal_model_new(&none, &c, 5, PAL_FOR_TRAINING, cx, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "tiled over key heads only run"));
    const size_t dv = (size_t)c.block[0].mixer[0].dv;
    for (int layer = 0; layer < 4; layer += 2) {
        static const char *const wide[] = { "v_proj.weight", "g_proj.weight", "v_conv1d.weight" };
        static const char *const narrow[] = { "a_proj.weight", "b_proj.weight", "A_log", "dt_bias" };
        for (size_t i = 0; i < PAL_COUNT(wide); i++) reorder(tiled, plain, wide[i], layer, dv, false);
        for (size_t i = 0; i < PAL_COUNT(narrow); i++) reorder(tiled, plain, narrow[i], layer, 1, false);
        reorder(tiled, plain, "o_proj.weight", layer, dv, true);
    }
    enum { LENGTH = 21 };
    int32_t ids[LENGTH];
    float expected[TEST_VOCAB], whole[TEST_VOCAB], stepped[TEST_VOCAB];
    pal_work *work;
    pal_state *s;
    test_ids(ids, LENGTH, TEST_VOCAB, 4);
    test_last_logits(plain, cx, ids, LENGTH, expected);
    test_last_logits(tiled, cx, ids, LENGTH, whole);
    OK(pal_work_new(&work, tiled, cx, &(pal_work_options){ .tokens = 1 }, err));
    OK(pal_state_new(&s, tiled, LENGTH, err));
    for (int t = 0; t < LENGTH; t++) OK(pal_model_step(tiled, work, &s, 1, &ids[t], stepped, err));
    test_near("tiled", whole, expected, TEST_VOCAB, 1e-5);
    test_near("tiled, in steps", stepped, expected, TEST_VOCAB, 1e-4);
    pal_state_free(s);
    pal_work_free(work);
    pal_model_close(plain);
    pal_model_close(tiled);
    pal_context_free(cx);
}

static void softplus_rate_survives_json_and_needs_its_rule(void **state) {
    (void)state;
    pal_model_config c, back;
    pal_error err;
    const char *const names[] = { "palimpsa-d", "mamba3:1,mlp" };
    for (int i = 0; i < 4; i++) {
        const pal_preset_options o = { .task = "text", .rule = i < 2 ? "mamba3" : NULL, .softplus_rate = i % 2 };
        if (pal_model_preset(&c, names[i / 2], &o, &err)) fail_msg("%s", err.text);
        json_t *json = pal_config_write(&c, NULL);
        if (pal_config_read(&back, json, NULL, "test", &err)) fail_msg("%s", err.text);
        assert_int_equal(back.block[0].mixer[0].softplus_rate, i % 2);
        assert_memory_equal(&c, &back, sizeof c);
        json_decref(json);
    }
    const pal_preset_options o = { .task = "text", .softplus_rate = true };
    assert_int_equal(pal_model_preset(&c, "palimpsa-d", &o, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "softplus_rate is for rule mamba3"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softplus_rate_survives_json_and_needs_its_rule),
        cmocka_unit_test(patterns_name_layers),
        cmocka_unit_test(wrong_patterns_get_one_sentence),
        cmocka_unit_test(lists_survive_json),
        cmocka_unit_test(bad_lists_get_one_sentence),
        cmocka_unit_test(odd_lists_are_refused),
        cmocka_unit_test(layers_start_like_those_of_the_named_models),
        cmocka_unit_test(tiled_heads_are_others_in_another_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
