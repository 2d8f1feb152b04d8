/* SPDX-License-Identifier: MIT */
/* Granite-4.0-H without experts, and Bamba: Mamba2 or attention, and an MLP, in every layer. */
#include <string.h>

#include "format/families/family.h"
#include "format/json.h"

static const pal_family_tensor granite_tensors[] = {
    { "model.embeddings.weight", "embed_tokens.weight", "token_embd.weight", PAL_ON_MODEL },
    { "model.norm.weight", "norm.weight", "output_norm.weight", PAL_ON_MODEL },
    { "lm_head.weight", "lm_head.weight", "output.weight", PAL_ON_TOP | PAL_MAY_LACK },
    { "norm.weight", "input_layernorm.weight", "attn_norm.weight", PAL_ON_LAYER },
    PAL_MAMBA2_TENSORS("mamba."),
    { "attn.q_proj.weight", "self_attn.q_proj.weight", "attn_q.weight", PAL_ON_ATTENTION },
    { "attn.k_proj.weight", "self_attn.k_proj.weight", "attn_k.weight", PAL_ON_ATTENTION },
    { "attn.v_proj.weight", "self_attn.v_proj.weight", "attn_v.weight", PAL_ON_ATTENTION },
    { "attn.o_proj.weight", "self_attn.o_proj.weight", "attn_output.weight", PAL_ON_ATTENTION },
    { "mlp_norm.weight", "post_attention_layernorm.weight", "ffn_norm.weight", PAL_ON_MLP },
    { "mlp.gate_proj.weight", "shared_mlp.input_linear.weight", "ffn_gate.weight", PAL_ON_MLP, .part = PAL_FIRST_HALF },
    { "mlp.up_proj.weight", "shared_mlp.input_linear.weight", "ffn_up.weight", PAL_ON_MLP, .part = PAL_SECOND_HALF },
    { "mlp.down_proj.weight", "shared_mlp.output_linear.weight", "ffn_down.weight", PAL_ON_MLP },
    { 0 },
};

static const pal_family_tensor bamba_tensors[] = {
    { "model.embeddings.weight", "embed_tokens.weight", NULL, PAL_ON_MODEL },
    { "model.norm.weight", "final_layernorm.weight", NULL, PAL_ON_MODEL },
    { "lm_head.weight", "lm_head.weight", NULL, PAL_ON_TOP | PAL_MAY_LACK },
    { "norm.weight", "input_layernorm.weight", NULL, PAL_ON_LAYER },
    PAL_MAMBA2_TENSORS("mamba."),
    { "attn.q_proj.weight", "self_attn.q_proj.weight", NULL, PAL_ON_ATTENTION },
    { "attn.k_proj.weight", "self_attn.k_proj.weight", NULL, PAL_ON_ATTENTION },
    { "attn.v_proj.weight", "self_attn.v_proj.weight", NULL, PAL_ON_ATTENTION },
    { "attn.o_proj.weight", "self_attn.o_proj.weight", NULL, PAL_ON_ATTENTION },
    { "mlp_norm.weight", "pre_ff_layernorm.weight", NULL, PAL_ON_MLP },
    { "mlp.gate_proj.weight", "feed_forward.gate_proj.weight", NULL, PAL_ON_MLP },
    { "mlp.up_proj.weight", "feed_forward.up_proj.weight", NULL, PAL_ON_MLP },
    { "mlp.down_proj.weight", "feed_forward.down_proj.weight", NULL, PAL_ON_MLP },
    { 0 },
};

/* Of what both families call alike. */
typedef struct {
    int64_t hidden, layers, heads, key_heads, width;
    json_t *mamba; /* the mixer */
} common;

static common read_common(pal_family_reader *r) {
    common c = { .hidden = pal_family_size(r, "hidden_size"), .layers = pal_family_size(r, "num_hidden_layers") };
    c.heads = pal_family_size(r, "num_attention_heads");
    c.key_heads = pal_family_size_or(r, "num_key_value_heads", c.heads);
    c.width = pal_family_size_or(r, "head_dim", c.hidden / c.heads);
    const int64_t inner = pal_family_size(r, "mamba_expand") * c.hidden, heads = pal_family_size(r, "mamba_n_heads");
    const bool derived = strcmp(pal_family_text(r, "mamba_d_head"), "auto") == 0;
    const int64_t width = derived ? inner / heads : pal_family_size(r, "mamba_d_head");
    if (heads * width != inner)
        pal_family_refuse(r, "mamba_n_heads", "heads that share mamba_expand times hidden_size");
    c.mamba = pal_family_mamba2(r, heads, pal_family_size(r, "mamba_n_groups"), pal_family_size(r, "mamba_d_state"),
                                width, "mamba_d_conv", "mamba_conv_bias");
    return c;
}

/* Old files say mamba and attention, new ones linear_attention and full_attention. */
static void read_kinds(pal_family_reader *r, json_t *to, int64_t layers) {
    const json_t *kinds = pal_family_value(r, "layer_types");
    json_t *list = json_object_get(to, "layers");
    if (!kinds) kinds = pal_family_value(r, "layers_block_type");
    if (kinds && (int64_t)json_array_size(kinds) != layers)
        return pal_family_refuse(r, "layer_types", "a list of as many layers as num_hidden_layers");
    for (int64_t i = 0; i < layers && !r->st; i++) {
        const char *kind = kinds ? json_string_value(json_array_get(kinds, (size_t)i)) : "mamba";
        const bool attends = kind && (strcmp(kind, "attention") == 0 || strcmp(kind, "full_attention") == 0);
        if (!attends && !(kind && (strcmp(kind, "mamba") == 0 || strcmp(kind, "linear_attention") == 0)))
            return pal_family_refuse(r, "layer_types", "a list of \"mamba\" and \"attention\"");
        pal_json_append(list, json_integer(attends));
    }
}

static void read_granite(pal_family_reader *r, json_t *to) {
    static const char dense[] = "0: of this family models without experts are run, such as granite-4.0-h-350m and -1b";
    const json_t *experts = pal_family_value(r, "num_local_experts");
    const char *positions = pal_family_text(r, "position_embedding_type");
    const bool turns = strcmp(positions, "rope") == 0;
    if (json_integer_value(experts) != 0) return pal_family_refuse(r, "num_local_experts", dense);
    if (*positions && !turns && strcmp(positions, "nope") != 0)
        return pal_family_refuse(r, "position_embedding_type", "\"rope\" or \"nope\"");
    pal_family_begin(r, to, "rms_norm_eps", pal_family_flag(r, "tie_word_embeddings"));
    const common c = read_common(r);
    const double residual = pal_family_factor(r, "residual_multiplier");
    double theta, part;
    pal_family_rotary(r, &theta, &part);
    pal_json_set(to, "rope_theta", json_real(theta));
    pal_family_set(to, "embedding_multiplier", pal_family_factor(r, "embedding_multiplier"));
    pal_family_set(to, "logits_multiplier", 1 / pal_family_factor(r, "logits_scaling"));
    json_t *attention = pal_family_attention(c.heads, c.key_heads, c.width,
                                             turns ? (int64_t)((double)c.width * part) : 0);
    pal_json_set(attention, "scale", json_real(pal_family_factor(r, "attention_multiplier")));
    json_t *mixers[] = { c.mamba, attention };
    for (int i = 0; i < 2; i++) {
        pal_family_set(mixers[i], "out_multiplier", residual);
        json_t *block = pal_family_block(mixers[i], NULL, "swiglu", pal_family_size(r, "shared_intermediate_size"));
        pal_family_set(json_object_get(block, "mlp"), "down_multiplier", residual);
        pal_json_append(json_object_get(to, "blocks"), block);
    }
    read_kinds(r, to, c.layers);
}

static void read_bamba(pal_family_reader *r, json_t *to) {
    const json_t *attending = pal_family_value(r, "attn_layer_indices");
    pal_family_begin(r, to, "rms_norm_eps", pal_family_flag(r, "tie_word_embeddings"));
    const common c = read_common(r);
    double theta, part;
    pal_family_rotary(r, &theta, &part);
    pal_json_set(to, "rope_theta", json_real(theta));
    json_t *mixers[] = { c.mamba,
                         pal_family_attention(c.heads, c.key_heads, c.width, c.width / 2) }; /* whatever is stated */
    for (int i = 0; i < 2; i++)
        pal_json_append(json_object_get(to, "blocks"),
                        pal_family_block(mixers[i], NULL, "swiglu", pal_family_size(r, "intermediate_size")));
    for (int64_t i = 0; i < c.layers; i++) {
        bool attends = false;
        for (size_t k = 0; k < json_array_size(attending); k++) {
            const json_t *index = json_array_get(attending, k);
            if (!json_is_integer(index)) return pal_family_refuse(r, "attn_layer_indices", "a list of layer numbers");
            attends |= json_integer_value(index) == i;
        }
        pal_json_append(json_object_get(to, "layers"), json_integer(attends));
    }
}

static void granite_from_gguf(pal_family_reader *r, json_t *to, bool head) {
    const int64_t hidden = pal_family_size(r, "embedding_length"), layers = pal_family_size(r, "block_count");
    const int64_t inner = pal_family_size(r, "ssm.inner_size"), heads = pal_family_size(r, "ssm.time_step_rank");
    json_t *kinds = json_array();
    int64_t key_heads = 0;
    if (json_is_true(pal_family_value(r, "rope.scaling.finetuned")))
        pal_family_refuse(
            r, "rope.scaling.finetuned",
            "false; with rotary positions such files turn other channels than the model was trained with");
    if (pal_family_value(r, "expert_count") && pal_family_element(r, "expert_count", 0))
        pal_family_refuse(r, "expert_count", "0: of this family models without experts are run");
    if (inner % hidden || inner % heads)
        pal_family_refuse(r, "ssm.inner_size", "a multiple of embedding_length and of ssm.time_step_rank");
    for (int64_t i = 0; i < layers && i < 1024; i++) {
        const int64_t n = pal_family_element(r, "attention.head_count_kv", i);
        if (n) key_heads = n;
        pal_json_append(kinds, json_string(n ? "attention" : "mamba"));
    }
    pal_json_set(to, "hidden_size", json_integer(hidden));
    pal_json_set(to, "num_hidden_layers", json_integer(layers));
    pal_json_set(to, "layer_types", kinds);
    pal_json_set(to, "num_attention_heads", json_integer(pal_family_size(r, "attention.head_count")));
    pal_json_set(to, "num_key_value_heads", json_integer(key_heads ? key_heads : 1));
    if (pal_family_value(r, "attention.key_length"))
        pal_json_set(to, "head_dim", json_integer(pal_family_size(r, "attention.key_length")));
    pal_json_set(to, "position_embedding_type", json_string("nope"));
    pal_json_set(to, "shared_intermediate_size", json_integer(pal_family_size(r, "feed_forward_length")));
    pal_json_set(to, "intermediate_size", json_integer(pal_family_size(r, "feed_forward_length")));
    pal_json_set(to, "num_local_experts", json_integer(0));
    pal_json_set(to, "num_experts_per_tok", json_integer(0));
    pal_json_set(to, "attention_multiplier", json_real(pal_family_factor(r, "attention.scale")));
    pal_json_set(to, "embedding_multiplier", json_real(pal_family_factor(r, "embedding_scale")));
    pal_json_set(to, "residual_multiplier", json_real(pal_family_factor(r, "residual_scale")));
    pal_json_set(to, "logits_scaling", json_real(pal_family_factor(r, "logit_scale")));
    pal_json_set(to, "mamba_n_heads", json_integer(heads));
    pal_json_set(to, "mamba_d_head", json_integer(inner / heads));
    pal_json_set(to, "mamba_expand", json_integer(inner / hidden));
    pal_json_set(to, "mamba_d_state", json_integer(pal_family_size(r, "ssm.state_size")));
    pal_json_set(to, "mamba_n_groups", json_integer(pal_family_size(r, "ssm.group_count")));
    pal_json_set(to, "mamba_d_conv", json_integer(pal_family_size(r, "ssm.conv_kernel")));
    pal_json_set(to, "mamba_conv_bias", json_true());
    pal_json_set(to, "mamba_proj_bias", json_false());
    pal_json_set(to, "attention_bias", json_false());
    pal_json_set(to, "hidden_act", json_string("silu"));
    pal_json_set(to, "max_position_embeddings", json_integer(pal_family_size_or(r, "context_length", 131072)));
    pal_json_set(to, "rms_norm_eps", json_real(pal_family_real(r, "attention.layer_norm_rms_epsilon")));
    pal_json_set(to, "tie_word_embeddings", json_boolean(!head));
}

static void granite_to_gguf(pal_family_reader *r, json_t *to) {
    const int64_t hidden = pal_family_size(r, "hidden_size"), heads = pal_family_size(r, "num_attention_heads");
    const int64_t key_heads = pal_family_size_or(r, "num_key_value_heads", heads),
                  layers = pal_family_size(r, "num_hidden_layers");
    const int64_t inner = pal_family_size(r, "mamba_expand") * hidden,
                  width = pal_family_size_or(r, "head_dim", hidden / heads);
    json_t *kinds = json_pack("{s:[]}", "layers"), *counts = json_array();
    if (strcmp(pal_family_text(r, "position_embedding_type"), "rope") == 0)
        pal_family_refuse(r, "position_embedding_type",
                          "\"nope\"; GGUF files of this family with rotary positions turn other channels");
    if (inner != 2 * hidden) pal_family_refuse(r, "mamba_expand", "2 in a GGUF file of granitehybrid");
    if (!pal_family_flag(r, "mamba_conv_bias"))
        pal_family_refuse(r, "mamba_conv_bias", "true in a GGUF file of granitehybrid");
    read_kinds(r, kinds, layers);
    for (size_t i = 0; i < json_array_size(json_object_get(kinds, "layers")); i++) {
        const bool attends = json_integer_value(json_array_get(json_object_get(kinds, "layers"), i));
        pal_json_append(counts, json_integer(attends ? key_heads : 0));
    }
    json_decref(kinds);
    pal_json_set(to, "context_length", json_integer(1 << 20));
    pal_json_set(to, "vocab_size", json_integer(pal_family_size(r, "vocab_size")));
    pal_json_set(to, "block_count", json_integer(layers));
    pal_json_set(to, "embedding_length", json_integer(hidden));
    pal_json_set(to, "feed_forward_length", json_integer(pal_family_size(r, "shared_intermediate_size")));
    pal_json_set(to, "attention.head_count", json_integer(heads));
    pal_json_set(to, "attention.head_count_kv", counts);
    pal_json_set(to, "attention.key_length", json_integer(width));
    pal_json_set(to, "attention.value_length", json_integer(width));
    pal_json_set(to, "attention.layer_norm_rms_epsilon", json_real(pal_family_real(r, "rms_norm_eps")));
    pal_json_set(to, "attention.scale", json_real(pal_family_factor(r, "attention_multiplier")));
    pal_json_set(to, "embedding_scale", json_real(pal_family_factor(r, "embedding_multiplier")));
    pal_json_set(to, "residual_scale", json_real(pal_family_factor(r, "residual_multiplier")));
    pal_json_set(to, "logit_scale", json_real(pal_family_factor(r, "logits_scaling")));
    pal_json_set(to, "ssm.conv_kernel", json_integer(pal_family_size(r, "mamba_d_conv")));
    pal_json_set(to, "ssm.inner_size", json_integer(inner));
    pal_json_set(to, "ssm.state_size", json_integer(pal_family_size(r, "mamba_d_state")));
    pal_json_set(to, "ssm.time_step_rank", json_integer(pal_family_size(r, "mamba_n_heads")));
    pal_json_set(to, "ssm.group_count", json_integer(pal_family_size(r, "mamba_n_groups")));
    pal_json_set(to, "rope.scaling.finetuned", json_false());
}

/* clang-format off */
const pal_family pal_family_granite_hybrid = {
    .model_types = { "granitemoehybrid" }, .architecture = "GraniteMoeHybridForCausalLM", .gguf = "granitehybrid",
        .prefixes = { "model." }, .tensors = granite_tensors,
    .read = read_granite, .from_gguf = granite_from_gguf, .to_gguf = granite_to_gguf,
    .defaults = PAL_JSON({ "vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "embedding_multiplier":
        1.0, "logits_scaling": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0, "num_local_experts":
        8, "shared_intermediate_size": 1024, "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256,
        "mamba_d_head": "auto", "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true, "rope_theta":
        10000.0, "partial_rotary_factor": 1.0 }),
    .fixed = PAL_JSON({ "hidden_act": "silu", "attention_bias": false, "mamba_proj_bias": false }),
};

const pal_family pal_family_bamba = {
    .model_types = { "bamba" }, .architecture = "BambaForCausalLM", .prefixes = { "model." }, .tensors =
        bamba_tensors, .read = read_bamba,
    .defaults = PAL_JSON({ "vocab_size": 128000, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": false, "mamba_n_heads": 128, "mamba_d_head": "auto", "mamba_n_groups": 1,
        "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true, "rope_theta":
        10000.0, "partial_rotary_factor": 0.5 }),
    .fixed = PAL_JSON({ "hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "mamba_proj_bias": false
        }),
};
/* clang-format on */
