/* SPDX-License-Identifier: MIT */
/* config.json of every kind, read and written. A size that the file does not state is taken from the tensors; when both
 * speak, the comparison of every tensor's shape with the table of weights names contradictions. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "model/config.h"

typedef struct {
    const char *path;
    const json_t *root, *mixer; /* MQAR keeps the mixer's keys in an object of their own */
    const pal_shapes *shapes;
    bool hugging_face; /* model_type mamba2 */
    pal_model_config *c;
    pal_error *err;
    pal_status st; /* the first failure; later reads are harmless */
} reader;

static const json_t *key_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static void refuse(reader *r, const char *key, const char *expected) {
    if (!r->st) r->st = pal_fail(r->err, PAL_E_FORMAT, "%s: %s must be %s", r->path, key, expected);
}

static double read_real(reader *r, const json_t *object, const char *key, double fallback) {
    const json_t *value = key_of(object, key);
    if (!value) return fallback;
    const double x = json_number_value(value);
    if (!json_is_number(value) || !isfinite(x)) {
        refuse(r, key, "a number");
        return fallback;
    }
    return x;
}

/* 0 when absent. Numbers beyond an int are refused here; sense is checked by pal_model_config_check. */
static int read_int(reader *r, const json_t *object, const char *key) {
    if (!key_of(object, key)) return 0;
    const double x = read_real(r, object, key, 0);
    if (!(x >= 1 && x <= 1 << 30) || x != trunc(x)) {
        refuse(r, key, "a whole number from 1 to 2^30");
        return 0;
    }
    return (int)x;
}

static bool read_bool(reader *r, const json_t *object, const char *key, bool fallback) {
    const json_t *value = key_of(object, key);
    if (!value) return fallback;
    if (!json_is_boolean(value)) refuse(r, key, "true or false");
    return json_is_true(value);
}

/* A switch of the reference that published models leave alone. */
static void require_bool(reader *r, const json_t *object, const char *key, bool only) {
    if (read_bool(r, object, key, only) != only)
        refuse(r, key, only ? "true; other values are not supported" : "false; other values are not supported");
}

/* Extent `dim` of layer 0's tensor, or 0. */
static int extent(const reader *r, const char *name, int dim) {
    const pal_tensor *t = r->shapes && r->shapes->find ? r->shapes->find(r->shapes->source, name) : NULL;
    return t && t->rank > dim && t->shape[dim] <= 1 << 30 ? (int)t->shape[dim] : 0;
}
static int layer_extent(const reader *r, const char *prefix, const char *name, int dim) {
    char full[128];
    snprintf(full, sizeof full, "%s0.%s%s", pal_config_layers_prefix(r->c), prefix, name);
    return extent(r, full, dim);
}
static int mixer_extent(const reader *r, const char *name, int dim) {
    return layer_extent(r, pal_config_mixer_prefix(r->c), name, dim);
}

static void derive(int *value, int found) {
    if (!*value) *value = found;
}

static int count_layers(const reader *r) {
    const char *norm = r->c->mqar || r->c->mixer == PAL_MIXER_M ? "norm.weight" : "attn_norm.weight";
    char name[128];
    int n = 0;
    for (; n <= PAL_MAX_LAYERS; n++) {
        snprintf(name, sizeof name, "%s%d.%s", pal_config_layers_prefix(r->c), n, norm);
        if (!extent(r, name, 0)) break;
    }
    return n;
}

static void require_size(reader *r, int value, const char *key) {
    if (!r->st && !value)
        r->st = pal_fail(r->err, PAL_E_FORMAT, "%s: %s is not stated and cannot be told from the tensors", r->path,
                         key);
}

/* A factor that stands in place of a width; fallback where it is absent. */
static double read_factor(reader *r, const json_t *object, const char *key, double fallback) {
    const double x = read_real(r, object, key, fallback);
    if (key_of(object, key) && !(x > 0)) refuse(r, key, "a positive number");
    return x;
}

static void read_rank(reader *r) {
    const json_t *value = key_of(r->mixer, "beta_step_rank");
    if (json_is_string(value) && strcmp(json_string_value(value), "auto") == 0) r->c->rank = (r->c->hidden + 15) / 16;
    else r->c->rank = read_int(r, r->mixer, "beta_step_rank");
    derive(&r->c->rank, mixer_extent(r, "b_rank_proj.weight", 0));
    derive(&r->c->rank, (r->c->hidden + 15) / 16);
}

static void read_metaplasticity(reader *r) {
    pal_model_config *c = r->c;
    c->metaplasticity = read_bool(r, r->mixer, "metaplasticity", true);
    c->finetuning = read_bool(r, r->mixer, "finetuning", false);
    const json_t *rule = key_of(r->mixer, "rule"), *list = key_of(r->mixer, "metaplastic_layers");
    if (rule) {
        if (!json_is_string(rule) || strlen(json_string_value(rule)) >= sizeof c->rule)
            refuse(r, "rule", "the name of a memory rule");
        else strcpy(c->rule, json_string_value(rule));
    }
    c->mesa_tolerance = read_real(r, r->mixer, "mesa_tolerance", 0);
    if (!list) return;
    c->listed = true;
    if (!json_is_array(list)) refuse(r, "metaplastic_layers", "a list of layer numbers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const json_int_t layer = json_integer_value(entry);
        if (!json_is_integer(entry) || layer < 0 || layer >= c->layers || layer >= PAL_MAX_LAYERS) {
            refuse(r, "metaplastic_layers", "a list of layer numbers that exist");
            return;
        }
        c->metaplastic[layer] = true;
    }
}

/* Palimpsa-D and Gated DeltaNet: heads of the same shape, differing gates. */
static void read_heads_d(reader *r) {
    pal_model_config *c = r->c;
    const int head_dim = read_int(r, r->mixer, "head_dim");
    c->heads = read_int(r, r->mixer, "num_heads");
    derive(&c->heads, mixer_extent(r, "A_log", 0));
    derive(&c->heads, mixer_extent(r, "D", 0));
    require_size(r, c->heads, "num_heads");
    const int value_heads = read_int(r, r->mixer, "num_v_heads");
    if (value_heads && value_heads != c->heads) refuse(r, "num_v_heads", "absent or equal to num_heads");
    if (head_dim) {
        c->dk = pal_count_of(head_dim * read_factor(r, r->mixer, "expand_k", 1));
        if (key_of(r->mixer, "expand_v")) c->dv = pal_count_of(head_dim * read_factor(r, r->mixer, "expand_v", 1));
        if (key_of(r->mixer, "expand_v") && !c->dv) refuse(r, "expand_v", "large enough for one value channel a head");
    }
    if (c->heads) derive(&c->dk, mixer_extent(r, "q_proj.weight", 0) / c->heads);
    derive(&c->dv, mixer_extent(r, "o_norm.weight", 0));
    derive(&c->dv, c->mixer == PAL_MIXER_GDN ? pal_count_of(2.0 * c->dk) : c->dk);
    require_size(r, c->dk, "head_dim");
    c->key_heads = c->heads;
    c->conv = read_int(r, r->mixer, "conv_size");
    derive(&c->conv, mixer_extent(r, "q_conv1d.weight", 2));
    derive(&c->conv, 4);
    require_bool(r, r->mixer, "use_gate", true);
    require_bool(r, r->mixer, "use_short_conv", true);
    require_bool(r, r->mixer, "use_residual", true);
    if (c->mixer == PAL_MIXER_GDN) return;
    read_metaplasticity(r);
    read_rank(r);
}

static void read_limit(reader *r, const char *key) {
    const json_t *limit = key_of(r->mixer, key);
    if (!limit) return;
    if (json_array_size(limit) != 2 || !json_is_number(json_array_get(limit, 0))) refuse(r, key, "two numbers");
    r->c->dt_low = json_number_value(json_array_get(limit, 0));
    const json_t *high = json_array_get(limit, 1); /* infinity has no number in JSON; writers leave null or a string */
    r->c->dt_high = json_is_number(high) ? json_number_value(high) : INFINITY;
}

/* The paper's models normalise over all channels. Mamba2 was trained with a norm per group; Hugging Face's files do not
 * say, and its two ways of computing differ. */
static void read_norm_groups(reader *r) {
    r->c->norm_groups = read_int(r, r->mixer, "norm_groups");
    if (!r->c->norm_groups && r->hugging_face && r->c->key_heads > 1 && r->shapes)
        pal_warn("%s: n_groups is %d, so the gated norm is taken per group, as Mamba2 is trained; write "
                 "\"norm_groups\": 1 into it for a norm over all channels",
                 r->path, r->c->key_heads);
    derive(&r->c->norm_groups, r->hugging_face ? r->c->key_heads : 1);
}

static void read_heads_m(reader *r) {
    pal_model_config *c = r->c;
    const double expand = read_factor(r, r->mixer, "expand", 0);
    int inner = expand > 0 ? pal_count_of(c->hidden * expand) : mixer_extent(r, "norm.weight", 0);
    derive(&inner, pal_count_of(2.0 * c->hidden));
    const char *head = c->official ? "headdim" : "head_dim", *state = c->official ? "d_state" : "state_size";
    c->dv = read_int(r, r->mixer, head);
    const int heads = mixer_extent(r, "A_log", 0);
    if (!c->dv && heads) c->dv = inner / heads;
    derive(&c->dv, 64);
    if (c->dv > inner || inner % c->dv) refuse(r, head, "a divisor of expand * hidden size");
    c->heads = inner / c->dv;
    c->key_heads = read_int(r, r->mixer, c->official ? "ngroups" : "n_groups");
    c->dk = read_int(r, r->mixer, state);
    if (r->hugging_face) { /* its own num_heads counts, and its class has a default for one of the two */
        const int stated = read_int(r, r->mixer, "num_heads");
        if (stated && stated != c->heads) refuse(r, "num_heads", "expand * hidden_size / head_dim");
        if (!c->key_heads) derive(&c->dk, 128);
    }
    /* groups x state: what in_proj makes besides z, x and dt is B and C */
    const double most = (mixer_extent(r, "in_proj.weight", 0) - 2.0 * inner - c->heads) / 2;
    const int keys = most > 0 ? pal_count_of(most) : 0;
    if (keys && !c->key_heads) c->key_heads = c->dk ? keys / c->dk : 1;
    derive(&c->key_heads, 1);
    derive(&c->dk, keys / c->key_heads);
    derive(&c->dk, 128);
    c->conv = read_int(r, r->mixer, c->official ? "d_conv" : "conv_kernel");
    derive(&c->conv, mixer_extent(r, "conv1d.weight", 2));
    derive(&c->conv, 4);
    if (c->official) {
        c->norm_groups = c->key_heads;
        c->proj_bias = read_bool(r, r->mixer, "bias", false);
        c->conv_bias = read_bool(r, r->mixer, "conv_bias", true);
        require_bool(r, r->mixer, "rmsnorm", true);
        require_bool(r, r->mixer, "norm_before_gate", false);
        read_limit(r, "dt_limit");
        c->metaplasticity = false;
        return;
    }
    read_norm_groups(r);
    c->proj_bias = read_bool(r, r->mixer, "use_bias", c->mqar);
    c->conv_bias = read_bool(r, r->mixer, "use_conv_bias", !c->mqar);
    c->rescale_residual = read_bool(r, r->mixer, "rescale_prenorm_residual", !c->mqar);
    read_limit(r, "time_step_limit");
    if (r->hugging_face) {
        c->metaplasticity = false;
        c->listed = true; /* no layer is metaplastic, and none keeps an importance gate */
    } else {
        read_metaplasticity(r);
    }
    read_rank(r);
}

static void read_heads_attention(reader *r) {
    pal_model_config *c = r->c;
    c->heads = read_int(r, r->mixer, "num_heads");
    require_size(r, c->heads, "num_heads");
    c->key_heads = read_int(r, r->mixer, "num_kv_heads");
    if (c->heads && c->hidden % c->heads) refuse(r, "num_heads", "a divisor of the hidden size");
    if (c->heads) c->dk = c->dv = c->hidden / c->heads;
    if (c->dk) derive(&c->key_heads, mixer_extent(r, "k_proj.weight", 0) / c->dk);
    derive(&c->key_heads, c->heads);
    c->rope_theta = read_real(r, r->mixer, "rope_theta", 10000);
    require_bool(r, r->mixer, "qkv_bias", false);
    require_bool(r, r->mixer, "qk_norm", false);
    if (key_of(r->mixer, "window_size")) refuse(r, "window_size", "null; windows are not supported");
}

static void read_mixer(reader *r) {
    switch (r->c->mixer) {
    case PAL_MIXER_D:
    case PAL_MIXER_GDN: read_heads_d(r); break;
    case PAL_MIXER_M: read_heads_m(r); break;
    default: read_heads_attention(r);
    }
}

static void read_language(reader *r) {
    pal_model_config *c = r->c;
    c->hidden = read_int(r, r->root, "hidden_size");
    derive(&c->hidden, extent(r, pal_config_embedding_name(c), 1));
    require_size(r, c->hidden, "hidden_size");
    c->vocab = read_int(r, r->root, "vocab_size");
    derive(&c->vocab, extent(r, pal_config_embedding_name(c), 0));
    require_size(r, c->vocab, "vocab_size");
    c->vocab_rows = c->vocab;
    const int unpadded = read_int(r, r->root, "unpadded_vocab_size");
    if (unpadded > c->vocab_rows) refuse(r, "unpadded_vocab_size", "at most vocab_size");
    if (unpadded) c->vocab = unpadded;
    c->layers = read_int(r, r->root, "num_hidden_layers");
    derive(&c->layers, count_layers(r));
    require_size(r, c->layers, "num_hidden_layers");
    const char *eps = key_of(r->root, "norm_eps") ? "norm_eps" : "layer_norm_epsilon";
    c->norm_eps = read_real(r, r->root, eps, c->norm_eps);
    c->init_range = read_real(r, r->root, "initializer_range", 0.02);
    c->tied = read_bool(r, r->root, "tie_word_embeddings", !extent(r, "lm_head.weight", 0));
    require_bool(r, r->root, "rms_norm", true);
    const json_t *act = key_of(r->root, "hidden_act");
    if (act && (!json_is_string(act) ||
                (strcmp(json_string_value(act), "silu") != 0 && strcmp(json_string_value(act), "swish") != 0)))
        refuse(r, "hidden_act", "silu or swish");
    if (c->mixer != PAL_MIXER_M) {
        c->mlp = read_int(r, r->root, "intermediate_size");
        if (!key_of(r->root, "hidden_ratio")) derive(&c->mlp, layer_extent(r, "", "mlp.gate_proj.weight", 0));
        derive(&c->mlp, pal_config_mlp_width(c->hidden, read_factor(r, r->root, "hidden_ratio", 4)));
    }
    read_mixer(r);
}

static void read_official(reader *r) {
    pal_model_config *c = r->c;
    const json_t *layer = key_of(r->mixer, "layer");
    if (!json_is_string(layer) || strcmp(json_string_value(layer), "Mamba2") != 0)
        refuse(r, "ssm_cfg.layer", "\"Mamba2\"");
    if (json_array_size(key_of(r->root, "attn_layer_idx")))
        refuse(r, "attn_layer_idx", "empty; attention layers in Mamba2 are not supported");
    if (read_real(r, r->root, "d_intermediate", 0) != 0)
        refuse(r, "d_intermediate", "0; an MLP in Mamba2 is not supported");
    require_bool(r, r->root, "rms_norm", true);
    c->hidden = read_int(r, r->root, "d_model");
    derive(&c->hidden, extent(r, pal_config_embedding_name(c), 1));
    require_size(r, c->hidden, "d_model");
    c->layers = read_int(r, r->root, "n_layer");
    derive(&c->layers, count_layers(r));
    require_size(r, c->layers, "n_layer");
    c->vocab = read_int(r, r->root, "vocab_size");
    derive(&c->vocab, extent(r, pal_config_embedding_name(c), 0));
    require_size(r, c->vocab, "vocab_size");
    int multiple = read_int(r, r->root, "pad_vocab_size_multiple");
    derive(&multiple, 8);
    if (!r->st) c->vocab_rows = pal_count_of(ceil((double)c->vocab / multiple) * multiple);
    c->tied = read_bool(r, r->root, "tie_embeddings", true);
    c->norm_eps = 1e-5;
    read_mixer(r);
}

static void read_mqar(reader *r) {
    pal_model_config *c = r->c;
    c->hidden = read_int(r, r->root, "d_model");
    derive(&c->hidden, extent(r, pal_config_embedding_name(c), 1));
    require_size(r, c->hidden, "d_model");
    c->layers = read_int(r, r->root, "n_layers");
    derive(&c->layers, count_layers(r));
    require_size(r, c->layers, "n_layers");
    c->vocab = read_int(r, r->root, "vocab_size");
    derive(&c->vocab, extent(r, pal_config_embedding_name(c), 0));
    require_size(r, c->vocab, "vocab_size");
    c->vocab_rows = c->vocab;
    c->norm_eps = read_real(r, r->root, "block_norm_eps", 1e-5);
    if (read_real(r, r->root, "layer_norm_epsilon", 1e-5) != c->norm_eps)
        refuse(r, "layer_norm_epsilon", "equal to block_norm_eps");
    if (read_real(r, r->root, "max_position_embeddings", 0) != 0)
        refuse(r, "max_position_embeddings", "0; learned positions are not supported");
    const json_t *word = key_of(r->root, "forgetting");
    const char *text = word ? json_string_value(word) : "small";
    if (text && strcmp(text, "small") == 0) c->forgetting = PAL_FORGET_SMALL;
    else if (text && strcmp(text, "normal") == 0) c->forgetting = PAL_FORGET_NORMAL;
    else if (text && strcmp(text, "very_small") == 0) c->forgetting = PAL_FORGET_VERY_SMALL;
    else refuse(r, "forgetting", "small, normal or very_small");
    c->tied = true;
    read_mixer(r);
}

static const struct {
    const char *model_type, *architecture, *block_type;
    pal_mixer mixer;
} kinds[] = {
    { "palimpsa", "PalimpsaForCausalLM", "PalimpsaBlock", PAL_MIXER_D },
    { "meta_mamba2", "MetaMamba2ForCausalLM", "MetaMamba2Block", PAL_MIXER_M },
    { "gated_deltanet", "GatedDeltaNetForCausalLM", "GatedDeltaNetBlock", PAL_MIXER_GDN },
    { "transformer", "TransformerForCausalLM", "AttentionBlock", PAL_MIXER_ATTENTION },
};

static int find_kind(const json_t *word, bool mqar) {
    const char *text = json_string_value(word);
    for (int i = 0; text && i < PAL_MIXERS; i++)
        if (strcmp(text, mqar ? kinds[i].block_type : kinds[i].model_type) == 0) return i;
    return -1;
}

pal_status pal_config_read(pal_model_config *out, const json_t *root, const pal_shapes *shapes, const char *path,
                           pal_error *err) {
    reader r = { .path = path, .root = root, .mixer = root, .shapes = shapes, .c = out, .err = err };
    if (!json_is_object(root)) return pal_fail(err, PAL_E_FORMAT, "%s: not a JSON object", path);
    const json_t *ssm = key_of(root, "ssm_cfg");
    if (json_is_true(json_object_get(root, "mqar"))) {
        const int kind = find_kind(key_of(root, "block_type"), true);
        if (kind < 0)
            return pal_fail(
                err, PAL_E_UNSUPPORTED,
                "%s: block_type must be PalimpsaBlock, MetaMamba2Block, GatedDeltaNetBlock or AttentionBlock", path);
        pal_config_defaults(out, kinds[kind].mixer);
        out->mqar = true;
        r.mixer = key_of(root, "sequence_mixer");
        if (!json_is_object(r.mixer)) return pal_fail(err, PAL_E_FORMAT, "%s: sequence_mixer must be an object", path);
        read_mqar(&r);
    } else if (ssm) {
        pal_config_defaults(out, PAL_MIXER_M);
        out->official = true;
        r.mixer = ssm;
        if (!json_is_object(ssm)) return pal_fail(err, PAL_E_FORMAT, "%s: ssm_cfg must be an object", path);
        read_official(&r);
    } else {
        const char *found = json_string_value(key_of(root, "model_type"));
        r.hugging_face = found && strcmp(found, "mamba2") == 0;
        const int kind = r.hugging_face ? PAL_MIXER_M : find_kind(key_of(root, "model_type"), false);
        if (kind < 0)
            return pal_fail(err, PAL_E_UNSUPPORTED,
                            "%s: model_type is '%.40s'; expected palimpsa, meta_mamba2, mamba2, gated_deltanet, "
                            "transformer, or an ssm_cfg",
                            path, found ? found : "absent");
        pal_config_defaults(out, kinds[kind].mixer);
        read_language(&r);
    }
    if (r.st) return r.st;
    pal_error why;
    if (pal_model_config_check(out, &why)) return pal_fail(err, PAL_E_FORMAT, "%s: %s", path, why.text);
    return PAL_OK;
}

static json_t *number(double x) { return x == trunc(x) && fabs(x) < 1e15 ? json_integer((json_int_t)x) : json_real(x); }

/* The factor that trunc(width * factor) turns into exactly `channels`. */
static double expansion(int width, int channels) {
    const double factor = (double)channels / width;
    return (int)trunc(width * factor) == channels ? factor : nextafter(factor, INFINITY);
}

static json_t *limit_json(const pal_model_config *c) {
    return json_pack("[f,o]", c->dt_low, isfinite(c->dt_high) ? json_real(c->dt_high) : json_null());
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
        if (c->dt_low > 0 || isfinite(c->dt_high)) json_object_set_new(to, "dt_limit", limit_json(c));
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
        if (c->dt_low > 0 || isfinite(c->dt_high)) json_object_set_new(to, "time_step_limit", limit_json(c));
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
    json_object_set_new(to, "block_type", json_string(kinds[c->mixer].block_type));
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
    json_object_set_new(to, "architectures", json_pack("[s]", kinds[c->mixer].architecture));
    json_object_set_new(to, "model_type", json_string(kinds[c->mixer].model_type));
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
    if (c->dt_low > 0 || isfinite(c->dt_high)) json_object_set_new(to, "time_step_limit", limit_json(c));
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
