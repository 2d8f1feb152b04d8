/* SPDX-License-Identifier: MIT */
/* config.json of every kind, written (config_json.c reads them). */
#include <float.h>
#include <math.h>
#include <string.h>

#include "model/config.h"

const pal_config_kind pal_config_kinds[PAL_MIXERS] = {
    { "palimpsa", "PalimpsaForCausalLM", "PalimpsaBlock", PAL_MIXER_D },
    { "meta_mamba2", "MetaMamba2ForCausalLM", "MetaMamba2Block", PAL_MIXER_M },
    { "gated_deltanet", "GatedDeltaNetForCausalLM", "GatedDeltaNetBlock", PAL_MIXER_GDN },
    { "transformer", "TransformerForCausalLM", "AttentionBlock", PAL_MIXER_ATTENTION },
};

static json_t *number(double x) { return x == trunc(x) && fabs(x) < 1e15 ? json_integer((json_int_t)x) : json_real(x); }

/* The factor that trunc(width * factor) turns into exactly `channels`. */
static double expansion(int width, int channels) {
    const double factor = (double)channels / width;
    return (int)trunc(width * factor) == channels ? factor : nextafter(factor, INFINITY);
}

/* Where a time step has no limit, the key is absent. JSON has no infinity: Hugging Face's classes know a tagged one,
 * the official code takes a number that no time step exceeds. */
static void write_limit(json_t *to, const char *key, const pal_model_config *c) {
    json_object_del(to, key);
    if (!(c->dt_low > 0) && !isfinite(c->dt_high)) return;
    json_t *high = isfinite(c->dt_high) ? json_real(c->dt_high)
                   : c->official        ? json_real((double)FLT_MAX)
                                        : json_pack("{s:s}", "__float__", "Infinity");
    json_object_set_new(to, key, json_pack("[f,o]", c->dt_low, high));
}

static void write_metaplasticity(json_t *to, const pal_model_config *c) {
    json_object_set_new(to, "metaplasticity", json_boolean(c->metaplasticity));
    json_object_del(to, "metaplastic_layers");
    if (strcmp(c->rule, "palimpsa") != 0) json_object_set_new(to, "rule", json_string(c->rule));
    else json_object_del(to, "rule");
    if (c->mesa_tolerance > 0) json_object_set_new(to, "mesa_tolerance", json_real(c->mesa_tolerance));
    else json_object_del(to, "mesa_tolerance");
    if (!c->listed) return;
    json_t *list = json_array();
    for (int i = 0; i < c->layers; i++)
        if (c->metaplastic[i]) json_array_append_new(list, json_integer(i));
    json_object_set_new(to, "metaplastic_layers", list);
}

static void write_mixer(json_t *to, const pal_model_config *c) {
    if (c->mixer == PAL_MIXER_ATTENTION) {
        json_object_set_new(to, "num_heads", json_integer(c->heads));
        json_object_set_new(to, "num_kv_heads", json_integer(c->key_heads));
        json_object_set_new(to, "rope_theta", json_real(c->rope_theta));
        return;
    }
    if (c->official) {
        json_object_set_new(to, "layer", json_string("Mamba2"));
        json_object_set_new(to, "d_state", json_integer(c->dk));
        json_object_set_new(to, "headdim", json_integer(c->dv));
        json_object_set_new(to, "ngroups", json_integer(c->key_heads));
        json_object_set_new(to, "expand", number(expansion(c->hidden, pal_config_inner(c))));
        json_object_set_new(to, "d_conv", json_integer(c->conv));
        if (c->proj_bias) json_object_set_new(to, "bias", json_true());
        if (!c->conv_bias) json_object_set_new(to, "conv_bias", json_false());
        write_limit(to, "dt_limit", c);
        return;
    }
    if (c->mixer == PAL_MIXER_M) {
        json_object_set_new(to, "state_size", json_integer(c->dk));
        json_object_set_new(to, "head_dim", json_integer(c->dv));
        json_object_set_new(to, "num_heads", json_integer(c->heads));
        json_object_set_new(to, "n_groups", json_integer(c->key_heads));
        json_object_set_new(to, "expand", number(expansion(c->hidden, pal_config_inner(c))));
        json_object_set_new(to, "conv_kernel", json_integer(c->conv));
        json_object_set_new(to, "use_bias", json_boolean(c->proj_bias));
        json_object_set_new(to, "use_conv_bias", json_boolean(c->conv_bias));
        json_object_set_new(to, "rescale_prenorm_residual", json_boolean(c->rescale_residual));
        write_limit(to, "time_step_limit", c);
        if (c->norm_groups != 1) json_object_set_new(to, "norm_groups", json_integer(c->norm_groups));
        else json_object_del(to, "norm_groups");
    } else {
        json_object_del(to, "expand_k");
        json_object_set_new(to, "head_dim", json_integer(c->dk));
        json_object_set_new(to, "num_heads", json_integer(c->heads));
        json_object_set_new(to, "expand_v", number(expansion(c->dk, c->dv)));
        json_object_set_new(to, "conv_size", json_integer(c->conv));
    }
    if (c->mixer == PAL_MIXER_GDN) return;
    json_object_set_new(to, "beta_step_rank", json_integer(c->rank));
    json_object_set_new(to, "finetuning", json_boolean(c->finetuning));
    write_metaplasticity(to, c);
}

static void write_mqar(json_t *to, const pal_model_config *c) {
    static const char *const forgetting[] = { "small", "normal", "very_small" };
    json_t *mixer = json_object_get(to, "sequence_mixer");
    if (!json_is_object(mixer)) json_object_set_new(to, "sequence_mixer", mixer = json_object());
    json_object_set_new(to, "mqar", json_true());
    json_object_set_new(to, "block_type", json_string(pal_config_kinds[c->mixer].block_type));
    json_object_set_new(to, "d_model", json_integer(c->hidden));
    json_object_set_new(to, "n_layers", json_integer(c->layers));
    json_object_set_new(to, "vocab_size", json_integer(c->vocab));
    json_object_set_new(to, "max_position_embeddings", json_integer(0));
    json_object_set_new(to, "layer_norm_epsilon", json_real(c->norm_eps));
    json_object_set_new(to, "block_norm_eps", json_real(c->norm_eps));
    json_object_set_new(to, "forgetting", json_string(forgetting[c->forgetting]));
    write_mixer(mixer, c);
}

static bool pads_to(int vocab, json_int_t multiple, int rows) {
    return multiple > 0 && (vocab + multiple - 1) / multiple * multiple == rows;
}

static void write_official(json_t *to, const pal_model_config *c) {
    json_t *ssm = json_object_get(to, "ssm_cfg");
    if (!json_is_object(ssm)) json_object_set_new(to, "ssm_cfg", ssm = json_object());
    json_object_set_new(to, "d_model", json_integer(c->hidden));
    json_object_set_new(to, "d_intermediate", json_integer(0));
    json_object_set_new(to, "n_layer", json_integer(c->layers));
    json_object_set_new(to, "vocab_size", json_integer(c->vocab));
    json_object_set_new(to, "attn_layer_idx", json_array());
    json_object_set_new(to, "attn_cfg", json_object());
    json_object_set_new(to, "rms_norm", json_true());
    json_object_set_new(to, "residual_in_fp32", json_true());
    json_object_set_new(to, "fused_add_norm", json_true());
    int multiple = c->vocab_rows; /* fits any vocabulary */
    static const int usual[] = { 1, 8, 16 };
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (pads_to(c->vocab, usual[i], c->vocab_rows)) multiple = usual[i];
    if (!pads_to(c->vocab, json_integer_value(json_object_get(to, "pad_vocab_size_multiple")), c->vocab_rows))
        json_object_set_new(to, "pad_vocab_size_multiple", json_integer(multiple));
    json_object_set_new(to, "tie_embeddings", json_boolean(c->tied));
    write_mixer(ssm, c);
}

static void write_language(json_t *to, const pal_model_config *c) {
    json_object_set_new(to, "architectures", json_pack("[s]", pal_config_kinds[c->mixer].architecture));
    json_object_set_new(to, "model_type", json_string(pal_config_kinds[c->mixer].model_type));
    json_object_set_new(to, "hidden_size", json_integer(c->hidden));
    json_object_set_new(to, "hidden_act", json_string(c->mixer == PAL_MIXER_M ? "silu" : "swish"));
    json_object_set_new(to, "num_hidden_layers", json_integer(c->layers));
    json_object_set_new(to, "vocab_size", json_integer(c->vocab_rows));
    if (c->vocab != c->vocab_rows) json_object_set_new(to, "unpadded_vocab_size", json_integer(c->vocab));
    else json_object_del(to, "unpadded_vocab_size");
    json_object_set_new(to, "norm_eps", json_real(c->norm_eps));
    json_object_set_new(to, "initializer_range", json_real(c->init_range));
    json_object_set_new(to, "tie_word_embeddings", json_boolean(c->tied));
    if (c->mixer != PAL_MIXER_M) json_object_set_new(to, "intermediate_size", json_integer(c->mlp));
    write_mixer(to, c);
}

json_t *pal_config_write_hugging_face(const pal_model_config *c) {
    json_t *to = json_object();
    if (!to) return NULL;
    json_object_set_new(to, "architectures", json_pack("[s]", "Mamba2ForCausalLM"));
    json_object_set_new(to, "model_type", json_string("mamba2"));
    json_object_set_new(to, "hidden_size", json_integer(c->hidden));
    json_object_set_new(to, "hidden_act", json_string("silu"));
    json_object_set_new(to, "num_hidden_layers", json_integer(c->layers));
    json_object_set_new(to, "vocab_size", json_integer(c->vocab_rows));
    if (c->vocab != c->vocab_rows) json_object_set_new(to, "unpadded_vocab_size", json_integer(c->vocab));
    json_object_set_new(to, "state_size", json_integer(c->dk));
    json_object_set_new(to, "head_dim", json_integer(c->dv));
    json_object_set_new(to, "num_heads", json_integer(c->heads));
    json_object_set_new(to, "n_groups", json_integer(c->key_heads));
    json_object_set_new(to, "norm_groups", json_integer(c->norm_groups));
    json_object_set_new(to, "expand", number(expansion(c->hidden, pal_config_inner(c))));
    json_object_set_new(to, "conv_kernel", json_integer(c->conv));
    json_object_set_new(to, "use_bias", json_boolean(c->proj_bias));
    json_object_set_new(to, "use_conv_bias", json_boolean(c->conv_bias));
    json_object_set_new(to, "layer_norm_epsilon", json_real(c->norm_eps));
    json_object_set_new(to, "rms_norm", json_true());
    json_object_set_new(to, "residual_in_fp32", json_true());
    json_object_set_new(to, "chunk_size", json_integer(256));
    json_object_set_new(to, "tie_word_embeddings", json_boolean(c->tied));
    write_limit(to, "time_step_limit", c);
    return to;
}

json_t *pal_config_write(const pal_model_config *c, const json_t *base) {
    json_t *to = base ? json_deep_copy(base) : json_object();
    if (!to) return NULL;
    if (c->mqar) write_mqar(to, c);
    else if (c->official) write_official(to, c);
    else write_language(to, c);
    return to;
}

json_t *pal_config_write_from(const pal_model_config *c, const pal_model_config *from, const json_t *base) {
    static const char *const official[] = { "ssm_cfg",        "attn_cfg", "attn_layer_idx", "d_model",
                                            "d_intermediate", "n_layer",  "fused_add_norm", "pad_vocab_size_multiple",
                                            "tie_embeddings" };
    if (c->official == from->official) return pal_config_write(c, base);
    if (c->official) return pal_config_write(c, NULL);
    json_t *kept = base ? json_deep_copy(base) : NULL;
    for (size_t i = 0; kept && i < sizeof official / sizeof *official; i++) json_object_del(kept, official[i]);
    json_t *made = pal_config_write(c, kept);
    json_decref(kept);
    return made;
}
