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
    dense->trains = layer->trains;
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

static float or_one(double factor) { return factor != 0 ? (float)factor : 1; }

/* q, k, v; or k, v, with a separate product for the queries */
static void plan_attention(pal_mixer_plan *m, const pal_mixer_spec *spec, const pal_layer *layer) {
    m->program = PAL_MIXER_ATTENDING;
    m->qk_norm = spec->qk_norm;
    m->out_gate = spec->out_gate;
    m->rotary = spec->rotary;
    if (spec->qk_norm || spec->out_gate) {
        m->query_width = spec->out_gate ? 2 * m->dk : m->dk;
        m->query = single(layer, PAL_W_Q, m->hidden, m->heads * m->query_width);
        m->q = -1;
    } else {
        m->q = next_columns(m, layer, PAL_W_Q, m->heads * m->dk);
    }
    m->k = next_columns(m, layer, PAL_W_K, m->keys);
    m->v = next_columns(m, layer, PAL_W_V, m->key_heads * m->dv);
    m->scale = 1 / sqrtf((float)m->dk);
}

/* b, c, x */
static void plan_convolution(pal_mixer_plan *m, const pal_layer *layer) {
    m->program = PAL_MIXER_CONVOLVING;
    m->channels = m->values;
    next_columns(m, layer, PAL_W_IN, 3 * m->values);
}

#define PI 3.14159265f

/* Of every gate that a rule may read besides: how it is made. Those of a time step are a trapezoid's. */
static const struct {
    unsigned input;
    pal_weight_id matrix, bias; /* bias PAL_W_COUNT: none */
    pal_activation kind;
    float factor, least;
    bool of_dt;
} extras[] = {
    { PAL_INPUT_G, PAL_W_RATE, PAL_W_COUNT, PAL_RATIONAL, -1, -1e-4f, true },
    { PAL_INPUT_LAG, PAL_W_BS, PAL_W_COUNT, PAL_SIGMOID, -1, 1, true },
    { PAL_INPUT_TURN, PAL_W_TURN, PAL_W_COUNT, PAL_SIGMOID, 2 * PI, -PI, true },
    { PAL_INPUT_ERASE, PAL_W_ERASE, PAL_W_COUNT, PAL_SIGMOID, 1, 0 },
    { PAL_INPUT_WRITE, PAL_W_WRITE, PAL_W_COUNT, PAL_SIGMOID, 1, 0 },
    { PAL_INPUT_GP, PAL_W_GP, PAL_W_GP_BIAS, PAL_SOFTPLUS, -1, 0 },
    { PAL_INPUT_BETAP, PAL_W_BETAP, PAL_W_COUNT, PAL_SIGMOID, 1, 0 },
    { PAL_INPUT_NOISE, PAL_W_NOISE, PAL_W_NOISE_BIAS, PAL_SOFTPLUS, 1, 0 },
    { PAL_INPUT_NOISEK, PAL_W_NOISE, PAL_W_NOISE_BIAS, PAL_SOFTPLUS, 1, 0 },
    { PAL_INPUT_R, PAL_W_R, PAL_W_R_BIAS, PAL_SOFTPLUS, 1, 1e-4f },
};

static void plan_extras(pal_mixer_plan *m, const pal_mixer_spec *spec, const pal_layer *layer) {
    const pal_memory_shape shape = pal_mixer_shape(m, 0, 0, NULL, 0);
    for (size_t i = 0; i < PAL_COUNT(extras); i++) {
        if (!(m->rule->inputs & extras[i].input) || (extras[i].of_dt && !m->trapezoid)) continue;
        const int width = pal_memory_channels(m->rule, &shape, extras[i].input);
        m->extra[m->extras++] = (pal_mixer_extra){ .input = __builtin_ctz(extras[i].input),
                                                   .at = next_columns(m, layer, extras[i].matrix, width),
                                                   .width = width,
                                                   .kind = extras[i].kind == PAL_RATIONAL && spec->softplus_rate
                                                               ? PAL_SOFTPLUS
                                                               : extras[i].kind,
                                                   .bias = extras[i].bias,
                                                   .factor = extras[i].factor,
                                                   .least = extras[i].least,
                                                   .of_key = extras[i].input == PAL_INPUT_ERASE && m->compares };
    }
}

/* q, k, v | gate | dt | bs | rank | what the rule reads besides */
static void plan_d(pal_mixer_plan *m, const pal_mixer_spec *spec, const pal_layer *layer) {
    const unsigned inputs = m->rule->inputs;
    m->q = next_columns(m, layer, PAL_W_Q, m->keys);
    m->k = next_columns(m, layer, PAL_W_K, m->keys);
    m->v = next_columns(m, layer, PAL_W_V, m->values);
    m->channels = m->columns;
    m->z = next_columns(m, layer, PAL_W_GATE, m->values);
    if (m->uses_dt || m->uses_g || m->trapezoid) m->dt = next_columns(m, layer, PAL_W_DT, m->dt_width);
    if (m->gate_v || m->gate_b || m->uses_beta) m->bs = next_columns(m, layer, PAL_W_BS, m->heads);
    if (m->gate_b) m->rank_at = next_columns(m, layer, PAL_W_B_RANK, m->rank);
    plan_extras(m, spec, layer);
    m->l2 = true;
    m->l2_kind = spec->kind == PAL_MIXER_GDN ? PAL_L2_EPS : PAL_L2_CLAMP;
    m->scale = inputs & PAL_INPUT_LAM ? 1.0f : 1 / sqrtf((float)m->dk);
    m->norm = PAL_GATE_AFTER;
    m->norm_groups = m->heads;
    m->norm_shared = true;
    m->skip = spec->kind == PAL_MIXER_D;
}

/* z | v, k, q | dt | rank */
static void plan_m(pal_mixer_plan *m, const pal_mixer_spec *spec, const pal_layer *layer) {
    m->channels = m->values + 2 * m->keys;
    m->conv_at = m->values;
    m->z = m->v = 0;
    m->k = m->values;
    m->q = m->values + m->keys;
    m->dt = m->values + m->channels;
    next_columns(m, layer, PAL_W_IN, m->dt + m->heads);
    if (m->gate_b) m->rank_at = next_columns(m, layer, PAL_W_B_RANK, m->rank);
    m->dt_gates = true;
    m->scale = 1;
    m->normed = spec->norm != PAL_GATE_WITHOUT_NORM;
    m->norm = spec->norm == PAL_NORM_THEN_GATE ? PAL_GATE_AFTER : PAL_GATE_BEFORE;
    m->norm_groups = spec->norm_groups;
    m->skip = true;
    for (int i = 0; i < 5; i++) {
        m->in_scale[i] = or_one(spec->in_scale[i]);
        m->scales_in |= m->in_scale[i] != 1;
    }
}

void pal_mixer_plan_make(pal_mixer_plan *m, const pal_model_config *c, const pal_mixer_spec *spec,
                         const pal_layer *layer) {
    const unsigned inputs = layer->rule ? layer->rule->inputs : 0;
    *m = (pal_mixer_plan){ .rule = layer->rule,
                           .hidden = c->hidden,
                           .heads = spec->heads,
                           .key_heads = spec->key_heads,
                           .dk = spec->dk,
                           .dv = spec->dv,
                           .rank = spec->rank,
                           .taps = spec->conv,
                           .tiled = spec->tiled,
                           .eps = (float)c->norm_eps,
                           .mesa_tolerance = (float)spec->mesa_tolerance,
                           .dt_low = (float)spec->dt_low,
                           .dt_high = (float)spec->dt_high,
                           .out_scale = or_one(spec->out_scale),
                           .normed = true,
                           .norm_groups = 1,
                           .z = -1,
                           .dt = -1,
                           .bs = -1,
                           .rank_at = -1 };
    m->keys = spec->key_heads * spec->dk;
    m->values = spec->heads * spec->dv;
    m->in.in = c->hidden;
    m->uses_dt = inputs & PAL_INPUT_DT;
    m->trapezoid = inputs & PAL_INPUT_LAG;
    m->uses_g = inputs & (PAL_INPUT_G | PAL_INPUT_GK) && !m->trapezoid;
    m->dt_width = inputs & PAL_INPUT_GK ? m->heads * m->dk : m->heads;
    m->compares = inputs & PAL_INPUT_P;
    m->uses_beta = inputs & PAL_INPUT_BETA && !m->trapezoid;
    m->gate_b = inputs & PAL_INPUT_B;
    m->gate_v = !m->uses_beta && !m->trapezoid && inputs & (PAL_INPUT_DT | PAL_INPUT_G);
    switch (spec->kind) {
    case PAL_MIXER_ATTENTION: plan_attention(m, spec, layer); break;
    case PAL_MIXER_CONV: plan_convolution(m, layer); break;
    case PAL_MIXER_M: plan_m(m, spec, layer); break;
    default: plan_d(m, spec, layer);
    }
    if (spec->scale != 0) m->scale = (float)spec->scale;
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
                               .tiled = m->tiled,
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
    if (m->program != PAL_MIXER_ATTENDING) kept->c = take(arena, T, m->channels);
    if (m->dt >= 0) kept->dt = take(arena, T, m->dt_width);
    if (m->uses_g) kept->g = take(arena, T, m->dt_width);
    for (int i = 0; i < m->extras; i++) kept->extra[i] = take(arena, T, m->extra[i].width);
    if (m->bs >= 0) kept->bs = take(arena, T, m->heads);
    if (m->gate_b) kept->pre = take(arena, T, m->values);
    if (m->query_width) {
        kept->query = take(arena, T, m->heads * m->query_width);
        kept->qn = take(arena, T, m->heads * m->dk);
    }
    if (m->qk_norm) kept->kn = take(arena, T, m->keys);
    if (m->out_gate) kept->gate = take(arena, T, m->values);
    const pal_memory_shape shape = pal_mixer_shape(m, tokens, sequences, NULL, 0);
    if (training && m->rule) kept->saved = pal_take(arena, m->rule->saved_floats(&shape), sizeof(float));
}

void pal_mixer_take_parameters(pal_mixer_work *w, const pal_mixer_plan *m, pal_arena *arena) {
    *w = (pal_mixer_work){ 0 };
    if (m->program != PAL_MIXER_GATED) return;
    w->A = take(arena, 1, m->heads);
    w->Ip = take(arena, 1, m->heads);
    w->c = take(arena, 1, m->heads);
    w->lam = take(arena, 1, m->heads * m->dk);
    if (m->compares) w->share = take(arena, 1, m->heads);
    if (m->rule->inputs & PAL_INPUT_KEEP) w->keep = take(arena, (size_t)m->dk, m->values);
    if (m->rule->inputs & PAL_INPUT_DRIFT) w->drift = take(arena, (size_t)m->dk, m->values);
}

/* What attention and convolutions need to learn. */
static void take_others(pal_mixer_work *w, const pal_mixer_plan *m, size_t T, pal_arena *arena) {
    w->d_o = take(arena, T, m->values);
    w->dp = take(arena, T, m->columns);
    w->o = take(arena, T, m->values);
    if (m->program == PAL_MIXER_CONVOLVING) w->dconv = take(arena, T, m->channels);
    if (m->query_width) {
        w->dquery = take(arena, T, m->heads * m->query_width);
        w->dqn = take(arena, T, m->heads * m->dk);
    }
    if (m->qk_norm) w->dkn = take(arena, T, m->keys);
}

void pal_mixer_take(pal_mixer_work *w, const pal_mixer_plan *m, int tokens, bool training, pal_arena *arena) {
    const size_t T = (size_t)tokens;
    if (m->program != PAL_MIXER_GATED) {
        if (training) take_others(w, m, T, arena);
        return;
    }
    w->n = take(arena, T, 2 * m->keys);
    w->v = take(arena, T, m->values);
    w->b = take(arena, T, m->values);
    w->o = take(arena, T, m->values);
    if (m->compares) w->compared = take(arena, T, m->heads * m->dk);
    if (m->trapezoid) w->beta = take(arena, T, m->heads);
    for (int i = 0; i < m->extras; i++) w->extra[i] = take(arena, T, m->extra[i].width);
    if (!training) return;
    w->d_o = take(arena, T, m->values);
    w->dp = take(arena, T, m->columns);
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
    w->ddt = take(arena, T, m->dt_width);
    w->dg = take(arena, T, m->dt_width);
    if (m->compares) w->dshare = take(arena, 1, m->heads);
    if (m->compares) w->dcompared = take(arena, T, m->heads * m->dk);
    for (int i = 0; i < m->extras; i++) w->dextra[i] = take(arena, T, m->extra[i].width);
    if (m->rule->inputs & PAL_INPUT_KEEP) w->dkeep = take(arena, (size_t)m->dk, m->values);
    if (m->rule->inputs & PAL_INPUT_DRIFT) w->ddrift = take(arena, (size_t)m->dk, m->values);
    w->dbs = take(arena, T, m->heads);
}

static void grow(size_t *most, size_t bytes) {
    if (bytes > *most) *most = bytes;
}

/* Of a backward's kernels, without the memory's. */
static size_t backward_floats(const pal_mixer_plan *m, int tokens, int sequences, const int *cu_seqlens) {
    size_t most = 0;
    const size_t T = (size_t)tokens;
    const pal_conv_args conv = {
        .sequences = sequences, .cu_seqlens = cu_seqlens, .channels = m->channels, .taps = m->taps
    };
    if (m->program == PAL_MIXER_CONVOLVING) return pal_conv_silu_scratch_floats(&conv);
    if (m->program == PAL_MIXER_ATTENDING) {
        const pal_rmsnorm_args queries = { .rows = T * (size_t)m->heads, .groups = 1, .width = m->dk },
                               keys = { .rows = T, .groups = m->key_heads, .width = m->dk, .shared_weight = true };
        const pal_activation_args gate = { .rows = T * (size_t)m->heads, .width = m->dk };
        if (m->qk_norm) grow(&most, pal_rmsnorm_scratch_floats(&queries));
        if (m->qk_norm) grow(&most, pal_rmsnorm_scratch_floats(&keys));
        if (m->out_gate) grow(&most, pal_activate_scratch_floats(&gate));
        return most;
    }
    const pal_rmsnorm_args norm = { .rows = T,
                                    .groups = m->norm_groups,
                                    .width = m->values / m->norm_groups,
                                    .gate = m->norm,
                                    .shared_weight = m->norm_shared };
    const pal_head_gate_args gate = { .rows = T, .heads = m->heads, .width = m->dv };
    const pal_activation_args softplus = { .rows = T, .width = m->dt_width };
    for (int i = 0; i < m->extras; i++)
        grow(&most, pal_activate_scratch_floats(&(pal_activation_args){ .rows = T, .width = m->extra[i].width }));
    grow(&most, pal_rmsnorm_scratch_floats(&norm));
    grow(&most, pal_head_gate_scratch_floats(&gate));
    grow(&most, pal_activate_scratch_floats(&softplus));
    grow(&most, pal_conv_silu_scratch_floats(&conv));
    return most;
}

size_t pal_mixer_scratch_bytes(const pal_mixer_plan *m, const pal_context *cx, int tokens, int sequences, bool training,
                               const int *cu_seqlens) {
    size_t most = 0;
    const pal_memory_shape shape = pal_mixer_shape(m, tokens, sequences, cu_seqlens, tokens);
    if (m->rule) grow(&most, m->rule->scratch_bytes(cx, &shape, PAL_FORWARD));
    grow(&most, pal_dense_scratch_bytes(&m->in, tokens));
    grow(&most, pal_dense_scratch_bytes(&m->out, tokens));
    grow(&most, pal_dense_scratch_bytes(&m->b, tokens));
    grow(&most, pal_dense_scratch_bytes(&m->query, tokens));
    if (!training) {
        const pal_memory_shape step = pal_mixer_shape(m, sequences, sequences, NULL, 1);
        if (m->rule) grow(&most, m->rule->scratch_bytes(cx, &step, PAL_STEP));
        return most;
    }
    if (m->rule) grow(&most, m->rule->scratch_bytes(cx, &shape, PAL_BACKWARD));
    grow(&most, backward_floats(m, tokens, sequences, cu_seqlens) * sizeof(float));
    return most;
}
