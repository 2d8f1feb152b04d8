/* SPDX-License-Identifier: MIT */
#include "model/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

/* Extents that shapes are written in. */
typedef enum {
    NONE,
    ONE,
    HIDDEN,
    VOCAB,
    HEADS,
    QUERIES,
    KEYS,
    VALUES,
    VALUES_KV,
    KEY,
    VALUE,
    RANK,
    TAPS,
    MLP,
    IN_ALL,
    CONV_ALL
} extent;

enum {
    ADJACENT = 1,
    NO_DECAY = 2,
    FROZEN = 4,
    MATRIX = 8,
    GATE = 16 /* of importance */,
    BIAS_PROJ = 32,
    BIAS_CONV = 64
};

/* What makes a memory rule read a tensor: any of these inputs (PAL_INPUT_*); 0: every rule does. The gate bs scales
 * values and importance gates, or is beta itself. */
enum { FORGETS = PAL_INPUT_DT | PAL_INPUT_G, GATED = FORGETS | PAL_INPUT_BETA | PAL_INPUT_B, IMPORTANCE = PAL_INPUT_B };

typedef struct {
    const char *name;
    pal_weight_id id;
    extent shape[3];
    pal_init init;
    unsigned flags;
    unsigned inputs;
    const char *group;
} weight_row;

static const weight_row mixer_d[] = {
    { "q_proj.weight", PAL_W_Q, { KEYS, HIDDEN }, PAL_INIT_NORMAL, MATRIX, 0, "mixer" },
    { "k_proj.weight", PAL_W_K, { KEYS, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, 0, "mixer" },
    { "v_proj.weight", PAL_W_V, { VALUES, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, 0, "mixer" },
    { "g_proj.weight", PAL_W_GATE, { VALUES, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, 0, "mixer" },
    { "dt_proj.weight", PAL_W_DT, { HEADS, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, FORGETS, "mixer" },
    { "bs_proj.weight", PAL_W_BS, { HEADS, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, GATED, "mixer" },
    { "b_rank_proj.weight",
      PAL_W_B_RANK,
      { RANK, HIDDEN },
      PAL_INIT_NORMAL,
      MATRIX | ADJACENT | GATE,
      IMPORTANCE,
      "importance" },
    { "b_proj.weight", PAL_W_B, { VALUES, RANK }, PAL_INIT_B_PROJ, MATRIX | GATE, IMPORTANCE, "importance" },
    { "o_proj.weight", PAL_W_OUT, { HIDDEN, VALUES }, PAL_INIT_NORMAL, MATRIX, 0, "mixer" },
    { "q_conv1d.weight", PAL_W_CONV, { KEYS, ONE, TAPS }, PAL_INIT_NORMAL, 0, 0, "mixer" },
    { "k_conv1d.weight", PAL_W_CONV_K, { KEYS, ONE, TAPS }, PAL_INIT_NORMAL, ADJACENT, 0, "mixer" },
    { "v_conv1d.weight", PAL_W_CONV_V, { VALUES, ONE, TAPS }, PAL_INIT_NORMAL, ADJACENT, 0, "mixer" },
    { "A_log", PAL_W_A_LOG, { HEADS }, PAL_INIT_A_LOG, NO_DECAY, FORGETS, "mixer" },
    { "dt_bias", PAL_W_DT_BIAS, { HEADS }, PAL_INIT_DT_BIAS, NO_DECAY, FORGETS, "mixer" },
    { "D", PAL_W_D, { HEADS }, PAL_INIT_ONE, NO_DECAY, 0, "mixer" },
    { "b_scale", PAL_W_B_SCALE, { HEADS }, PAL_INIT_B_SCALE, NO_DECAY | GATE, IMPORTANCE, "importance" },
    { "Ip_log", PAL_W_IP_LOG, { HEADS }, PAL_INIT_ZERO, NO_DECAY | FROZEN | GATE, PAL_INPUT_IP, "importance" },
    { "lam_raw", PAL_W_LAM, { HEADS, KEY }, PAL_INIT_LAM, NO_DECAY, PAL_INPUT_LAM, "mixer" },
    { "o_norm.weight", PAL_W_MIXER_NORM, { VALUE }, PAL_INIT_ONE, 0, 0, "norm" },
    { 0 },
};

static const weight_row mixer_gdn[] = {
    { "q_proj.weight", PAL_W_Q, { KEYS, HIDDEN }, PAL_INIT_NORMAL, MATRIX, 0, "mixer" },
    { "k_proj.weight", PAL_W_K, { KEYS, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, 0, "mixer" },
    { "v_proj.weight", PAL_W_V, { VALUES, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, 0, "mixer" },
    { "g_proj.weight", PAL_W_GATE, { VALUES, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, 0, "mixer" },
    { "a_proj.weight", PAL_W_DT, { HEADS, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, 0, "mixer" },
    { "b_proj.weight", PAL_W_BS, { HEADS, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, 0, "mixer" },
    { "o_proj.weight", PAL_W_OUT, { HIDDEN, VALUES }, PAL_INIT_NORMAL, MATRIX, 0, "mixer" },
    { "q_conv1d.weight", PAL_W_CONV, { KEYS, ONE, TAPS }, PAL_INIT_NORMAL, 0, 0, "mixer" },
    { "k_conv1d.weight", PAL_W_CONV_K, { KEYS, ONE, TAPS }, PAL_INIT_NORMAL, ADJACENT, 0, "mixer" },
    { "v_conv1d.weight", PAL_W_CONV_V, { VALUES, ONE, TAPS }, PAL_INIT_NORMAL, ADJACENT, 0, "mixer" },
    { "A_log", PAL_W_A_LOG, { HEADS }, PAL_INIT_A_LOG, NO_DECAY, 0, "mixer" },
    { "dt_bias", PAL_W_DT_BIAS, { HEADS }, PAL_INIT_DT_BIAS, NO_DECAY, 0, "mixer" },
    { "o_norm.weight", PAL_W_MIXER_NORM, { VALUE }, PAL_INIT_ONE, 0, 0, "norm" },
    { 0 },
};

static const weight_row mixer_m[] = {
    { "in_proj.weight", PAL_W_IN, { IN_ALL, HIDDEN }, PAL_INIT_IN, MATRIX, 0, "mixer" },
    { "b_rank_proj.weight",
      PAL_W_B_RANK,
      { RANK, HIDDEN },
      PAL_INIT_NORMAL,
      MATRIX | ADJACENT | GATE,
      IMPORTANCE,
      "importance" },
    { "in_proj.bias", PAL_W_IN_BIAS, { IN_ALL }, PAL_INIT_ZERO, BIAS_PROJ, 0, "mixer" },
    { "b_proj.weight", PAL_W_B, { VALUES, RANK }, PAL_INIT_B_PROJ, MATRIX | GATE, IMPORTANCE, "importance" },
    { "conv1d.weight", PAL_W_CONV, { CONV_ALL, ONE, TAPS }, PAL_INIT_CONV, 0, 0, "mixer" },
    { "conv1d.bias", PAL_W_CONV_BIAS, { CONV_ALL }, PAL_INIT_CONV, BIAS_CONV, 0, "mixer" },
    { "A_log", PAL_W_A_LOG, { HEADS }, PAL_INIT_A_LOG, NO_DECAY, 0, "mixer" },
    { "dt_bias", PAL_W_DT_BIAS, { HEADS }, PAL_INIT_DT_BIAS, NO_DECAY, 0, "mixer" },
    { "D", PAL_W_D, { HEADS }, PAL_INIT_ONE, NO_DECAY, 0, "mixer" },
    { "b_scale", PAL_W_B_SCALE, { HEADS }, PAL_INIT_B_SCALE, NO_DECAY | GATE, IMPORTANCE, "importance" },
    { "Ip_log", PAL_W_IP_LOG, { HEADS }, PAL_INIT_ZERO, NO_DECAY | FROZEN | GATE, PAL_INPUT_IP, "importance" },
    { "norm.weight", PAL_W_MIXER_NORM, { VALUES }, PAL_INIT_ONE, 0, 0, "norm" },
    { "out_proj.weight", PAL_W_OUT, { HIDDEN, VALUES }, PAL_INIT_OUT, MATRIX, 0, "mixer" },
    { "out_proj.bias", PAL_W_OUT_BIAS, { HIDDEN }, PAL_INIT_ZERO, BIAS_PROJ, 0, "mixer" },
    { 0 },
};

static const weight_row mixer_attention[] = {
    { "q_proj.weight", PAL_W_Q, { QUERIES, HIDDEN }, PAL_INIT_NORMAL, MATRIX, 0, "mixer" },
    { "k_proj.weight", PAL_W_K, { KEYS, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, 0, "mixer" },
    { "v_proj.weight", PAL_W_V, { VALUES_KV, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, 0, "mixer" },
    { "o_proj.weight", PAL_W_OUT, { HIDDEN, QUERIES }, PAL_INIT_NORMAL, MATRIX, 0, "mixer" },
    { 0 },
};

static const weight_row *const mixers[PAL_MIXERS] = { mixer_d, mixer_m, mixer_gdn, mixer_attention };

static const weight_row mlp[] = {
    { "mlp_norm.weight", PAL_W_MLP_NORM, { HIDDEN }, PAL_INIT_ONE, 0, 0, "norm" },
    { "mlp.gate_proj.weight", PAL_W_MLP_GATE, { MLP, HIDDEN }, PAL_INIT_NORMAL, MATRIX, 0, "mlp" },
    { "mlp.up_proj.weight", PAL_W_MLP_UP, { MLP, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, 0, "mlp" },
    { "mlp.down_proj.weight", PAL_W_MLP_DOWN, { HIDDEN, MLP }, PAL_INIT_NORMAL, MATRIX, 0, "mlp" },
    { 0 },
};

static int64_t extent_of(const pal_model_config *c, extent e) {
    const int64_t keys = (int64_t)c->key_heads * c->dk, values = (int64_t)c->heads * c->dv;
    switch (e) {
    case NONE:
    case ONE: return 1;
    case HIDDEN: return c->hidden;
    case VOCAB: return c->vocab_rows;
    case HEADS: return c->heads;
    case QUERIES: return (int64_t)c->heads * c->dk;
    case KEYS: return keys;
    case VALUES: return values;
    case VALUES_KV: return (int64_t)c->key_heads * c->dv;
    case KEY: return c->dk;
    case VALUE: return c->dv;
    case RANK: return c->rank;
    case TAPS: return c->conv;
    case MLP: return c->mlp;
    case IN_ALL: return 2 * values + 2 * keys + c->heads;
    case CONV_ALL: return values + 2 * keys;
    }
    return 1;
}

typedef struct {
    pal_weight_table *table; /* entries NULL while counting */
    size_t names;            /* bytes so far */
} builder;

/* Floats are placed on cache lines of their own, except after a tensor that the same product reads. */
static void add(builder *b, const pal_model_config *c, const weight_row *row, int layer, bool unused,
                const char *format, const char *prefix, const char *part) {
    pal_weight_table *t = b->table;
    pal_weight w = { .layer = layer,
                     .group = row->group,
                     .decay = !(row->flags & NO_DECAY),
                     .frozen = row->flags & FROZEN,
                     .quantisable = row->flags & MATRIX,
                     .unused = unused,
                     .count = 1 };
    for (; w.rank < 3 && row->shape[w.rank] != NONE; w.rank++) {
        w.shape[w.rank] = extent_of(c, row->shape[w.rank]);
        w.count *= (size_t)w.shape[w.rank];
    }
    char name[160];
    const int length = layer < 0 ? snprintf(name, sizeof name, "%s", row->name)
                                 : snprintf(name, sizeof name, format, prefix, layer, part, row->name);
    const bool adjacent = row->flags & ADJACENT;
    if (!adjacent) t->flat = (t->flat + 15) & ~(size_t)15;
    w.offset = t->flat;
    t->flat += w.count;
    t->parameters += w.count;
    if (t->entries) {
        char *stored = t->names + b->names;
        memcpy(stored, name, (size_t)length + 1);
        w.name = stored;
        t->entries[t->count] =
            (pal_weight_entry){ .view = w, .id = row->id, .init = row->init, .adjacent = adjacent, .optional = unused };
    }
    b->names += (size_t)length + 1;
    t->count++;
}

static void add_layer(builder *b, const pal_model_config *c, int layer, bool keep_gate) {
    const char *prefix = pal_config_layers_prefix(c);
    const unsigned inputs = pal_memory_inputs_of(pal_memory_find(pal_model_layer_rule(c, layer)));
    const bool blocks_d = !c->mqar && c->mixer != PAL_MIXER_M;
    const weight_row norm = {
        blocks_d ? "attn_norm.weight" : "norm.weight", PAL_W_NORM, { HIDDEN }, PAL_INIT_ONE, 0, 0, "norm"
    };
    add(b, c, &norm, layer, false, "%s%d.%s%s", prefix, "");
    for (const weight_row *row = mixers[c->mixer]; row->name; row++) {
        const bool read = !row->inputs || (row->inputs & inputs);
        if (!read && !((row->flags & GATE) && keep_gate)) continue;
        if ((row->flags & BIAS_PROJ && !c->proj_bias) || (row->flags & BIAS_CONV && !c->conv_bias)) continue;
        add(b, c, row, layer, !read, "%s%d.%s%s", prefix, pal_config_mixer_prefix(c));
    }
    for (const weight_row *row = mlp; c->mlp && row->name; row++) add(b, c, row, layer, false, "%s%d.%s%s", prefix, "");
}

static void add_all(builder *b, const pal_model_config *c, pal_keep_gate_fn *keep_gate, const void *source) {
    const weight_row embedding = {
        pal_config_embedding_name(c), PAL_W_EMBEDDING, { VOCAB, HIDDEN }, PAL_INIT_NORMAL, MATRIX, 0, "embedding"
    };
    add(b, c, &embedding, -1, false, NULL, NULL, NULL);
    for (int layer = 0; layer < c->layers; layer++) {
        const bool gla = strcmp(pal_model_layer_rule(c, layer), "gla") == 0;
        const bool could = gla && !c->official && c->rank > 0 && strcmp(c->rule, "palimpsa") == 0;
        add_layer(b, c, layer, could && (keep_gate ? keep_gate(source, layer) : !c->listed));
    }
    const weight_row norm = { c->mqar                   ? "backbone.ln_f.weight"
                              : c->mixer == PAL_MIXER_M ? "backbone.norm_f.weight"
                                                        : "model.norm.weight",
                              PAL_W_FINAL_NORM,
                              { HIDDEN },
                              PAL_INIT_ONE,
                              0,
                              0,
                              "norm" };
    add(b, c, &norm, -1, false, NULL, NULL, NULL);
    const weight_row bias = { "backbone.ln_f.bias", PAL_W_FINAL_NORM_BIAS, { HIDDEN }, PAL_INIT_ZERO, 0, 0, "norm" };
    if (c->mqar) add(b, c, &bias, -1, false, NULL, NULL, NULL);
    const weight_row head = { "lm_head.weight", PAL_W_HEAD, { VOCAB, HIDDEN }, PAL_INIT_NORMAL, MATRIX, 0, "head" };
    if (!c->tied) add(b, c, &head, -1, false, NULL, NULL, NULL);
    b->table->flat = (b->table->flat + 15) & ~(size_t)15;
}

pal_status pal_weights_list(pal_weight_table *out, const pal_model_config *c, pal_keep_gate_fn *keep_gate,
                            const void *source, pal_error *err) {
    pal_status st;
    *out = (pal_weight_table){ 0 };
    builder b = { .table = out };
    add_all(&b, c, keep_gate, source);
    const size_t count = out->count, bytes = b.names;
    *out = (pal_weight_table){ 0 };
    void *block;
    if ((st = pal_alloc_named(&block, count, sizeof *out->entries, "the table of weights", err))) return st;
    out->entries = block;
    if ((st = pal_alloc_named(&block, bytes, 1, "the table of weights", err))) {
        pal_weights_release(out);
        return st;
    }
    out->names = block;
    b = (builder){ .table = out };
    add_all(&b, c, keep_gate, source);
    return PAL_OK;
}

void pal_weights_release(pal_weight_table *table) {
    pal_free(table->entries);
    pal_free(table->names);
    *table = (pal_weight_table){ 0 };
}
