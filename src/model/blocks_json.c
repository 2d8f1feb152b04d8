/* SPDX-License-Identifier: MIT */
/* config.json that lists blocks (model_type palimpsa_blocks), both ways. Every key of a block and of a mixer is
 * checked, and unknown ones are refused: a misspelled one would change what is computed. */
#include <math.h>
#include <string.h>

#include "format/json.h"
#include "model/config.h"

typedef struct {
    const char *path;
    char where[64]; /* "blocks[1].mixers[0].", before a key in a sentence */
    pal_error *err;
    pal_status st; /* the first failure; later reads are harmless */
} reader;

static const char *const norm_names[PAL_MIXER_NORMS] = { NULL, "of_gated", "then_gate", "gate_without_norm" };
static const char *const form_names[PAL_MLP_FORMS] = { "none", "swiglu", "relu2" };
static const char *const scale_names[5] = { "z", "x", "B", "C", "dt" };

static void refuse(reader *r, const char *key, const char *expected) {
    if (!r->st) r->st = pal_fail(r->err, PAL_E_FORMAT, "%s: %s%s must be %s", r->path, r->where, key, expected);
}

static const json_t *key_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static void refuse_unknown(reader *r, const json_t *object, const char *const *known) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        int i = 0;
        while (known[i] && strcmp(known[i], key) != 0) i++;
        if (!known[i] && !r->st)
            r->st = pal_fail(r->err, PAL_E_FORMAT, "%s: %s%.60s is not a key that is known here", r->path, r->where,
                             key);
    }
}

static double real(reader *r, const json_t *object, const char *key, double fallback) {
    const json_t *value = key_of(object, key);
    if (!value) return fallback;
    if (!json_is_number(value) || !isfinite(json_number_value(value))) refuse(r, key, "a finite number");
    return json_number_value(value);
}

/* Without a fallback (-1) the key must be there. */
static int whole(reader *r, const json_t *object, const char *key, int least, int fallback) {
    const json_t *value = key_of(object, key);
    if (!value && fallback >= 0) return fallback;
    const json_int_t x = json_integer_value(value);
    if (!json_is_integer(value) || x < least || x > 1 << 30) {
        refuse(r, key, least ? "a whole number from 1 to 2^30" : "a whole number from 0 to 2^30");
        return least;
    }
    return (int)x;
}

static bool boolean(reader *r, const json_t *object, const char *key, bool fallback) {
    const json_t *value = key_of(object, key);
    if (!value) return fallback;
    if (!json_is_boolean(value)) refuse(r, key, "true or false");
    return json_is_true(value);
}

/* The index of a word in a list; names may begin with a NULL. */
static int word(reader *r, const json_t *object, const char *key, const char *const *names, int count, int fallback,
                const char *expected) {
    const json_t *value = key_of(object, key);
    if (!value && fallback >= 0) return fallback;
    for (int i = 0; i < count && json_is_string(value); i++)
        if (names[i] && strcmp(names[i], json_string_value(value)) == 0) return i;
    refuse(r, key, expected);
    return 0;
}

static void read_rule(reader *r, const json_t *object, pal_mixer_spec *m) {
    const json_t *rule = key_of(object, "rule");
    if (!rule) return;
    if (!json_is_string(rule) || strlen(json_string_value(rule)) >= sizeof m->rule)
        refuse(r, "rule", "the name of a memory rule");
    else strcpy(m->rule, json_string_value(rule));
}

static void read_limit(reader *r, const json_t *object, pal_mixer_spec *m) {
    const json_t *limit = key_of(object, "time_step_limit"), *high = json_array_get(limit, 1);
    if (!limit) return;
    if (json_array_size(limit) != 2 || !json_is_number(json_array_get(limit, 0)) ||
        !(json_is_number(high) || json_is_null(high)))
        refuse(r, "time_step_limit", "two numbers, of which the second may be null for no limit");
    m->dt_low = json_number_value(json_array_get(limit, 0));
    if (json_is_number(high)) m->dt_high = json_number_value(high);
}

static void read_multipliers(reader *r, const json_t *object, pal_mixer_spec *m) {
    const json_t *list = key_of(object, "in_multipliers");
    if (!list) return;
    if (!json_is_object(list)) refuse(r, "in_multipliers", "an object with some of z, x, B, C and dt");
    static const char *const known[] = { "z", "x", "B", "C", "dt", NULL };
    const size_t outer = strlen(r->where);
    snprintf(r->where + outer, sizeof r->where - outer, "in_multipliers.");
    refuse_unknown(r, list, known);
    for (int i = 0; i < 5; i++) m->in_scale[i] = real(r, list, scale_names[i], 0);
    r->where[outer] = 0;
}

static void read_mixer(reader *r, const json_t *object, pal_mixer_spec *m) {
    static const char *const known[] = { "kind",
                                         "rule",
                                         "mesa_tolerance",
                                         "heads",
                                         "key_heads",
                                         "state_size",
                                         "head_dim",
                                         "conv",
                                         "rank",
                                         "proj_bias",
                                         "conv_bias",
                                         "tiled",
                                         "norm",
                                         "norm_groups",
                                         "time_step_limit",
                                         "scale",
                                         "rotary",
                                         "qk_norm",
                                         "out_gate",
                                         "in_multipliers",
                                         "out_multiplier",
                                         "softplus_rate",
                                         NULL };
    const char *kinds[PAL_MIXERS];
    if (!json_is_object(object)) {
        refuse(r, "", "an object");
        return;
    }
    for (int i = 0; i < PAL_MIXERS; i++) kinds[i] = pal_config_kinds[i].name;
    refuse_unknown(r, object, known);
    const int kind = word(r, object, "kind", kinds, PAL_MIXERS, -1,
                          "palimpsa_d, mamba2, gated_deltanet, attention or short_convolution");
    *m = pal_mixer_spec_of((pal_mixer)kind);
    read_rule(r, object, m);
    m->mesa_tolerance = real(r, object, "mesa_tolerance", 0);
    m->softplus_rate = boolean(r, object, "softplus_rate", false);
    m->heads = whole(r, object, "heads", 1, 1);
    m->key_heads = whole(r, object, "key_heads", 1, m->heads);
    m->dv = whole(r, object, "head_dim", 1, -1);
    m->dk = whole(r, object, "state_size", 1, m->dv);
    m->conv = whole(r, object, "conv", 0, pal_config_kinds[kind].taps ? 4 : 0);
    m->rank = whole(r, object, "rank", 0, 0);
    m->proj_bias = boolean(r, object, "proj_bias", false);
    m->conv_bias = boolean(r, object, "conv_bias", m->conv_bias);
    m->tiled = boolean(r, object, "tiled", false);
    m->norm = (pal_mixer_norm)word(r, object, "norm", norm_names, PAL_MIXER_NORMS, 0,
                                   "of_gated, then_gate or gate_without_norm");
    m->norm_groups = whole(r, object, "norm_groups", 1, 1);
    read_limit(r, object, m);
    m->scale = real(r, object, "scale", 0);
    m->rotary = whole(r, object, "rotary", 0, pal_config_kinds[kind].attends ? m->dk : 0);
    m->qk_norm = boolean(r, object, "qk_norm", false);
    m->out_gate = boolean(r, object, "out_gate", false);
    read_multipliers(r, object, m);
    m->out_scale = real(r, object, "out_multiplier", 0);
}

static void read_mlp(reader *r, const json_t *object, pal_block_spec *b) {
    static const char *const known[] = { "form", "width", "gate_multiplier", "down_multiplier", NULL };
    if (!object) return;
    if (!json_is_object(object)) refuse(r, "mlp", "an object");
    refuse_unknown(r, object, known);
    b->form = (pal_mlp_form)word(r, object, "form", form_names, PAL_MLP_FORMS, -1, "none, swiglu or relu2");
    if (b->form) b->mlp = whole(r, object, "width", 1, -1);
    b->gate_scale = real(r, object, "gate_multiplier", 0);
    b->down_scale = real(r, object, "down_multiplier", 0);
}

static void read_block(reader *r, const json_t *object, int block, pal_block_spec *b) {
    static const char *const known[] = { "mixers", "mlp", NULL };
    const json_t *mixers = key_of(object, "mixers");
    snprintf(r->where, sizeof r->where, "blocks[%d].", block);
    *b = (pal_block_spec){ .mixers = (int)json_array_size(mixers) };
    if (!json_is_object(object)) refuse(r, "", "an object");
    refuse_unknown(r, object, known);
    if ((mixers && !json_is_array(mixers)) || b->mixers > PAL_BLOCK_MIXERS) {
        refuse(r, "mixers", "a list of at most two mixers");
        b->mixers = 0;
    }
    for (int k = 0; k < b->mixers; k++) {
        snprintf(r->where, sizeof r->where, "blocks[%d].mixers[%d].", block, k);
        read_mixer(r, json_array_get(mixers, (size_t)k), &b->mixer[k]);
    }
    snprintf(r->where, sizeof r->where, "blocks[%d].mlp.", block);
    read_mlp(r, key_of(object, "mlp"), b);
    r->where[0] = 0;
}

static void read_blocks(reader *r, const json_t *root, pal_model_config *c) {
    const json_t *blocks = key_of(root, "blocks"), *layers = key_of(root, "layers");
    const size_t count = json_array_size(blocks);
    if (!json_is_array(blocks) || !count) refuse(r, "blocks", "a list of at least one kind of block");
    if (count > PAL_MAX_BLOCKS && !r->st)
        r->st = pal_fail(r->err, PAL_E_FORMAT, "%s: blocks has %zu kinds, expected at most %d", r->path, count,
                         PAL_MAX_BLOCKS);
    for (size_t b = 0; b < count && b < PAL_MAX_BLOCKS; b++)
        read_block(r, json_array_get(blocks, b), (int)b, &c->block[b]);
    c->blocks = (int)count;
    if (!json_is_array(layers) || !json_array_size(layers) || json_array_size(layers) > PAL_MAX_LAYERS)
        refuse(r, "layers", "a list with the number of each layer's block, of 1 to 1024 layers");
    if (r->st) return;
    c->layers = (int)json_array_size(layers);
    for (int i = 0; i < c->layers; i++) {
        const json_t *entry = json_array_get(layers, (size_t)i);
        const json_int_t block = json_integer_value(entry);
        if (!json_is_integer(entry) || block < 0 || block >= c->blocks) {
            r->st = pal_fail(r->err, PAL_E_FORMAT, "%s: layers[%d] must be the number of a block, 0 to %d", r->path, i,
                             c->blocks - 1);
            return;
        }
        c->layer_block[i] = (unsigned char)block;
    }
}

static void read_metaplastic(reader *r, const json_t *root, pal_model_config *c) {
    const json_t *list = key_of(root, "metaplastic_layers");
    c->listed = true;
    c->metaplasticity = true;
    if (list && !json_is_array(list)) refuse(r, "metaplastic_layers", "a list of layer numbers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const json_int_t layer = json_integer_value(entry);
        const bool exists = json_is_integer(entry) && layer >= 0 && layer < c->layers;
        const pal_mixer_spec *m = exists ? pal_model_memory(c, (int)layer) : NULL;
        if (!m || !pal_mixer_may_gate(m)) {
            refuse(r, "metaplastic_layers", "a list of layers that have a memory of kind palimpsa_d or mamba2");
            return;
        }
        c->metaplastic[layer] = true;
    }
}

pal_status pal_config_read_blocks(pal_model_config *c, const json_t *root, const char *path, pal_error *err) {
    reader r = { .path = path, .err = err };
    const json_t *forgetting = key_of(root, "forgetting");
    pal_config_defaults(c, PAL_MIXER_M);
    c->hybrid = true;
    c->hidden = whole(&r, root, "hidden_size", 1, -1);
    c->vocab = c->vocab_rows = whole(&r, root, "vocab_size", 1, -1);
    c->vocab = whole(&r, root, "unpadded_vocab_size", 1, c->vocab);
    if (c->vocab > c->vocab_rows) refuse(&r, "unpadded_vocab_size", "at most vocab_size");
    c->norm_eps = real(&r, root, "norm_eps", 1e-5);
    c->rope_theta = real(&r, root, "rope_theta", 10000);
    c->tied = boolean(&r, root, "tie_word_embeddings", true);
    c->mqar = boolean(&r, root, "mqar", false);
    c->embedding_scale = real(&r, root, "embedding_multiplier", 0);
    c->logit_scale = real(&r, root, "logits_multiplier", 0);
    c->init_range = real(&r, root, "initializer_range", 0.02);
    c->rescale_residual = boolean(&r, root, "rescale_prenorm_residual", false);
    c->finetuning = boolean(&r, root, "finetuning", false);
    if (forgetting &&
        (!json_is_string(forgetting) || !pal_forgetting_named(&c->forgetting, json_string_value(forgetting))))
        refuse(&r, "forgetting", "small, normal or very_small");
    read_blocks(&r, root, c);
    if (!r.st) read_metaplastic(&r, root, c);
    if (r.st) return r.st;
    pal_error why;
    if (pal_model_config_check(c, &why)) return pal_fail(err, PAL_E_FORMAT, "%s: %s", path, why.text);
    return PAL_OK;
}

/* A key that says what is usual is left out, and taken out of what an older file said. */
static void put_unless(json_t *to, const char *key, bool usual, json_t *value) {
    if (!usual) {
        pal_json_set(to, key, value);
        return;
    }
    json_object_del(to, key);
    json_decref(value);
}

static void put_real(json_t *to, const char *key, double x) { put_unless(to, key, x == 0, json_real(x)); }

static void put_true(json_t *to, const char *key, bool x) { put_unless(to, key, !x, json_true()); }

static json_t *mixer_json(const pal_mixer_spec *m) {
    const pal_config_kind *kind = &pal_config_kinds[m->kind];
    json_t *to = json_pack("{s:s, s:i, s:i, s:i, s:i}", "kind", kind->name, "heads", m->heads, "key_heads",
                           m->key_heads, "state_size", m->dk, "head_dim", m->dv);
    if (kind->taps) pal_json_set(to, "conv", json_integer(m->conv));
    if (!kind->rule && strcmp(m->rule, "palimpsa") != 0) pal_json_set(to, "rule", json_string(m->rule));
    put_real(to, "mesa_tolerance", m->mesa_tolerance);
    if (strcmp(m->rule, "mamba3") == 0) pal_json_set(to, "softplus_rate", json_boolean(m->softplus_rate));
    if (m->rank) pal_json_set(to, "rank", json_integer(m->rank));
    if (m->kind == PAL_MIXER_M) {
        pal_json_set(to, "conv_bias", json_boolean(m->conv_bias));
        pal_json_set(to, "norm_groups", json_integer(m->norm_groups));
        put_true(to, "proj_bias", m->proj_bias);
    }
    if (m->norm) pal_json_set(to, "norm", json_string(norm_names[m->norm]));
    if (m->dt_low > 0 || isfinite(m->dt_high))
        pal_json_set(to, "time_step_limit",
                     json_pack("[f,o]", m->dt_low, isfinite(m->dt_high) ? json_real(m->dt_high) : json_null()));
    put_true(to, "tiled", m->tiled);
    put_real(to, "scale", m->scale);
    if (kind->attends) pal_json_set(to, "rotary", json_integer(m->rotary));
    put_true(to, "qk_norm", m->qk_norm);
    put_true(to, "out_gate", m->out_gate);
    json_t *factors = json_object();
    for (int i = 0; i < 5; i++) put_real(factors, scale_names[i], m->in_scale[i]);
    if (json_object_size(factors)) pal_json_set(to, "in_multipliers", factors);
    else json_decref(factors);
    put_real(to, "out_multiplier", m->out_scale);
    return to;
}

static json_t *block_json(const pal_block_spec *b) {
    json_t *to = json_object(), *mixers = json_array();
    for (int k = 0; k < b->mixers; k++) pal_json_append(mixers, mixer_json(&b->mixer[k]));
    pal_json_set(to, "mixers", mixers);
    if (!b->form) return to;
    json_t *mlp = json_pack("{s:s, s:i}", "form", form_names[b->form], "width", b->mlp);
    put_real(mlp, "gate_multiplier", b->gate_scale);
    put_real(mlp, "down_multiplier", b->down_scale);
    pal_json_set(to, "mlp", mlp);
    return to;
}

void pal_config_write_blocks(json_t *to, const pal_model_config *c) {
    json_t *blocks = json_array(), *layers = json_array(), *metaplastic = json_array();
    for (int b = 0; b < c->blocks; b++) pal_json_append(blocks, block_json(&c->block[b]));
    for (int i = 0; i < c->layers; i++) {
        pal_json_append(layers, json_integer(c->layer_block[i]));
        if (c->metaplastic[i]) pal_json_append(metaplastic, json_integer(i));
    }
    pal_json_set(to, "model_type", json_string("palimpsa_blocks"));
    pal_json_set(to, "hidden_size", json_integer(c->hidden));
    pal_json_set(to, "num_hidden_layers", json_integer(c->layers));
    pal_json_set(to, "vocab_size", json_integer(c->vocab_rows));
    put_unless(to, "unpadded_vocab_size", c->vocab == c->vocab_rows, json_integer(c->vocab));
    pal_json_set(to, "norm_eps", json_real(c->norm_eps));
    pal_json_set(to, "rope_theta", json_real(c->rope_theta));
    pal_json_set(to, "tie_word_embeddings", json_boolean(c->tied));
    pal_json_set(to, "initializer_range", json_real(c->init_range));
    put_true(to, "mqar", c->mqar);
    put_real(to, "embedding_multiplier", c->embedding_scale);
    put_real(to, "logits_multiplier", c->logit_scale);
    put_true(to, "rescale_prenorm_residual", c->rescale_residual);
    put_true(to, "finetuning", c->finetuning);
    put_unless(to, "forgetting", c->forgetting == PAL_FORGET_SMALL, json_string(pal_forgetting_name(c->forgetting)));
    pal_json_set(to, "blocks", blocks);
    pal_json_set(to, "layers", layers);
    pal_json_set(to, "metaplastic_layers", metaplastic);
}
