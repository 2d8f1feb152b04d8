/* SPDX-License-Identifier: MIT */
/* What a configuration means: its rules, names and limits. Reading and writing JSON is in config_json.c. */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "palimpsa/memory.h"

enum {
    MAX_HIDDEN = 1 << 16,
    MAX_VOCAB = 1 << 24,
    MAX_HEADS = 1 << 12,
    MAX_HEAD = 1 << 12,
    MAX_MLP = 1 << 18,
    MAX_TAPS = 16
};

void pal_config_defaults(pal_model_config *c, pal_mixer mixer) {
    *c = (pal_model_config){ .mixer = mixer,
                             .tied = true,
                             .metaplasticity = true,
                             .norm_groups = 1,
                             .rope_theta = 10000.0,
                             .init_range = 0.02,
                             .dt_high = INFINITY,
                             .norm_eps = mixer == PAL_MIXER_M ? 1e-5 : 1e-6,
                             .conv_bias = mixer == PAL_MIXER_M,
                             .rescale_residual = mixer == PAL_MIXER_M };
    strcpy(c->rule, "palimpsa");
}

int pal_config_mlp_width(int hidden, double ratio) {
    return pal_count_of(256 * ceil(trunc(hidden * ratio * 2 / 3) / 256));
}

const char *pal_model_layer_rule(const pal_model_config *c, int layer) {
    if (c->mixer == PAL_MIXER_ATTENTION) return "attention";
    if (c->mixer == PAL_MIXER_GDN) return "gdn";
    if (c->official) return "gla";
    const bool palimpsa = strcmp(c->rule, "palimpsa") == 0;
    const bool on = c->listed ? c->metaplastic[layer] : c->metaplasticity || !palimpsa;
    return on ? c->rule : "gla";
}

void pal_model_describe(const pal_model_config *c, char text[64]) {
    static const char *const names[PAL_MIXERS] = { "Palimpsa-D", "Palimpsa-M", "Gated DeltaNet", "Transformer++" };
    const char *name = names[c->mixer], *before = "", *after = "";
    int on = 0;
    for (int i = 0; i < c->layers; i++) on += strcmp(pal_model_layer_rule(c, i), "gla") != 0;
    if (c->official || (c->mixer == PAL_MIXER_M && c->listed && on == 0)) {
        name = "Mamba2";
    } else if (c->mixer == PAL_MIXER_D || c->mixer == PAL_MIXER_M) {
        if (on == 0) after = " without metaplasticity";
        else if (on < c->layers) before = "hybrid ";
    }
    if (c->mixer == PAL_MIXER_D && strcmp(c->rule, "palimpsa") != 0 && on)
        snprintf(text, 64, "%sD backbone with rule %s%s", before, c->rule, c->mqar ? ", MQAR" : "");
    else snprintf(text, 64, "%s%s%s%s", before, name, after, c->mqar ? ", MQAR" : "");
}

static pal_status check_range(const char *what, int value, int low, int high, pal_error *err) {
    if (value >= low && value <= high) return PAL_OK;
    return pal_fail(err, PAL_E_ARGUMENT, "configuration: %s is %d, expected %d to %d", what, value, low, high);
}

/* What the D backbone makes of its input. */
enum {
    OFFERED = PAL_INPUT_Q | PAL_INPUT_K | PAL_INPUT_V | PAL_INPUT_B | PAL_INPUT_BETA | PAL_INPUT_DT | PAL_INPUT_G |
              PAL_INPUT_A | PAL_INPUT_IP | PAL_INPUT_LAM
};
static bool is_offered(const pal_memory_rule *rule) {
    return !pal_memory_keeps_tokens(rule) && !(pal_memory_inputs_of(rule) & ~(unsigned)OFFERED);
}

/* M's values and gates come from its time step. */
static pal_status check_rule(const pal_model_config *c, pal_error *err) {
    const pal_memory_rule *rule = pal_memory_find(c->rule);
    char names[256] = "";
    for (int i = 0; pal_memory_at(i); i++) {
        if (!is_offered(pal_memory_at(i))) continue;
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", pal_memory_name(pal_memory_at(i)));
    }
    if (!rule || !is_offered(rule))
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: rule '%s' is not one of %s", c->rule, names);
    const unsigned inputs = pal_memory_inputs_of(rule);
    const bool by_time_step = inputs & (PAL_INPUT_DT | PAL_INPUT_G) && !(inputs & (PAL_INPUT_BETA | PAL_INPUT_LAM));
    if (!by_time_step && c->mixer != PAL_MIXER_D)
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: rule '%s' works on the D backbone only", c->rule);
    return PAL_OK;
}

/* Files of a kind say less than the structure: what they have no words for would come back as another model. */
static pal_status check_sayable(const pal_model_config *c, pal_error *err) {
    const bool m = c->mixer == PAL_MIXER_M, attention = c->mixer == PAL_MIXER_ATTENTION;
    const char *wrong = NULL;
    if (c->official && !m) wrong = "the official layout is of Mamba2";
    else if (c->official && c->mqar) wrong = "an MQAR model has no official layout";
    else if (c->official && c->norm_groups != c->key_heads)
        wrong = "in the official layout the norm has as many groups as the keys";
    else if (c->official && fabs(c->norm_eps - 1e-5) > 1e-12) wrong = "in the official layout norm_eps is 1e-5";
    else if (c->mqar && c->vocab_rows != c->vocab) wrong = "an MQAR model has as many embedding rows as tokens";
    else if (c->mqar && !c->tied) wrong = "the head of an MQAR model is its embedding";
    else if ((c->mqar || m) && c->mlp) wrong = "MQAR models and Mamba2 have no MLP";
    else if (!c->mqar && !m && !c->mlp) wrong = "a language model of this kind has an MLP";
    else if (!m && !attention && c->key_heads != c->heads) wrong = "there are as many key heads as heads in this kind";
    else if (!m && c->norm_groups != 1) wrong = "only Mamba2's norm has groups";
    else if (!m && (c->proj_bias || c->conv_bias)) wrong = "only Mamba2 has biases";
    else if (!m && (c->dt_low > 0 || isfinite(c->dt_high))) wrong = "only Mamba2's time steps have limits";
    return wrong ? pal_fail(err, PAL_E_ARGUMENT, "configuration: %s", wrong) : PAL_OK;
}

pal_status pal_model_config_check(const pal_model_config *c, pal_error *err) {
    pal_status st;
    const bool memory = c->mixer != PAL_MIXER_ATTENTION;
    if ((st = check_range("the number of layers", c->layers, 1, PAL_MAX_LAYERS, err))) return st;
    if ((st = check_range("the hidden size", c->hidden, 1, MAX_HIDDEN, err))) return st;
    if ((st = check_range("the vocabulary", c->vocab, 1, MAX_VOCAB, err))) return st;
    if ((st = check_range("the number of embedding rows", c->vocab_rows, c->vocab, MAX_VOCAB, err))) return st;
    if ((st = check_range("the number of heads", c->heads, 1, MAX_HEADS, err))) return st;
    if ((st = check_range("the number of key heads or groups", c->key_heads, 1, c->heads, err))) return st;
    if ((st = check_range("the key width of a head", c->dk, 1, MAX_HEAD, err))) return st;
    if ((st = check_range("the value width of a head", c->dv, 1, MAX_HEAD, err))) return st;
    if ((st = check_range("the rank of the importance gate", c->rank, 0, MAX_HIDDEN, err))) return st;
    if ((st = check_range("the width of the MLP", c->mlp, 0, MAX_MLP, err))) return st;
    if ((st = check_range("the number of convolution taps", c->conv, memory ? 1 : 0, memory ? MAX_TAPS : 0, err)))
        return st;
    if ((st = check_range("the number of norm groups", c->norm_groups, 1, c->heads * c->dv, err))) return st;
    if (c->heads % c->key_heads)
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: %d key heads or groups do not divide %d heads",
                        c->key_heads, c->heads);
    if (pal_config_inner(c) % c->norm_groups)
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: %d norm groups do not divide %d inner channels",
                        c->norm_groups, pal_config_inner(c));
    if (c->mixer == PAL_MIXER_ATTENTION && (c->dk % 2 || c->dv != c->dk || c->heads * c->dk != c->hidden))
        return pal_fail(err, PAL_E_ARGUMENT,
                        "configuration: rotary positions need an even head width, and attention heads share the hidden "
                        "size %d; found %d heads with keys of %d and values of %d",
                        c->hidden, c->heads, c->dk, c->dv);
    if ((c->mixer == PAL_MIXER_D || (c->mixer == PAL_MIXER_M && !c->official)) && c->rank < 1)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "configuration: the rank of the importance gate is %d, expected at least 1", c->rank);
    if (!(c->norm_eps > 0 && c->norm_eps < 1))
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: norm_eps is %g, expected a small positive number",
                        c->norm_eps);
    if (!(c->rope_theta > 0))
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: rope_theta is %g, expected a positive number",
                        c->rope_theta);
    if (!(c->init_range >= 0) || isinf(c->init_range))
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: initializer_range is %g, expected a number >= 0",
                        c->init_range);
    if (!(c->dt_low >= 0 && c->dt_low <= c->dt_high))
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: time_step_limit is [%g, %g], expected 0 <= low <= high",
                        c->dt_low, c->dt_high);
    if (!(c->mesa_tolerance >= 0 && c->mesa_tolerance < 1))
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: mesa_tolerance is %g, expected 0 (exact) to below 1",
                        c->mesa_tolerance);
    if (c->mesa_tolerance > 0 && strcmp(c->rule, "mesa") != 0)
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: mesa_tolerance is for rule mesa, found rule '%s'",
                        c->rule);
    if ((st = check_sayable(c, err))) return st;
    return check_rule(c, err);
}

const char *pal_config_embedding_name(const pal_model_config *c) {
    if (c->mqar) return "backbone.embeddings.word_embeddings.weight";
    if (c->official) return "backbone.embedding.weight";
    return c->mixer == PAL_MIXER_M ? "backbone.embeddings.weight" : "model.embeddings.weight";
}

const char *pal_config_layers_prefix(const pal_model_config *c) {
    return c->mqar || c->mixer == PAL_MIXER_M ? "backbone.layers." : "model.layers.";
}

const char *pal_config_mixer_prefix(const pal_model_config *c) {
    return c->mqar || c->mixer == PAL_MIXER_M ? "mixer." : "attn.";
}
