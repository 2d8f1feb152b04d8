/* SPDX-License-Identifier: MIT */
/* Falcon-H1: Mamba2 and attention side by side, and an MLP, in every layer, with a multiplier at every place. */
#include <math.h>
#include <string.h>

#include "format/families/family.h"
#include "format/json.h"

static const pal_family_tensor tensors[] = {
    { "model.embeddings.weight", "embed_tokens.weight", "token_embd.weight", PAL_ON_MODEL },
    { "model.norm.weight", "final_layernorm.weight", "output_norm.weight", PAL_ON_MODEL },
    { "lm_head.weight", "lm_head.weight", "output.weight", PAL_ON_TOP | PAL_MAY_LACK },
    { "norm.weight", "input_layernorm.weight", "attn_norm.weight", PAL_ON_LAYER },
    PAL_MAMBA2_TENSORS("mamba."),
    { "attn.q_proj.weight", "self_attn.q_proj.weight", "attn_q.weight", PAL_ON_ATTENTION },
    { "attn.k_proj.weight", "self_attn.k_proj.weight", "attn_k.weight", PAL_ON_ATTENTION },
    { "attn.v_proj.weight", "self_attn.v_proj.weight", "attn_v.weight", PAL_ON_ATTENTION },
    { "attn.o_proj.weight", "self_attn.o_proj.weight", "attn_output.weight", PAL_ON_ATTENTION },
    { "mlp_norm.weight", "pre_ff_layernorm.weight", "ffn_norm", PAL_ON_MLP },
    { "mlp.gate_proj.weight", "feed_forward.gate_proj.weight", "ffn_gate.weight", PAL_ON_MLP },
    { "mlp.up_proj.weight", "feed_forward.up_proj.weight", "ffn_up.weight", PAL_ON_MLP },
    { "mlp.down_proj.weight", "feed_forward.down_proj.weight", "ffn_down.weight", PAL_ON_MLP },
    { 0 },
};

/* The numbers of a list of multipliers. */
static void read_list(pal_family_reader *r, const char *key, double *out, size_t count) {
    const json_t *list = pal_family_value(r, key);
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        out[i] = json_number_value(value);
        if (json_array_size(list) != count || !(fabs(out[i]) > 0))
            return pal_family_refuse(r, key, count == 2 ? "two numbers other than 0" : "five numbers other than 0");
    }
}

static int64_t inner_size(pal_family_reader *r) {
    return pal_family_size_or(r, "mamba_d_ssm", pal_family_size(r, "mamba_expand") * pal_family_size(r, "hidden_size"));
}

static json_t *read_memory(pal_family_reader *r) {
    static const char *const parts[] = { "z", "x", "B", "C", "dt" };
    const int64_t inner = inner_size(r), heads = pal_family_size(r, "mamba_n_heads");
    const bool derived = strcmp(pal_family_text(r, "mamba_d_head"), "auto") == 0;
    const int64_t width = derived ? inner / heads : pal_family_size(r, "mamba_d_head");
    const double in = pal_family_factor(r, "ssm_in_multiplier");
    double factors[5] = { 1, 1, 1, 1, 1 };
    if (heads * width != inner) pal_family_refuse(r, "mamba_n_heads", "heads that share the channels of mamba_d_ssm");
    json_t *memory = pal_family_mamba2(r, heads, pal_family_size(r, "mamba_n_groups"),
                                       pal_family_size(r, "mamba_d_state"), width, "mamba_d_conv", "mamba_conv_bias");
    const bool norm = pal_family_flag(r, "mamba_rms_norm"), first = pal_family_flag(r, "mamba_norm_before_gate");
    pal_json_set(memory, "norm", json_string(!norm ? "gate_without_norm" : first ? "then_gate" : "of_gated"));
    read_list(r, "ssm_multipliers", factors, 5);
    json_t *multipliers = json_object();
    for (int i = 0; i < 5; i++) pal_family_set(multipliers, parts[i], in * factors[i]);
    pal_json_set(memory, "in_multipliers", multipliers);
    pal_family_set(memory, "out_multiplier", pal_family_factor(r, "ssm_out_multiplier"));
    return memory;
}

/* Queries, keys and values are linear in what enters, so that one factor of the scale and one of the output say all. */
static json_t *read_attention(pal_family_reader *r) {
    const int64_t heads = pal_family_size(r, "num_attention_heads");
    const int64_t width = pal_family_size_or(r, "head_dim", pal_family_size(r, "hidden_size") / heads);
    const double in = pal_family_factor(r, "attention_in_multiplier");
    json_t *attention = pal_family_attention(heads, pal_family_size_or(r, "num_key_value_heads", heads), width, width);
    pal_json_set(attention, "scale", json_real(in * in * pal_family_factor(r, "key_multiplier") / sqrt((double)width)));
    pal_family_set(attention, "out_multiplier", in * pal_family_factor(r, "attention_out_multiplier"));
    return attention;
}

static void read(pal_family_reader *r, json_t *to) {
    double theta, part, mlp[2] = { 1, 1 };
    pal_family_begin(r, to, "rms_norm_eps", pal_family_flag(r, "tie_word_embeddings"));
    pal_family_rotary(r, &theta, &part);
    if (part != 1) pal_family_refuse(r, "partial_rotary_factor", "1");
    pal_json_set(to, "rope_theta", json_real(theta));
    pal_family_set(to, "embedding_multiplier", pal_family_factor(r, "embedding_multiplier"));
    pal_family_set(to, "logits_multiplier", pal_family_factor(r, "lm_head_multiplier"));
    json_t *memory = read_memory(r), *attention = read_attention(r);
    json_t *block = pal_family_block(memory, attention, "swiglu", pal_family_size(r, "intermediate_size"));
    read_list(r, "mlp_multipliers", mlp, 2);
    pal_family_set(json_object_get(block, "mlp"), "gate_multiplier", mlp[0]);
    pal_family_set(json_object_get(block, "mlp"), "down_multiplier", mlp[1]);
    pal_json_append(json_object_get(to, "blocks"), block);
    for (int64_t i = 0, layers = pal_family_size(r, "num_hidden_layers"); i < layers && i <= 1024; i++)
        pal_json_append(json_object_get(to, "layers"), json_integer(0));
}

/* Multipliers are inside the weights there. */
static void from_gguf(pal_family_reader *r, json_t *to, bool head) {
    const int64_t inner = pal_family_size(r, "ssm.inner_size"), heads = pal_family_size(r, "ssm.time_step_rank");
    if (inner % heads) pal_family_refuse(r, "ssm.inner_size", "a multiple of ssm.time_step_rank");
    pal_json_set(to, "hidden_size", json_integer(pal_family_size(r, "embedding_length")));
    pal_json_set(to, "num_hidden_layers", json_integer(pal_family_size(r, "block_count")));
    pal_json_set(to, "intermediate_size", json_integer(pal_family_size(r, "feed_forward_length")));
    pal_json_set(to, "num_attention_heads", json_integer(pal_family_size(r, "attention.head_count")));
    pal_json_set(to, "num_key_value_heads", json_integer(pal_family_element(r, "attention.head_count_kv", 0)));
    pal_json_set(to, "head_dim", json_integer(pal_family_size(r, "attention.key_length")));
    pal_json_set(to, "mamba_d_ssm", json_integer(inner));
    pal_json_set(to, "mamba_n_heads", json_integer(heads));
    pal_json_set(to, "mamba_d_head", json_integer(inner / heads));
    pal_json_set(to, "mamba_d_state", json_integer(pal_family_size(r, "ssm.state_size")));
    pal_json_set(to, "mamba_n_groups", json_integer(pal_family_size(r, "ssm.group_count")));
    pal_json_set(to, "mamba_d_conv", json_integer(pal_family_size(r, "ssm.conv_kernel")));
    pal_json_set(to, "mamba_conv_bias", json_true());
    pal_json_set(to, "mamba_rms_norm", json_boolean(json_is_true(pal_family_value(r, "blk.0.ssm_norm.weight"))));
    pal_json_set(to, "mamba_norm_before_gate", json_false());
    pal_json_set(to, "hidden_act", json_string("silu"));
    pal_json_set(to, "max_position_embeddings", json_integer(pal_family_size_or(r, "context_length", 8192)));
    pal_json_set(to, "rms_norm_eps", json_real(pal_family_real(r, "attention.layer_norm_rms_epsilon")));
    pal_json_set(to, "rope_theta", json_real(pal_family_real(r, "rope.freq_base")));
    pal_json_set(to, "tie_word_embeddings", json_boolean(!head));
}

static void to_gguf(pal_family_reader *r, json_t *to) {
    const int64_t hidden = pal_family_size(r, "hidden_size"), heads = pal_family_size(r, "num_attention_heads");
    const int64_t width = pal_family_size_or(r, "head_dim", hidden / heads);
    double theta, part;
    pal_family_rotary(r, &theta, &part);
    if (pal_family_flag(r, "mamba_rms_norm") && pal_family_flag(r, "mamba_norm_before_gate"))
        pal_family_refuse(r, "mamba_norm_before_gate", "false; GGUF files of falcon-h1 have the gate before the norm");
    if (!pal_family_flag(r, "mamba_conv_bias"))
        pal_family_refuse(r, "mamba_conv_bias", "true in a GGUF file of falcon-h1");
    pal_json_set(to, "context_length", json_integer(pal_family_size_or(r, "max_position_embeddings", 8192)));
    pal_json_set(to, "vocab_size", json_integer(pal_family_size(r, "vocab_size")));
    pal_json_set(to, "block_count", json_integer(pal_family_size(r, "num_hidden_layers")));
    pal_json_set(to, "embedding_length", json_integer(hidden));
    pal_json_set(to, "feed_forward_length", json_integer(pal_family_size(r, "intermediate_size")));
    pal_json_set(to, "attention.head_count", json_integer(heads));
    pal_json_set(to, "attention.head_count_kv", json_integer(pal_family_size_or(r, "num_key_value_heads", heads)));
    pal_json_set(to, "attention.key_length", json_integer(width));
    pal_json_set(to, "attention.value_length", json_integer(width));
    pal_json_set(to, "attention.layer_norm_rms_epsilon", json_real(pal_family_real(r, "rms_norm_eps")));
    pal_json_set(to, "ssm.conv_kernel", json_integer(pal_family_size(r, "mamba_d_conv")));
    pal_json_set(to, "ssm.inner_size", json_integer(inner_size(r)));
    pal_json_set(to, "ssm.state_size", json_integer(pal_family_size(r, "mamba_d_state")));
    pal_json_set(to, "ssm.time_step_rank", json_integer(pal_family_size(r, "mamba_n_heads")));
    pal_json_set(to, "ssm.group_count", json_integer(pal_family_size(r, "mamba_n_groups")));
    pal_json_set(to, "rope.freq_base", json_real(theta));
}

/* clang-format off */
const pal_family pal_family_falcon_h1 = {
    .model_types = { "falcon_h1" }, .architecture = "FalconH1ForCausalLM", .gguf = "falcon-h1", .prefixes = {
        "model." }, .tensors = tensors, .folds = true,
    .read = read, .from_gguf = from_gguf, .to_gguf = to_gguf,
    .defaults = PAL_JSON({ "vocab_size": 128000, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": false, "mamba_d_ssm": 1024, "mamba_n_heads": 128, "mamba_d_head": "auto",
        "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true,
        "mamba_norm_before_gate": true, "mamba_rms_norm": false, "lm_head_multiplier": 1.0,
        "embedding_multiplier": 1.0, "mlp_multipliers": [1.0, 1.0], "key_multiplier": 1.0,
        "attention_out_multiplier": 1.0, "attention_in_multiplier": 1.0, "ssm_multipliers": [1.0, 1.0, 1.0, 1.0,
        1.0], "ssm_in_multiplier": 1.0, "ssm_out_multiplier": 1.0, "rope_theta": 10000.0, "partial_rotary_factor":
        1.0 }),
    .fixed = PAL_JSON({ "hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "mamba_proj_bias":
        false, "projectors_bias": false }),
};
/* clang-format on */
