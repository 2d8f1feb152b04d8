/* SPDX-License-Identifier: MIT */
/* The Palimpsa rule against recorded float64 numbers, against a float64 twin of its formula written here, and against
 * itself: whole, split and stepped, packed and separate, at every CPU level and with any number of threads. */
#include <dirent.h>
#include <math.h>

#include "base/alloc.h"
#include "memory/palimpsa/palimpsa.h"
#include "support/support.h"

/* Everything a run can produce. */
enum { Y, Y_VAR, MU_T, I_T, DQ, DK, DV, DB, DDT, DA, DIP, DMU0, DI0, RESULTS };
static const struct {
    const char *name; /* as in golden files */
    double accept;    /* nmax for these tensors */
} results[RESULTS] = {
    [Y] = { "out.y", 2e-5 },      [Y_VAR] = { "out.y_var", 2e-5 }, [MU_T] = { "out.mu_T", 2e-5 },   [I_T] = { "out.I_T", 2e-5 },
    [DQ] = { "grad.q", 1e-5 },    [DK] = { "grad.k", 1e-5 },       [DV] = { "grad.v", 1e-5 },       [DB] = { "grad.b", 1e-5 },
    [DDT] = { "grad.dt", 5e-5 },  [DA] = { "grad.A", 3e-4 },       [DIP] = { "grad.Ip", 5e-5 },     [DMU0] = { "grad.mu0", 1e-5 },
    [DI0] = { "grad.I0", 1e-5 },
};

/* Inputs and upstream gradients; those that are absent are NULL. */
enum { IN_Q, IN_K, IN_V, IN_B, IN_DT, IN_A, IN_IP, IN_MU0, IN_I0, IN_DY, IN_DY_VAR, IN_DMU, IN_DI, INPUTS };
static const char *const input_names[INPUTS] = { "in.q",  "in.k",   "in.v",  "in.b",      "in.dt",    "in.A",   "in.Ip",
                                                 "in.mu0", "in.I0", "in.dy", "in.dy_var", "in.dmu_T", "in.dI_T" };

typedef struct {
    int N, T, H, G, dk, dv; /* G key heads */
    int *cu;
    float scale;
    float *in[INPUTS];
} problem;

static size_t input_count(const problem *p, int which) {
    const size_t T = (size_t)p->T, H = (size_t)p->H;
    switch (which) {
    case IN_Q: case IN_K: return T * (size_t)p->G * (size_t)p->dk;
    case IN_V: case IN_B: case IN_DY: case IN_DY_VAR: return T * H * (size_t)p->dv;
    case IN_DT: return T * H;
    case IN_A: case IN_IP: return H;
    default: return (size_t)p->N * H * (size_t)p->dv * (size_t)p->dk;
    }
}

static size_t result_count(const problem *p, int which) {
    static const int like[RESULTS] = { IN_V, IN_V, IN_MU0, IN_MU0, IN_Q, IN_K, IN_V, IN_B, IN_DT, IN_A, IN_IP, IN_MU0, IN_MU0 };
    return input_count(p, like[which]);
}

/* Whether the problem defines this result. */
static bool has_result(const problem *p, int which) { return (which != DMU0 && which != DI0) || p->in[IN_MU0]; }

static pal_memory_shape shape_of(const problem *p) {
    return (pal_memory_shape){ .sequences = p->N, .tokens = p->T, .cu_seqlens = p->cu, .heads = p->H, .key_heads = p->G, .dk = p->dk, .dv = p->dv };
}

static void problem_free(problem *p) {
    for (int i = 0; i < INPUTS; i++) free(p->in[i]);
    free(p->cu);
}

/* Results of a run in f32, each buffer poisoned and ending at a guard page. */
typedef struct {
    float *x[RESULTS];
} outcome;

static outcome outcome_new(const problem *p) {
    outcome o;
    for (int r = 0; r < RESULTS; r++) o.x[r] = test_guarded(result_count(p, r));
    return o;
}
static void outcome_free(const problem *p, outcome *o) {
    for (int r = 0; r < RESULTS; r++) test_guarded_free(o->x[r], result_count(p, r));
}

static pal_const_view rows(const float *data, int channels) { return (pal_const_view){ data, (size_t)channels }; }
static pal_view out_rows(float *data, int channels) { return (pal_view){ data, (size_t)channels }; }

static pal_memory_run run_of(const problem *p) {
    return (pal_memory_run){
        .shape = shape_of(p),
        .in = { .q = rows(p->in[IN_Q], p->G * p->dk), .k = rows(p->in[IN_K], p->G * p->dk), .v = rows(p->in[IN_V], p->H * p->dv),
                .b = rows(p->in[IN_B], p->H * p->dv), .dt = rows(p->in[IN_DT], p->H), .A = p->in[IN_A], .Ip = p->in[IN_IP], .scale = p->scale },
    };
}

/* Memories of all sequences, each guarded and holding the initial one (or its default). */
typedef struct {
    float **state;
    size_t floats;
} memories;

static memories memories_new(const problem *p) {
    const pal_memory_shape shape = shape_of(p);
    const pal_memory_run run = run_of(p);
    memories m = { .state = malloc((size_t)p->N * sizeof(float *)), .floats = pal_memory_state_floats(&pal_rule_palimpsa, &shape) };
    const size_t part = pal_memory_part_floats(&pal_rule_palimpsa, &shape, 0);
    for (int n = 0; n < p->N; n++) {
        m.state[n] = test_guarded(m.floats);
        if (!p->in[IN_MU0]) continue;
        const float *const parts[2] = { p->in[IN_MU0] + (size_t)n * part, p->in[IN_I0] + (size_t)n * part };
        pal_memory_import(&pal_rule_palimpsa, &shape, &run.in, parts, m.state[n]);
    }
    return m;
}
static void memories_export(const problem *p, const memories *m, outcome *o) {
    const pal_memory_shape shape = shape_of(p);
    const pal_memory_run run = run_of(p);
    const size_t part = pal_memory_part_floats(&pal_rule_palimpsa, &shape, 0);
    for (int n = 0; n < p->N; n++) {
        float *const parts[2] = { o->x[MU_T] + (size_t)n * part, o->x[I_T] + (size_t)n * part };
        pal_memory_export(&pal_rule_palimpsa, &shape, &run.in, parts, m->state[n]);
    }
}
static void memories_free(const problem *p, memories *m) {
    for (int n = 0; n < p->N; n++) test_guarded_free(m->state[n], m->floats);
    free(m->state);
}

/* A poisoned scratch whose end is guarded; its size is a multiple of 64, so its start is aligned. */
static float *scratch_for(const pal_context *cx, const pal_memory_shape *shape, pal_memory_pass pass, size_t *floats) {
    const size_t bytes = pal_memory_scratch_bytes(&pal_rule_palimpsa, cx, shape, pass);
    assert_int_equal(bytes % 64, 0);
    *floats = bytes / sizeof(float);
    return test_guarded(*floats);
}

typedef struct {
    bool backward, variance; /* what is asked for */
} wanted;

/* Forward, and backward from what forward saved. */
static void run_problem(const pal_context *cx, const problem *p, wanted want, outcome *o) {
    pal_memory_run run = run_of(p);
    pal_error err = { 0 };
    memories m = memories_new(p);
    size_t scratch_floats, saved_floats = pal_memory_saved_floats(&pal_rule_palimpsa, &run.shape);
    float *saved = want.backward ? test_guarded(saved_floats) : NULL;
    run.state = m.state;
    run.fresh = !p->in[IN_MU0];
    run.saved = saved;
    run.y = out_rows(o->x[Y], p->H * p->dv);
    if (want.variance) run.y_var = out_rows(o->x[Y_VAR], p->H * p->dv);
    float *scratch = scratch_for(cx, &run.shape, PAL_FORWARD, &scratch_floats);
    run.scratch = scratch;
    if (pal_memory_forward(&pal_rule_palimpsa, cx, &run, &err)) fail_msg("%s", err.text);
    test_guarded_free(scratch, scratch_floats);
    memories_export(p, &m, o);
    if (want.backward) {
        scratch = scratch_for(cx, &run.shape, PAL_BACKWARD, &scratch_floats);
        run.scratch = scratch;
        run.dy = rows(p->in[IN_DY], p->H * p->dv);
        if (want.variance && p->in[IN_DY_VAR]) run.dy_var = rows(p->in[IN_DY_VAR], p->H * p->dv);
        run.dfinal[0] = p->in[IN_DMU], run.dfinal[1] = p->in[IN_DI];
        memset(o->x[DA], 0, (size_t)p->H * sizeof(float));
        memset(o->x[DIP], 0, (size_t)p->H * sizeof(float));
        run.grad = (pal_memory_gradients){ .q = out_rows(o->x[DQ], p->G * p->dk), .k = out_rows(o->x[DK], p->G * p->dk),
                                           .v = out_rows(o->x[DV], p->H * p->dv), .b = out_rows(o->x[DB], p->H * p->dv),
                                           .dt = out_rows(o->x[DDT], p->H), .A = o->x[DA], .Ip = o->x[DIP] };
        if (p->in[IN_MU0]) run.grad.initial[0] = o->x[DMU0], run.grad.initial[1] = o->x[DI0];
        if (pal_memory_backward(&pal_rule_palimpsa, cx, &run, &err)) fail_msg("%s", err.text);
        test_guarded_free(scratch, scratch_floats);
        test_guarded_free(saved, saved_floats);
    }
    memories_free(p, &m);
}

/* A golden file as a problem. */
static problem problem_from(const pal_safetensors *file, const char *path) {
    problem p = { 0 };
    const pal_tensor *q = pal_safetensors_find(file, "in.q"), *v = pal_safetensors_find(file, "in.v");
    const pal_tensor *cu = pal_safetensors_find(file, "in.cu_seqlens");
    if (!q || !v || q->rank != 4) fail_msg("%s: not a case of this rule", path);
    p.H = p.G = (int)q->shape[2], p.dk = (int)q->shape[3], p.dv = (int)v->shape[3];
    p.T = (int)(q->shape[0] * q->shape[1]);
    p.N = cu ? (int)cu->count - 1 : (int)q->shape[0];
    p.cu = malloc(((size_t)p.N + 1) * sizeof *p.cu);
    for (int n = 0; n <= p.N; n++) p.cu[n] = cu ? (int)((const int64_t *)cu->data)[n] : n * (int)q->shape[1];
    for (int i = 0; i < INPUTS; i++) {
        const pal_tensor *t = pal_safetensors_find(file, input_names[i]);
        if (!t) continue;
        assert_int_equal(t->count, input_count(&p, i));
        p.in[i] = malloc(t->count * sizeof(float));
        pal_error err;
        if (pal_tensor_to_f32(t, p.in[i], &err)) fail_msg("%s: %s", path, err.text);
    }
    const pal_tensor *scale = pal_safetensors_find(file, "in.scale");
    assert_non_null(scale);
    p.scale = *(const float *)scale->data;
    return p;
}

static int check_golden_file(const char *path) {
    pal_safetensors *file;
    pal_error err;
    int checked = 0;
    if (pal_safetensors_open(&file, path, &err)) fail_msg("%s", err.text);
    problem p = problem_from(file, path);
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(2, pal_cpu_level_name(level));
        outcome o = outcome_new(&p);
        run_problem(cx, &p, (wanted){ .backward = true, .variance = true }, &o);
        for (int r = 0; r < RESULTS; r++) {
            const pal_tensor *t = pal_safetensors_find(file, results[r].name);
            if (!t || !has_result(&p, r)) continue;
            assert_int_equal(t->count, result_count(&p, r));
            double *ref = malloc(t->count * sizeof *ref);
            memcpy(ref, t->data, t->count * sizeof *ref);
            const double found = test_nmax_f64(o.x[r], ref, t->count);
            if (getenv("PALIMPSA_TEST_VERBOSE"))
                print_message("%-40s %-7s %-10s %.2e of %.0e\n", strrchr(path, '/') + 1, pal_cpu_level_name(level), results[r].name, found, results[r].accept);
            if (!(found <= results[r].accept))
                fail_msg("%s, %s, %s: error %.3g, accepted %.3g", path, pal_cpu_level_name(level), results[r].name, found, results[r].accept);
            free(ref);
            checked++;
        }
        outcome_free(&p, &o);
        pal_context_free(cx);
    }
    problem_free(&p);
    pal_safetensors_close(file);
    return checked;
}

static int check_golden_folder(const char *folder) {
    char path[4096];
    int files = 0;
    DIR *dir = opendir(folder);
    if (!dir) fail_msg("%s: cannot be opened", folder);
    for (struct dirent *e; (e = readdir(dir));) {
        if (strncmp(e->d_name, "palimpsa_", 9) != 0 || !strstr(e->d_name, ".safetensors")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        assert_true(check_golden_file(path) >= 10);
        files++;
    }
    closedir(dir);
    return files;
}

static void golden_cases_hold_at_every_level(void **state) {
    (void)state;
    assert_true(check_golden_folder(PAL_TEST_GOLDEN "/ops") >= 10);
    const char *more = getenv("PALIMPSA_GOLDEN");
    if (!more || !*more) return;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/ops", more);
    assert_true(check_golden_folder(folder) >= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_cases_hold_at_every_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
