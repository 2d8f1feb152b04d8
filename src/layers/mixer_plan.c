/* SPDX-License-Identifier: MIT */
/* Which columns and gates a mixer has, and what memory it needs. */
#include <math.h>
#include <string.h>

#include "kernels/activations/activations.h"
#include "kernels/conv/conv.h"
#include "layers/mixer.h"

static void add_part(pal_dense *dense, const pal_layer *layer, pal_weight_id id, int out) {
    dense->out[dense->matrices] = out;
    dense->w[dense->matrices] = layer->m[id];
    dense->dw[dense->matrices] = layer->d[id];
    dense->matrices++;
}

static pal_dense single(const pal_layer *layer, pal_weight_id id, int in, int out) {
    pal_dense dense = { .in = in };
    add_part(&dense, layer, id, out);
    return dense;
}

static int next_columns(pal_mixer_plan *m, const pal_layer *layer, pal_weight_id id, int width) {
    const int at = m->columns;
    add_part(&m->in, layer, id, width);
    m->columns += width;
    return at;
}

static void plan_attention(pal_mixer_plan *m, const pal_layer *layer) {
    m->q = next_columns(m, layer, PAL_W_Q, m->heads * m->dk);
    m->k = next_columns(m, layer, PAL_W_K, m->keys);
    m->v = next_columns(m, layer, PAL_W_V, m->key_heads * m->dv);
    m->scale = 1 / sqrtf((float)m->dk);
    m->z = m->dt = m->bs = m->rank_at = -1;
}

/* q, k, v | gate | dt | bs | rank */
static void plan_d(pal_mixer_plan *m, const pal_model_config *c, const pal_layer *layer) {
    const unsigned inputs = m->rule->inputs;
    m->q = next_columns(m, layer, PAL_W_Q, m->keys);
    m->k = next_columns(m, layer, PAL_W_K, m->keys);
    m->v = next_columns(m, layer, PAL_W_V, m->values);
    m->channels = m->columns;
    m->z = next_columns(m, layer, PAL_W_GATE, m->values);
    m->dt = m->uses_dt || m->uses_g ? next_columns(m, layer, PAL_W_DT, m->heads) : -1;
    m->bs = m->gate_v || m->gate_b || m->uses_beta ? next_columns(m, layer, PAL_W_BS, m->heads) : -1;
    m->rank_at = m->gate_b ? next_columns(m, layer, PAL_W_B_RANK, m->rank) : -1;
    m->l2 = true;
    m->l2_kind = c->mixer == PAL_MIXER_GDN ? PAL_L2_EPS : PAL_L2_CLAMP;
    m->scale = inputs & PAL_INPUT_LAM ? 1.0f : 1 / sqrtf((float)m->dk);
    m->norm = PAL_GATE_AFTER;
    m->norm_groups = m->heads;
    m->skip = c->mixer == PAL_MIXER_D;
}

/* z | v, k, q | dt | rank */
static void plan_m(pal_mixer_plan *m, const pal_model_config *c, const pal_layer *layer) {
    m->channels = m->values + 2 * m->keys;
    m->conv_at = m->values;
    m->v = 0;
    m->k = m->values;
    m->q = m->values + m->keys;
    m->dt = m->values + m->channels;
    next_columns(m, layer, PAL_W_IN, m->dt + m->heads);
    m->bs = -1;
    m->rank_at = m->gate_b ? next_columns(m, layer, PAL_W_B_RANK, m->rank) : -1;
    m->dt_gates = true;
    m->scale = 1;
    m->norm = PAL_GATE_BEFORE;
    m->norm_groups = c->norm_groups;
    m->skip = true;
}

void pal_mixer_plan_make(pal_mixer_plan *m, const pal_model_config *c, const pal_layer *layer) {
    const unsigned inputs = layer->rule->inputs;
    *m = (pal_mixer_plan){ .rule = layer->rule,
                           .hidden = c->hidden,
                           .heads = c->heads,
                           .key_heads = c->key_heads,
                           .dk = c->dk,
                           .dv = c->dv,
                           .rank = c->rank,
                           .taps = c->conv,
                           .eps = (float)c->norm_eps,
                           .mesa_tolerance = (float)c->mesa_tolerance };
    m->keys = c->key_heads * c->dk;
    m->values = c->heads * c->dv;
    m->in.in = c->hidden;
    m->uses_dt = inputs & PAL_INPUT_DT;
    m->uses_g = inputs & PAL_INPUT_G;
    m->uses_beta = inputs & PAL_INPUT_BETA;
    m->gate_b = inputs & PAL_INPUT_B;
    m->gate_v = !m->uses_beta && (m->uses_dt || m->uses_g);
    if (layer->rule->keeps_tokens) plan_attention(m, layer);
    else if (c->mixer == PAL_MIXER_M) plan_m(m, c, layer);
    else plan_d(m, c, layer);
    m->out = single(layer, PAL_W_OUT, m->values, c->hidden);
    if (m->gate_b) m->b = single(layer, PAL_W_B, m->rank, m->values);
}

pal_memory_shape pal_mixer_shape(const pal_mixer_plan *m, int tokens, int sequences, const int *cu_seqlens,
                                 int context) {
    return (pal_memory_shape){ .sequences = sequences,
                               .tokens = tokens,
                               .cu_seqlens = cu_seqlens,
                               .heads = m->heads,
                               .key_heads = m->key_heads,
                               .dk = m->dk,
                               .dv = m->dv,
                               .context = context };
}

size_t pal_mixer_window_floats(const pal_mixer_plan *m) {
    return m->taps > 1 ? (size_t)(m->taps - 1) * (size_t)m->channels : 0;
}

static float *take(pal_arena *arena, size_t rows, int width) {
    return pal_take(arena, rows * (size_t)width, sizeof(float));
}

void pal_mixer_keep(pal_mixer_kept *kept, const pal_mixer_plan *m, int tokens, int sequences, bool training,
                    pal_arena *arena) {
    const size_t T = (size_t)tokens;
    *kept = (pal_mixer_kept){ 0 };
    kept->p = take(arena, T, m->columns);
    kept->y = take(arena, T, m->values);
    if (!m->rule->keeps_tokens) kept->c = take(arena, T, m->channels);
    if (m->dt >= 0) kept->dt = take(arena, T, m->heads);
    if (m->uses_g) kept->g = take(arena, T, m->heads);
    if (m->bs >= 0) kept->bs = take(arena, T, m->heads);
    if (m->gate_b) kept->pre = take(arena, T, m->values);
    const pal_memory_shape shape = pal_mixer_shape(m, tokens, sequences, NULL, 0);
    if (training) kept->saved = pal_take(arena, m->rule->saved_floats(&shape), sizeof(float));
}

void pal_mixer_take_parameters(pal_mixer_work *w, const pal_mixer_plan *m, pal_arena *arena) {
    *w = (pal_mixer_work){ 0 };
    if (m->rule->keeps_tokens) return;
    w->A = take(arena, 1, m->heads);
    w->Ip = take(arena, 1, m->heads);
    w->c = take(arena, 1, m->heads);
    w->lam = take(arena, 1, m->heads * m->dk);
}

void pal_mixer_take(pal_mixer_work *w, const pal_mixer_plan *m, int tokens, bool training, pal_arena *arena) {
    const size_t T = (size_t)tokens;
    const bool gated = !m->rule->keeps_tokens;
    if (gated) {
        w->n = take(arena, T, 2 * m->keys);
        w->v = take(arena, T, m->values);
        w->b = take(arena, T, m->values);
        w->o = take(arena, T, m->values);
    }
    if (!training) return;
    w->d_o = take(arena, T, m->values);
    w->dp = take(arena, T, m->columns);
    if (!gated) return;
    w->dA = take(arena, 1, m->heads);
    w->dIp = take(arena, 1, m->heads);
    w->dc = take(arena, 1, m->heads);
    w->dlam = take(arena, 1, m->heads * m->dk);
    w->zeros = take(arena, 1, m->values);
    w->ones = take(arena, 1, m->heads);
    w->dv = take(arena, T, m->values);
    w->db = take(arena, T, m->values);
    w->dn = take(arena, T, 2 * m->keys);
    w->dconv = take(arena, T, m->channels);
    w->ddt = take(arena, T, m->heads);
    w->dg = take(arena, T, m->heads);
    w->dbs = take(arena, T, m->heads);
}

static void grow(size_t *most, size_t bytes) {
    if (bytes > *most) *most = bytes;
}

size_t pal_mixer_scratch_bytes(const pal_mixer_plan *m, const pal_context *cx, int tokens, int sequences, bool training,
                               const int *cu_seqlens) {
    size_t most = 0;
    const pal_memory_shape shape = pal_mixer_shape(m, tokens, sequences, cu_seqlens, tokens);
    grow(&most, m->rule->scratch_bytes(cx, &shape, PAL_FORWARD));
    grow(&most, pal_dense_scratch_bytes(&m->in, tokens));
    grow(&most, pal_dense_scratch_bytes(&m->out, tokens));
    grow(&most, pal_dense_scratch_bytes(&m->b, tokens));
    if (!training) {
        const pal_memory_shape step = pal_mixer_shape(m, sequences, sequences, NULL, 1);
        grow(&most, m->rule->scratch_bytes(cx, &step, PAL_STEP));
        return most;
    }
    grow(&most, m->rule->scratch_bytes(cx, &shape, PAL_BACKWARD));
    if (m->rule->keeps_tokens) return most;
    const size_t T = (size_t)tokens;
    const pal_rmsnorm_args norm = { .rows = T,
                                    .groups = m->norm_groups,
                                    .width = m->values / m->norm_groups,
                                    .gate = m->norm,
                                    .shared_weight = m->norm == PAL_GATE_AFTER };
    const pal_head_gate_args gate = { .rows = T, .heads = m->heads, .width = m->dv };
    const pal_activation_args softplus = { .rows = T, .width = m->heads };
    const pal_conv_args conv = {
        .sequences = sequences, .cu_seqlens = cu_seqlens, .channels = m->channels, .taps = m->taps
    };
    grow(&most, pal_rmsnorm_scratch_floats(&norm) * sizeof(float));
    grow(&most, pal_head_gate_scratch_floats(&gate) * sizeof(float));
    grow(&most, pal_activate_scratch_floats(&softplus) * sizeof(float));
    grow(&most, pal_conv_silu_scratch_floats(&conv) * sizeof(float));
    return most;
}
