/* SPDX-License-Identifier: MIT */
/* Selftest of memory rules: a recorded case is run as a whole, token by token, and backward. */
#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "memory/rule.h"
#include "recorded_memory.h"
#include "selftest.h"

typedef struct {
    selftest_case *c;
    recorded_memory recorded;
    const pal_memory_rule *rule;
    int tokens, sequences, heads, dk, dv;
    pal_memory_run run;
    float **states; /* one per sequence */
} memory_case;

static void check(const memory_case *m, const char *name, const char *how, const float *x, size_t count) {
    selftest_check(m->c, name, how, x, count, recorded_memory_accept(&m->recorded, name));
}

static pal_view fresh_rows(const memory_case *m, int channels) {
    return (pal_view){ selftest_floats(m->c, (size_t)m->tokens * (size_t)channels), (size_t)channels };
}

static void set_initial(memory_case *m) {
    for (int n = 0; n < m->sequences; n++) {
        if (!m->recorded.initial[0]) {
            m->rule->reset(&m->run.shape, &m->run.in, m->states[n]);
            continue;
        }
        const float *parts[2] = { NULL, NULL };
        for (int p = 0; p < 2 && m->rule->parts[p]; p++)
            parts[p] = m->recorded.initial[p] + (size_t)n * m->rule->part_floats(&m->run.shape, p);
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
            for (int i = 0; i < PAL_MEMORY_INPUTS; i++)
                if (!pal_memory_input_list[i].parameter)
                    pal_memory_input_rows(&step.in, i)->data = offset(*pal_memory_input_rows(&m->run.in, i), t);
            step.y.data = m->run.y.data + (size_t)t * m->run.y.stride;
            if (m->rule->has_variance) step.y_var.data = m->run.y_var.data + (size_t)t * m->run.y_var.stride;
            if (!run_pass(m, PAL_STEP, &step)) return;
        }
    }
    check_outputs(m, "stepped");
}

static void set_upstream(memory_case *m) {
    pal_memory_run *run = &m->run;
    const recorded_memory *r = &m->recorded;
    const size_t count = (size_t)m->tokens * (size_t)m->heads * (size_t)m->dv;
    run->dy = (pal_const_view){ r->dy ? r->dy : selftest_floats(m->c, count), run->y.stride };
    if (m->rule->has_variance) run->dy_var = (pal_const_view){ r->dy_var, run->y.stride };
    for (int p = 0; p < 2; p++) run->dfinal[p] = r->dfinal[p];
}

static void run_backward(memory_case *m) {
    pal_memory_run *run = &m->run;
    pal_memory_gradients *grad = &run->grad;
    set_upstream(m);
    set_initial(m);
    if (!m->recorded.initial[0])
        run->state = NULL; /* so that the prior's gradient takes the default start into account */
    run->saved = selftest_floats(m->c, m->rule->saved_floats(&run->shape));
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
        if (!(m->rule->inputs & 1u << i)) continue;
        const int channels = pal_memory_channels(m->rule, &run->shape, 1u << i);
        char *field = (char *)grad + pal_memory_input_list[i].gradient;
        if (pal_memory_input_list[i].parameter) *(float **)field = selftest_floats(m->c, (size_t)channels);
        else *(pal_view *)field = fresh_rows(m, channels);
    }
    for (int p = 0; p < 2 && m->rule->parts[p] && m->recorded.initial[0]; p++)
        grad->initial[p] = selftest_floats(m->c, (size_t)m->sequences * m->rule->part_floats(&run->shape, p));
    set_scratch(m, run, PAL_FORWARD);
    if (m->c->broken || !run_pass(m, PAL_FORWARD, run)) return;
    set_scratch(m, run, PAL_BACKWARD);
    if (m->c->broken || !run_pass(m, PAL_BACKWARD, run)) return;

    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
        if (!(m->rule->inputs & 1u << i)) continue;
        const size_t channels = (size_t)pal_memory_channels(m->rule, &run->shape, 1u << i);
        const char *field = (const char *)grad + pal_memory_input_list[i].gradient;
        char name[32];
        snprintf(name, sizeof name, "grad.%s", recorded_memory_name(m->rule, 1u << i));
        if (pal_memory_input_list[i].parameter) check(m, name, NULL, *(float *const *)field, channels);
        else check(m, name, NULL, ((const pal_view *)field)->data, (size_t)m->tokens * channels);
    }
    for (int p = 0; p < 2 && m->rule->parts[p] && grad->initial[p]; p++) {
        char name[32];
        snprintf(name, sizeof name, "grad.%s0", m->rule->parts[p]);
        check(m, name, NULL, grad->initial[p], (size_t)m->sequences * m->rule->part_floats(&run->shape, p));
    }
}

static void run_case(memory_case *m) {
    const pal_memory_shape *s = &m->recorded.shape;
    m->tokens = s->tokens;
    m->sequences = s->sequences;
    m->heads = s->heads;
    m->dk = s->dk;
    m->dv = s->dv;
    m->run.shape = *s;
    m->run.in = m->recorded.in;
    m->run.y = fresh_rows(m, m->heads * m->dv);
    if (m->rule->has_variance) m->run.y_var = fresh_rows(m, m->heads * m->dv);
    m->states = selftest_bytes(m->c, (size_t)m->sequences * sizeof *m->states);
    const size_t state_floats = m->rule->state_floats(s);
    float *states = m->c->broken ? NULL : selftest_floats(m->c, (size_t)m->sequences * state_floats);
    if (!states) return;
    for (int n = 0; n < m->sequences; n++) m->states[n] = states + (size_t)n * state_floats;
    m->run.state = m->states;
    run_forward(m);
    if (!m->c->broken) run_steps(m);
    if (!m->c->broken) run_backward(m);
}

bool selftest_memory(selftest_case *c) {
    memory_case m = { .c = c, .rule = pal_memory_find(c->op) };
    pal_error err;
    if (!m.rule || pal_memory_keeps_tokens(m.rule))
        return false; /* attention is a building block: selftest_prim runs it */
    if (recorded_memory_read(&m.recorded, m.rule, c->file, &err)) selftest_break(c, "%s", err.text);
    else run_case(&m);
    recorded_memory_free(&m.recorded);
    return true;
}
