/* SPDX-License-Identifier: MIT */
/* config.json of every kind, written (config_json.c reads them). */
#include <float.h>
#include <math.h>
#include <string.h>

#include "format/json.h"
#include "model/config.h"

static const char *const forgetting_names[] = { "small", "normal", "very_small" };

const char *pal_forgetting_name(pal_forgetting kind) { return forgetting_names[kind]; }

bool pal_forgetting_named(pal_forgetting *out, const char *name) {
    for (int kind = PAL_FORGET_SMALL; kind <= PAL_FORGET_VERY_SMALL; kind++)
        if (strcmp(name, forgetting_names[kind]) == 0) {
            *out = (pal_forgetting)kind;
            return true;
        }
    return false;
}

static json_t *number(double x) { return x == trunc(x) && fabs(x) < 1e15 ? json_integer((json_int_t)x) : json_real(x); }

/* The factor that trunc(width * factor) turns into exactly `channels`. */
static double expansion(int width, int channels) {
    const double factor = (double)channels / width;
    return (int)trunc(width * factor) == channels ? factor : nextafter(factor, INFINITY);
}

/* Where a time step has no limit, the key is absent. JSON has no infinity: Hugging Face's classes know a tagged one,
 * the official code takes a number that no time step exceeds. */
static void write_limit(json_t *to, const char *key, const pal_model_config *c) {
    const pal_mixer_spec *m = pal_config_mixer_of(c);
    json_object_del(to, key);
    if (!(m->dt_low > 0) && !isfinite(m->dt_high)) return;
    json_t *high = isfinite(m->dt_high) ? json_real(m->dt_high)
                   : c->official        ? json_real((double)FLT_MAX)
                                        : json_pack("{s:s}", "__float__", "Infinity");
    pal_json_set(to, key, json_pack("[f,o]", m->dt_low, high));
}

static void write_metaplasticity(json_t *to, const pal_model_config *c) {
    const pal_mixer_spec *m = pal_config_mixer_of(c);
    pal_json_set(to, "metaplasticity", json_boolean(c->metaplasticity));
    json_object_del(to, "metaplastic_layers");
    if (strcmp(m->rule, "palimpsa") != 0) pal_json_set(to, "rule", json_string(m->rule));
    else json_object_del(to, "rule");
    if (m->mesa_tolerance > 0) pal_json_set(to, "mesa_tolerance", json_real(m->mesa_tolerance));
    else json_object_del(to, "mesa_tolerance");
    if (strcmp(m->rule, "mamba3") == 0) pal_json_set(to, "softplus_rate", json_boolean(m->softplus_rate));
    else json_object_del(to, "softplus_rate");
    if (!c->listed) return;
    json_t *list = json_array();
    for (int i = 0; i < c->layers; i++)
        if (c->metaplastic[i]) pal_json_append(list, json_integer(i));
    pal_json_set(to, "metaplastic_layers", list);
}

static void write_mixer(json_t *to, const pal_model_config *c) {
    const pal_mixer_spec *m = pal_config_mixer_of(c);
    if (pal_config_kinds[m->kind].attends) {
        pal_json_set(to, "num_heads", json_integer(m->heads));
        pal_json_set(to, "num_kv_heads", json_integer(m->key_heads));
        pal_json_set(to, "rope_theta", json_real(c->rope_theta));
        return;
    }
    if (c->official) {
        pal_json_set(to, "layer", json_string("Mamba2"));
        pal_json_set(to, "d_state", json_integer(m->dk));
        pal_json_set(to, "headdim", json_integer(m->dv));
        pal_json_set(to, "ngroups", json_integer(m->key_heads));
        pal_json_set(to, "expand", number(expansion(c->hidden, pal_mixer_inner(m))));
        pal_json_set(to, "d_conv", json_integer(m->conv));
        if (m->proj_bias) pal_json_set(to, "bias", json_true());
        if (!m->conv_bias) pal_json_set(to, "conv_bias", json_false());
        write_limit(to, "dt_limit", c);
        return;
    }
    if (m->kind == PAL_MIXER_M) {
        pal_json_set(to, "state_size", json_integer(m->dk));
        pal_json_set(to, "head_dim", json_integer(m->dv));
        pal_json_set(to, "num_heads", json_integer(m->heads));
        pal_json_set(to, "n_groups", json_integer(m->key_heads));
        pal_json_set(to, "expand", number(expansion(c->hidden, pal_mixer_inner(m))));
        pal_json_set(to, "conv_kernel", json_integer(m->conv));
        pal_json_set(to, "use_bias", json_boolean(m->proj_bias));
        pal_json_set(to, "use_conv_bias", json_boolean(m->conv_bias));
        pal_json_set(to, "rescale_prenorm_residual", json_boolean(c->rescale_residual));
        write_limit(to, "time_step_limit", c);
        if (m->norm_groups != 1) pal_json_set(to, "norm_groups", json_integer(m->norm_groups));
        else json_object_del(to, "norm_groups");
    } else {
        json_object_del(to, "expand_k");
        pal_json_set(to, "head_dim", json_integer(m->dk));
        pal_json_set(to, "num_heads", json_integer(m->heads));
        pal_json_set(to, "expand_v", number(expansion(m->dk, m->dv)));
        pal_json_set(to, "conv_size", json_integer(m->conv));
    }
    if (m->kind == PAL_MIXER_GDN) return;
    pal_json_set(to, "beta_step_rank", json_integer(m->rank));
    pal_json_set(to, "finetuning", json_boolean(c->finetuning));
    write_metaplasticity(to, c);
}

static void write_mqar(json_t *to, const pal_model_config *c) {
    const pal_mixer_spec *m = pal_config_mixer_of(c);
    json_t *mixer = json_object_get(to, "sequence_mixer");
    if (!json_is_object(mixer)) pal_json_set(to, "sequence_mixer", mixer = json_object());
    pal_json_set(to, "mqar", json_true());
    pal_json_set(to, "block_type", json_string(pal_config_kinds[m->kind].block_type));
    pal_json_set(to, "d_model", json_integer(c->hidden));
    pal_json_set(to, "n_layers", json_integer(c->layers));
    pal_json_set(to, "vocab_size", json_integer(c->vocab));
    pal_json_set(to, "max_position_embeddings", json_integer(0));
    pal_json_set(to, "layer_norm_epsilon", json_real(c->norm_eps));
    pal_json_set(to, "block_norm_eps", json_real(c->norm_eps));
    pal_json_set(to, "forgetting", json_string(forgetting_names[c->forgetting]));
    write_mixer(mixer, c);
}

static bool pads_to(int vocab, json_int_t multiple, int rows) {
    return multiple > 0 && (vocab + multiple - 1) / multiple * multiple == rows;
}

static void write_official(json_t *to, const pal_model_config *c) {
    json_t *ssm = json_object_get(to, "ssm_cfg");
    if (!json_is_object(ssm)) pal_json_set(to, "ssm_cfg", ssm = json_object());
    pal_json_set(to, "d_model", json_integer(c->hidden));
    pal_json_set(to, "d_intermediate", json_integer(0));
    pal_json_set(to, "n_layer", json_integer(c->layers));
    pal_json_set(to, "vocab_size", json_integer(c->vocab));
    pal_json_set(to, "attn_layer_idx", json_array());
    pal_json_set(to, "attn_cfg", json_object());
    pal_json_set(to, "rms_norm", json_true());
    pal_json_set(to, "residual_in_fp32", json_true());
    pal_json_set(to, "fused_add_norm", json_true());
    int multiple = c->vocab_rows; /* fits any vocabulary */
    static const int usual[] = { 1, 8, 16 };
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (pads_to(c->vocab, usual[i], c->vocab_rows)) multiple = usual[i];
    if (!pads_to(c->vocab, json_integer_value(json_object_get(to, "pad_vocab_size_multiple")), c->vocab_rows))
        pal_json_set(to, "pad_vocab_size_multiple", json_integer(multiple));
    pal_json_set(to, "tie_embeddings", json_boolean(c->tied));
    write_mixer(ssm, c);
}

static void write_language(json_t *to, const pal_model_config *c) {
    const pal_mixer_spec *m = pal_config_mixer_of(c);
    pal_json_set(to, "architectures", json_pack("[s]", pal_config_kinds[m->kind].architecture));
    pal_json_set(to, "model_type", json_string(pal_config_kinds[m->kind].model_type));
    pal_json_set(to, "hidden_size", json_integer(c->hidden));
    pal_json_set(to, "hidden_act", json_string(m->kind == PAL_MIXER_M ? "silu" : "swish"));
    pal_json_set(to, "num_hidden_layers", json_integer(c->layers));
    pal_json_set(to, "vocab_size", json_integer(c->vocab_rows));
    if (c->vocab != c->vocab_rows) pal_json_set(to, "unpadded_vocab_size", json_integer(c->vocab));
    else json_object_del(to, "unpadded_vocab_size");
    pal_json_set(to, "norm_eps", json_real(c->norm_eps));
    pal_json_set(to, "initializer_range", json_real(c->init_range));
    pal_json_set(to, "tie_word_embeddings", json_boolean(c->tied));
    if (m->kind != PAL_MIXER_M) pal_json_set(to, "intermediate_size", json_integer(c->block[0].mlp));
    write_mixer(to, c);
}

json_t *pal_config_write_hugging_face(const pal_model_config *c) {
    const pal_mixer_spec *m = pal_config_mixer_of(c);
    json_t *to = json_object();
    if (!to) return NULL;
    pal_json_set(to, "architectures", json_pack("[s]", "Mamba2ForCausalLM"));
    pal_json_set(to, "model_type", json_string("mamba2"));
    pal_json_set(to, "hidden_size", json_integer(c->hidden));
    pal_json_set(to, "hidden_act", json_string("silu"));
    pal_json_set(to, "num_hidden_layers", json_integer(c->layers));
    pal_json_set(to, "vocab_size", json_integer(c->vocab_rows));
    if (c->vocab != c->vocab_rows) pal_json_set(to, "unpadded_vocab_size", json_integer(c->vocab));
    pal_json_set(to, "state_size", json_integer(m->dk));
    pal_json_set(to, "head_dim", json_integer(m->dv));
    pal_json_set(to, "num_heads", json_integer(m->heads));
    pal_json_set(to, "n_groups", json_integer(m->key_heads));
    pal_json_set(to, "norm_groups", json_integer(m->norm_groups));
    pal_json_set(to, "expand", number(expansion(c->hidden, pal_mixer_inner(m))));
    pal_json_set(to, "conv_kernel", json_integer(m->conv));
    pal_json_set(to, "use_bias", json_boolean(m->proj_bias));
    pal_json_set(to, "use_conv_bias", json_boolean(m->conv_bias));
    pal_json_set(to, "layer_norm_epsilon", json_real(c->norm_eps));
    pal_json_set(to, "rms_norm", json_true());
    pal_json_set(to, "residual_in_fp32", json_true());
    pal_json_set(to, "chunk_size", json_integer(256));
    pal_json_set(to, "tie_word_embeddings", json_boolean(c->tied));
    write_limit(to, "time_step_limit", c);
    return pal_json_whole(to);
}

json_t *pal_config_write(const pal_model_config *c, const json_t *base) {
    json_t *to = base ? pal_json_copy(base) : json_object();
    if (!to) return NULL;
    if (c->hybrid) pal_config_write_blocks(to, c);
    else if (c->mqar) write_mqar(to, c);
    else if (c->official) write_official(to, c);
    else write_language(to, c);
    return pal_json_whole(to);
}

json_t *pal_config_write_from(const pal_model_config *c, const pal_model_config *from, const json_t *base) {
    static const char *const official[] = { "ssm_cfg",        "attn_cfg", "attn_layer_idx", "d_model",
                                            "d_intermediate", "n_layer",  "fused_add_norm", "pad_vocab_size_multiple",
                                            "tie_embeddings" };
    if (c->official == from->official) return pal_config_write(c, base);
    if (c->official) return pal_config_write(c, NULL);
    json_t *kept = base ? pal_json_copy(base) : NULL;
    for (size_t i = 0; kept && i < sizeof official / sizeof *official; i++) json_object_del(kept, official[i]);
    json_t *made = pal_config_write(c, kept);
    json_decref(kept);
    return made;
}
