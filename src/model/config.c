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

const pal_config_kind pal_config_kinds[PAL_MIXERS] = {
    [PAL_MIXER_D] = { "palimpsa", "PalimpsaForCausalLM", "PalimpsaBlock", "palimpsa_d", "palimpsa.", NULL, "Palimpsa-D",
                      false, 1 },
    [PAL_MIXER_M] = { "meta_mamba2", "MetaMamba2ForCausalLM", "MetaMamba2Block", "mamba2", "mamba.", NULL, "Palimpsa-M",
                      false, 1 },
    [PAL_MIXER_GDN] = { "gated_deltanet", "GatedDeltaNetForCausalLM", "GatedDeltaNetBlock", "gated_deltanet", "delta.",
                        "gdn", "Gated DeltaNet", false, 1 },
    [PAL_MIXER_ATTENTION] = { "transformer", "TransformerForCausalLM", "AttentionBlock", "attention", "attn.",
                              "attention", "Transformer++", true, 0 },
    [PAL_MIXER_CONV] = { NULL, NULL, NULL, "short_convolution", "conv.", "none", "short convolution", false, 1, true },
};

pal_mixer_spec pal_mixer_spec_of(pal_mixer kind) {
    pal_mixer_spec m = { .kind = kind, .norm_groups = 1, .dt_high = INFINITY, .conv_bias = kind == PAL_MIXER_M };
    strcpy(m.rule, "palimpsa");
    return m;
}

void pal_config_defaults(pal_model_config *c, pal_mixer mixer) {
    *c = (pal_model_config){ .blocks = 1,
                             .tied = true,
                             .metaplasticity = true,
                             .rope_theta = 10000.0,
                             .init_range = 0.02,
                             .norm_eps = mixer == PAL_MIXER_M ? 1e-5 : 1e-6,
                             .rescale_residual = mixer == PAL_MIXER_M };
    c->block[0].mixers = 1;
    c->block[0].mixer[0] = pal_mixer_spec_of(mixer);
}

int pal_config_mlp_width(int hidden, double ratio) {
    return pal_count_of(256 * ceil(trunc(hidden * ratio * 2 / 3) / 256));
}

const char *pal_mixer_name(pal_mixer kind) { return (unsigned)kind < PAL_MIXERS ? pal_config_kinds[kind].name : NULL; }

const pal_block_spec *pal_model_block(const pal_model_config *c, int layer) { return &c->block[c->layer_block[layer]]; }

const pal_mixer_spec *pal_model_memory(const pal_model_config *c, int layer) {
    const pal_block_spec *b = pal_model_block(c, layer);
    return b->mixers && pal_mixer_has_memory(&b->mixer[0]) ? &b->mixer[0] : NULL;
}

const pal_mixer_spec *pal_model_mixer(const pal_model_config *c) {
    return c->blocks == 1 && c->block[0].mixers == 1 ? &c->block[0].mixer[0] : NULL;
}

bool pal_model_grows(const pal_model_config *c) {
    for (int i = 0; i < c->layers; i++) {
        const pal_block_spec *b = pal_model_block(c, i);
        for (int k = 0; k < b->mixers; k++)
            if (pal_config_kinds[b->mixer[k].kind].attends) return true;
    }
    return false;
}

static void widen(int *most, int value) {
    if (most && value > *most) *most = value;
}

void pal_model_widest(const pal_model_config *c, int *heads, int *dk, int *dv) {
    if (heads) *heads = 0;
    if (dk) *dk = 0;
    if (dv) *dv = 0;
    for (int i = 0; i < c->layers; i++) {
        const pal_block_spec *b = pal_model_block(c, i);
        const pal_mixer_spec *m = &b->mixer[0];
        if (!b->mixers || pal_config_kinds[m->kind].headless) continue;
        widen(heads, m->heads), widen(dk, m->dk), widen(dv, m->dv);
    }
}

const char *pal_mixer_rule(const pal_model_config *c, const pal_mixer_spec *m, int layer) {
    if (pal_config_kinds[m->kind].rule) return pal_config_kinds[m->kind].rule;
    if (c->official) return "gla";
    const bool other = strcmp(m->rule, "palimpsa") != 0;
    const bool on = c->hybrid   ? other || c->metaplastic[layer]
                    : c->listed ? c->metaplastic[layer]
                                : c->metaplasticity || other;
    return on ? m->rule : "gla";
}

const char *pal_model_layer_rule(const pal_model_config *c, int layer) {
    const pal_block_spec *b = pal_model_block(c, layer);
    return b->mixers ? pal_mixer_rule(c, &b->mixer[0], layer) : "none";
}

/* What one mixer of a list is called: "D (mesa)" with another rule than the kind's name says. */
static void call(const pal_model_config *c, const pal_mixer_spec *m, int layer, char name[32]) {
    const char *rule = pal_mixer_rule(c, m, layer);
    if (pal_config_kinds[m->kind].attends) strcpy(name, "attention");
    else if (m->kind == PAL_MIXER_M && strcmp(rule, "gla") == 0) strcpy(name, "Mamba2");
    else if (pal_mixer_may_gate(m) && strcmp(rule, "palimpsa") != 0)
        snprintf(name, 32, "%s (%s)", m->kind == PAL_MIXER_D ? "D" : "M", rule);
    else strcpy(name, pal_config_kinds[m->kind].described);
}

/* "Mamba2, attention, MLP": each kind once, in the order in which layers come. */
static void describe_blocks(const pal_model_config *c, char text[64]) {
    enum { MOST = 8 };
    char names[MOST][32], name[32] = "MLP";
    int count = 0;
    size_t at = 0;
    for (int i = 0; i < c->layers; i++) {
        const pal_block_spec *b = pal_model_block(c, i);
        for (int k = 0; k < (b->mixers ? b->mixers : 1); k++) {
            int n = 0;
            if (b->mixers) call(c, &b->mixer[k], i, name);
            else strcpy(name, "MLP");
            while (n < count && strcmp(names[n], name) != 0) n++;
            if (n == count && count < MOST) strcpy(names[count++], name);
        }
    }
    at += (size_t)snprintf(text, 64, "hybrid of ");
    for (int n = 0; n < count && at < 64; n++)
        at += (size_t)snprintf(text + at, 64 - at, "%s%s", n ? ", " : "", names[n]);
    if (c->mqar && at < 64) snprintf(text + at, 64 - at, "; MQAR");
}

void pal_model_describe(const pal_model_config *c, char text[64]) {
    if (c->hybrid) {
        describe_blocks(c, text);
        return;
    }
    const pal_mixer_spec *m = pal_config_mixer_of(c);
    const char *name = pal_config_kinds[m->kind].described, *before = "", *after = "";
    int on = 0;
    for (int i = 0; i < c->layers; i++) on += strcmp(pal_model_layer_rule(c, i), "gla") != 0;
    if (c->official || (m->kind == PAL_MIXER_M && c->listed && on == 0)) {
        name = "Mamba2";
    } else if (pal_mixer_may_gate(m)) {
        if (on == 0) after = " without metaplasticity";
        else if (on < c->layers) before = "hybrid ";
    }
    if (m->kind == PAL_MIXER_D && strcmp(m->rule, "palimpsa") != 0 && on)
        snprintf(text, 64, "%sD backbone with rule %s%s", before, m->rule, c->mqar ? ", MQAR" : "");
    else snprintf(text, 64, "%s%s%s%s", before, name, after, c->mqar ? ", MQAR" : "");
}

static pal_status check_range(const char *what, int value, int low, int high, pal_error *err) {
    if (value >= low && value <= high) return PAL_OK;
    return pal_fail(err, PAL_E_ARGUMENT, "configuration: %s is %d, expected %d to %d", what, value, low, high);
}

/* The D backbone makes what any rule reads. */
static bool is_offered(const pal_memory_rule *rule) { return !pal_memory_keeps_tokens(rule); }

/* M's values and gates come from its time step. */
static pal_status check_rule(const pal_mixer_spec *m, pal_error *err) {
    const pal_memory_rule *rule = pal_memory_find(m->rule);
    char names[256] = "";
    for (int i = 0; pal_memory_at(i); i++) {
        if (!is_offered(pal_memory_at(i))) continue;
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", pal_memory_name(pal_memory_at(i)));
    }
    if (!rule || !is_offered(rule))
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: rule '%s' is not one of %s", m->rule, names);
    const unsigned inputs = pal_memory_inputs_of(rule);
    const bool by_time_step = inputs & (PAL_INPUT_DT | PAL_INPUT_G) && !(inputs & (PAL_INPUT_BETA | PAL_INPUT_LAM));
    if (!by_time_step && m->kind != PAL_MIXER_D)
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: rule '%s' works on the D backbone only", m->rule);
    if (inputs & PAL_INPUT_P && m->key_heads != m->heads)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "configuration: rule '%s' needs as many key heads as heads; found %d and %d", m->rule,
                        m->key_heads, m->heads);
    return PAL_OK;
}

/* Whether anything is set that only a list of blocks can say. */
static bool is_plain_mixer(const pal_mixer_spec *m) {
    for (int i = 0; i < 5; i++)
        if (m->in_scale[i] != 0) return false;
    return !m->tiled && m->norm == PAL_NORM_USUAL && m->scale == 0 && !m->qk_norm && !m->out_gate &&
           m->out_scale == 0 && m->rotary == (pal_config_kinds[m->kind].attends ? m->dk : 0);
}

/* Files of a single kind of layer express less than the structure: the rest would be lost on a round trip. */
static pal_status check_layout(const pal_model_config *c, pal_error *err) {
    const pal_block_spec *b = &c->block[0];
    const pal_mixer_spec *x = &b->mixer[0];
    const bool m = x->kind == PAL_MIXER_M, attends = pal_config_kinds[x->kind].attends;
    const char *wrong = NULL;
    if (c->blocks != 1 || b->mixers != 1 || !pal_config_kinds[x->kind].model_type || c->embedding_scale != 0 ||
        c->logit_scale != 0 || b->gate_scale != 0 || b->down_scale != 0 || !is_plain_mixer(x))
        wrong = attends && b->mixers == 1 && x->rotary != x->dk
                    ? "rotary positions turn whole heads in this kind, unless blocks are listed"
                    : "this takes a list of blocks (model_type palimpsa_blocks)";
    else if (c->official && !m) wrong = "the official layout is of Mamba2";
    else if (c->official && c->mqar) wrong = "an MQAR model has no official layout";
    else if (c->official && x->norm_groups != x->key_heads)
        wrong = "in the official layout the norm has as many groups as the keys";
    else if (c->official && fabs(c->norm_eps - 1e-5) > 1e-12) wrong = "in the official layout norm_eps is 1e-5";
    else if (c->mqar && c->vocab_rows != c->vocab) wrong = "an MQAR model has as many embedding rows as tokens";
    else if (c->mqar && !c->tied) wrong = "the head of an MQAR model is its embedding";
    else if ((c->mqar || m) && b->mlp) wrong = "MQAR models and Mamba2 have no MLP";
    else if (!c->mqar && !m && !b->mlp) wrong = "a language model of this kind has an MLP";
    else if (!m && !attends && x->key_heads != x->heads) wrong = "there are as many key heads as heads in this kind";
    else if (attends && x->heads * x->dk != c->hidden)
        wrong = "rotary attention heads of this kind share the hidden size";
    else if (b->form != (b->mlp ? PAL_MLP_SWIGLU : PAL_MLP_NONE)) wrong = "the MLP of this kind is a gated one";
    return wrong ? pal_fail(err, PAL_E_ARGUMENT, "configuration: %s", wrong) : PAL_OK;
}

static bool is_scale(double x) { return isfinite(x) && fabs(x) < 1e6; }

static pal_status check_attention(const pal_mixer_spec *m, pal_error *err) {
    pal_status st;
    if (m->dv != m->dk)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "configuration: the keys of rotary attention have %d channels a head and the values %d, "
                        "expected as many",
                        m->dk, m->dv);
    if ((st = check_range("the rotary width of a head", m->rotary, 0, m->dk, err))) return st;
    if (m->rotary % 2)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "configuration: rotary positions need an even head width, or an even part of it; found %d",
                        m->rotary);
    return PAL_OK;
}

/* What kinds other than the named one have no place for. */
static pal_status check_foreign(const pal_mixer_spec *m, pal_error *err) {
    const char *wrong = NULL;
    const bool is_m = m->kind == PAL_MIXER_M, attends = pal_config_kinds[m->kind].attends,
               headless = pal_config_kinds[m->kind].headless;
    if (!is_m && m->norm_groups != 1) wrong = "only Mamba2's norm has groups";
    else if (!is_m && (m->proj_bias || m->conv_bias)) wrong = "only Mamba2 has biases";
    else if (!is_m && (m->dt_low > 0 || isfinite(m->dt_high))) wrong = "only Mamba2's time steps have limits";
    else if (!is_m && m->norm != PAL_NORM_USUAL) wrong = "only Mamba2's norm has other forms";
    else if (headless && (m->heads != 1 || m->key_heads != 1 || m->dk != m->dv || m->scale != 0))
        wrong = "a mixer without memory has one head, of as many keys as values, and no scale";
    else if (!attends && (m->rotary || m->qk_norm || m->out_gate))
        wrong = "rotary positions, norms of queries and keys, and a gate of the output are attention's";
    else if (m->proj_bias && m->out_scale != 0) wrong = "an output projection with a bias has no multiplier";
    for (int i = 0; i < 5 && !wrong; i++) {
        if (m->in_scale[i] != 0 && !is_m) wrong = "only Mamba2's input projection has multipliers";
        else if (m->in_scale[i] != 0 && m->proj_bias) wrong = "an input projection with a bias has no multipliers";
        else if (!is_scale(m->in_scale[i])) wrong = "a multiplier is not a finite number below a million";
    }
    if (!wrong && (!is_scale(m->scale) || !is_scale(m->out_scale)))
        wrong = "a multiplier is not a finite number below a million";
    if (!wrong && m->norm >= PAL_MIXER_NORMS) wrong = "there is no such form of the norm";
    return wrong ? pal_fail(err, PAL_E_ARGUMENT, "configuration: %s", wrong) : PAL_OK;
}

static pal_status check_mixer(const pal_model_config *c, const pal_mixer_spec *m, pal_error *err) {
    pal_status st;
    if (m->kind < 0 || m->kind >= PAL_MIXERS)
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: there is no mixer of kind %d", (int)m->kind);
    const pal_config_kind *kind = &pal_config_kinds[m->kind];
    if ((st = check_range("the number of heads", m->heads, 1, MAX_HEADS, err))) return st;
    if ((st = check_range("the number of key heads or groups", m->key_heads, 1, m->heads, err))) return st;
    const int most = kind->headless ? MAX_HIDDEN : MAX_HEAD;
    if ((st = check_range("the key width of a head", m->dk, 1, most, err))) return st;
    if ((st = check_range("the value width of a head", m->dv, 1, most, err))) return st;
    if ((st = check_range("the rank of the importance gate", m->rank, 0, MAX_HIDDEN, err))) return st;
    if ((st = check_range("the number of convolution taps", m->conv, kind->taps, kind->taps ? MAX_TAPS : 0, err)))
        return st;
    if ((st = check_range("the number of norm groups", m->norm_groups, 1, m->heads * m->dv, err))) return st;
    if (m->heads % m->key_heads)
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: %d key heads or groups do not divide %d heads",
                        m->key_heads, m->heads);
    if (pal_mixer_inner(m) % m->norm_groups)
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: %d norm groups do not divide %d inner channels",
                        m->norm_groups, pal_mixer_inner(m));
    if (kind->attends && (st = check_attention(m, err))) return st;
    if ((m->kind == PAL_MIXER_D || (m->kind == PAL_MIXER_M && !c->official && !c->hybrid)) && m->rank < 1)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "configuration: the rank of the importance gate is %d, expected at least 1", m->rank);
    if (!(m->dt_low >= 0 && m->dt_low <= m->dt_high))
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: time_step_limit is [%g, %g], expected 0 <= low <= high",
                        m->dt_low, m->dt_high);
    if (!(m->mesa_tolerance >= 0 && m->mesa_tolerance < 1))
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: mesa_tolerance is %g, expected 0 (exact) to below 1",
                        m->mesa_tolerance);
    if (m->mesa_tolerance > 0 && strcmp(m->rule, "mesa") != 0)
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: mesa_tolerance is for rule mesa, found rule '%s'",
                        m->rule);
    if (m->softplus_rate && strcmp(m->rule, "mamba3") != 0)
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: softplus_rate is for rule mamba3, found rule '%s'",
                        m->rule);
    return PAL_OK;
}

static pal_status check_block(const pal_model_config *c, const pal_block_spec *b, pal_error *err) {
    pal_status st;
    const char *wrong = NULL;
    if ((st = check_range("the number of mixers of a block", b->mixers, 0, PAL_BLOCK_MIXERS, err)) ||
        (st = check_range("the width of the MLP", b->mlp, 0, MAX_MLP, err)))
        return st;
    for (int k = 0; k < b->mixers; k++)
        if ((st = check_mixer(c, &b->mixer[k], err))) return st;
    if (b->form < 0 || b->form >= PAL_MLP_FORMS) wrong = "there is no such form of the MLP";
    else if (!b->mixers && !b->form) wrong = "a block has neither a mixer nor an MLP";
    else if (b->mixers == 2 && (!pal_mixer_has_memory(&b->mixer[0]) || !pal_config_kinds[b->mixer[1].kind].attends))
        wrong = "of two mixers in a block the first keeps a memory of fixed size and the second attends";
    else if (b->gate_scale != 0 && b->form != PAL_MLP_SWIGLU) wrong = "only a gated MLP has a multiplier of its gate";
    else if (b->down_scale != 0 && !b->form) wrong = "a multiplier of an MLP that is not there";
    else if (!is_scale(b->gate_scale) || !is_scale(b->down_scale))
        wrong = "a multiplier is not a finite number below a million";
    return wrong ? pal_fail(err, PAL_E_ARGUMENT, "configuration: %s", wrong) : PAL_OK;
}

static pal_status check_blocks(const pal_model_config *c, pal_error *err) {
    pal_status st;
    int rotary = 0;
    if (c->blocks < 1 || c->blocks > PAL_MAX_BLOCKS)
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: %d kinds of blocks, expected 1 to %d", c->blocks,
                        PAL_MAX_BLOCKS);
    for (int b = 0; b < c->blocks; b++) {
        if ((st = check_block(c, &c->block[b], err))) return st;
        for (int k = 0; k < c->block[b].mixers; k++) {
            const int width = c->block[b].mixer[k].rotary;
            if (width && rotary && width != rotary)
                return pal_fail(err, PAL_E_ARGUMENT,
                                "configuration: rotary widths of %d and %d in one model, expected the same in all "
                                "blocks",
                                rotary, width);
            if (width) rotary = width;
        }
    }
    for (int i = 0; i < c->layers; i++)
        if (c->layer_block[i] >= c->blocks)
            return pal_fail(err, PAL_E_ARGUMENT, "configuration: layer %d is of block %d, the model has blocks 0 to %d",
                            i, c->layer_block[i], c->blocks - 1);
    return PAL_OK;
}

/* In lists of blocks: an importance gate needs a memory that can have one. */
static pal_status check_metaplastic(const pal_model_config *c, pal_error *err) {
    for (int i = 0; i < c->layers; i++) {
        const pal_mixer_spec *m = pal_model_memory(c, i);
        if (!c->metaplastic[i]) continue;
        if (!m || !pal_mixer_may_gate(m) || strcmp(m->rule, "palimpsa") != 0)
            return pal_fail(err, PAL_E_ARGUMENT,
                            "configuration: layer %d is metaplastic, which takes a memory of kind palimpsa_d or mamba2 "
                            "with rule palimpsa",
                            i);
        if (m->rank < 1)
            return pal_fail(
                err, PAL_E_ARGUMENT,
                "configuration: layer %d is metaplastic, and the rank of its importance gate is 0, expected "
                "at least 1",
                i);
    }
    return PAL_OK;
}

pal_status pal_model_config_check(const pal_model_config *c, pal_error *err) {
    pal_status st;
    if ((st = check_range("the number of layers", c->layers, 1, PAL_MAX_LAYERS, err))) return st;
    if ((st = check_range("the hidden size", c->hidden, 1, MAX_HIDDEN, err))) return st;
    if ((st = check_range("the vocabulary", c->vocab, 1, MAX_VOCAB, err))) return st;
    if ((st = check_range("the number of embedding rows", c->vocab_rows, c->vocab, MAX_VOCAB, err))) return st;
    if (!(c->norm_eps > 0 && c->norm_eps < 1))
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: norm_eps is %g, expected a small positive number",
                        c->norm_eps);
    if (!(c->rope_theta > 0))
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: rope_theta is %g, expected a positive number",
                        c->rope_theta);
    if (!(c->init_range >= 0) || isinf(c->init_range))
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: initializer_range is %g, expected a number >= 0",
                        c->init_range);
    if (!is_scale(c->embedding_scale) || !is_scale(c->logit_scale))
        return pal_fail(err, PAL_E_ARGUMENT, "configuration: a multiplier is not a finite number below a million");
    if ((st = check_blocks(c, err))) return st;
    if (!c->hybrid && (st = check_layout(c, err))) return st;
    for (int b = 0; b < c->blocks; b++)
        for (int k = 0; k < c->block[b].mixers; k++)
            if ((st = check_foreign(&c->block[b].mixer[k], err)) || (st = check_rule(&c->block[b].mixer[k], err)))
                return st;
    return c->hybrid ? check_metaplastic(c, err) : PAL_OK;
}

const char *pal_config_embedding_name(const pal_model_config *c) {
    if (c->hybrid) return "model.embeddings.weight";
    if (c->mqar) return "backbone.embeddings.word_embeddings.weight";
    if (c->official) return "backbone.embedding.weight";
    return pal_config_mixer_of(c)->kind == PAL_MIXER_M ? "backbone.embeddings.weight" : "model.embeddings.weight";
}

/* MQAR models and Mamba2 share a layout of names. */
static bool has_backbone(const pal_model_config *c) {
    return !c->hybrid && (c->mqar || pal_config_mixer_of(c)->kind == PAL_MIXER_M);
}

const char *pal_config_layers_prefix(const pal_model_config *c) {
    return has_backbone(c) ? "backbone.layers." : "model.layers.";
}

const char *pal_config_mixer_prefix(const pal_model_config *c, const pal_mixer_spec *m) {
    if (c->hybrid) return pal_config_kinds[m->kind].prefix;
    return has_backbone(c) ? "mixer." : "attn.";
}
