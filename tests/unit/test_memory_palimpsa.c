/* SPDX-License-Identifier: MIT */
/* The Palimpsa rule against recorded float64 numbers, against a float64 twin of its formula written here, and against
 * itself: whole, split and stepped, packed and separate, at every CPU level and with any number of threads. */
#include <dirent.h>
#include <math.h>

#include "base/alloc.h"
#include "memory/palimpsa/palimpsa.h"
#include "support/memory_harness.h"

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
    for (int i = 0; i < INPUTS; i++)
        if (p->in[i]) test_guarded_free(p->in[i], input_count(p, i));
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
    for (int n = 0; n <= p.N; n++) {
        int64_t at = n * q->shape[1];
        if (cu) memcpy(&at, (const char *)cu->data + (size_t)n * sizeof at, sizeof at); /* data need not be aligned */
        p.cu[n] = (int)at;
    }
    for (int i = 0; i < INPUTS; i++) {
        const pal_tensor *t = pal_safetensors_find(file, input_names[i]);
        if (!t) continue;
        assert_int_equal(t->count, input_count(&p, i));
        p.in[i] = test_guarded(t->count);
        pal_error err;
        if (pal_tensor_to_f32(t, p.in[i], &err)) fail_msg("%s: %s", path, err.text);
    }
    const pal_tensor *scale = pal_safetensors_find(file, "in.scale");
    assert_non_null(scale);
    memcpy(&p.scale, scale->data, sizeof p.scale);
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


/* How to draw a problem. Zero means: as the test likes. */
typedef struct {
    int N, H, group, dk, dv; /* group: heads that share a key head */
    int length;              /* of every sequence; 0: each its own, 1 .. 80 */
    bool initial, final;     /* with initial memories; with gradients of the final ones */
    double adt_lo, adt_hi;   /* A dt is drawn from a log-uniform range */
    double b_lo, b_hi;       /* likewise b; 0, 0: b is zero */
} recipe;

static int draw(pal_rng *rng, int lo, int hi) { return lo + (int)pal_rng_below(rng, (uint32_t)(hi - lo + 1)); }

static void fill_log(float *x, size_t n, pal_rng *rng, double lo, double hi) {
    for (size_t i = 0; i < n; i++) x[i] = hi > 0 ? (float)(lo * pow(hi / lo, pal_rng_uniform(rng))) : 0.0f;
}

static problem problem_new(pal_rng *rng, recipe r) {
    problem p = { .N = r.N ? r.N : draw(rng, 1, 4), .G = 1, .dk = r.dk ? r.dk : draw(rng, 1, 40), .dv = r.dv ? r.dv : draw(rng, 1, 40) };
    const int group = r.group ? r.group : draw(rng, 1, 2);
    p.H = r.H ? r.H : group * draw(rng, 1, 2);
    p.G = p.H / group;
    p.cu = calloc((size_t)p.N + 1, sizeof *p.cu);
    for (int n = 0; n < p.N; n++) p.cu[n + 1] = p.cu[n] + (r.length ? r.length : draw(rng, 1, 80));
    p.T = p.cu[p.N];
    p.scale = (float)(0.3 + pal_rng_uniform(rng));
    for (int i = 0; i < INPUTS; i++) {
        const size_t n = input_count(&p, i);
        if (((i == IN_MU0 || i == IN_I0) && !r.initial) || ((i == IN_DMU || i == IN_DI) && !r.final)) continue;
        p.in[i] = test_guarded(n);
        if (i == IN_DT) fill_log(p.in[i], n, rng, r.adt_lo, r.adt_hi);
        else if (i == IN_B) fill_log(p.in[i], n, rng, r.b_lo, r.b_hi);
        else if (i == IN_A || i == IN_IP || i == IN_I0) test_fill(p.in[i], n, rng, 0.5, 2.0);
        else test_fill_normal(p.in[i], n, rng, i == IN_Q || i == IN_K ? 1 / sqrt(p.dk) : 1.0);
    }
    return p;
}

static recipe usual(pal_rng *rng) {
    return (recipe){ .initial = draw(rng, 0, 1), .final = draw(rng, 0, 1), .adt_lo = 1e-3, .adt_hi = 1, .b_lo = 1e-2, .b_hi = 3 };
}

/* The formula and its derivative in float64, over float64 inputs. */
typedef struct {
    double *in[INPUTS], *x[RESULTS];
} twin;

static twin twin_new(const problem *p) {
    twin w = { 0 };
    for (int i = 0; i < INPUTS; i++) {
        if (!p->in[i]) continue;
        const size_t n = input_count(p, i);
        w.in[i] = malloc(n * sizeof(double));
        for (size_t e = 0; e < n; e++) w.in[i][e] = (double)p->in[i][e];
    }
    for (int r = 0; r < RESULTS; r++) w.x[r] = calloc(result_count(p, r), sizeof(double));
    return w;
}
static void twin_free(twin *w) {
    for (int i = 0; i < INPUTS; i++) free(w->in[i]);
    for (int r = 0; r < RESULTS; r++) free(w->x[r]);
}

/* One head of one sequence; history: (T+1, dv, dk) M and the same I, or NULL. */
static void twin_forward(const problem *p, twin *w, int n, int h, double *M, double *I, double *history) {
    const int dk = p->dk, dv = p->dv, g = h / (p->H / p->G);
    const size_t e = (size_t)dk * (size_t)dv, part = ((size_t)n * (size_t)p->H + (size_t)h) * e;
    for (size_t i = 0; i < e; i++) {
        I[i] = w->in[IN_I0] ? w->in[IN_I0][part + i] : w->in[IN_IP][h];
        M[i] = w->in[IN_MU0] ? w->in[IN_MU0][part + i] * I[i] : 0;
    }
    for (int t = p->cu[n]; t < p->cu[n + 1]; t++) {
        const double *q = w->in[IN_Q] + ((size_t)t * (size_t)p->G + (size_t)g) * (size_t)dk, *k = w->in[IN_K] + (q - w->in[IN_Q]);
        const size_t row = ((size_t)t * (size_t)p->H + (size_t)h) * (size_t)dv;
        const double adt = w->in[IN_A][h] * w->in[IN_DT][t * p->H + h], a = exp(-adt), c = -expm1(-adt) * w->in[IN_IP][h];
        if (history) memcpy(history, M, e * sizeof *M), memcpy(history + e, I, e * sizeof *I), history += 2 * e;
        for (int i = 0; i < dv; i++) {
            double y = 0, y_var = 0;
            for (int j = 0; j < dk; j++) {
                const int at = i * dk + j;
                M[at] = a * M[at] + w->in[IN_V][row + (size_t)i] * k[j];
                I[at] = a * I[at] + c + w->in[IN_B][row + (size_t)i] * k[j] * k[j];
                const double sq = (double)p->scale * q[j];
                y += sq * M[at] / I[at];
                y_var += sq * sq / I[at];
            }
            w->x[Y][row + (size_t)i] = y;
            w->x[Y_VAR][row + (size_t)i] = y_var;
        }
    }
    if (history) memcpy(history, M, e * sizeof *M), memcpy(history + e, I, e * sizeof *I);
    for (size_t i = 0; i < e; i++) w->x[MU_T][part + i] = M[i] / I[i], w->x[I_T][part + i] = I[i];
}

static void twin_backward(const problem *p, twin *w, int n, int h, const double *history, bool variance) {
    const int dk = p->dk, dv = p->dv, g = h / (p->H / p->G), length = p->cu[n + 1] - p->cu[n];
    const size_t e = (size_t)dk * (size_t)dv, part = ((size_t)n * (size_t)p->H + (size_t)h) * e;
    const double s = (double)p->scale, A = w->in[IN_A][h], Ip = w->in[IN_IP][h];
    double *dM = malloc(e * sizeof *dM), *dI = malloc(e * sizeof *dI);
    const double *end = history + (size_t)length * 2 * e;
    for (size_t i = 0; i < e; i++) {
        const double dmu = w->in[IN_DMU] ? w->in[IN_DMU][part + i] : 0;
        dM[i] = dmu / end[e + i];
        dI[i] = (w->in[IN_DI] ? w->in[IN_DI][part + i] : 0) - dmu * end[i] / (end[e + i] * end[e + i]);
    }
    for (int t = p->cu[n + 1] - 1; t >= p->cu[n]; t--) {
        const double *before = history + (size_t)(t - p->cu[n]) * 2 * e, *after = before + 2 * e;
        const size_t key = ((size_t)t * (size_t)p->G + (size_t)g) * (size_t)dk, row = ((size_t)t * (size_t)p->H + (size_t)h) * (size_t)dv;
        const double dt = w->in[IN_DT][t * p->H + h], a = exp(-A * dt);
        double da = 0, prior = 0;
        for (int i = 0; i < dv; i++)
            for (int j = 0; j < dk; j++) {
                const int at = i * dk + j;
                const double q = s * w->in[IN_Q][key + (size_t)j], k = w->in[IN_K][key + (size_t)j];
                const double v = w->in[IN_V][row + (size_t)i], b = w->in[IN_B][row + (size_t)i];
                const double dy = w->in[IN_DY][row + (size_t)i], dy_var = variance ? w->in[IN_DY_VAR][row + (size_t)i] : 0;
                const double M = after[at], I = after[e + (size_t)at];
                dM[at] += dy * q / I;
                dI[at] -= dy * q * M / (I * I) + dy_var * q * q / (I * I);
                w->x[DQ][key + (size_t)j] += s * dy * M / I + 2 * s * q * dy_var / I;
                w->x[DK][key + (size_t)j] += dM[at] * v + 2 * k * dI[at] * b;
                w->x[DV][row + (size_t)i] += dM[at] * k;
                w->x[DB][row + (size_t)i] += dI[at] * k * k;
                da += dM[at] * before[at] + dI[at] * (before[e + (size_t)at] - Ip);
                prior += dI[at];
                dM[at] *= a;
                dI[at] *= a;
            }
        w->x[DDT][t * p->H + h] = -A * a * da;
        w->x[DA][h] -= dt * a * da;
        w->x[DIP][h] += -expm1(-A * dt) * prior;
    }
    for (size_t i = 0; i < e; i++) {
        w->x[DMU0][part + i] = dM[i] * history[e + i];
        w->x[DI0][part + i] = dM[i] * history[i] / history[e + i] + dI[i];
        if (!w->in[IN_MU0]) w->x[DIP][h] += dI[i];
    }
    free(dM);
    free(dI);
}

static void twin_run(const problem *p, twin *w, wanted want) {
    const size_t e = (size_t)p->dk * (size_t)p->dv;
    double *M = malloc(e * sizeof *M), *I = malloc(e * sizeof *I), *history = malloc(((size_t)p->T + 1) * 2 * e * sizeof *history);
    for (int n = 0; n < p->N; n++)
        for (int h = 0; h < p->H; h++) {
            twin_forward(p, w, n, h, M, I, want.backward ? history : NULL);
            if (want.backward) twin_backward(p, w, n, h, history, want.variance);
        }
    free(M);
    free(I);
    free(history);
}

/* <upstream, outputs> */
static double twin_loss(const problem *p, twin *w) {
    static const int upstream[][2] = { { IN_DY, Y }, { IN_DY_VAR, Y_VAR }, { IN_DMU, MU_T }, { IN_DI, I_T } };
    double loss = 0;
    twin_run(p, w, (wanted){ 0 });
    for (size_t u = 0; u < PAL_COUNT(upstream); u++)
        for (size_t i = 0; w->in[upstream[u][0]] && i < result_count(p, upstream[u][1]); i++)
            loss += w->in[upstream[u][0]][i] * w->x[upstream[u][1]][i];
    return loss;
}

/* nmax of every result of o against the twin; slack is added to what the rule accepts. */
static void check_outcome(const char *what, const problem *p, const outcome *o, const twin *w, wanted want, double slack) {
    for (int r = 0; r < RESULTS; r++) {
        if (!has_result(p, r) || (r >= DQ && !want.backward) || (r == Y_VAR && !want.variance)) continue;
        const double found = test_nmax_f64(o->x[r], w->x[r], result_count(p, r));
        if (!(found <= results[r].accept + slack))
            fail_msg("%s, N %d T %d H %d G %d dk %d dv %d: %s has error %.3g, accepted %.3g", what, p->N, p->T, p->H, p->G, p->dk, p->dv,
                     results[r].name, found, results[r].accept + slack);
    }
}

static void same_outcome(const char *what, const problem *p, const outcome *o, const outcome *ref, wanted want) {
    for (int r = 0; r < RESULTS; r++) {
        if (!has_result(p, r) || (r >= DQ && !want.backward) || (r == Y_VAR && !want.variance)) continue;
        char name[128];
        snprintf(name, sizeof name, "%s, dk %d dv %d: %s", what, p->dk, p->dv, results[r].name);
        test_same_bits(name, o->x[r], ref->x[r], result_count(p, r));
    }
}

static int cases(int some, int many) {
    const char *text = getenv("PALIMPSA_TEST_LONG");
    return text && *text ? many : some;
}

static void gradients_match_differences(void **state) {
    (void)state;
    static const int gradient_of[INPUTS] = { DQ, DK, DV, DB, DDT, DA, DIP, DMU0, DI0, -1, -1, -1, -1 };
    pal_rng rng = pal_rng_at(31, 1);
    for (int c = 0; c < cases(4, 40); c++) {
        recipe r = usual(&rng);
        r.N = 2, r.dk = draw(&rng, 1, 5), r.dv = draw(&rng, 1, 5), r.length = draw(&rng, 1, 40), r.initial = c % 2, r.final = c / 2 % 2;
        problem p = problem_new(&rng, r);
        for (TEST_LEVELS(level)) {
            pal_context *cx = test_context(1, pal_cpu_level_name(level));
            outcome o = outcome_new(&p);
            twin w = twin_new(&p);
            run_problem(cx, &p, (wanted){ true, true }, &o);
            for (int i = 0; i < INPUTS; i++) {
                if (gradient_of[i] < 0 || !p.in[i]) continue;
                const size_t n = input_count(&p, i);
                double scale = 0;
                for (size_t e = 0; e < n; e++) scale = fmax(scale, fabs((double)o.x[gradient_of[i]][e]));
                for (int tries = 0; tries < 6; tries++) {
                    const size_t e = pal_rng_below(&rng, (uint32_t)n);
                    const double x = w.in[i][e], step = 1e-6 * fmax(1e-2, fabs(x));
                    w.in[i][e] = x + step;
                    double slope = twin_loss(&p, &w);
                    w.in[i][e] = x - step;
                    slope = (slope - twin_loss(&p, &w)) / (2 * step);
                    w.in[i][e] = x;
                    const double found = (double)o.x[gradient_of[i]][e];
                    if (!(fabs(found - slope) <= 1e-4 * scale + 1e-6))
                        fail_msg("%s[%zu] at %s is %.9g, differences give %.9g", results[gradient_of[i]].name, e, pal_cpu_level_name(level), found, slope);
                }
            }
            twin_free(&w);
            outcome_free(&p, &o);
            pal_context_free(cx);
        }
        problem_free(&p);
    }
}

/* Sizes under, at and over the widths of vectors, tiles and blocks, with and without everything that is optional. */
static void every_level_matches_the_formula_at_odd_sizes(void **state) {
    (void)state;
    static const int sizes[] = { 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 48, 63, 65, 130 };
    pal_rng rng = pal_rng_at(32, 1);
    for (int c = 0; c < cases(40, 400); c++) {
        recipe r = usual(&rng);
        r.dk = sizes[draw(&rng, 0, (int)PAL_COUNT(sizes) - 1)], r.dv = sizes[draw(&rng, 0, (int)PAL_COUNT(sizes) - 1)];
        if (c % 4 == 0) r.adt_hi = 12; /* some decays strong, some not */
        if (c % 10 == 9) r.N = 17, r.length = 5, r.group = 2, r.dv = 70; /* key gradients summed by the items themselves */
        problem p = problem_new(&rng, r);
        const wanted want = { true, c % 2 };
        twin w = twin_new(&p);
        twin_run(&p, &w, want);
        if (!want.variance) memset(w.x[Y_VAR], 0, result_count(&p, Y_VAR) * sizeof(double));
        for (TEST_LEVELS(level)) {
            pal_context *cx = test_context(1, pal_cpu_level_name(level));
            outcome o = outcome_new(&p);
            run_problem(cx, &p, want, &o);
            check_outcome(pal_cpu_level_name(level), &p, &o, &w, want, 0);
            outcome_free(&p, &o);
            pal_context_free(cx);
        }
        twin_free(&w);
        problem_free(&p);
    }
}

/* From no forgetting to complete forgetting, from no importance to a huge one, from one token to many. */
static void accuracy_holds_over_the_whole_range(void **state) {
    (void)state;
    static const double adt[][2] = { { 1e-8, 1e-8 }, { 1e-5, 1e-4 }, { 0.1, 0.5 }, { 2, 4 }, { 20, 50 }, { 1e-8, 50 } };
    static const double b[][2] = { { 0, 0 }, { 1e-8, 1e-6 }, { 0.1, 2 }, { 1e5, 1e6 }, { 1e-6, 1e6 } };
    static const int lengths[] = { 1, 33, 300 };
    pal_rng rng = pal_rng_at(33, 1);
    for (size_t x = 0; x < PAL_COUNT(adt); x++)
        for (size_t z = 0; z < PAL_COUNT(b); z++)
            for (size_t l = 0; l < PAL_COUNT(lengths); l++) {
                problem p = problem_new(&rng, (recipe){ .N = 1, .H = 4, .group = 1, .dk = 9, .dv = 17, .length = lengths[l], .initial = l == 1,
                                                        .adt_lo = adt[x][0], .adt_hi = adt[x][1], .b_lo = b[z][0], .b_hi = b[z][1] });
                char what[64];
                for (int variance = 0; variance < 2; variance++) {
                    const wanted want = { true, variance };
                    twin w = twin_new(&p);
                    twin_run(&p, &w, want);
                    for (TEST_LEVELS(level)) {
                        pal_context *cx = test_context(1, pal_cpu_level_name(level));
                        outcome o = outcome_new(&p);
                        run_problem(cx, &p, want, &o);
                        snprintf(what, sizeof what, "%s, A dt %g..%g, b %g..%g", pal_cpu_level_name(level), adt[x][0], adt[x][1], b[z][0], b[z][1]);
                        check_outcome(what, &p, &o, &w, want, p.T * 0x1p-24);
                        outcome_free(&p, &o);
                        pal_context_free(cx);
                    }
                    twin_free(&w);
                }
                problem_free(&p);
            }
}

static void accuracy_holds_over_100000_tokens(void **state) {
    (void)state;
    static const double adt[][2] = { { 1e-8, 1e-8 }, { 1e-8, 1 } };
    pal_rng rng = pal_rng_at(34, 1);
    for (size_t x = 0; x < PAL_COUNT(adt); x++) {
        problem p = problem_new(&rng, (recipe){ .N = 1, .H = 1, .group = 1, .dk = 3, .dv = 2, .length = 100000, .adt_lo = adt[x][0],
                                                .adt_hi = adt[x][1], .b_lo = 0.1, .b_hi = 10 });
        const wanted want = { true, false };
        twin w = twin_new(&p);
        twin_run(&p, &w, want);
        for (TEST_LEVELS(level)) {
            pal_context *cx = test_context(1, pal_cpu_level_name(level));
            outcome o = outcome_new(&p);
            run_problem(cx, &p, want, &o);
            check_outcome(pal_cpu_level_name(level), &p, &o, &w, want, p.T * 0x1p-24);
            outcome_free(&p, &o);
            pal_context_free(cx);
        }
        twin_free(&w);
        problem_free(&p);
    }
}

/* Tokens from..to-1 of the only sequence, continuing from its memory: as a forward, or as steps. */
static void run_piece(const pal_context *cx, const problem *p, memories *m, int from, int to, bool steps, outcome *o) {
    const int end = steps ? from + 1 : to;
    for (int t = from; t < to; t += end - from) {
        int cu[2] = { 0, end - from };
        pal_memory_run run = run_of(p);
        pal_error err = { 0 };
        const size_t at = (size_t)t;
        size_t floats;
        run.shape.tokens = cu[1];
        run.shape.cu_seqlens = steps ? NULL : cu;
        run.in.q.data += at * run.in.q.stride, run.in.k.data += at * run.in.k.stride, run.in.dt.data += at * run.in.dt.stride;
        run.in.v.data += at * run.in.v.stride, run.in.b.data += at * run.in.b.stride;
        run.y = out_rows(o->x[Y] + at * (size_t)(p->H * p->dv), p->H * p->dv);
        run.y_var = out_rows(o->x[Y_VAR] + at * (size_t)(p->H * p->dv), p->H * p->dv);
        run.state = m->state;
        run.fresh = t == 0 && !p->in[IN_MU0];
        float *scratch = scratch_for(cx, &run.shape, steps ? PAL_STEP : PAL_FORWARD, &floats);
        run.scratch = scratch;
        if ((steps ? pal_memory_step : pal_memory_forward)(&pal_rule_palimpsa, cx, &run, &err)) fail_msg("%s", err.text);
        test_guarded_free(scratch, floats);
    }
}

static void split_at_random_equals_whole(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(35, 1);
    for (int c = 0; c < cases(30, 1000); c++) {
        recipe r = usual(&rng);
        r.N = 1, r.length = draw(&rng, 1, 100), r.adt_hi = c % 3 ? 1 : 30;
        problem p = problem_new(&rng, r);
        twin w = twin_new(&p);
        twin_run(&p, &w, (wanted){ .variance = true });
        outcome o = outcome_new(&p);
        memories m = memories_new(&p);
        for (int from = 0; from < p.T;) { /* every piece at a level of its own: a memory serves at any */
            const pal_cpu_level level = (pal_cpu_level)draw(&rng, 0, (int)pal_cpu_detect());
            pal_context *cx = test_context(draw(&rng, 1, 2), pal_cpu_level_name(level));
            const int to = draw(&rng, from + 1, p.T);
            run_piece(cx, &p, &m, from, to, draw(&rng, 0, 1), &o);
            from = to;
            pal_context_free(cx);
        }
        memories_export(&p, &m, &o);
        check_outcome("split", &p, &o, &w, (wanted){ .variance = true }, 0);
        memories_free(&p, &m);
        outcome_free(&p, &o);
        twin_free(&w);
        problem_free(&p);
    }
}

static void packed_equals_separate(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(36, 1);
    for (int c = 0; c < cases(8, 100); c++) {
        problem p = problem_new(&rng, (recipe){ .N = 4, .group = 1, .initial = true, .final = true, .adt_lo = 1e-3, .adt_hi = 2, .b_lo = 0.1, .b_hi = 2 });
        const wanted want = { true, c % 2 };
        for (TEST_LEVELS(level)) {
            pal_context *cx = test_context(1, pal_cpu_level_name(level));
            outcome whole = outcome_new(&p);
            run_problem(cx, &p, want, &whole);
            for (int n = 0; n < p.N; n++) {
                int cu[2] = { 0, p.cu[n + 1] - p.cu[n] };
                problem alone = p;
                alone.N = 1, alone.T = cu[1], alone.cu = cu;
                for (int i = 0; i < INPUTS; i++) {
                    if (i == IN_A || i == IN_IP || !p.in[i]) continue;
                    const bool part = i == IN_MU0 || i == IN_I0 || i == IN_DMU || i == IN_DI;
                    const size_t each = input_count(&alone, i) / (part ? 1 : (size_t)alone.T);
                    alone.in[i] = p.in[i] + (part ? (size_t)n : (size_t)p.cu[n]) * each;
                }
                outcome o = outcome_new(&alone);
                run_problem(cx, &alone, want, &o);
                for (int r = 0; r < RESULTS; r++) {
                    if (r == DA || r == DIP || (r == Y_VAR && !want.variance)) continue; /* those two sum over sequences */
                    const bool part = r == MU_T || r == I_T || r == DMU0 || r == DI0;
                    const size_t count = result_count(&alone, r), each = count / (part ? 1 : (size_t)alone.T);
                    test_same_bits(results[r].name, o.x[r], whole.x[r] + (part ? (size_t)n : (size_t)p.cu[n]) * each, count);
                }
                outcome_free(&alone, &o);
            }
            outcome_free(&p, &whole);
            pal_context_free(cx);
        }
        problem_free(&p);
    }
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    static const recipe shapes[] = {
        { .N = 3, .H = 2, .group = 1, .dk = 16, .dv = 32 },            /* one block of values */
        { .N = 1, .H = 4, .group = 2, .dk = 9, .dv = 70, .initial = true }, /* shared keys, two blocks, summed afterwards */
        { .N = 17, .H = 2, .group = 2, .dk = 5, .dv = 65, .length = 9 },    /* the same, summed on the way */
        { .N = 1, .H = 1, .group = 1, .dk = 17, .dv = 200, .final = true },
    };
    pal_rng rng = pal_rng_at(37, 1);
    for (size_t c = 0; c < PAL_COUNT(shapes); c++) {
        recipe r = shapes[c];
        r.adt_lo = 1e-3, r.adt_hi = 4, r.b_lo = 0.1, r.b_hi = 2;
        problem p = problem_new(&rng, r);
        for (TEST_LEVELS(level)) {
            const wanted want = { true, level % 2 };
            pal_context *one = test_context(1, pal_cpu_level_name(level));
            outcome ref = outcome_new(&p);
            run_problem(one, &p, want, &ref);
            for (int threads = 2; threads <= 7; threads = threads == 3 ? 7 : threads + 1) {
                pal_context *cx = test_context(threads, pal_cpu_level_name(level));
                outcome o = outcome_new(&p);
                run_problem(cx, &p, want, &o);
                same_outcome("threads", &p, &o, &ref, want);
                outcome_free(&p, &o);
                pal_context_free(cx);
            }
            outcome_free(&p, &ref);
            pal_context_free(one);
        }
        problem_free(&p);
    }
}

/* With b = 0 importance never leaves Ip: y is a linear memory's, S <- alpha S + v/Ip k^T. */
static void without_importance_it_is_gla_on_v_over_Ip(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(38, 1);
    problem p = problem_new(&rng, (recipe){ .N = 1, .H = 1, .group = 1, .dk = 12, .dv = 20, .length = 150, .adt_lo = 1e-4, .adt_hi = 1 });
    double S[20 * 12] = { 0 }, *y = calloc(input_count(&p, IN_V), sizeof *y);
    for (int t = 0; t < p.T; t++)
        for (int i = 0; i < p.dv; i++)
            for (int j = 0; j < p.dk; j++) {
                const double alpha = exp(-(double)p.in[IN_A][0] * (double)p.in[IN_DT][t]);
                double *s = &S[i * p.dk + j];
                *s = alpha * *s + (double)p.in[IN_V][t * p.dv + i] / (double)p.in[IN_IP][0] * (double)p.in[IN_K][t * p.dk + j];
                y[t * p.dv + i] += *s * (double)p.in[IN_Q][t * p.dk + j] * (double)p.scale;
            }
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        outcome o = outcome_new(&p);
        run_problem(cx, &p, (wanted){ 0 }, &o);
        const double found = test_nmax_f64(o.x[Y], y, input_count(&p, IN_V));
        if (!(found <= 5e-6)) fail_msg("%s: error %.3g", pal_cpu_level_name(level), found);
        outcome_free(&p, &o);
        pal_context_free(cx);
    }
    free(y);
    problem_free(&p);
}

/* Rows inside a wider matrix give the same bits, leave their neighbours alone, and gradients not wanted are not written. */
static void views_into_wider_rows_work(void **state) {
    (void)state;
    enum { GAP = 5 };
    pal_rng rng = pal_rng_at(39, 1);
    problem p = problem_new(&rng, (recipe){ .N = 2, .H = 2, .group = 2, .dk = 11, .dv = 21, .adt_lo = 1e-3, .adt_hi = 1, .b_lo = 0.1, .b_hi = 2 });
    const wanted want = { true, true };
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        outcome ref = outcome_new(&p);
        run_problem(cx, &p, want, &ref);
        const int keys = p.G * p.dk, outputs = p.H * p.dv, T = p.T;
        pal_memory_run run = run_of(&p);
        pal_error err = { 0 };
        size_t forward, backward, saved_floats = pal_memory_saved_floats(&pal_rule_palimpsa, &run.shape);
        float *wide[7], *saved = test_guarded(saved_floats);
        const int channels[7] = { outputs, outputs, keys, keys, outputs, outputs, p.H };
        for (int i = 0; i < 7; i++) wide[i] = test_guarded((size_t)(T * (channels[i] + GAP)));
        run.y = out_rows(wide[0], outputs + GAP), run.y_var = out_rows(wide[1], outputs + GAP);
        run.saved = saved;
        run.scratch = scratch_for(cx, &run.shape, PAL_FORWARD, &forward);
        if (pal_memory_forward(&pal_rule_palimpsa, cx, &run, &err)) fail_msg("%s", err.text);
        test_guarded_free(run.scratch, forward);
        run.scratch = scratch_for(cx, &run.shape, PAL_BACKWARD, &backward);
        run.dy = rows(p.in[IN_DY], outputs), run.dy_var = rows(p.in[IN_DY_VAR], outputs);
        run.grad.dt = out_rows(wide[6], p.H + GAP);
        run.grad.k = out_rows(wide[3], keys + GAP);
        if (pal_memory_backward(&pal_rule_palimpsa, cx, &run, &err)) fail_msg("%s", err.text);
        run.grad = (pal_memory_gradients){ .q = out_rows(wide[2], keys + GAP), .v = out_rows(wide[4], outputs + GAP), .b = out_rows(wide[5], outputs + GAP) };
        if (pal_memory_backward(&pal_rule_palimpsa, cx, &run, &err)) fail_msg("%s", err.text);
        test_guarded_free(run.scratch, backward);
        static const int which[7] = { Y, Y_VAR, DQ, DK, DV, DB, DDT };
        for (int i = 0; i < 7; i++) {
            for (int t = 0; t < T; t++) {
                const float *row = wide[i] + t * (channels[i] + GAP);
                test_same_bits(results[which[i]].name, row, ref.x[which[i]] + t * channels[i], (size_t)channels[i]);
                for (int g = 0; g < GAP; g++) assert_true(isnan(row[channels[i] + g]));
            }
            test_guarded_free(wide[i], (size_t)(T * (channels[i] + GAP)));
        }
        test_guarded_free(saved, saved_floats);
        outcome_free(&p, &ref);
        pal_context_free(cx);
    }
    problem_free(&p);
}

static void nothing_is_allocated(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(40, 1);
    problem p = problem_new(&rng, (recipe){ .N = 2, .H = 2, .group = 1, .dk = 8, .dv = 80, .initial = true, .final = true, .adt_lo = 1e-3, .adt_hi = 1, .b_lo = 0.1, .b_hi = 2 });
    outcome o = outcome_new(&p), again = outcome_new(&p);
    memories m = memories_new(&p);
    pal_context *cx = test_context(2, NULL);
    const uint64_t before = pal_alloc_count();
    run_problem(cx, &p, (wanted){ true, true }, &o);
    int cu[2] = { 0, 1 };
    problem one = p;
    one.N = one.T = 1, one.cu = cu;
    run_piece(cx, &one, &m, 0, 1, true, &again);
    assert_int_equal(pal_alloc_count() - before, 0);
    pal_context_free(cx);
    memories_free(&p, &m);
    outcome_free(&p, &o);
    outcome_free(&p, &again);
    problem_free(&p);
}

static void export_gives_back_what_import_took(void **state) {
    (void)state;
    pal_rng rng = pal_rng_at(41, 1);
    problem p = problem_new(&rng, (recipe){ .N = 3, .dk = 5, .dv = 19, .initial = true, .adt_lo = 1, .adt_hi = 1 });
    outcome o = outcome_new(&p);
    memories m = memories_new(&p);
    memories_export(&p, &m, &o);
    test_same_bits("I", o.x[I_T], p.in[IN_I0], input_count(&p, IN_I0));
    test_near("mu", o.x[MU_T], p.in[IN_MU0], input_count(&p, IN_MU0), 2e-7);
    memories_free(&p, &m);
    outcome_free(&p, &o);
    problem_free(&p);
}

static const memory_subject palimpsa = { .rule = "palimpsa" };

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_cases_hold_at_every_level),
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(every_level_matches_the_formula_at_odd_sizes),
        cmocka_unit_test(accuracy_holds_over_the_whole_range),
        cmocka_unit_test(accuracy_holds_over_100000_tokens),
        cmocka_unit_test(split_at_random_equals_whole),
        cmocka_unit_test(packed_equals_separate),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(without_importance_it_is_gla_on_v_over_Ip),
        cmocka_unit_test(views_into_wider_rows_work),
        cmocka_unit_test(nothing_is_allocated),
        MEMORY_TEST(palimpsa, starts_from_nothing_when_asked, memory_check_starts),
        cmocka_unit_test(export_gives_back_what_import_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
