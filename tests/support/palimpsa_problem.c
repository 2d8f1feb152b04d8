/* SPDX-License-Identifier: MIT */
#include "support/palimpsa_problem.h"

#include <math.h>

const problem_result problem_results[RESULTS] = {
    [Y] = { "out.y", 2e-5 },     [Y_VAR] = { "out.y_var", 2e-5 }, [MU_T] = { "out.mu_T", 2e-5 },
    [I_T] = { "out.I_T", 2e-5 }, [DQ] = { "grad.q", 1e-5 },       [DK] = { "grad.k", 1e-5 },
    [DV] = { "grad.v", 1e-5 },   [DB] = { "grad.b", 1e-5 },       [DDT] = { "grad.dt", 5e-5 },
    [DA] = { "grad.A", 3e-4 },   [DIP] = { "grad.Ip", 5e-5 },     [DMU0] = { "grad.mu0", 1e-5 },
    [DI0] = { "grad.I0", 1e-5 },
};

size_t problem_input_count(const problem *p, int which) {
    const size_t T = (size_t)p->T, H = (size_t)p->H;
    switch (which) {
    case IN_Q:
    case IN_K: return T * (size_t)p->G * (size_t)p->dk;
    case IN_V:
    case IN_B:
    case IN_DY:
    case IN_DY_VAR: return T * H * (size_t)p->dv;
    case IN_DT: return T * H;
    case IN_A:
    case IN_IP: return H;
    default: return (size_t)p->N * H * (size_t)p->dv * (size_t)p->dk;
    }
}

size_t problem_result_count(const problem *p, int which) {
    static const int like[RESULTS] = { IN_V, IN_V,  IN_MU0, IN_MU0, IN_Q,   IN_K,  IN_V,
                                       IN_B, IN_DT, IN_A,   IN_IP,  IN_MU0, IN_MU0 };
    return problem_input_count(p, like[which]);
}

bool problem_has(const problem *p, int which) { return (which != DMU0 && which != DI0) || p->in[IN_MU0]; }

static pal_memory_shape problem_shape(const problem *p) {
    return (pal_memory_shape){ .sequences = p->N,
                               .tokens = p->T,
                               .cu_seqlens = p->cu,
                               .heads = p->H,
                               .key_heads = p->G,
                               .dk = p->dk,
                               .dv = p->dv };
}

void problem_free(problem *p) {
    for (int i = 0; i < INPUTS; i++)
        if (p->in[i]) test_guarded_free(p->in[i], problem_input_count(p, i));
    free(p->cu);
}

outcome outcome_new(const problem *p) {
    outcome o;
    for (int r = 0; r < RESULTS; r++) o.x[r] = test_guarded(problem_result_count(p, r));
    return o;
}
void outcome_free(const problem *p, outcome *o) {
    for (int r = 0; r < RESULTS; r++) test_guarded_free(o->x[r], problem_result_count(p, r));
}

pal_const_view rows(const float *data, int channels) { return (pal_const_view){ data, (size_t)channels }; }
pal_view out_rows(float *data, int channels) { return (pal_view){ data, (size_t)channels }; }

pal_memory_run problem_inputs(const problem *p) {
    return (pal_memory_run){
        .shape = problem_shape(p),
        .in = { .q = rows(p->in[IN_Q], p->G * p->dk),
                .k = rows(p->in[IN_K], p->G * p->dk),
                .v = rows(p->in[IN_V], p->H * p->dv),
                .b = rows(p->in[IN_B], p->H * p->dv),
                .dt = rows(p->in[IN_DT], p->H),
                .A = p->in[IN_A],
                .Ip = p->in[IN_IP],
                .scale = p->scale },
    };
}

memories memories_new(const problem *p) {
    const pal_memory_shape shape = problem_shape(p);
    const pal_memory_run run = problem_inputs(p);
    memories m = { .state = malloc((size_t)p->N * sizeof(float *)),
                   .floats = pal_memory_state_floats(&pal_rule_palimpsa, &shape) };
    const size_t part = pal_memory_part_floats(&pal_rule_palimpsa, &shape, 0);
    for (int n = 0; n < p->N; n++) {
        m.state[n] = test_guarded(m.floats);
        if (!p->in[IN_MU0]) continue;
        const float *const parts[2] = { p->in[IN_MU0] + (size_t)n * part, p->in[IN_I0] + (size_t)n * part };
        pal_memory_import(&pal_rule_palimpsa, &shape, &run.in, parts, m.state[n]);
    }
    return m;
}
void memories_export(const problem *p, const memories *m, outcome *o) {
    const pal_memory_shape shape = problem_shape(p);
    const pal_memory_run run = problem_inputs(p);
    const size_t part = pal_memory_part_floats(&pal_rule_palimpsa, &shape, 0);
    for (int n = 0; n < p->N; n++) {
        float *const parts[2] = { o->x[MU_T] + (size_t)n * part, o->x[I_T] + (size_t)n * part };
        pal_memory_export(&pal_rule_palimpsa, &shape, &run.in, parts, m->state[n]);
    }
}
void memories_free(const problem *p, memories *m) {
    for (int n = 0; n < p->N; n++) test_guarded_free(m->state[n], m->floats);
    free(m->state);
}

float *palimpsa_scratch(const pal_context *cx, const pal_memory_shape *shape, pal_memory_pass pass, size_t *floats) {
    const size_t bytes = pal_memory_scratch_bytes(&pal_rule_palimpsa, cx, shape, pass);
    assert_int_equal(bytes % 64, 0);
    *floats = bytes / sizeof(float);
    return test_guarded(*floats);
}

void problem_run(const pal_context *cx, const problem *p, wanted want, outcome *o) {
    pal_memory_run run = problem_inputs(p);
    pal_error err = { 0 };
    memories m = memories_new(p);
    size_t scratch_floats, saved_floats = pal_memory_saved_floats(&pal_rule_palimpsa, &run.shape);
    float *saved = want.backward ? test_guarded(saved_floats) : NULL;
    run.state = m.state;
    run.fresh = !p->in[IN_MU0];
    run.saved = saved;
    run.y = out_rows(o->x[Y], p->H * p->dv);
    if (want.variance) run.y_var = out_rows(o->x[Y_VAR], p->H * p->dv);
    float *scratch = palimpsa_scratch(cx, &run.shape, PAL_FORWARD, &scratch_floats);
    run.scratch = scratch;
    if (pal_memory_forward(&pal_rule_palimpsa, cx, &run, &err)) fail_msg("%s", err.text);
    test_guarded_free(scratch, scratch_floats);
    memories_export(p, &m, o);
    if (want.backward) {
        scratch = palimpsa_scratch(cx, &run.shape, PAL_BACKWARD, &scratch_floats);
        run.scratch = scratch;
        run.dy = rows(p->in[IN_DY], p->H * p->dv);
        if (want.variance && p->in[IN_DY_VAR]) run.dy_var = rows(p->in[IN_DY_VAR], p->H * p->dv);
        run.dfinal[0] = p->in[IN_DMU], run.dfinal[1] = p->in[IN_DI];
        memset(o->x[DA], 0, (size_t)p->H * sizeof(float));
        memset(o->x[DIP], 0, (size_t)p->H * sizeof(float));
        run.grad = (pal_memory_gradients){ .q = out_rows(o->x[DQ], p->G * p->dk),
                                           .k = out_rows(o->x[DK], p->G * p->dk),
                                           .v = out_rows(o->x[DV], p->H * p->dv),
                                           .b = out_rows(o->x[DB], p->H * p->dv),
                                           .dt = out_rows(o->x[DDT], p->H),
                                           .A = o->x[DA],
                                           .Ip = o->x[DIP] };
        if (p->in[IN_MU0]) run.grad.initial[0] = o->x[DMU0], run.grad.initial[1] = o->x[DI0];
        if (pal_memory_backward(&pal_rule_palimpsa, cx, &run, &err)) fail_msg("%s", err.text);
        test_guarded_free(scratch, scratch_floats);
        test_guarded_free(saved, saved_floats);
    }
    memories_free(p, &m);
}

int draw(pal_rng *rng, int lo, int hi) { return lo + (int)pal_rng_below(rng, (uint32_t)(hi - lo + 1)); }

static void fill_log(float *x, size_t n, pal_rng *rng, double lo, double hi) {
    for (size_t i = 0; i < n; i++) x[i] = hi > 0 ? (float)(lo * pow(hi / lo, pal_rng_uniform(rng))) : 0.0f;
}

problem problem_new(pal_rng *rng, recipe r) {
    problem p = { .N = r.N ? r.N : draw(rng, 1, 4),
                  .G = 1,
                  .dk = r.dk ? r.dk : draw(rng, 1, 40),
                  .dv = r.dv ? r.dv : draw(rng, 1, 40) };
    const int group = r.group ? r.group : draw(rng, 1, 2);
    p.H = r.H ? r.H : group * draw(rng, 1, 2);
    p.G = p.H / group;
    p.cu = calloc((size_t)p.N + 1, sizeof *p.cu);
    for (int n = 0; n < p.N; n++) p.cu[n + 1] = p.cu[n] + (r.length ? r.length : draw(rng, 1, 80));
    p.T = p.cu[p.N];
    p.scale = (float)(0.3 + pal_rng_uniform(rng));
    for (int i = 0; i < INPUTS; i++) {
        const size_t n = problem_input_count(&p, i);
        if (((i == IN_MU0 || i == IN_I0) && !r.initial) || ((i == IN_DMU || i == IN_DI) && !r.final)) continue;
        p.in[i] = test_guarded(n);
        if (i == IN_DT) fill_log(p.in[i], n, rng, r.adt_lo, r.adt_hi);
        else if (i == IN_B) fill_log(p.in[i], n, rng, r.b_lo, r.b_hi);
        else if (i == IN_A || i == IN_IP || i == IN_I0) test_fill(p.in[i], n, rng, 0.5, 2.0);
        else test_fill_normal(p.in[i], n, rng, i == IN_Q || i == IN_K ? 1 / sqrt(p.dk) : 1.0);
    }
    return p;
}

recipe recipe_usual(pal_rng *rng) {
    return (recipe){
        .initial = draw(rng, 0, 1), .final = draw(rng, 0, 1), .adt_lo = 1e-3, .adt_hi = 1, .b_lo = 1e-2, .b_hi = 3
    };
}
