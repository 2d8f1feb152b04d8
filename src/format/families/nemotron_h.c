/* SPDX-License-Identifier: MIT */
/* Nemotron-H without experts: each layer is a Mamba2, attention without positions, or an MLP. */
#include <string.h>

#include "format/families/family.h"
#include "format/json.h"

enum { MEMORY, ATTENTION, MLP };

static const pal_family_tensor tensors[] = {
    { "model.embeddings.weight", "embeddings.weight", "token_embd.weight", PAL_ON_MODEL },
    { "model.norm.weight", "norm_f.weight", "output_norm.weight", PAL_ON_MODEL },
    { "lm_head.weight", "lm_head.weight", "output.weight", PAL_ON_TOP },
    { "norm.weight", "norm.weight", "attn_norm.weight", PAL_ON_LAYER },
    PAL_MAMBA2_TENSORS("mixer."),
    { "attn.q_proj.weight", "mixer.q_proj.weight", "attn_q.weight", PAL_ON_ATTENTION },
    { "attn.k_proj.weight", "mixer.k_proj.weight", "attn_k.weight", PAL_ON_ATTENTION },
    { "attn.v_proj.weight", "mixer.v_proj.weight", "attn_v.weight", PAL_ON_ATTENTION },
    { "attn.o_proj.weight", "mixer.o_proj.weight", "attn_output.weight", PAL_ON_ATTENTION },
    { "mlp.up_proj.weight", "mixer.up_proj.weight", "ffn_up.weight", PAL_ON_MLP },
    { "mlp.down_proj.weight", "mixer.down_proj.weight", "ffn_down.weight", PAL_ON_MLP },
    { 0 },
};

static int kind_of_word(const char *word) {
    static const char *const words[3][2] = { { "mamba", "linear_attention" },
                                             { "attention", "full_attention" },
                                             { "mlp", "mlp" } };
    for (int kind = 0; kind < 3 && word; kind++)
        if (strcmp(word, words[kind][0]) == 0 || strcmp(word, words[kind][1]) == 0) return kind;
    return -1;
}

static int kind_of_letter(char letter) {
    return letter == 'M' ? MEMORY : letter == '*' ? ATTENTION : letter == '-' ? MLP : -1;
}

/* The list of kinds, from a list of words or, in older files, from a pattern of letters. */
static void read_kinds(pal_family_reader *r, json_t *list) {
    const json_t *words = pal_family_value(r, "layers_block_type");
    const char *pattern = pal_family_text(r, "hybrid_override_pattern");
    const char *key = words ? "layers_block_type" : "hybrid_override_pattern";
    if (!words && (words = json_object_get(r->config, "layer_types"))) key = "layer_types";
    const size_t layers = words ? json_array_size(words) : strlen(pattern);
    if (!layers)
        pal_family_refuse(r, key, "a list of \"mamba\", \"attention\" and \"mlp\", or a pattern of M, * and -");
    for (size_t i = 0; i < layers && !r->st; i++) {
        const int kind = words ? kind_of_word(json_string_value(json_array_get(words, i))) : kind_of_letter(pattern[i]);
        if (kind < 0)
            return pal_family_refuse(
                r, key,
                words ? "\"mamba\", \"attention\" and \"mlp\" alone; layers of experts (\"moe\") are not supported"
                      : "M, * and - alone; layers of experts (E) are not supported");
        pal_json_append(list, json_integer(kind));
    }
}

/* Two names of one key. */
static const char *either(const pal_family_reader *r, const char *old, const char *name) {
    return json_object_get(r->config, old) ? old : name;
}

static void read(pal_family_reader *r, json_t *to) {
    json_t *blocks;
    pal_family_begin(r, to, "layer_norm_epsilon", false); /* tie_word_embeddings has no effect in this class */
    const int64_t heads = pal_family_size(r, "num_attention_heads"),
                  width = pal_family_size(r, either(r, "attention_head_dim", "head_dim"));
    json_t *memory = pal_family_mamba2(
        r, pal_family_size(r, "mamba_num_heads"), pal_family_size(r, either(r, "mamba_n_groups", "n_groups")),
        pal_family_size(r, "ssm_state_size"), pal_family_size(r, "mamba_head_dim"),
        either(r, "mamba_d_conv", "conv_kernel"), either(r, "mamba_conv_bias", "use_conv_bias"));
    json_t *attention = pal_family_attention(heads, pal_family_size_or(r, "num_key_value_heads", heads), width, 0);
    blocks = json_object_get(to, "blocks");
    pal_json_append(blocks, pal_family_block(memory, NULL, NULL, 0));
    pal_json_append(blocks, pal_family_block(attention, NULL, NULL, 0));
    pal_json_append(blocks, pal_family_block(NULL, NULL, "relu2", pal_family_size(r, "intermediate_size")));
    read_kinds(r, json_object_get(to, "layers"));
}

static void from_gguf(pal_family_reader *r, json_t *to, bool head) {
    const int64_t layers = pal_family_size(r, "block_count"), inner = pal_family_size(r, "ssm.inner_size");
    const int64_t heads = pal_family_size(r, "ssm.time_step_rank");
    int64_t key_heads = 0, mlp = 0;
    char pattern[1025] = "";
    if (!head) pal_family_refuse(r, "block_count", "a file with output.weight besides the embedding");
    if (inner % heads) pal_family_refuse(r, "ssm.inner_size", "a multiple of ssm.time_step_rank");
    for (int64_t i = 0; i < layers && i < 1024; i++) {
        const int64_t keys = pal_family_element(r, "attention.head_count_kv", i),
                      wide = pal_family_element(r, "feed_forward_length", i);
        if (keys) key_heads = keys;
        if (wide) mlp = wide;
        pattern[i] = keys ? '*' : wide ? '-' : 'M';
    }
    pal_json_set(to, "hidden_size", json_integer(pal_family_size(r, "embedding_length")));
    pal_json_set(to, "num_hidden_layers", json_integer(layers));
    pal_json_set(to, "hybrid_override_pattern", json_string(pattern));
    pal_json_set(to, "num_attention_heads", json_integer(pal_family_size(r, "attention.head_count")));
    pal_json_set(to, "num_key_value_heads", json_integer(key_heads ? key_heads : 1));
    pal_json_set(to, "head_dim", json_integer(pal_family_size(r, "attention.key_length")));
    pal_json_set(to, "intermediate_size", json_integer(mlp ? mlp : 1));
    pal_json_set(to, "mamba_num_heads", json_integer(heads));
    pal_json_set(to, "mamba_head_dim", json_integer(inner / heads));
    pal_json_set(to, "ssm_state_size", json_integer(pal_family_size(r, "ssm.state_size")));
    pal_json_set(to, "n_groups", json_integer(pal_family_size(r, "ssm.group_count")));
    pal_json_set(to, "conv_kernel", json_integer(pal_family_size(r, "ssm.conv_kernel")));
    pal_json_set(to, "use_conv_bias", json_true());
    pal_json_set(to, "use_bias", json_false());
    pal_json_set(to, "mamba_proj_bias", json_false());
    pal_json_set(to, "mlp_bias", json_false());
    pal_json_set(to, "attention_bias", json_false());
    pal_json_set(to, "mlp_hidden_act", json_string("relu2"));
    pal_json_set(to, "mamba_hidden_act", json_string("silu"));
    pal_json_set(to, "max_position_embeddings", json_integer(pal_family_size_or(r, "context_length", 131072)));
    pal_json_set(to, "layer_norm_epsilon", json_real(pal_family_real(r, "attention.layer_norm_rms_epsilon")));
    pal_json_set(to, "tie_word_embeddings", json_false());
}

static void to_gguf(pal_family_reader *r, json_t *to) {
    const int64_t heads = pal_family_size(r, "num_attention_heads"),
                  key_heads = pal_family_size_or(r, "num_key_value_heads", heads);
    const int64_t width = pal_family_size(r, either(r, "attention_head_dim", "head_dim")),
                  mlp = pal_family_size(r, "intermediate_size");
    const int64_t mamba_heads = pal_family_size(r, "mamba_num_heads");
    const double eps = pal_family_real(r, "layer_norm_epsilon");
    const char *bias = either(r, "mamba_conv_bias", "use_conv_bias");
    json_t *kinds = json_array(), *keys = json_array(), *wide = json_array();
    if (!pal_family_flag(r, bias)) pal_family_refuse(r, bias, "true in a GGUF file of nemotron_h");
    read_kinds(r, kinds);
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        const json_int_t kind = json_integer_value(json_array_get(kinds, i));
        pal_json_append(keys, json_integer(kind == ATTENTION ? key_heads : 0));
        pal_json_append(wide, json_integer(kind == MLP ? mlp : 0));
    }
    pal_json_set(to, "context_length", json_integer(pal_family_size_or(r, "max_position_embeddings", 4096)));
    pal_json_set(to, "vocab_size", json_integer(pal_family_size(r, "vocab_size")));
    pal_json_set(to, "block_count", json_integer((json_int_t)json_array_size(kinds)));
    pal_json_set(to, "embedding_length", json_integer(pal_family_size(r, "hidden_size")));
    pal_json_set(to, "feed_forward_length", wide);
    pal_json_set(to, "attention.head_count", json_integer(heads));
    pal_json_set(to, "attention.head_count_kv", keys);
    pal_json_set(to, "attention.key_length", json_integer(width));
    pal_json_set(to, "attention.value_length", json_integer(width));
    pal_json_set(to, "attention.layer_norm_rms_epsilon", json_real(eps));
    pal_json_set(to, "attention.layer_norm_epsilon", json_real(eps));
    pal_json_set(to, "ssm.conv_kernel", json_integer(pal_family_size(r, either(r, "mamba_d_conv", "conv_kernel"))));
    pal_json_set(to, "ssm.inner_size", json_integer(mamba_heads * pal_family_size(r, "mamba_head_dim")));
    pal_json_set(to, "ssm.state_size", json_integer(pal_family_size(r, "ssm_state_size")));
    pal_json_set(to, "ssm.time_step_rank", json_integer(mamba_heads));
    pal_json_set(to, "ssm.group_count", json_integer(pal_family_size(r, either(r, "mamba_n_groups", "n_groups"))));
    json_decref(kinds);
}

/* clang-format off */
const pal_family pal_family_nemotron_h = {
    .model_types = { "nemotron_h" }, .architecture = "NemotronHForCausalLM", .gguf = "nemotron_h", .prefixes = {
        "backbone.", "model." }, .ignored = { "mtp." },
    .tensors = tensors, .read = read, .from_gguf = from_gguf, .to_gguf = to_gguf,
    .defaults = PAL_JSON({ "vocab_size": 131072, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 21504, "ssm_state_size": 128,
        "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4, "use_conv_bias": true,
        "layer_norm_epsilon": 1e-5 }),
    .fixed = PAL_JSON({ "mlp_hidden_act": "relu2", "mamba_hidden_act": "silu", "use_bias": false, "mlp_bias":
        false, "mamba_proj_bias": false, "attention_bias": false, "sliding_window": null }),
};
/* clang-format on */
