/* SPDX-License-Identifier: MIT */
/* Qwen3.5's text model without experts: Gated DeltaNet, with fewer heads of keys than of values, or gated attention,
 * and an MLP, in every layer. As published it stands inside a model of text and pictures. */
#include <math.h>
#include <string.h>

#include "format/families/family.h"
#include "format/json.h"

static const pal_family_tensor tensors[] = {
    { "model.embeddings.weight", "embed_tokens.weight", "token_embd.weight", PAL_ON_MODEL },
    { "model.norm.weight", "norm.weight", "output_norm.weight", PAL_ON_MODEL, .hf_op = PAL_LESS_ONE },
    { "lm_head.weight", "lm_head.weight", "output.weight", PAL_ON_TOP | PAL_MAY_LACK },
    { "norm.weight", "input_layernorm.weight", "attn_norm.weight", PAL_ON_LAYER, .hf_op = PAL_LESS_ONE },
    { "delta.q_proj.weight", "linear_attn.in_proj_qkv.weight", "attn_qkv.weight", PAL_ON_MEMORY, .part = PAL_QUERIES,
      .gguf_part = PAL_QUERIES },
    { "delta.k_proj.weight", "linear_attn.in_proj_qkv.weight", "attn_qkv.weight", PAL_ON_MEMORY, .part = PAL_KEYS,
      .gguf_part = PAL_KEYS },
    { "delta.v_proj.weight", "linear_attn.in_proj_qkv.weight", "attn_qkv.weight", PAL_ON_MEMORY, .part = PAL_VALUES,
      .gguf_part = PAL_VALUES, .tiling = PAL_TILED_ROWS },
    { "delta.g_proj.weight", "linear_attn.in_proj_z.weight", "attn_gate.weight", PAL_ON_MEMORY,
      .tiling = PAL_TILED_ROWS },
    { "delta.a_proj.weight", "linear_attn.in_proj_a.weight", "ssm_alpha.weight", PAL_ON_MEMORY,
      .tiling = PAL_TILED_ROWS },
    { "delta.b_proj.weight", "linear_attn.in_proj_b.weight", "ssm_beta.weight", PAL_ON_MEMORY,
      .tiling = PAL_TILED_ROWS },
    { "delta.q_conv1d.weight", "linear_attn.conv1d.weight", "ssm_conv1d.weight", PAL_ON_MEMORY, .part = PAL_QUERIES,
      .gguf_part = PAL_QUERIES, .form = PAL_FORM_TAPS },
    { "delta.k_conv1d.weight", "linear_attn.conv1d.weight", "ssm_conv1d.weight", PAL_ON_MEMORY, .part = PAL_KEYS,
      .gguf_part = PAL_KEYS, .form = PAL_FORM_TAPS },
    { "delta.v_conv1d.weight", "linear_attn.conv1d.weight", "ssm_conv1d.weight", PAL_ON_MEMORY, .part = PAL_VALUES,
      .gguf_part = PAL_VALUES, .form = PAL_FORM_TAPS, .tiling = PAL_TILED_ROWS },
    { "delta.A_log", "linear_attn.A_log", "ssm_a", PAL_ON_MEMORY, .gguf_op = PAL_NEG_EXP, .tiling = PAL_TILED_ROWS },
    { "delta.dt_bias", "linear_attn.dt_bias", "ssm_dt.bias", PAL_ON_MEMORY, .tiling = PAL_TILED_ROWS },
    { "delta.o_norm.weight", "linear_attn.norm.weight", "ssm_norm.weight", PAL_ON_MEMORY },
    { "delta.o_proj.weight", "linear_attn.out_proj.weight", "ssm_out.weight", PAL_ON_MEMORY,
      .tiling = PAL_TILED_COLUMNS },
    { "attn.q_proj.weight", "self_attn.q_proj.weight", "attn_q.weight", PAL_ON_ATTENTION },
    { "attn.k_proj.weight", "self_attn.k_proj.weight", "attn_k.weight", PAL_ON_ATTENTION },
    { "attn.v_proj.weight", "self_attn.v_proj.weight", "attn_v.weight", PAL_ON_ATTENTION },
    { "attn.o_proj.weight", "self_attn.o_proj.weight", "attn_output.weight", PAL_ON_ATTENTION },
    { "attn.q_norm.weight", "self_attn.q_norm.weight", "attn_q_norm.weight", PAL_ON_ATTENTION, .hf_op = PAL_LESS_ONE },
    { "attn.k_norm.weight", "self_attn.k_norm.weight", "attn_k_norm.weight", PAL_ON_ATTENTION, .hf_op = PAL_LESS_ONE },
    { "mlp_norm.weight", "post_attention_layernorm.weight", "post_attention_norm.weight", PAL_ON_MLP,
      .hf_op = PAL_LESS_ONE },
    { "mlp.gate_proj.weight", "mlp.gate_proj.weight", "ffn_gate.weight", PAL_ON_MLP },
    { "mlp.up_proj.weight", "mlp.up_proj.weight", "ffn_up.weight", PAL_ON_MLP },
    { "mlp.down_proj.weight", "mlp.down_proj.weight", "ffn_down.weight", PAL_ON_MLP },
    { 0 },
};

static bool is_tied(const pal_family_reader *r) {
    const json_t *outer = json_object_get(r->outer, "tie_word_embeddings");
    return json_is_true(outer ? outer : pal_family_value(r, "tie_word_embeddings"));
}

/* Of each layer, whether it attends; without a list every fourth, or as full_attention_interval says. */
static void read_kinds(pal_family_reader *r, json_t *list, int64_t layers) {
    const json_t *words = pal_family_value(r, "layer_types");
    const int64_t interval = pal_family_size_or(r, "full_attention_interval", 4);
    if (words && (int64_t)json_array_size(words) != layers)
        return pal_family_refuse(r, "layer_types", "a list of as many layers as num_hidden_layers");
    for (int64_t i = 0; i < layers && !r->st; i++) {
        const char *word = json_string_value(json_array_get(words, (size_t)i));
        const bool attends = words ? word && strcmp(word, "full_attention") == 0 : (i + 1) % interval == 0;
        if (words && !attends && !(word && strcmp(word, "linear_attention") == 0))
            return pal_family_refuse(r, "layer_types", "a list of \"linear_attention\" and \"full_attention\"");
        pal_json_append(list, json_integer(attends));
    }
}

static void read(pal_family_reader *r, json_t *to) {
    const int64_t width = pal_family_size(r, "head_dim"), mlp = pal_family_size(r, "intermediate_size");
    double theta, part;
    pal_family_begin(r, to, "rms_norm_eps", is_tied(r));
    pal_family_rotary(r, &theta, &part);
    pal_json_set(to, "rope_theta", json_real(theta));
    json_t *delta = pal_family_mixer(
        "gated_deltanet", pal_family_size(r, "linear_num_value_heads"), pal_family_size(r, "linear_num_key_heads"),
        pal_family_size(r, "linear_key_head_dim"), pal_family_size(r, "linear_value_head_dim"));
    pal_json_set(delta, "conv", json_integer(pal_family_size(r, "linear_conv_kernel_dim")));
    json_t *attention = pal_family_attention(pal_family_size(r, "num_attention_heads"),
                                             pal_family_size(r, "num_key_value_heads"), width,
                                             (int64_t)((double)width * part));
    pal_json_set(attention, "qk_norm", json_true());
    pal_json_set(attention, "out_gate", json_true());
    pal_json_append(json_object_get(to, "blocks"), pal_family_block(delta, NULL, "swiglu", mlp));
    pal_json_append(json_object_get(to, "blocks"), pal_family_block(attention, NULL, "swiglu", mlp));
    read_kinds(r, json_object_get(to, "layers"), pal_family_size(r, "num_hidden_layers"));
}

static void from_gguf(pal_family_reader *r, json_t *to, bool head) {
    const int64_t extra = pal_family_value(r, "nextn_predict_layers") ? pal_family_element(r, "nextn_predict_layers", 0)
                                                                      : 0;
    const int64_t layers = pal_family_size(r, "block_count") - extra, inner = pal_family_size(r, "ssm.inner_size");
    const int64_t heads = pal_family_size(r, "ssm.time_step_rank"), width = pal_family_size(r, "attention.key_length");
    const int64_t interval = pal_family_size_or(r, "full_attention_interval", 4);
    const bool listed = pal_family_value(r, "attention.recurrent_layers") != NULL;
    json_t *kinds = json_array();
    if (layers < 1) pal_family_refuse(r, "nextn_predict_layers", "fewer than block_count");
    if (inner % heads) pal_family_refuse(r, "ssm.inner_size", "a multiple of ssm.time_step_rank");
    for (int64_t i = 0; i < layers && i <= 1024; i++) {
        const bool attends = listed ? pal_family_element(r, "attention.recurrent_layers", i) == 0
                                    : (i + 1) % interval == 0;
        pal_json_append(kinds, json_string(attends ? "full_attention" : "linear_attention"));
    }
    pal_json_set(to, "hidden_size", json_integer(pal_family_size(r, "embedding_length")));
    pal_json_set(to, "num_hidden_layers", json_integer(layers));
    pal_json_set(to, "layer_types", kinds);
    if (extra) pal_json_set(to, "mtp_num_hidden_layers", json_integer(extra));
    pal_json_set(to, "intermediate_size", json_integer(pal_family_size(r, "feed_forward_length")));
    pal_json_set(to, "num_attention_heads", json_integer(pal_family_size(r, "attention.head_count")));
    pal_json_set(to, "num_key_value_heads", json_integer(pal_family_element(r, "attention.head_count_kv", 0)));
    pal_json_set(to, "head_dim", json_integer(width));
    pal_json_set(to, "linear_num_value_heads", json_integer(heads));
    pal_json_set(to, "linear_num_key_heads", json_integer(pal_family_size(r, "ssm.group_count")));
    pal_json_set(to, "linear_key_head_dim", json_integer(pal_family_size(r, "ssm.state_size")));
    pal_json_set(to, "linear_value_head_dim", json_integer(inner / heads));
    pal_json_set(to, "linear_conv_kernel_dim", json_integer(pal_family_size(r, "ssm.conv_kernel")));
    pal_json_set(to, "hidden_act", json_string("silu"));
    pal_json_set(to, "attention_bias", json_false());
    pal_json_set(to, "max_position_embeddings", json_integer(pal_family_size_or(r, "context_length", 262144)));
    pal_json_set(to, "rms_norm_eps", json_real(pal_family_real(r, "attention.layer_norm_rms_epsilon")));
    const double part = (double)pal_family_size_or(r, "rope.dimension_count", width / 4) / (double)width;
    json_t *rope = json_pack("{s:s, s:f, s:f}", "rope_type", "default", "rope_theta",
                             pal_family_real(r, "rope.freq_base"), "partial_rotary_factor", part);
    json_t *sections = json_array();
    for (int i = 0; i < 3; i++)
        pal_json_append(sections, json_integer(pal_family_element(r, "rope.dimension_sections", i)));
    pal_json_set(rope, "mrope_section", sections);
    pal_json_set(rope, "mrope_interleaved", json_true());
    pal_json_set(to, "rope_parameters", rope);
    pal_json_set(to, "tie_word_embeddings", json_boolean(!head));
}

static void to_gguf(pal_family_reader *r, json_t *to) {
    const int64_t heads = pal_family_size(r, "linear_num_value_heads"), width = pal_family_size(r, "head_dim");
    const int64_t dk = pal_family_size(r, "linear_key_head_dim"), dv = pal_family_size(r, "linear_value_head_dim");
    const json_t *stated = json_object_get(json_object_get(r->config, "rope_parameters"), "mrope_section");
    const int64_t layers = pal_family_size(r, "num_hidden_layers");
    double theta, part;
    pal_family_rotary(r, &theta, &part);
    const int64_t rotary = (int64_t)((double)width * part), third = rotary / 2 / 3;
    const int64_t usual[4] = { rotary / 2 - 2 * third, third, third, 0 }; /* text alone: any that add up */
    json_t *sections = json_array(), *kinds = json_array();
    if (dk != dv) pal_family_refuse(r, "linear_value_head_dim", "linear_key_head_dim in a GGUF file of qwen35");
    for (size_t i = 0; i < 4; i++) {
        const json_t *section = i < 3 ? json_array_get(stated, i) : NULL;
        pal_json_append(sections, json_integer(json_is_integer(section) ? json_integer_value(section)
                                               : stated                 ? 0
                                                                        : usual[i]));
    }
    read_kinds(r, kinds, layers);
    int64_t interval = 0;
    bool even = true;
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        const bool attends = json_integer_value(json_array_get(kinds, i));
        if (attends && !interval) interval = (int64_t)i + 1;
        even &= attends == (interval && ((int64_t)i + 1) % interval == 0);
    }
    if (!even || !interval)
        pal_family_refuse(r, "layer_types", "every n-th layer full_attention in a GGUF file of qwen35");
    pal_json_set(to, "full_attention_interval", json_integer(interval));
    pal_json_set(to, "context_length", json_integer(pal_family_size_or(r, "max_position_embeddings", 32768)));
    pal_json_set(to, "vocab_size", json_integer(pal_family_size(r, "vocab_size")));
    pal_json_set(to, "block_count", json_integer(layers));
    pal_json_set(to, "embedding_length", json_integer(pal_family_size(r, "hidden_size")));
    pal_json_set(to, "feed_forward_length", json_integer(pal_family_size(r, "intermediate_size")));
    pal_json_set(to, "attention.head_count", json_integer(pal_family_size(r, "num_attention_heads")));
    pal_json_set(to, "attention.head_count_kv", json_integer(pal_family_size(r, "num_key_value_heads")));
    pal_json_set(to, "attention.key_length", json_integer(width));
    pal_json_set(to, "attention.value_length", json_integer(width));
    pal_json_set(to, "attention.layer_norm_rms_epsilon", json_real(pal_family_real(r, "rms_norm_eps")));
    pal_json_set(to, "ssm.conv_kernel", json_integer(pal_family_size(r, "linear_conv_kernel_dim")));
    pal_json_set(to, "ssm.inner_size", json_integer(heads * dv));
    pal_json_set(to, "ssm.state_size", json_integer(dk));
    pal_json_set(to, "ssm.time_step_rank", json_integer(heads));
    pal_json_set(to, "ssm.group_count", json_integer(pal_family_size(r, "linear_num_key_heads")));
    pal_json_set(to, "rope.freq_base", json_real(theta));
    pal_json_set(to, "rope.dimension_count", json_integer(rotary));
    pal_json_set(to, "rope.dimension_sections", sections);
    json_decref(kinds);
}

/* clang-format off */
const pal_family pal_family_qwen3_5 = {
    .model_types = { "qwen3_5_text", "qwen3_5" }, .architecture = "Qwen3_5ForCausalLM", .gguf = "qwen35", .inside
        = "text_config",
    .prefixes = { "model.", "model.language_model." }, .ignored = { "mtp.", "model.visual." }, .tensors = tensors,
    .read = read, .from_gguf = from_gguf, .to_gguf = to_gguf,
    .defaults = PAL_JSON({ "vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288,
        "num_hidden_layers": 32, "num_attention_heads": 16, "num_key_value_heads": 4, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": false, "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "rope_theta":
        10000.0, "partial_rotary_factor": 0.25 }),
    .fixed = PAL_JSON({ "hidden_act": "silu", "attention_bias": false, "mlp_only_layers": [], "num_experts": 0 }),
};
/* clang-format on */
