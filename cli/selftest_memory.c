/* SPDX-License-Identifier: MIT */
/* Selftest of memory rules: a recorded case is run as a whole, token by token, and backward. */
#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "memory/rule.h"
#include "selftest.h"

/* Accepted errors, spec section 10; rounding may add T * 2^-24 over a sequence of T tokens. */
static double accepted(const selftest_case *c, const char *name) {
    const bool palimpsa = strcmp(c->op, "palimpsa") == 0;
    double accept;
    if (strncmp(name, "out.", 4) == 0) accept = palimpsa ? 2e-5 : 5e-6;
    else if (palimpsa && strcmp(name, "grad.A") == 0) accept = 3e-4;
    else if (palimpsa && (strcmp(name, "grad.dt") == 0 || strcmp(name, "grad.Ip") == 0)) accept = 5e-5;
    else accept = 1e-5;
    return accept + c->longest * 0x1p-24;
}

typedef struct {
    selftest_case *c;
    const pal_memory_rule *rule;
    int tokens, sequences, heads, dk, dv;
    pal_memory_run run;
    float **states; /* one per sequence */
    float *initial[2];
} memory_case;

static void check(const memory_case *m, const char *name, const char *how, const float *x, size_t count) {
    selftest_check(m->c, name, how, x, count, accepted(m->c, name));
}

static pal_const_view rows(const memory_case *m, const char *name, int channels) {
    return (pal_const_view){ selftest_required(m->c, name, (size_t)m->tokens * (size_t)channels), (size_t)channels };
}

static pal_view fresh_rows(const memory_case *m, int channels) {
    return (pal_view){ selftest_floats(m->c, (size_t)m->tokens * (size_t)channels), (size_t)channels };
}

static int64_t integer_at(const pal_tensor *t, size_t i) {
    int64_t wide;
    int32_t narrow;
    if (t->dtype == PAL_I64) {
        memcpy(&wide, (const char *)t->data + i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)t->data + i * sizeof narrow, sizeof narrow);
    return narrow;
}

static void read_sequences(memory_case *m, int batch, int length) {
    selftest_case *c = m->c;
    const pal_tensor *packed = pal_safetensors_find(c->file, "in.cu_seqlens");
    if (packed && ((packed->dtype != PAL_I64 && packed->dtype != PAL_I32) || packed->rank != 1 || packed->count < 2 ||
                   packed->count > (size_t)m->tokens + 1 || batch != 1)) {
        selftest_break(c, "in.cu_seqlens must be 2 or more I64 or I32 numbers and the batch 1");
        return;
    }
    m->sequences = packed ? (int)packed->count - 1 : batch;
    int *cu = selftest_bytes(c, ((size_t)m->sequences + 1) * sizeof *cu);
    if (!cu) return;
    for (int n = 0; n <= m->sequences; n++) {
        int64_t at = (int64_t)n * length;
        if (packed) at = integer_at(packed, (size_t)n);
        if (at < 0 || at > m->tokens) {
            selftest_break(c, "in.cu_seqlens[%d] is %lld, the case has %d tokens", n, (long long)at, m->tokens);
            return;
        }
        cu[n] = (int)at;
        if (n && cu[n] - cu[n - 1] > c->longest) c->longest = cu[n] - cu[n - 1];
    }
    m->run.shape.cu_seqlens = cu;
}

static void read_inputs(memory_case *m) {
    selftest_case *c = m->c;
    const unsigned wants = m->rule->inputs;
    pal_memory_inputs *in = &m->run.in;
    in->q = rows(m, "in.q", m->heads * m->dk);
    in->k = rows(m, "in.k", m->heads * m->dk);
    in->v = rows(m, "in.v", m->heads * m->dv);
    /* Longhorn's gate has a number per value channel: files call it beta, the interface b. */
    if (wants & PAL_INPUT_B) in->b = rows(m, strcmp(c->op, "longhorn") == 0 ? "in.beta" : "in.b", m->heads * m->dv);
    if (wants & PAL_INPUT_BETA) in->beta = rows(m, "in.beta", m->heads);
    if (wants & PAL_INPUT_DT) in->dt = rows(m, "in.dt", m->heads);
    if (wants & PAL_INPUT_G) in->g = rows(m, "in.g", m->heads);
    if (wants & PAL_INPUT_A) in->A = selftest_required(c, "in.A", (size_t)m->heads);
    if (wants & PAL_INPUT_IP) in->Ip = selftest_required(c, "in.Ip", (size_t)m->heads);
    if (wants & PAL_INPUT_LAM) in->lam = selftest_required(c, "in.lam", (size_t)m->heads * (size_t)m->dk);
    const float *scale = selftest_required(c, "in.scale", 1);
    in->scale = scale ? *scale : 1.0f;
}

/* Parts of the initial memory, if the file has them; either all or none. */
static void read_initial(memory_case *m) {
    for (int p = 0; p < 2 && m->rule->parts[p]; p++) {
        char name[32];
        snprintf(name, sizeof name, "in.%s0", m->rule->parts[p]);
        const size_t count = (size_t)m->sequences * m->rule->part_floats(&m->run.shape, p);
        m->initial[p] = (float *)selftest_input(m->c, name, count);
        if (p && !m->initial[0] != !m->initial[1])
            selftest_break(m->c, "an initial memory needs every part of '%s'", m->c->op);
    }
}

static void set_initial(memory_case *m) {
    for (int n = 0; n < m->sequences; n++) {
        if (!m->initial[0]) {
            m->rule->reset(&m->run.shape, &m->run.in, m->states[n]);
            continue;
        }
        const float *parts[2] = { NULL, NULL };
        for (int p = 0; p < 2 && m->rule->parts[p]; p++)
            parts[p] = m->initial[p] + (size_t)n * m->rule->part_floats(&m->run.shape, p);
        m->rule->import(&m->run.shape, &m->run.in, parts, m->states[n]);
    }
}

static void check_final(memory_case *m, const char *how) {
    float *parts[2] = { NULL, NULL };
    size_t floats[2] = { 0, 0 };
    for (int p = 0; p < 2 && m->rule->parts[p]; p++) {
        floats[p] = m->rule->part_floats(&m->run.shape, p);
        if (!(parts[p] = selftest_floats(m->c, (size_t)m->sequences * floats[p]))) return;
    }
    for (int n = 0; n < m->sequences; n++) {
        float *mine[2] = { NULL, NULL };
        for (int p = 0; p < 2 && parts[p]; p++) mine[p] = parts[p] + (size_t)n * floats[p];
        m->rule->export(&m->run.shape, &m->run.in, mine, m->states[n]);
    }
    for (int p = 0; p < 2 && parts[p]; p++) {
        char name[32];
        snprintf(name, sizeof name, "out.%s_T", m->rule->parts[p]);
        check(m, name, how, parts[p], (size_t)m->sequences * floats[p]);
    }
}

static void check_outputs(memory_case *m, const char *how) {
    const size_t count = (size_t)m->tokens * (size_t)m->heads * (size_t)m->dv;
    check(m, "out.y", how, m->run.y.data, count);
    if (m->rule->has_variance) check(m, "out.y_var", how, m->run.y_var.data, count);
    check_final(m, how);
}

static bool run_pass(memory_case *m, pal_memory_pass pass, const pal_memory_run *run) {
    pal_error err;
    pal_status st;
    switch (pass) {
    case PAL_FORWARD: st = pal_memory_forward(m->rule, m->c->cx, run, &err); break;
    case PAL_BACKWARD: st = pal_memory_backward(m->rule, m->c->cx, run, &err); break;
    default: st = pal_memory_step(m->rule, m->c->cx, run, &err); break;
    }
    if (st) selftest_break(m->c, "%s", err.text);
    return st == PAL_OK;
}

static void set_scratch(memory_case *m, pal_memory_run *run, pal_memory_pass pass) {
    run->scratch = selftest_bytes(m->c, m->rule->scratch_bytes(m->c->cx, &run->shape, pass));
}

static void run_forward(memory_case *m) {
    set_initial(m);
    set_scratch(m, &m->run, PAL_FORWARD);
    if (!m->c->broken && run_pass(m, PAL_FORWARD, &m->run)) check_outputs(m, NULL);
}

static const float *offset(pal_const_view view, int token) {
    return view.data ? view.data + (size_t)token * view.stride : NULL;
}

/* The same numbers one token at a time, sequence after sequence. */
static void run_steps(memory_case *m) {
    pal_memory_run step = m->run;
    step.shape.sequences = step.shape.tokens = 1;
    set_initial(m);
    set_scratch(m, &step, PAL_STEP);
    if (m->c->broken) return;
    for (int n = 0; n < m->sequences; n++) {
        step.state = &m->states[n];
        for (int t = m->run.shape.cu_seqlens[n]; t < m->run.shape.cu_seqlens[n + 1]; t++) {
            pal_memory_inputs *in = &step.in;
            in->q.data = offset(m->run.in.q, t);
            in->k.data = offset(m->run.in.k, t);
            in->v.data = offset(m->run.in.v, t);
            in->b.data = offset(m->run.in.b, t);
            in->beta.data = offset(m->run.in.beta, t);
            in->dt.data = offset(m->run.in.dt, t);
            in->g.data = offset(m->run.in.g, t);
            step.y.data = m->run.y.data + (size_t)t * m->run.y.stride;
            if (m->rule->has_variance) step.y_var.data = m->run.y_var.data + (size_t)t * m->run.y_var.stride;
            if (!run_pass(m, PAL_STEP, &step)) return;
        }
    }
    check_outputs(m, "stepped");
}

static void read_upstream(memory_case *m) {
    pal_memory_run *run = &m->run;
    const size_t count = (size_t)m->tokens * (size_t)m->heads * (size_t)m->dv;
    const float *dy = selftest_input(m->c, "in.dy", count);
    run->dy = (pal_const_view){ dy ? dy : selftest_floats(m->c, count), run->y.stride };
    if (m->rule->has_variance)
        run->dy_var = (pal_const_view){ selftest_input(m->c, "in.dy_var", count), run->y.stride };
    for (int p = 0; p < 2 && m->rule->parts[p]; p++) {
        char name[32];
        snprintf(name, sizeof name, "in.d%s_T", m->rule->parts[p]);
        run->dfinal[p] = selftest_input(m->c, name, (size_t)m->sequences * m->rule->part_floats(&run->shape, p));
    }
}

static void run_backward(memory_case *m) {
    pal_memory_run *run = &m->run;
    pal_memory_gradients *grad = &run->grad;
    const unsigned wants = m->rule->inputs;
    const int qk = m->heads * m->dk, v = m->heads * m->dv;
    read_upstream(m);
    set_initial(m);
    if (!m->initial[0]) run->state = NULL; /* so that the prior's gradient takes the default start into account */
    run->saved = selftest_floats(m->c, m->rule->saved_floats(&run->shape));
    grad->q = fresh_rows(m, qk);
    grad->k = fresh_rows(m, qk);
    grad->v = fresh_rows(m, v);
    if (wants & PAL_INPUT_B) grad->b = fresh_rows(m, v);
    if (wants & PAL_INPUT_BETA) grad->beta = fresh_rows(m, m->heads);
    if (wants & PAL_INPUT_DT) grad->dt = fresh_rows(m, m->heads);
    if (wants & PAL_INPUT_G) grad->g = fresh_rows(m, m->heads);
    if (wants & PAL_INPUT_A) grad->A = selftest_floats(m->c, (size_t)m->heads);
    if (wants & PAL_INPUT_IP) grad->Ip = selftest_floats(m->c, (size_t)m->heads);
    if (wants & PAL_INPUT_LAM) grad->lam = selftest_floats(m->c, (size_t)qk);
    for (int p = 0; p < 2 && m->rule->parts[p] && m->initial[0]; p++)
        grad->initial[p] = selftest_floats(m->c, (size_t)m->sequences * m->rule->part_floats(&run->shape, p));
    set_scratch(m, run, PAL_FORWARD);
    if (m->c->broken || !run_pass(m, PAL_FORWARD, run)) return;
    set_scratch(m, run, PAL_BACKWARD);
    if (m->c->broken || !run_pass(m, PAL_BACKWARD, run)) return;

    const size_t T = (size_t)m->tokens;
    check(m, "grad.q", NULL, grad->q.data, T * (size_t)qk);
    check(m, "grad.k", NULL, grad->k.data, T * (size_t)qk);
    check(m, "grad.v", NULL, grad->v.data, T * (size_t)v);
    if (grad->b.data)
        check(m, strcmp(m->c->op, "longhorn") == 0 ? "grad.beta" : "grad.b", NULL, grad->b.data, T * (size_t)v);
    if (grad->beta.data) check(m, "grad.beta", NULL, grad->beta.data, T * (size_t)m->heads);
    if (grad->dt.data) check(m, "grad.dt", NULL, grad->dt.data, T * (size_t)m->heads);
    if (grad->g.data) check(m, "grad.g", NULL, grad->g.data, T * (size_t)m->heads);
    if (grad->A) check(m, "grad.A", NULL, grad->A, (size_t)m->heads);
    if (grad->Ip) check(m, "grad.Ip", NULL, grad->Ip, (size_t)m->heads);
    if (grad->lam) check(m, "grad.lam", NULL, grad->lam, (size_t)qk);
    for (int p = 0; p < 2 && m->rule->parts[p] && grad->initial[p]; p++) {
        char name[32];
        snprintf(name, sizeof name, "grad.%s0", m->rule->parts[p]);
        check(m, name, NULL, grad->initial[p], (size_t)m->sequences * m->rule->part_floats(&run->shape, p));
    }
}

bool selftest_memory(selftest_case *c) {
    memory_case m = { .c = c, .rule = pal_memory_find(c->op) };
    if (!m.rule || pal_memory_keeps_tokens(m.rule))
        return false; /* attention is a building block: selftest_prim runs it */
    const pal_tensor *q = selftest_shape(c, "in.q", 4), *v = selftest_shape(c, "in.v", 4);
    if (!q || !v) return true;
    const int64_t *s = q->shape;
    if (s[0] < 1 || s[1] < 1 || s[2] < 1 || s[3] < 1 || v->shape[3] < 1 || q->count > INT32_MAX ||
        v->count > INT32_MAX) {
        selftest_break(c, "in.q and in.v must be [B,T,H,D] with every size at least 1");
        return true;
    }
    if (memcmp(v->shape, s, 3 * sizeof *s) != 0) {
        selftest_break(c, "in.v is for %lld x %lld tokens and %lld heads, in.q for %lld x %lld and %lld",
                       (long long)v->shape[0], (long long)v->shape[1], (long long)v->shape[2], (long long)s[0],
                       (long long)s[1], (long long)s[2]);
        return true;
    }
    m.tokens = (int)(s[0] * s[1]);
    m.heads = (int)s[2];
    m.dk = (int)s[3];
    m.dv = (int)v->shape[3];
    m.run.shape =
        (pal_memory_shape){ .tokens = m.tokens, .heads = m.heads, .key_heads = m.heads, .dk = m.dk, .dv = m.dv };
    read_sequences(&m, (int)s[0], (int)s[1]);
    if (c->broken) return true;
    m.run.shape.sequences = m.sequences;
    read_inputs(&m);
    read_initial(&m);
    m.run.y = fresh_rows(&m, m.heads * m.dv);
    if (m.rule->has_variance) m.run.y_var = fresh_rows(&m, m.heads * m.dv);
    m.states = selftest_bytes(c, (size_t)m.sequences * sizeof *m.states);
    const size_t state_floats = m.rule->state_floats(&m.run.shape);
    float *states = c->broken ? NULL : selftest_floats(c, (size_t)m.sequences * state_floats);
    if (!states) return true;
    for (int n = 0; n < m.sequences; n++) m.states[n] = states + (size_t)n * state_floats;
    m.run.state = m.states;
    run_forward(&m);
    if (!c->broken) run_steps(&m);
    if (!c->broken) run_backward(&m);
    return true;
}
