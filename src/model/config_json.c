/* SPDX-License-Identifier: MIT */
/* config.json of every kind, read (config_write.c writes them). A size that the file does not state is taken from the
 * tensors; when both speak, the comparison of every tensor's shape with the table of weights names contradictions. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "model/config.h"

typedef struct {
    const char *path;
    const json_t *root, *mixer; /* MQAR keeps the mixer's keys in a separate object */
    const pal_shapes *shapes;
    bool hugging_face; /* model_type mamba2 */
    pal_model_config *c;
    pal_mixer_spec *m; /* of c, whose layers are all alike */
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
    return layer_extent(r, pal_config_mixer_prefix(r->c, r->m), name, dim);
}

static void derive(int *value, int found) {
    if (!*value) *value = found;
}

static int count_layers(const reader *r) {
    const char *norm = r->c->mqar || r->m->kind == PAL_MIXER_M ? "norm.weight" : "attn_norm.weight";
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
        r->st = pal_fail(r->err, PAL_E_FORMAT, "%s: %s is not stated and does not follow from the tensors", r->path,
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
    if (json_is_string(value) && strcmp(json_string_value(value), "auto") == 0) r->m->rank = (r->c->hidden + 15) / 16;
    else r->m->rank = read_int(r, r->mixer, "beta_step_rank");
    derive(&r->m->rank, mixer_extent(r, "b_rank_proj.weight", 0));
    derive(&r->m->rank, (r->c->hidden + 15) / 16);
}

static void read_metaplasticity(reader *r) {
    pal_model_config *c = r->c;
    pal_mixer_spec *m = r->m;
    c->metaplasticity = read_bool(r, r->mixer, "metaplasticity", true);
    c->finetuning = read_bool(r, r->mixer, "finetuning", false);
    const json_t *rule = key_of(r->mixer, "rule"), *list = key_of(r->mixer, "metaplastic_layers");
    if (rule) {
        if (!json_is_string(rule) || strlen(json_string_value(rule)) >= sizeof m->rule)
            refuse(r, "rule", "the name of a memory rule");
        else strcpy(m->rule, json_string_value(rule));
    }
    m->mesa_tolerance = read_real(r, r->mixer, "mesa_tolerance", 0);
    m->softplus_rate = read_bool(r, r->mixer, "softplus_rate", false);
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
    pal_mixer_spec *m = r->m;
    const int head_dim = read_int(r, r->mixer, "head_dim");
    m->heads = read_int(r, r->mixer, "num_heads");
    derive(&m->heads, mixer_extent(r, "A_log", 0));
    derive(&m->heads, mixer_extent(r, "D", 0));
    require_size(r, m->heads, "num_heads");
    const int value_heads = read_int(r, r->mixer, "num_v_heads");
    if (value_heads && value_heads != m->heads) refuse(r, "num_v_heads", "absent or equal to num_heads");
    if (head_dim) {
        m->dk = pal_count_of(head_dim * read_factor(r, r->mixer, "expand_k", 1));
        if (key_of(r->mixer, "expand_v")) m->dv = pal_count_of(head_dim * read_factor(r, r->mixer, "expand_v", 1));
        if (key_of(r->mixer, "expand_v") && !m->dv) refuse(r, "expand_v", "large enough for one value channel a head");
    }
    if (m->heads) derive(&m->dk, mixer_extent(r, "q_proj.weight", 0) / m->heads);
    derive(&m->dv, mixer_extent(r, "o_norm.weight", 0));
    derive(&m->dv, m->kind == PAL_MIXER_GDN ? pal_count_of(2.0 * m->dk) : m->dk);
    require_size(r, m->dk, "head_dim");
    m->key_heads = m->heads;
    m->conv = read_int(r, r->mixer, "conv_size");
    derive(&m->conv, mixer_extent(r, "q_conv1d.weight", 2));
    derive(&m->conv, 4);
    require_bool(r, r->mixer, "use_gate", true);
    require_bool(r, r->mixer, "use_short_conv", true);
    require_bool(r, r->mixer, "use_residual", true);
    if (m->kind == PAL_MIXER_GDN) return;
    read_metaplasticity(r);
    read_rank(r);
}

/* JSON has no number for it: transformers 5 writes {"__float__": "Infinity"}, others the bare word, which is read as
 * null, or a string. */
static bool is_infinity(const json_t *value) {
    const json_t *tagged = json_object_get(value, "__float__");
    const char *word = json_string_value(tagged ? tagged : value);
    return json_is_null(value) || (word && (strcmp(word, "Infinity") == 0 || strcmp(word, "inf") == 0));
}

static void read_limit(reader *r, const char *key) {
    const json_t *limit = key_of(r->mixer, key);
    if (!limit) return;
    const json_t *low = json_array_get(limit, 0), *high = json_array_get(limit, 1);
    if (json_array_size(limit) != 2 || !json_is_number(low) || !(json_is_number(high) || is_infinity(high)))
        refuse(r, key, "two numbers, of which the second may be infinite");
    r->m->dt_low = json_number_value(low);
    r->m->dt_high = json_number_value(high);
    if (!json_is_number(high) || r->m->dt_high >= (double)FLT_MAX) r->m->dt_high = INFINITY;
}

/* Whether transformers before 5.23 saved the file: it took the gated norm over all channels. */
static bool saved_by_older_transformers(const json_t *root) {
    const char *version = json_string_value(key_of(root, "transformers_version"));
    int major, minor;
    return version && sscanf(version, "%d.%d", &major, &minor) == 2 && (major < 5 || (major == 5 && minor < 23));
}

/* The paper's models take the gated norm over all channels; Mamba2 takes it per group. */
static void read_norm_groups(reader *r) {
    r->m->norm_groups = read_int(r, r->mixer, "norm_groups");
    if (!r->m->norm_groups && r->hugging_face && r->m->key_heads > 1 && r->shapes &&
        saved_by_older_transformers(r->root))
        pal_warn("%s: n_groups is %d and transformers_version %s: the gated norm is taken per group, as in mamba_ssm "
                 "and transformers since 5.23; a model trained with an older transformers needs \"norm_groups\": 1",
                 r->path, r->m->key_heads, json_string_value(key_of(r->root, "transformers_version")));
    derive(&r->m->norm_groups, r->hugging_face ? r->m->key_heads : 1);
}

static void read_heads_m(reader *r) {
    pal_model_config *c = r->c;
    pal_mixer_spec *m = r->m;
    const double expand = read_factor(r, r->mixer, "expand", 0);
    int inner = expand > 0 ? pal_count_of(c->hidden * expand) : mixer_extent(r, "norm.weight", 0);
    derive(&inner, pal_count_of(2.0 * c->hidden));
    const char *head = c->official ? "headdim" : "head_dim", *state = c->official ? "d_state" : "state_size";
    m->dv = read_int(r, r->mixer, head);
    const int heads = mixer_extent(r, "A_log", 0);
    if (!m->dv && heads) m->dv = inner / heads;
    derive(&m->dv, 64);
    if (m->dv > inner || inner % m->dv) refuse(r, head, "a divisor of expand * hidden size");
    m->heads = inner / m->dv;
    m->key_heads = read_int(r, r->mixer, c->official ? "ngroups" : "n_groups");
    m->dk = read_int(r, r->mixer, state);
    if (r->hugging_face) { /* its own num_heads counts, and its class has a default for one of the two */
        const int stated = read_int(r, r->mixer, "num_heads");
        if (stated && stated != m->heads) refuse(r, "num_heads", "expand * hidden_size / head_dim");
        if (!m->key_heads) derive(&m->dk, 128);
    }
    /* groups x state: what in_proj makes besides z, x and dt is B and C */
    const double most = (mixer_extent(r, "in_proj.weight", 0) - 2.0 * inner - m->heads) / 2;
    const int keys = most > 0 ? pal_count_of(most) : 0;
    if (keys && !m->key_heads) m->key_heads = m->dk ? keys / m->dk : 1;
    derive(&m->key_heads, 1);
    derive(&m->dk, keys / m->key_heads);
    derive(&m->dk, 128);
    m->conv = read_int(r, r->mixer, c->official ? "d_conv" : "conv_kernel");
    derive(&m->conv, mixer_extent(r, "conv1d.weight", 2));
    derive(&m->conv, 4);
    if (c->official) {
        m->norm_groups = m->key_heads;
        m->proj_bias = read_bool(r, r->mixer, "bias", false);
        m->conv_bias = read_bool(r, r->mixer, "conv_bias", true);
        require_bool(r, r->mixer, "rmsnorm", true);
        require_bool(r, r->mixer, "norm_before_gate", false);
        read_limit(r, "dt_limit");
        c->metaplasticity = false;
        return;
    }
    read_norm_groups(r);
    m->proj_bias = read_bool(r, r->mixer, "use_bias", c->mqar);
    m->conv_bias = read_bool(r, r->mixer, "use_conv_bias", !c->mqar);
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
    pal_mixer_spec *m = r->m;
    m->heads = read_int(r, r->mixer, "num_heads");
    require_size(r, m->heads, "num_heads");
    m->key_heads = read_int(r, r->mixer, "num_kv_heads");
    if (m->heads && c->hidden % m->heads) refuse(r, "num_heads", "a divisor of the hidden size");
    if (m->heads) m->dk = m->dv = m->rotary = c->hidden / m->heads;
    if (m->dk) derive(&m->key_heads, mixer_extent(r, "k_proj.weight", 0) / m->dk);
    derive(&m->key_heads, m->heads);
    c->rope_theta = read_real(r, r->mixer, "rope_theta", 10000);
    require_bool(r, r->mixer, "qkv_bias", false);
    require_bool(r, r->mixer, "qk_norm", false);
    if (key_of(r->mixer, "window_size")) refuse(r, "window_size", "null; windows are not supported");
}

static void read_mixer(reader *r) {
    switch (r->m->kind) {
    case PAL_MIXER_D:
    case PAL_MIXER_GDN: read_heads_d(r); break;
    case PAL_MIXER_M: read_heads_m(r); break;
    default: read_heads_attention(r);
    }
}

static void require_silu(reader *r, const json_t *given, const char *key) {
    const char *name = json_string_value(given);
    if (given && !(name && (strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0))) refuse(r, key, "silu or swish");
}

static void read_language(reader *r) {
    pal_model_config *c = r->c;
    pal_mixer_spec *m = r->m;
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
    require_silu(r, key_of(r->root, "hidden_act"), "hidden_act");
    if (m->kind != PAL_MIXER_M) {
        c->block[0].mlp = read_int(r, r->root, "intermediate_size");
        if (!key_of(r->root, "hidden_ratio")) derive(&c->block[0].mlp, layer_extent(r, "", "mlp.gate_proj.weight", 0));
        derive(&c->block[0].mlp, pal_config_mlp_width(c->hidden, read_factor(r, r->root, "hidden_ratio", 4)));
        c->block[0].form = PAL_MLP_SWIGLU;
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
    require_silu(r, key_of(r->mixer, "activation"), "ssm_cfg.activation");
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
    if (!text || !pal_forgetting_named(&c->forgetting, text)) refuse(r, "forgetting", "small, normal or very_small");
    c->tied = true;
    read_mixer(r);
}

static int find_kind(const json_t *word, bool mqar) {
    const char *text = json_string_value(word);
    for (int i = 0; text && i < PAL_MIXERS; i++) {
        const char *known = mqar ? pal_config_kinds[i].block_type : pal_config_kinds[i].model_type;
        if (known && strcmp(text, known) == 0) return i;
    }
    return -1;
}

pal_status pal_config_read(pal_model_config *out, const json_t *root, const pal_shapes *shapes, const char *path,
                           pal_error *err) {
    reader r = {
        .path = path, .root = root, .mixer = root, .shapes = shapes, .c = out, .m = pal_config_mixer(out), .err = err
    };
    if (!json_is_object(root)) return pal_fail(err, PAL_E_FORMAT, "%s: not a JSON object", path);
    const char *type = json_string_value(key_of(root, "model_type"));
    if (type && strcmp(type, "palimpsa_blocks") == 0) return pal_config_read_blocks(out, root, path, err);
    const json_t *ssm = key_of(root, "ssm_cfg");
    if (json_is_true(json_object_get(root, "mqar"))) {
        const int kind = find_kind(key_of(root, "block_type"), true);
        if (kind < 0)
            return pal_fail(
                err, PAL_E_UNSUPPORTED,
                "%s: block_type must be PalimpsaBlock, MetaMamba2Block, GatedDeltaNetBlock or AttentionBlock", path);
        pal_config_defaults(out, (pal_mixer)kind);
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
                            "transformer, palimpsa_blocks, granitemoehybrid, bamba, nemotron_h, qwen3_5, falcon_h1, "
                            "lfm2, or an ssm_cfg",
                            path, found ? found : "absent");
        pal_config_defaults(out, (pal_mixer)kind);
        read_language(&r);
    }
    if (r.st) return r.st;
    pal_error why;
    if (pal_model_config_check(out, &why)) return pal_fail(err, PAL_E_FORMAT, "%s: %s", path, why.text);
    return PAL_OK;
}
