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
    OWN_KEYS,
    PAIRS,
    VALUES,
    VALUES_KV,
    KEY,
    VALUE,
    RANK,
    TAPS,
    MLP,
    IN_ALL,
    IN_CONV,
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
enum {
    BY_HEAD = PAL_INPUT_DT | PAL_INPUT_G,
    FORGETS = BY_HEAD | PAL_INPUT_GK,
    GATED = BY_HEAD | PAL_INPUT_BETA | PAL_INPUT_B,
    IMPORTANCE = PAL_INPUT_B
};

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
    { "dt_proj.weight", PAL_W_DT, { HEADS, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, BY_HEAD, "mixer" },
    { "dt_proj.weight", PAL_W_DT, { OWN_KEYS, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, PAL_INPUT_GK, "mixer" },
    { "rate_proj.weight", PAL_W_RATE, { HEADS, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, PAL_INPUT_LAG, "mixer" },
    { "bs_proj.weight", PAL_W_BS, { HEADS, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, GATED, "mixer" },
    { "b_rank_proj.weight",
      PAL_W_B_RANK,
      { RANK, HIDDEN },
      PAL_INIT_NORMAL,
      MATRIX | ADJACENT | GATE,
      IMPORTANCE,
      "importance" },
    { "erase_proj.weight",
      PAL_W_ERASE,
      { OWN_KEYS, HIDDEN },
      PAL_INIT_NORMAL,
      MATRIX | ADJACENT,
      PAL_INPUT_ERASE,
      "mixer" },
    { "write_proj.weight",
      PAL_W_WRITE,
      { VALUES, HIDDEN },
      PAL_INIT_NORMAL,
      MATRIX | ADJACENT,
      PAL_INPUT_WRITE,
      "mixer" },
    { "gp_proj.weight", PAL_W_GP, { HEADS, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, PAL_INPUT_GP, "mixer" },
    { "betap_proj.weight",
      PAL_W_BETAP,
      { HEADS, HIDDEN },
      PAL_INIT_NORMAL,
      MATRIX | ADJACENT,
      PAL_INPUT_BETAP,
      "mixer" },
    { "noise_proj.weight",
      PAL_W_NOISE,
      { HEADS, HIDDEN },
      PAL_INIT_NORMAL,
      MATRIX | ADJACENT,
      PAL_INPUT_NOISE,
      "mixer" },
    { "noise_proj.weight",
      PAL_W_NOISE,
      { OWN_KEYS, HIDDEN },
      PAL_INIT_NORMAL,
      MATRIX | ADJACENT,
      PAL_INPUT_NOISEK,
      "mixer" },
    { "r_proj.weight", PAL_W_R, { HEADS, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, PAL_INPUT_R, "mixer" },
    { "turn_proj.weight", PAL_W_TURN, { PAIRS, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, PAL_INPUT_TURN, "mixer" },
    { "b_proj.weight", PAL_W_B, { VALUES, RANK }, PAL_INIT_B_PROJ, MATRIX | GATE, IMPORTANCE, "importance" },
    { "o_proj.weight", PAL_W_OUT, { HIDDEN, VALUES }, PAL_INIT_NORMAL, MATRIX, 0, "mixer" },
    { "q_conv1d.weight", PAL_W_CONV, { KEYS, ONE, TAPS }, PAL_INIT_NORMAL, 0, 0, "mixer" },
    { "k_conv1d.weight", PAL_W_CONV_K, { KEYS, ONE, TAPS }, PAL_INIT_NORMAL, ADJACENT, 0, "mixer" },
    { "v_conv1d.weight", PAL_W_CONV_V, { VALUES, ONE, TAPS }, PAL_INIT_NORMAL, ADJACENT, 0, "mixer" },
    { "A_log", PAL_W_A_LOG, { HEADS }, PAL_INIT_A_LOG, NO_DECAY, FORGETS, "mixer" },
    { "dt_bias", PAL_W_DT_BIAS, { HEADS }, PAL_INIT_DT_BIAS, NO_DECAY, BY_HEAD, "mixer" },
    { "dt_bias", PAL_W_DT_BIAS, { OWN_KEYS }, PAL_INIT_DT_BIAS, NO_DECAY, PAL_INPUT_GK, "mixer" },
    { "D", PAL_W_D, { HEADS }, PAL_INIT_ONE, NO_DECAY, 0, "mixer" },
    { "b_scale", PAL_W_B_SCALE, { HEADS }, PAL_INIT_B_SCALE, NO_DECAY | GATE, IMPORTANCE, "importance" },
    { "Ip_log", PAL_W_IP_LOG, { HEADS }, PAL_INIT_ZERO, NO_DECAY | FROZEN | GATE, PAL_INPUT_IP, "importance" },
    { "lam_raw", PAL_W_LAM, { HEADS, KEY }, PAL_INIT_LAM, NO_DECAY, PAL_INPUT_LAM, "mixer" },
    { "p_scale", PAL_W_P_SCALE, { HEADS }, PAL_INIT_ONE, NO_DECAY, PAL_INPUT_P, "mixer" },
    { "gp_bias", PAL_W_GP_BIAS, { HEADS }, PAL_INIT_DT_BIAS, NO_DECAY, PAL_INPUT_GP, "mixer" },
    { "noise_bias", PAL_W_NOISE_BIAS, { HEADS }, PAL_INIT_NOISE, NO_DECAY, PAL_INPUT_NOISE, "mixer" },
    { "noise_bias", PAL_W_NOISE_BIAS, { OWN_KEYS }, PAL_INIT_NOISE, NO_DECAY, PAL_INPUT_NOISEK, "mixer" },
    { "r_bias", PAL_W_R_BIAS, { HEADS }, PAL_INIT_LAM, NO_DECAY, PAL_INPUT_R, "mixer" },
    { "keep_raw", PAL_W_KEEP, { HEADS, KEY, VALUE }, PAL_INIT_DT_BIAS, NO_DECAY, PAL_INPUT_KEEP, "mixer" },
    { "drift_raw", PAL_W_DRIFT, { HEADS, KEY, VALUE }, PAL_INIT_NOISE, NO_DECAY, PAL_INPUT_DRIFT, "mixer" },
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
    { "o_proj.weight", PAL_W_OUT, { HIDDEN, VALUES }, PAL_INIT_NORMAL, MATRIX, 0, "mixer" },
    { 0 },
};

/* In lists of blocks; a query projection with a gate has twice the rows. */
static const weight_row mixer_attention_norms[] = {
    { "q_norm.weight", PAL_W_Q_NORM, { KEY }, PAL_INIT_ONE, 0, 0, "norm" },
    { "k_norm.weight", PAL_W_K_NORM, { KEY }, PAL_INIT_ONE, 0, 0, "norm" },
    { 0 },
};

/* b, c, x in one; no bias. */
static const weight_row mixer_conv[] = {
    { "in_proj.weight", PAL_W_IN, { IN_CONV, HIDDEN }, PAL_INIT_NORMAL, MATRIX, 0, "mixer" },
    { "conv.weight", PAL_W_CONV, { VALUES, ONE, TAPS }, PAL_INIT_NORMAL, 0, 0, "mixer" },
    { "out_proj.weight", PAL_W_OUT, { HIDDEN, VALUES }, PAL_INIT_NORMAL, MATRIX, 0, "mixer" },
    { 0 },
};

static const weight_row *const mixers[PAL_MIXERS] = { mixer_d, mixer_m, mixer_gdn, mixer_attention, mixer_conv };

static const weight_row mlp[] = {
    { "mlp.gate_proj.weight", PAL_W_MLP_GATE, { MLP, HIDDEN }, PAL_INIT_NORMAL, MATRIX, 0, "mlp" },
    { "mlp.up_proj.weight", PAL_W_MLP_UP, { MLP, HIDDEN }, PAL_INIT_NORMAL, MATRIX | ADJACENT, 0, "mlp" },
    { "mlp.down_proj.weight", PAL_W_MLP_DOWN, { HIDDEN, MLP }, PAL_INIT_NORMAL, MATRIX, 0, "mlp" },
    { 0 },
};

/* Whose sizes a row is written in; block and mixer are NULL where there is none. */
typedef struct {
    const pal_model_config *c;
    const pal_block_spec *block;
    const pal_mixer_spec *mixer;
} owner;

static int64_t extent_of(const owner *o, extent e) {
    static const pal_mixer_spec no_mixer = { 0 };
    const pal_mixer_spec *m = o->mixer ? o->mixer : &no_mixer;
    const int64_t keys = (int64_t)m->key_heads * m->dk, values = (int64_t)m->heads * m->dv;
    switch (e) {
    case NONE:
    case ONE: return 1;
    case HIDDEN: return o->c->hidden;
    case VOCAB: return o->c->vocab_rows;
    case HEADS: return m->heads;
    case QUERIES: return (int64_t)m->heads * m->dk * (m->out_gate ? 2 : 1);
    case KEYS: return keys;
    case OWN_KEYS: return (int64_t)m->heads * m->dk;
    case PAIRS: return (int64_t)m->heads * ((m->dk + 1) / 2);
    case VALUES: return values;
    case VALUES_KV: return (int64_t)m->key_heads * m->dv;
    case KEY: return m->dk;
    case VALUE: return m->dv;
    case RANK: return m->rank;
    case TAPS: return m->conv;
    case MLP: return o->block->mlp;
    case IN_ALL: return 2 * values + 2 * keys + m->heads;
    case IN_CONV: return 3 * values;
    case CONV_ALL: return values + 2 * keys;
    }
    return 1;
}

typedef struct {
    pal_weight_table *table; /* entries NULL while counting */
    size_t names;            /* bytes so far */
} builder;

/* Where a tensor belongs: a layer and what stands before its name there; -1: outside the blocks. */
typedef struct {
    int layer;
    const char *prefix, *part;
    bool beside; /* of the block's second mixer */
} place;

static const place outside = { .layer = -1 };

/* Floats are placed on cache lines of their own, except after a tensor that the same product reads. */
static void add(builder *b, const owner *o, const weight_row *row, const place *at, bool unused) {
    pal_weight_table *t = b->table;
    pal_weight w = { .layer = at->layer,
                     .group = row->group,
                     .decay = !(row->flags & NO_DECAY),
                     .frozen = row->flags & FROZEN,
                     .quantisable = row->flags & MATRIX,
                     .unused = unused,
                     .count = 1 };
    for (; w.rank < 3 && row->shape[w.rank] != NONE; w.rank++) {
        w.shape[w.rank] = extent_of(o, row->shape[w.rank]);
        w.count *= (size_t)w.shape[w.rank];
    }
    char name[160];
    const int length = at->layer < 0
                           ? snprintf(name, sizeof name, "%s", row->name)
                           : snprintf(name, sizeof name, "%s%d.%s%s", at->prefix, at->layer, at->part, row->name);
    const bool adjacent = row->flags & ADJACENT;
    if (!adjacent) t->flat = (t->flat + 15) & ~(size_t)15;
    w.offset = t->flat;
    t->flat += w.count;
    t->parameters += w.count;
    if (t->entries) {
        char *stored = t->names + b->names;
        memcpy(stored, name, (size_t)length + 1);
        w.name = stored;
        t->entries[t->count] = (pal_weight_entry){
            .view = w, .id = row->id, .init = row->init, .beside = at->beside, .adjacent = adjacent, .optional = unused
        };
    }
    b->names += (size_t)length + 1;
    t->count++;
}

/* Whether a plain layer stores the importance gate that it does not read. */
static bool keeps_gate(const pal_model_config *c, const pal_mixer_spec *m, int layer, pal_keep_gate_fn *keep_gate,
                       const void *source) {
    const bool could = strcmp(pal_mixer_rule(c, m, layer), "gla") == 0 && !c->official && m->rank > 0 &&
                       strcmp(m->rule, "palimpsa") == 0;
    return could && (keep_gate ? keep_gate(source, layer) : !c->listed);
}

static void add_mixer(builder *b, const owner *o, place at, bool keep_gate) {
    const pal_mixer_spec *m = o->mixer;
    const pal_memory_rule *rule = pal_memory_find(pal_mixer_rule(o->c, m, at.layer));
    const unsigned inputs = rule ? pal_memory_inputs_of(rule) : 0;
    at.part = pal_config_mixer_prefix(o->c, m);
    for (const weight_row *row = mixers[m->kind]; row->name; row++) {
        /* a rule that erases under a second key compares the first one as it is; a trapezoid's rate is a gate */
        const bool whole = (row->id == PAL_W_P_SCALE && inputs & PAL_INPUT_ERASE) ||
                           (row->id == PAL_W_A_LOG && inputs & PAL_INPUT_LAG);
        const bool read = !row->inputs || (row->inputs & inputs && !whole);
        if (!read && !((row->flags & GATE) && keep_gate)) continue;
        if ((row->flags & BIAS_PROJ && !m->proj_bias) || (row->flags & BIAS_CONV && !m->conv_bias)) continue;
        if (row->id == PAL_W_MIXER_NORM && m->norm == PAL_GATE_WITHOUT_NORM) continue;
        add(b, o, row, &at, !read);
    }
    for (const weight_row *row = mixer_attention_norms; m->qk_norm && row->name; row++) add(b, o, row, &at, false);
}

static void add_layer(builder *b, const pal_model_config *c, int layer, pal_keep_gate_fn *keep_gate,
                      const void *source) {
    const pal_block_spec *block = pal_model_block(c, layer);
    owner o = { .c = c, .block = block };
    place at = { .layer = layer, .prefix = pal_config_layers_prefix(c), .part = "" };
    const bool blocks_d = !c->hybrid && !c->mqar && block->mixer[0].kind != PAL_MIXER_M;
    const weight_row norm = {
        blocks_d ? "attn_norm.weight" : "norm.weight", PAL_W_NORM, { HIDDEN }, PAL_INIT_ONE, 0, 0, "norm"
    };
    const weight_row mlp_norm = { "mlp_norm.weight", PAL_W_MLP_NORM, { HIDDEN }, PAL_INIT_ONE, 0, 0, "norm" };
    add(b, &o, &norm, &at, false);
    for (int k = 0; k < block->mixers; k++) {
        o.mixer = &block->mixer[k];
        at.beside = k > 0;
        add_mixer(b, &o, at, keeps_gate(c, o.mixer, layer, keep_gate, source));
    }
    o.mixer = NULL;
    at.beside = false;
    if (!block->form) return;
    if (block->mixers) add(b, &o, &mlp_norm, &at, false);
    for (const weight_row *row = mlp; row->name; row++)
        if (row->id != PAL_W_MLP_GATE || block->form == PAL_MLP_SWIGLU) add(b, &o, row, &at, false);
}

/* What the layouts call the final norm. */
static const char *final_norm_name(const pal_model_config *c) {
    if (c->hybrid) return "model.norm.weight";
    if (c->mqar) return "backbone.ln_f.weight";
    return pal_config_mixer_of(c)->kind == PAL_MIXER_M ? "backbone.norm_f.weight" : "model.norm.weight";
}

static void add_all(builder *b, const pal_model_config *c, pal_keep_gate_fn *keep_gate, const void *source) {
    const owner o = { .c = c };
    const weight_row embedding = {
        pal_config_embedding_name(c), PAL_W_EMBEDDING, { VOCAB, HIDDEN }, PAL_INIT_NORMAL, MATRIX, 0, "embedding"
    };
    add(b, &o, &embedding, &outside, false);
    for (int layer = 0; layer < c->layers; layer++) add_layer(b, c, layer, keep_gate, source);
    const weight_row norm = { final_norm_name(c), PAL_W_FINAL_NORM, { HIDDEN }, PAL_INIT_ONE, 0, 0, "norm" };
    add(b, &o, &norm, &outside, false);
    const char *bias_name = c->hybrid ? "model.norm.bias" : "backbone.ln_f.bias";
    const weight_row bias = { bias_name, PAL_W_FINAL_NORM_BIAS, { HIDDEN }, PAL_INIT_ZERO, 0, 0, "norm" };
    if (c->mqar) add(b, &o, &bias, &outside, false);
    const weight_row head = { "lm_head.weight", PAL_W_HEAD, { VOCAB, HIDDEN }, PAL_INIT_NORMAL, MATRIX, 0, "head" };
    if (!c->tied) add(b, &o, &head, &outside, false);
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
