/* SPDX-License-Identifier: MIT */
/* Memory rules: forward, backward and step, with realistic inputs, next to the machine's limit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/parallel.h"
#include "base/random.h"
#include "bench.h"
#include "cli.h"
#include "memory/palimpsa/palimpsa.h"
#include "memory/rule.h"

/* One rule at one shape, with every buffer a pass needs. */
typedef struct {
    const pal_memory_rule *rule;
    const pal_context *cx;
    pal_memory_run run;
    int *cu;
    float **states;
    size_t state_floats;
    void *blocks[40];
    int block_count;
    bool bad;
} subject;

static void *take(subject *s, size_t n, size_t size) {
    void *block = pal_alloc(n ? n : 1, size);
    if (block) s->blocks[s->block_count++] = block;
    else s->bad = true;
    return block;
}

static pal_view output(subject *s, int channels) {
    return (pal_view){ take(s, (size_t)channels * (size_t)s->run.shape.tokens, sizeof(float)), (size_t)channels };
}

/* What the rule reads, with keys of norm about one and decays as trained models have them. */
static void set_inputs(subject *s) {
    const double unit = sqrt(3.0 / s->run.shape.dk);
    const double range[PAL_MEMORY_INPUTS][2] = { { -unit, unit }, { -unit, unit }, { -1, 1 },        { 0, 1 },
                                                 { 0.1, 0.9 },    { 0.001, 0.1 },  { -0.1, -0.001 }, { 0.5, 1 },
                                                 { 0.9, 1.1 },    { 0.9, 1.1 },    { -0.1, -0.001 }, { -unit, unit },
                                                 { 0.1, 0.9 },    { 0.1, 0.9 },    { -0.1, -0.001 }, { 0.1, 0.9 },
                                                 { 0.001, 0.1 },  { 0.001, 0.1 },  { 0.5, 1 },       { 0.9, 1 },
                                                 { 0.001, 0.1 } };
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
        if (!(s->rule->inputs & 1u << i)) continue;
        const bool parameter = pal_memory_input_list[i].parameter;
        const size_t channels = (size_t)pal_memory_channels(s->rule, &s->run.shape, 1u << i),
                     n = parameter ? channels : channels * (size_t)s->run.shape.tokens;
        float *x = take(s, n, sizeof *x);
        if (x) pal_fill_uniform(s->cx, x, n, 11, (uint64_t)i + 1, range[i][0], range[i][1]);
        if (parameter) *(const float **)((char *)&s->run.in + pal_memory_input_list[i].input) = x;
        else *pal_memory_input_rows(&s->run.in, i) = (pal_const_view){ x, channels };
    }
    s->run.in.scale = (float)pow(s->run.shape.dk, -0.5);
}

static void take_gradients(subject *s) {
    for (int i = 0; i < PAL_MEMORY_INPUTS; i++) {
        if (!(s->rule->inputs & 1u << i)) continue;
        const int channels = pal_memory_channels(s->rule, &s->run.shape, 1u << i);
        char *field = (char *)&s->run.grad + pal_memory_input_list[i].gradient;
        if (pal_memory_input_list[i].parameter) *(float **)field = take(s, (size_t)channels, sizeof(float));
        else *(pal_view *)field = output(s, channels);
    }
}

static void subject_free(subject *s) {
    for (int i = 0; i < s->block_count; i++) pal_free(s->blocks[i]);
}

static bool subject_make(subject *s, const pal_memory_rule *rule, const pal_context *cx, int sequences, int length,
                         int heads, int dk, int dv, bool steps, bool backward) {
    *s = (subject){ .rule = rule, .cx = cx };
    pal_memory_shape *shape = &s->run.shape;
    *shape = (pal_memory_shape){ .sequences = sequences,
                                 .tokens = sequences * length,
                                 .heads = heads,
                                 .key_heads = heads,
                                 .dk = dk,
                                 .dv = dv,
                                 .context = length + 1 };
    if (!(s->cu = take(s, (size_t)sequences + 1, sizeof *s->cu))) return false;
    for (int n = 0; n <= sequences; n++) s->cu[n] = n * length;
    shape->cu_seqlens = s->cu;
    set_inputs(s);
    s->run.y = output(s, heads * dv);
    size_t scratch = rule->scratch_bytes(cx, shape, PAL_FORWARD);
    if (steps) {
        scratch = rule->scratch_bytes(cx, shape, PAL_STEP);
        s->state_floats = rule->state_floats(shape);
        s->states = take(s, (size_t)sequences, sizeof *s->states);
        float *all = take(s, (size_t)sequences * s->state_floats, sizeof *all);
        for (int n = 0; n < sequences && !s->bad; n++)
            rule->reset(shape, &s->run.in, s->states[n] = all + (size_t)n * s->state_floats);
        s->run.state = s->states;
    }
    if (backward) {
        const size_t more = rule->scratch_bytes(cx, shape, PAL_BACKWARD);
        if (more > scratch) scratch = more;
        s->run.saved = take(s, rule->saved_floats(shape), sizeof(float));
        float *dy = take(s, (size_t)shape->tokens * s->run.y.stride, sizeof *dy);
        if (dy) pal_fill_uniform(cx, dy, (size_t)shape->tokens * s->run.y.stride, 11, 12, -1, 1);
        s->run.dy = (pal_const_view){ dy, s->run.y.stride };
        take_gradients(s);
    }
    s->run.scratch = take(s, scratch, 1);
    return !s->bad;
}

static void forward(void *arg) {
    const subject *s = arg;
    s->rule->forward(s->cx, &s->run);
}
static void forward_only(void *arg) {
    const subject *s = arg;
    pal_memory_run run = s->run;
    run.saved = NULL;
    s->rule->forward(s->cx, &run);
}
static void backward(void *arg) {
    const subject *s = arg;
    s->rule->backward(s->cx, &s->run);
}
static void both(void *arg) {
    forward(arg);
    backward(arg);
}
static void step(void *arg) {
    const subject *s = arg;
    s->rule->step(s->cx, &s->run);
}

static const char *level_of(const pal_context *cx) { return pal_cpu_level_name(pal_context_level(cx)); }

static bool has_rule(const char *only, const pal_memory_rule *rule) { return !only || strcmp(only, rule->name) == 0; }

/* The arithmetic of one block of work with everything in registers: the machine's limit for palimpsa's forward. */
enum { BOUND_VECTORS = 1 << 16 };
static void bound(void *arg) {
    const pal_context *cx = arg;
    volatile float sink = PAL_PICK(cx, palimpsa_bound)(BOUND_VECTORS);
    (void)sink;
}

static int out_of_memory(void) { return cli_error(CLI_FAILED, "bench: not enough memory for this shape"); }

/* One head, one thread, no backward: how close the forward loop comes to its arithmetic. */
static int bench_single(bench *b, const pal_context *cx) {
    static const int sizes[][2] = { { 16, 32 }, { 48, 96 }, { 96, 192 }, { 128, 64 } };
    const pal_memory_rule *palimpsa = pal_memory_find("palimpsa"), *gla = pal_memory_find("gla");
    pal_context *one;
    pal_error err;
    if (pal_context_new(&one, 1, level_of(cx), &err)) return cli_fail(&err);
    int code = CLI_OK;
    for (size_t i = 0; i < PAL_COUNT(sizes) && code == CLI_OK; i++) {
        const int dk = sizes[i][0], dv = sizes[i][1], T = 512;
        const int lanes = pal_palimpsa_bound_width(pal_context_level(cx));
        subject p, g;
        char shape[64];
        snprintf(shape, sizeof shape, "B1 T%d H1 Dk%d Dv%d", T, dk, dv);
        const bool first_made = subject_make(&p, palimpsa, one, 1, T, 1, dk, dv, false, true),
                   made = subject_make(&g, gla, one, 1, T, 1, dk, dv, false, true) &&
                          first_made; /* both, so that both can be freed */
        if (!made) {
            code = out_of_memory();
        } else {
            enum { BOUND, FORWARD, SAVED, BACKWARD, GLA };
            bench_item items[] = {
                [BOUND] = bench_make("palimpsa.bound", shape, level_of(cx), 1, bound, one),
                [FORWARD] = bench_make("palimpsa.forward", shape, level_of(cx), 1, forward_only, &p),
                [SAVED] = bench_make("palimpsa.forward", shape, level_of(cx), 1, forward, &p),
                [BACKWARD] = bench_make("palimpsa.backward", shape, level_of(cx), 1, backward, &p),
                [GLA] = bench_make("gla.forward", shape, level_of(cx), 1, forward_only, &g),
            };
            const int row = (dv + lanes - 1) / lanes;
            const double vectors = (double)T * dk * row;
            items[BOUND].hidden = true;
            for (int k = FORWARD; k <= GLA; k++) items[k].tokens = T;
            char saving[32]; /* forward that keeps states for backward */
            snprintf(saving, sizeof saving, "%s+saved", level_of(cx));
            items[SAVED].variant = saving;
            for (int k = FORWARD; k <= SAVED; k++)
                items[k].bound = BOUND, items[k].bound_share = vectors / BOUND_VECTORS;
            items[SAVED].base = items[BACKWARD].base = items[GLA].base = FORWARD;
            bench_group(b, i ? "" : "memory rules, one head, one thread", items, PAL_COUNT(items));
        }
        subject_free(&p);
        subject_free(&g);
    }
    pal_context_free(one);
    return code;
}

/* The size of the recall benchmark, one thread and all. */
static int bench_batch(bench *b, const pal_context *cx, const char *only) {
    const int B = 32, T = 128, H = 8, dk = 16, dv = 32, all = pal_context_threads(cx);
    bool first = true;
    for (int r = 0; pal_memory_at(r); r++) {
        const pal_memory_rule *rule = pal_memory_at(r);
        if (!has_rule(only, rule)) continue;
        pal_context *one;
        pal_error err;
        if (pal_context_new(&one, 1, level_of(cx), &err)) return cli_fail(&err);
        subject s1, sn;
        bench_item items[6];
        int count = 0;
        const bool first_made = subject_make(&s1, rule, one, B, T, H, dk, dv, false, true),
                   made = subject_make(&sn, rule, cx, B, T, H, dk, dv, false, true) &&
                          first_made; /* both, so that both can be freed */
        for (int n = 0; n < (all > 1 ? 2 : 1) && made; n++) {
            subject *s = n ? &sn : &s1;
            static const struct {
                const char *suffix;
                bench_fn *fn;
            } passes[] = { { "forward", forward_only }, { "backward", backward }, { "forward+backward", both } };
            forward(s);
            for (size_t k = 0; k < PAL_COUNT(passes); k++) {
                char name[64], shape[64];
                snprintf(name, sizeof name, "%s.%s", rule->name, passes[k].suffix);
                snprintf(shape, sizeof shape, "B%d T%d H%d Dk%d Dv%d", B, T, H, dk, dv);
                items[count] = bench_make(name, shape, level_of(cx), n ? all : 1, passes[k].fn, s);
                items[count].tokens = (double)B * T;
                if (n) items[count].base = count - (int)PAL_COUNT(passes);
                count++;
            }
        }
        if (made) bench_group(b, first ? "memory rules, packed batch (ratios: to one thread)" : "", items, count);
        first = false;
        subject_free(&s1);
        subject_free(&sn);
        pal_context_free(one);
        if (!made) return out_of_memory();
    }
    if (!first) return CLI_OK;
    char known[200] = "";
    for (int i = 0; pal_memory_at(i); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 pal_memory_name(pal_memory_at(i)));
    return cli_error(CLI_USAGE, "bench: no memory rule '%s'; expected one of %s", only, known);
}

/* In-place read-modify-write of the same bytes by the same threads: what a step cannot beat. */
typedef struct {
    const pal_context *cx;
    float *x;
    size_t n;
} sweep;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx2", "default"))) /* as wide as the kernels it is compared with */
#endif
static void
sweep_range(void *arg, size_t begin, size_t end, int thread) {
    (void)thread;
    const sweep *w = arg;
    for (size_t i = begin; i < end; i++) w->x[i] = w->x[i] * 0.999f + 0.001f;
}
static void sweep_all(void *arg) {
    const sweep *w = arg;
    pal_parallel_ranges(w->cx, w->n, 1 << 16, sweep_range, arg);
}

static int bench_step(bench *b, const pal_context *cx, int layers, const char *title) {
    const pal_memory_rule *palimpsa = pal_memory_find("palimpsa"), *gla = pal_memory_find("gla");
    const int H = 24, dk = 128, dv = 64;
    subject p, g;
    char shape[64];
    snprintf(shape, sizeof shape, "B%d T1 H%d Dk%d Dv%d", layers, H, dk, dv);
    int code = CLI_OK;
    const bool first_made = subject_make(&p, palimpsa, cx, layers, 1, H, dk, dv, true, false),
               made = subject_make(&g, gla, cx, layers, 1, H, dk, dv, true, false) &&
                      first_made; /* both, so that both can be freed */
    if (made) {
        sweep ps = { cx, p.states[0], (size_t)layers * p.state_floats },
              gs = { cx, g.states[0], (size_t)layers * g.state_floats };
        enum { SWEEP_P, SWEEP_G, STEP_G, STEP_P };
        bench_item items[] = {
            [SWEEP_P] = bench_make("read-modify-write", shape, "palimpsa", pal_context_threads(cx), sweep_all, &ps),
            [SWEEP_G] = bench_make("read-modify-write", shape, "gla", pal_context_threads(cx), sweep_all, &gs),
            [STEP_G] = bench_make("gla.step", shape, level_of(cx), pal_context_threads(cx), step, &g),
            [STEP_P] = bench_make("palimpsa.step", shape, level_of(cx), pal_context_threads(cx), step, &p),
        };
        items[SWEEP_P].bytes = items[STEP_P].bytes = 8.0 * (double)ps.n;
        items[SWEEP_G].bytes = items[STEP_G].bytes = 8.0 * (double)gs.n;
        items[STEP_P].bound = SWEEP_P, items[STEP_G].bound = SWEEP_G;
        items[STEP_P].bound_share = items[STEP_G].bound_share = 1;
        items[STEP_P].base = STEP_G;
        bench_group(b, title, items, PAL_COUNT(items));
    } else {
        code = out_of_memory();
    }
    subject_free(&p);
    subject_free(&g);
    return code;
}

int bench_memory(bench *b, const pal_context *cx, const char *rule) {
    int code = CLI_OK;
    if (!rule || strcmp(rule, "palimpsa") == 0 || strcmp(rule, "gla") == 0) {
        code = bench_single(b, cx);
        if (code == CLI_OK) code = bench_step(b, cx, 24, "one-token step, 24 layers x 24 heads x 64x128");
        if (code == CLI_OK) code = bench_step(b, cx, 336, "one-token step, 14 such models: the state lives in memory");
    }
    return code ? code : bench_batch(b, cx, rule);
}

/* The paper's inference figure: one head as wide as the model, long sequences. One call lasts seconds, so few turns. */
int bench_inference(bench *b, const pal_context *cx) {
    static const int widths[] = { 512, 1024, 2048 };
    const pal_memory_rule *palimpsa = pal_memory_find("palimpsa"), *gla = pal_memory_find("gla");
    if (b->rounds > 3) b->rounds = 3;
    for (size_t i = 0; i < PAL_COUNT(widths); i++) {
        const int B = 16, T = 2048, D = widths[i];
        subject p, g;
        char shape[64];
        snprintf(shape, sizeof shape, "B%d T%d H1 Dk%d Dv%d", B, T, D, D);
        const bool first_made = subject_make(&p, palimpsa, cx, B, T, 1, D, D, false, false),
                   made = subject_make(&g, gla, cx, B, T, 1, D, D, false, false) &&
                          first_made; /* both, so that both can be freed */
        if (made) {
            bench_item items[] = {
                bench_make("gla.forward", shape, level_of(cx), pal_context_threads(cx), forward_only, &g),
                bench_make("palimpsa.forward", shape, level_of(cx), pal_context_threads(cx), forward_only, &p),
            };
            items[0].tokens = items[1].tokens = (double)B * T;
            items[1].base = 0;
            bench_group(b, i ? "" : "inference: one head of the model's width", items, 2);
        }
        subject_free(&p);
        subject_free(&g);
        if (!made) return out_of_memory();
    }
    return CLI_OK;
}
