/* SPDX-License-Identifier: MIT */
#include "support/models.h"

#include <math.h>
#include <string.h>

#include "model/model.h"
#include "support/support.h"

static pal_mixer_spec mixer(pal_mixer kind, int heads, int key_heads, int dk, int dv) {
    const bool m = kind == PAL_MIXER_M, d = kind == PAL_MIXER_D;
    return (pal_mixer_spec){ .kind = kind,
                             .rule = "palimpsa",
                             .heads = heads,
                             .key_heads = key_heads,
                             .dk = dk,
                             .dv = dv,
                             .conv = kind == PAL_MIXER_ATTENTION ? 0 : 4,
                             .rank = m || d ? 3 : 0,
                             .conv_bias = m,
                             .norm_groups = 1,
                             .dt_high = INFINITY };
}

static pal_mixer_spec attention(int heads, int key_heads, int width, int rotary) {
    pal_mixer_spec m = mixer(PAL_MIXER_ATTENTION, heads, key_heads, width, width);
    m.rotary = rotary;
    return m;
}

static pal_block_spec block(pal_mixer_spec m, pal_mlp_form form) {
    return (pal_block_spec){ .mixers = 1, .mixer = { m }, .form = form, .mlp = form ? 24 : 0 };
}

static void set_layers(pal_model_config *c, int layers, const int *blocks) {
    c->layers = layers;
    for (int i = 0; i < layers; i++) {
        c->layer_block[i] = (unsigned char)blocks[i];
        if (blocks[i] >= c->blocks) c->blocks = blocks[i] + 1;
    }
}

/* Granite's: attention without rotation whose heads do not make the hidden size. */
static void m_and_attention_layers(pal_model_config *c) {
    c->block[0] = block(mixer(PAL_MIXER_M, 4, 2, 6, 10), PAL_MLP_SWIGLU);
    c->block[1] = block(attention(3, 1, 6, 0), PAL_MLP_SWIGLU);
    c->metaplastic[2] = true;
    set_layers(c, 3, (int[]){ 0, 1, 0 });
}

/* Nemotron-H's: every layer is one of the three. */
static void layers_of_one_part(pal_model_config *c) {
    c->block[0] = block(mixer(PAL_MIXER_M, 4, 2, 6, 8), PAL_MLP_NONE);
    c->block[0].mixer[0].norm_groups = 2;
    c->block[0].mixer[0].dt_low = 0.02;
    c->block[0].mixer[0].dt_high = 2;
    c->block[1] = (pal_block_spec){ .form = PAL_MLP_RELU2, .mlp = 33 };
    c->block[2] = block(attention(4, 2, 6, 0), PAL_MLP_NONE);
    c->metaplastic[0] = true;
    c->tied = false;
    set_layers(c, 4, (int[]){ 0, 1, 2, 1 });
}

/* Falcon-H1's: both on one normed input. */
static void m_beside_attention(pal_model_config *c) {
    c->block[0] = block(mixer(PAL_MIXER_M, 4, 1, 6, 8), PAL_MLP_SWIGLU);
    c->block[0].mixer[0].norm = PAL_GATE_WITHOUT_NORM;
    c->block[0].mixers = 2;
    c->block[0].mixer[1] = attention(3, 1, 6, 6);
    c->metaplastic[0] = true;
    set_layers(c, 2, (int[]){ 0, 0 });
}

/* Qwen's: attention whose queries and keys are normed, turn in part, and have a gate. */
static void gdn_and_gated_attention(pal_model_config *c) {
    c->block[0] = block(mixer(PAL_MIXER_GDN, 4, 2, 6, 5), PAL_MLP_SWIGLU);
    c->block[1] = block(attention(4, 2, 7, 4), PAL_MLP_SWIGLU);
    c->block[1].mixer[0].qk_norm = c->block[1].mixer[0].out_gate = true;
    c->block[2] = block(attention(2, 1, 9, 4), PAL_MLP_NONE);
    c->block[2].mixer[0].out_gate = true;
    set_layers(c, 4, (int[]){ 0, 1, 0, 2 });
}

static void all_multipliers(pal_model_config *c) {
    static const double in[5] = { 0.7, 1.6, 0.6, 1.4, 0.8 };
    c->block[0] = block(mixer(PAL_MIXER_M, 4, 2, 6, 8), PAL_MLP_SWIGLU);
    pal_mixer_spec *m = &c->block[0].mixer[0];
    memcpy(m->in_scale, in, sizeof in);
    m->scale = 0.9;
    m->out_scale = 0.5;
    c->block[0].mixers = 2;
    c->block[0].mixer[1] = attention(3, 1, 6, 6);
    c->block[0].mixer[1].scale = 0.3;
    c->block[0].mixer[1].out_scale = 0.75;
    c->block[0].gate_scale = 1.5;
    c->block[0].down_scale = 0.6;
    c->block[1] = (pal_block_spec){ .form = PAL_MLP_RELU2, .mlp = 24, .down_scale = 0.4 };
    c->block[2] = block(mixer(PAL_MIXER_CONV, 1, 1, 12, 12), PAL_MLP_NONE);
    c->block[2].mixer[0].out_scale = 0.8;
    c->block[3] = block(mixer(PAL_MIXER_D, 2, 2, 5, 6), PAL_MLP_NONE);
    c->block[3].mixer[0].out_scale = 0.7;
    c->embedding_scale = 3;
    c->logit_scale = 0.5;
    c->metaplastic[0] = c->metaplastic[3] = true;
    set_layers(c, 4, (int[]){ 0, 1, 2, 3 });
}

static void norms_of_m(pal_model_config *c) {
    c->block[0] = block(mixer(PAL_MIXER_M, 4, 2, 6, 8), PAL_MLP_NONE);
    c->block[0].mixer[0].norm = PAL_GATE_WITHOUT_NORM;
    c->block[1] = block(mixer(PAL_MIXER_M, 4, 2, 6, 8), PAL_MLP_NONE);
    c->block[1].mixer[0].norm = PAL_NORM_THEN_GATE;
    c->block[1].mixer[0].norm_groups = 2;
    c->metaplastic[1] = true;
    set_layers(c, 3, (int[]){ 0, 1, 0 });
}

static void convolutions_and_attention(pal_model_config *c) {
    c->block[0] = block(mixer(PAL_MIXER_CONV, 1, 1, 20, 20), PAL_MLP_SWIGLU);
    c->block[0].mixer[0].conv = 3;
    c->block[1] = block(attention(4, 2, 6, 6), PAL_MLP_SWIGLU);
    c->block[1].mixer[0].qk_norm = true;
    set_layers(c, 3, (int[]){ 0, 1, 0 });
}

static void two_rules(pal_model_config *c) {
    c->block[0] = block(mixer(PAL_MIXER_D, 2, 2, 5, 6), PAL_MLP_SWIGLU);
    strcpy(c->block[0].mixer[0].rule, "longhorn");
    c->block[1] = block(mixer(PAL_MIXER_D, 3, 3, 4, 8), PAL_MLP_NONE);
    strcpy(c->block[1].mixer[0].rule, "mesa");
    c->block[2] = block(mixer(PAL_MIXER_D, 1, 1, 7, 7), PAL_MLP_RELU2);
    c->metaplastic[2] = true;
    set_layers(c, 3, (int[]){ 0, 1, 2 });
}

static void mqar_m_and_attention(pal_model_config *c) {
    c->mqar = true;
    c->block[0] = block(mixer(PAL_MIXER_M, 4, 2, 6, 8), PAL_MLP_NONE);
    c->block[0].mixer[0].proj_bias = true;
    c->block[1] = block(attention(3, 1, 6, 6), PAL_MLP_NONE);
    c->metaplastic[0] = true;
    set_layers(c, 2, (int[]){ 0, 1 });
}

static pal_model_config hybrid_config(const test_kind *kind) {
    pal_error err;
    pal_model_config c = { .hidden = 20,
                           .vocab = TEST_VOCAB,
                           .vocab_rows = TEST_VOCAB,
                           .tied = true,
                           .hybrid = true,
                           .listed = true,
                           .metaplasticity = true,
                           .norm_eps = 1e-5,
                           .rope_theta = 10000,
                           .init_range = 0.02 };
    kind->blocks(&c);
    if (pal_model_config_check(&c, &err)) fail_msg("%s: %s", kind->name, err.text);
    return c;
}

const test_kind test_kinds[] = {
    { "palimpsa-d", "palimpsa-d", "text", NULL, 0 },
    { "palimpsa-d without metaplasticity", "palimpsa-d-wo-meta", "text", NULL, 0 },
    { "hybrid palimpsa-d", "palimpsa-d", "text", NULL, 1 },
    { "palimpsa-m", "palimpsa-m", "text", NULL, 0 },
    { "palimpsa-m without metaplasticity", "palimpsa-m-wo-meta", "text", NULL, 0 },
    { "hybrid palimpsa-m", "palimpsa-m", "text", NULL, 1 },
    { "official mamba2", "mamba2-130m", NULL, NULL, 0 },
    { "gated deltanet", "gated-deltanet", "text", NULL, 0 },
    { "transformer", "transformer", "text", NULL, 0 },
    { "mqar palimpsa-d", "palimpsa-d", "mqar", NULL, 0 },
    { "mqar palimpsa-m", "palimpsa-m", "mqar", NULL, 0 },
    { "mqar gated deltanet", "gated-deltanet", "mqar", NULL, 0 },
    { "mqar transformer", "transformer", "mqar", NULL, 0 },
    { "rule longhorn", "palimpsa-d", "text", "longhorn", 0 },
    { "rule delta", "palimpsa-d", "text", "delta", 0 },
    { "rule gdn", "palimpsa-d", "text", "gdn", 0 },
    { "rule gdn_app", "palimpsa-d", "text", "gdn_app", 0 },
    { "rule mesa", "palimpsa-d", "text", "mesa", 0 },
    { "rule mesa by conjugate gradient", "palimpsa-d", "text", "mesa", 0, 1e-7 },
    { "mqar rule mesa", "palimpsa-d", "mqar", "mesa", 0 },
    { "rule comba", "palimpsa-d", "text", "comba", 0 },
    { "rule kda", "palimpsa-d", "text", "kda", 0 },
    { "rule gdn2", "palimpsa-d", "text", "gdn2", 0 },
    { "rule rwkv7", "palimpsa-d", "text", "rwkv7", 0 },
    { "rule pkda", "palimpsa-d", "text", "pkda", 0 },
    { "rule kdn", "palimpsa-d", "text", "kdn", 0 },
    { "rule kdn_iso", "palimpsa-d", "text", "kdn_iso", 0 },
    { "rule kla", "palimpsa-d", "text", "kla", 0 },
    { "rule mamba3", "palimpsa-d", "text", "mamba3", 0 },
    { "rule mamba3, softplus", "palimpsa-d", "text", "mamba3", 0, .softplus_rate = true },
    { "mqar rule mamba3", "palimpsa-d", "mqar", "mamba3", 0 },
    { "mqar rule kdn", "palimpsa-d", "mqar", "kdn", 0 },
    { "narrow palimpsa-d with a wide mlp", "palimpsa-d", "text", NULL, 0, .heads = 1, .head_dim = 2, .mlp = 96 },
    { "m and attention layers", .blocks = m_and_attention_layers },
    { "m, attention, mlp alone with relu2", .blocks = layers_of_one_part },
    { "one layer with m and attention", .blocks = m_beside_attention },
    { "gdn with key groups and gated attention", .blocks = gdn_and_gated_attention },
    { "all multipliers", .blocks = all_multipliers },
    { "m without norm, and norm then gate", .blocks = norms_of_m },
    { "gated short convolutions and attention", .blocks = convolutions_and_attention },
    { "two rules of different widths", .blocks = two_rules },
    { "mqar m and attention", .blocks = mqar_m_and_attention },
};
const size_t test_kind_count = PAL_COUNT(test_kinds);

const test_kind *test_kind_named(const char *name) {
    for (size_t i = 0; i < test_kind_count; i++)
        if (strcmp(test_kinds[i].name, name) == 0) return &test_kinds[i];
    fail_msg("no kind '%s'", name);
    return NULL;
}

pal_model_config test_model_config(const test_kind *kind) {
    pal_model_config c;
    pal_error err;
    if (kind->blocks) return hybrid_config(kind);
    const bool m = strncmp(kind->preset, "palimpsa-m", 10) == 0, mamba = strncmp(kind->preset, "mamba2", 6) == 0;
    pal_preset_options o = { .task = kind->task,
                             .rule = kind->rule,
                             .mesa_tolerance = kind->mesa_tolerance,
                             .softplus_rate = kind->softplus_rate,
                             .vocab = TEST_VOCAB,
                             .hidden = 20,
                             .layers = kind->hybrid ? 3 : 2,
                             .mlp = kind->mlp ? kind->mlp : 24 };
    if (m || mamba) o.head_dim = 10, o.state_size = 6;
    else o.heads = kind->heads ? kind->heads : 2, o.head_dim = kind->head_dim;
    if (m) o.rank = 3;
    if (pal_model_preset(&c, kind->preset, &o, &err)) fail_msg("%s: %s", kind->name, err.text);
    pal_mixer_spec *x = &c.block[0].mixer[0];
    if (m && !kind->hybrid) x->key_heads = 2; /* groups of heads */
    if (mamba) x->key_heads = x->norm_groups = 2;
    if (x->kind == PAL_MIXER_ATTENTION) x->key_heads = 1;
    if (kind->hybrid) c.listed = c.metaplastic[1] = true;
    return c;
}

pal_model *test_model(const test_kind *kind, pal_model_use use, const pal_context *cx) {
    const pal_model_config c = test_model_config(kind);
    pal_model *model;
    pal_error err;
    if (pal_model_new(&model, &c, 17, use, cx, &err)) fail_msg("%s: %s", kind->name, err.text);
    for (size_t i = 0; i < pal_model_weight_count(model); i++) {
        const pal_weight *w = pal_model_weight(model, i);
        pal_rng rng = pal_rng_at(18, i);
        for (size_t j = 0; j < w->count; j++)
            model->parameters[w->offset + j] += (float)((w->rank == 2 ? 0.25 : 0.1) * pal_rng_normal(&rng));
    }
    return model;
}

runner test_runner(size_t kind, pal_model_use use, pal_work_options options) {
    runner r = { .cx = test_context(2, NULL), .name = test_kinds[kind].name };
    r.model = test_model(&test_kinds[kind], use, r.cx);
    r.rows = (size_t)pal_model_config_of(r.model)->vocab_rows;
    OK(pal_work_new(&r.work, r.model, r.cx, &options, err));
    return r;
}

void test_runner_free(runner *r) {
    pal_work_free(r->work);
    pal_model_close(r->model);
    pal_context_free(r->cx);
}

void test_ids(int32_t *ids, int n, int vocab, uint64_t seed) {
    pal_rng rng = pal_rng_at(seed, 1);
    for (int i = 0; i < n; i++) ids[i] = (int32_t)pal_rng_below(&rng, (uint32_t)vocab);
}

void test_last_logits(const pal_model *model, const pal_context *cx, const int32_t *ids, int n, float *out) {
    pal_work *work;
    const int cu[2] = { 0, n }, last = n - 1;
    const pal_batch batch = { .tokens = n, .sequences = 1, .ids = ids, .cu_seqlens = cu };
    OK(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = n }, err));
    OK(pal_model_forward(model, work, &batch, &last, 1, out, err));
    pal_work_free(work);
}
