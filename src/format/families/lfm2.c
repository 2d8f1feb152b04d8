/* SPDX-License-Identifier: MIT */
/* LFM2 and LFM2.5 without experts: gated short convolutions or attention, and an MLP, in every layer. */
#include <math.h>
#include <string.h>

#include "format/families/family.h"
#include "format/json.h"

static const pal_family_tensor tensors[] = {
    { "model.embeddings.weight", "embed_tokens.weight", "token_embd.weight", PAL_ON_MODEL },
    { "model.norm.weight", "embedding_norm.weight", "token_embd_norm.weight", PAL_ON_MODEL },
    { "lm_head.weight", "lm_head.weight", "output.weight", PAL_ON_TOP | PAL_MAY_LACK },
    { "norm.weight", "operator_norm.weight", "attn_norm.weight", PAL_ON_LAYER },
    { "conv.in_proj.weight", "conv.in_proj.weight", "shortconv.in_proj.weight", PAL_ON_MEMORY },
    { "conv.conv.weight", "conv.conv.weight", "shortconv.conv.weight", PAL_ON_MEMORY, .form = PAL_FORM_TAPS },
    { "conv.out_proj.weight", "conv.out_proj.weight", "shortconv.out_proj.weight", PAL_ON_MEMORY },
    { "attn.q_proj.weight", "self_attn.q_proj.weight", "attn_q.weight", PAL_ON_ATTENTION },
    { "attn.k_proj.weight", "self_attn.k_proj.weight", "attn_k.weight", PAL_ON_ATTENTION },
    { "attn.v_proj.weight", "self_attn.v_proj.weight", "attn_v.weight", PAL_ON_ATTENTION },
    { "attn.o_proj.weight", "self_attn.out_proj.weight", "attn_output.weight", PAL_ON_ATTENTION },
    { "attn.q_norm.weight", "self_attn.q_layernorm.weight", "attn_q_norm.weight", PAL_ON_ATTENTION },
    { "attn.k_norm.weight", "self_attn.k_layernorm.weight", "attn_k_norm.weight", PAL_ON_ATTENTION },
    { "mlp_norm.weight", "ffn_norm.weight", "ffn_norm.weight", PAL_ON_MLP },
    { "mlp.gate_proj.weight", "feed_forward.w1.weight", "ffn_gate.weight", PAL_ON_MLP },
    { "mlp.up_proj.weight", "feed_forward.w3.weight", "ffn_up.weight", PAL_ON_MLP },
    { "mlp.down_proj.weight", "feed_forward.w2.weight", "ffn_down.weight", PAL_ON_MLP },
    { 0 },
};

/* Two thirds of what is stated, times a factor, up to a multiple; older files name it otherwise. */
static int64_t mlp_width(pal_family_reader *r) {
    const int64_t stated = pal_family_size(r, json_object_get(r->config, "block_ff_dim") ? "block_ff_dim"
                                                                                         : "intermediate_size");
    if (!pal_family_flag(r, "block_auto_adjust_ff_dim")) return stated;
    const int64_t multiple = pal_family_size(r, "block_multiple_of");
    const int64_t width = (int64_t)(pal_family_factor(r, "block_ffn_dim_multiplier") * (double)(2 * stated / 3));
    return width < 1 || width > 1 << 30 ? stated : (width + multiple - 1) / multiple * multiple;
}

/* Of each layer, whether it attends. */
static void read_kinds(pal_family_reader *r, json_t *list, int64_t layers) {
    const json_t *words = pal_family_value(r, "layer_types"), *attending = pal_family_value(r, "full_attn_idxs");
    if (words && (int64_t)json_array_size(words) != layers)
        return pal_family_refuse(r, "layer_types", "a list of as many layers as num_hidden_layers");
    for (int64_t i = 0; i < layers && !r->st; i++) {
        const char *word = words ? json_string_value(json_array_get(words, (size_t)i)) : NULL;
        bool attends = words ? word && strcmp(word, "full_attention") == 0 : !attending;
        if (words && !attends && !(word && strcmp(word, "conv") == 0))
            return pal_family_refuse(r, "layer_types", "a list of \"conv\" and \"full_attention\"");
        for (size_t k = 0; !words && k < json_array_size(attending); k++)
            attends |= json_integer_value(json_array_get(attending, k)) == i;
        pal_json_append(list, json_integer(attends));
    }
}

static bool is_tied(pal_family_reader *r) {
    return pal_family_flag(r, json_object_get(r->config, "tie_embedding") ? "tie_embedding" : "tie_word_embeddings");
}

static void read(pal_family_reader *r, json_t *to) {
    const int64_t hidden = pal_family_size(r, "hidden_size"), heads = pal_family_size(r, "num_attention_heads");
    const int64_t width = pal_family_size_or(r, "head_dim", hidden / heads), mlp = mlp_width(r);
    double theta, part;
    pal_family_begin(r, to, "norm_eps", is_tied(r));
    pal_family_rotary(r, &theta, &part);
    pal_json_set(to, "rope_theta", json_real(theta));
    json_t *conv = pal_family_mixer("short_convolution", 1, 1, hidden, hidden);
    pal_json_set(conv, "conv", json_integer(pal_family_size(r, "conv_L_cache")));
    json_t *attention = pal_family_attention(heads, pal_family_size(r, "num_key_value_heads"), width,
                                             (int64_t)((double)width * part));
    pal_json_set(attention, "qk_norm", json_true());
    pal_json_append(json_object_get(to, "blocks"), pal_family_block(conv, NULL, "swiglu", mlp));
    pal_json_append(json_object_get(to, "blocks"), pal_family_block(attention, NULL, "swiglu", mlp));
    read_kinds(r, json_object_get(to, "layers"), pal_family_size(r, "num_hidden_layers"));
}

static void from_gguf(pal_family_reader *r, json_t *to, bool head) {
    const int64_t layers = pal_family_size(r, "block_count");
    json_t *kinds = json_array();
    int64_t key_heads = 0;
    for (int64_t i = 0; i < layers && i < 1024; i++) {
        const int64_t n = pal_family_element(r, "attention.head_count_kv", i);
        if (n) key_heads = n;
        pal_json_append(kinds, json_string(n ? "full_attention" : "conv"));
    }
    pal_json_set(to, "hidden_size", json_integer(pal_family_size(r, "embedding_length")));
    pal_json_set(to, "num_hidden_layers", json_integer(layers));
    pal_json_set(to, "layer_types", kinds);
    pal_json_set(to, "num_attention_heads", json_integer(pal_family_size(r, "attention.head_count")));
    pal_json_set(to, "num_key_value_heads", json_integer(key_heads ? key_heads : 1));
    pal_json_set(to, "intermediate_size", json_integer(pal_family_size(r, "feed_forward_length")));
    pal_json_set(to, "block_auto_adjust_ff_dim", json_false());
    pal_json_set(to, "conv_L_cache", json_integer(pal_family_size(r, "shortconv.l_cache")));
    pal_json_set(to, "conv_bias", json_false());
    pal_json_set(to, "max_position_embeddings", json_integer(pal_family_size_or(r, "context_length", 128000)));
    pal_json_set(to, "norm_eps", json_real(pal_family_real(r, "attention.layer_norm_rms_epsilon")));
    pal_json_set(to, "rope_theta", json_real(pal_family_real(r, "rope.freq_base")));
    pal_json_set(to, "tie_word_embeddings", json_boolean(!head));
}

static void to_gguf(pal_family_reader *r, json_t *to) {
    const int64_t hidden = pal_family_size(r, "hidden_size"), heads = pal_family_size(r, "num_attention_heads");
    const int64_t key_heads = pal_family_size(r, "num_key_value_heads");
    double theta, part;
    json_t *kinds = json_array(), *counts = json_array();
    pal_family_rotary(r, &theta, &part);
    if (pal_family_size_or(r, "head_dim", hidden / heads) * heads != hidden)
        pal_family_refuse(r, "head_dim", "hidden_size divided by num_attention_heads in a GGUF file of lfm2");
    read_kinds(r, kinds, pal_family_size(r, "num_hidden_layers"));
    for (size_t i = 0; i < json_array_size(kinds); i++)
        pal_json_append(counts, json_integer(json_integer_value(json_array_get(kinds, i)) ? key_heads : 0));
    pal_json_set(to, "context_length", json_integer(pal_family_size_or(r, "max_position_embeddings", 128000)));
    pal_json_set(to, "vocab_size", json_integer(pal_family_size(r, "vocab_size")));
    pal_json_set(to, "block_count", json_integer((json_int_t)json_array_size(kinds)));
    pal_json_set(to, "embedding_length", json_integer(hidden));
    pal_json_set(to, "feed_forward_length", json_integer(mlp_width(r)));
    pal_json_set(to, "attention.head_count", json_integer(heads));
    pal_json_set(to, "attention.head_count_kv", counts);
    pal_json_set(to, "attention.layer_norm_rms_epsilon", json_real(pal_family_real(r, "norm_eps")));
    pal_json_set(to, "shortconv.l_cache", json_integer(pal_family_size(r, "conv_L_cache")));
    pal_json_set(to, "rope.freq_base", json_real(theta));
    json_decref(kinds);
}

/* clang-format off */
const pal_family pal_family_lfm2 = {
    .model_types = { "lfm2" }, .architecture = "Lfm2ForCausalLM", .gguf = "lfm2", .prefixes = { "model." },
        .tensors = tensors,
    .read = read, .from_gguf = from_gguf, .to_gguf = to_gguf,
    .defaults = PAL_JSON({ "vocab_size": 65536, "hidden_size": 2560, "intermediate_size": 12288,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "norm_eps": 1e-5,
        "tie_word_embeddings": true, "conv_L_cache": 3, "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": true, "rope_theta": 1000000.0, "partial_rotary_factor": 1.0 }),
    .fixed = PAL_JSON({ "conv_bias": false }),
};
/* clang-format on */
