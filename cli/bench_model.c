/* SPDX-License-Identifier: MIT */
/* palimpsa bench model: a model and its ablation, forward, forward+backward and one-token steps, interleaved in one run
 * with the machine's limits: the matrix product that everything else is measured against, and reading memory. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/context.h"
#include "bench.h"
#include "cli.h"
#include "format/json.h"
#include "named_model.h"
#include "palimpsa/palimpsa.h"

enum { MOST_REPEATS = BENCH_REPEATS, STEPS = 16, MOST_OPERATIONS = 64 };

typedef struct {
    const char *model, *rule;
    int tokens, layers, vocab, repeats;
    double expand_v;
    const char *json;
    cli_common common;
} bench_options;

typedef enum { FORWARD, TRAIN, STEP, KINDS } bench_kind;
static const char *const kind_names[KINDS] = { "model.forward", "model.train", "model.step" };

typedef struct {
    char name[64];
    pal_model *model;
    pal_work *training, *inference;
    pal_state *state;
    float *logits;
    int32_t *ids, *targets;
    int cu[2];
    double seconds[KINDS][MOST_REPEATS];
    double by_operation[KINDS][MOST_OPERATIONS]; /* seconds, all repeats together, in the order of pal_work_timing */
} bench_side;

static int open_side(bench_side *s, const bench_options *o, const pal_context *cx, const char *name) {
    pal_error err;
    const pal_preset_options preset = {
        .layers = o->layers, .vocab = o->vocab, .expand_v = o->expand_v, .rule = o->rule
    };
    snprintf(s->name, sizeof s->name, "%s", name);
    const int code = cli_open_model(&s->model, name, &preset, PAL_FOR_TRAINING, cx);
    if (code) return code;
    const pal_model_config config = *pal_model_config_of(s->model);
    if (pal_work_new(&s->training, s->model, cx, &(pal_work_options){ .tokens = o->tokens, .training = true }, &err))
        return cli_fail(&err);
    const int context = o->tokens +
                        (o->repeats + 1) * STEPS; /* a row, then the steps of the warm-up and of every repeat */
    if (pal_work_new(&s->inference, s->model, cx, &(pal_work_options){ .tokens = o->tokens, .context = context }, &err))
        return cli_fail(&err);
    if (pal_state_new(&s->state, s->model, context, &err)) return cli_fail(&err);
    s->logits = pal_alloc((size_t)config.vocab_rows, sizeof *s->logits);
    s->ids = pal_alloc((size_t)o->tokens, sizeof *s->ids);
    s->targets = pal_alloc((size_t)o->tokens, sizeof *s->targets);
    if (!s->logits || !s->ids || !s->targets) return cli_error(CLI_FAILED, "bench: out of memory");
    for (int t = 0; t < o->tokens; t++) s->ids[t] = (int32_t)((uint32_t)t * 2654435761u % (uint32_t)config.vocab);
    pal_shift_targets(s->targets, s->ids, o->tokens);
    s->cu[1] = o->tokens;
    /* Steps are measured after a row: attention reads as many keys as the report counts. */
    if (pal_model_prefill(s->model, s->inference, s->state, s->ids, o->tokens, s->logits, &err)) return cli_fail(&err);
    return CLI_OK;
}

static void close_side(bench_side *s) {
    pal_state_free(s->state);
    pal_work_free(s->training);
    pal_work_free(s->inference);
    pal_model_close(s->model);
    pal_free(s->logits);
    pal_free(s->ids);
    pal_free(s->targets);
}

/* Adds what a work has counted since its reset, and starts anew. */
static void take_timing(double seconds[MOST_OPERATIONS], pal_work *work) {
    const pal_timing *t = pal_work_timing(work);
    for (int i = 0; i < MOST_OPERATIONS && t[i].name; i++) seconds[i] += t[i].seconds;
    pal_work_timing_reset(work);
}

static int run_once(bench_side *s, const bench_options *o, int repeat) {
    pal_error err;
    pal_loss loss;
    const int last = o->tokens - 1;
    const pal_batch batch = {
        .tokens = o->tokens, .sequences = 1, .ids = s->ids, .cu_seqlens = s->cu, .targets = s->targets
    };
    double start = pal_seconds();
    if (pal_model_forward(s->model, s->inference, &batch, &last, 1, s->logits, &err)) return cli_fail(&err);
    s->seconds[FORWARD][repeat] = pal_seconds() - start;
    take_timing(s->by_operation[FORWARD], s->inference);
    start = pal_seconds();
    if (pal_model_learn(s->model, s->training, &batch, 1.0f / (float)o->tokens, &loss, NULL, &err))
        return cli_fail(&err);
    s->seconds[TRAIN][repeat] = pal_seconds() - start;
    take_timing(s->by_operation[TRAIN], s->training);
    start = pal_seconds();
    for (int i = 0; i < STEPS; i++)
        if (pal_model_step(s->model, s->inference, &s->state, 1, &s->ids[i % o->tokens], s->logits, &err))
            return cli_fail(&err);
    s->seconds[STEP][repeat] = (pal_seconds() - start) / STEPS;
    take_timing(s->by_operation[STEP], s->inference);
    return CLI_OK;
}

/* Mean seconds of one call; steps were timed STEPS at a time. */
static double operation_seconds(const bench_side *s, int kind, int operation, int repeats) {
    return s->by_operation[kind][operation] / repeats / (kind == STEP ? STEPS : 1);
}

static void report(const bench_options *o, const bench_side *s, const bench_side *other, const bench_limits *m,
                   const pal_context *cx, json_t *list) {
    const double peak = bench_median(m->flops, o->repeats), bandwidth = bench_median(m->bytes, o->repeats);
    const double parameters = (double)pal_model_parameters(s->model);
    for (int k = 0; k < KINDS; k++) {
        const double seconds = bench_median(s->seconds[k], o->repeats);
        const double flop = k == STEP
                                ? 0
                                : (k == FORWARD ? 2 * bench_block_parameters(s->model) : 6 * parameters) * o->tokens;
        const double bytes = k == STEP ? bench_step_moved(s->model, o->tokens, 1).total : 0;
        const double bound = k == STEP ? bytes / bandwidth : flop / peak;
        printf("%-14s %-26s %10.2f ms", kind_names[k], s->name, seconds * 1e3);
        if (k == STEP) printf("  %6.1f GB/s, %5.1f%% of reading", bytes / seconds * 1e-9, 100 * bound / seconds);
        else printf("  %6.1f GFLOP/s, %5.1f%% of matmul", flop / seconds * 1e-9, 100 * bound / seconds);
        double ratio = 0;
        if (other) {
            double ratios[MOST_REPEATS];
            for (int i = 0; i < o->repeats; i++) ratios[i] = s->seconds[k][i] / other->seconds[k][i];
            ratio = bench_median(ratios, o->repeats);
            printf("  %.3fx %s", ratio, other->name);
        }
        putchar('\n');
        char shape[64];
        snprintf(shape, sizeof shape, "B1 T%d", k == STEP ? 1 : o->tokens);
        json_t *entry = json_pack("{s:s, s:s, s:s, s:i, s:f, s:f}", "name", kind_names[k], "shape", shape, "variant",
                                  s->name, "threads", pal_context_threads(cx), "ns", seconds * 1e9, "bound_ns",
                                  bound * 1e9);
        if (k == STEP) pal_json_set(entry, "gbs", json_real(bytes / seconds * 1e-9));
        else pal_json_set(entry, "gflops", json_real(flop / seconds * 1e-9));
        if (other) {
            pal_json_set(entry, "ratio", json_real(ratio));
            pal_json_set(entry, "ratio_to", json_string(other->name));
        }
        json_t *operations = json_object();
        const pal_timing *t = pal_work_timing(s->training);
        for (int i = 0; i < MOST_OPERATIONS && t[i].name; i++)
            if (s->by_operation[k][i] > 0)
                pal_json_set(operations, t[i].name, json_real(operation_seconds(s, k, i, o->repeats) * 1e9));
        pal_json_set(entry, "operations_ns", operations);
        pal_json_append(list, entry);
    }
}

static void report_operations(const bench_side *s, int repeats) {
    const pal_timing *t = pal_work_timing(s->training);
    double all[KINDS] = { 0 };
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < MOST_OPERATIONS; i++) all[k] += operation_seconds(s, k, i, repeats);
    printf("\nwhere the time of %s goes (' is backward), mean of %d, in ms:\n  %-20s %18s %18s %18s\n", s->name,
           repeats, "", "forward", "forward+backward", "step");
    for (int i = 0; i < MOST_OPERATIONS && t[i].name; i++) {
        double seconds[KINDS], any = 0;
        for (int k = 0; k < KINDS; k++) any += seconds[k] = operation_seconds(s, k, i, repeats);
        if (any <= 0) continue;
        printf("  %-20s", t[i].name);
        for (int k = 0; k < KINDS; k++) {
            if (seconds[k] > 0) printf(" %10.3f %6.1f%%", seconds[k] * 1e3, 100 * seconds[k] / all[k]);
            else printf(" %18s", "");
        }
        putchar('\n');
    }
}

static int run_bench(const bench_options *o, const pal_context *cx) {
    bench_side sides[2] = { 0 };
    bench_limits m = { 0 };
    char ablation[64];
    int code;
    const int count = !o->rule && bench_ablation(o->model, ablation) ? 2 : 1; /* another rule has no ablation */
    json_t *list = json_array();
    if (!(code = bench_check_json(o->json))) code = bench_limits_open(&m);
    for (int i = 0; i < count && !code; i++) code = open_side(&sides[i], o, cx, i ? ablation : o->model);
    for (int r = -1; r < o->repeats && !code; r++) { /* the first round only warms up */
        const int repeat = r < 0 ? 0 : r;
        bench_limits_measure(&m, cx, repeat);
        for (int i = 0; i < count && !code; i++) {
            code = run_once(&sides[i], o, repeat);
            if (r < 0) {
                pal_work_timing_reset(sides[i].training);
                pal_work_timing_reset(sides[i].inference);
                memset(sides[i].by_operation, 0, sizeof sides[i].by_operation);
            }
        }
    }
    if (!code) {
        printf("%d threads; matmul %.1f GFLOP/s, reading %.1f GB/s; %zu parameters, %d tokens, medians of %d turns "
               "(times and ratios each)\n",
               pal_context_threads(cx), bench_median(m.flops, o->repeats) * 1e-9,
               bench_median(m.bytes, o->repeats) * 1e-9, pal_model_parameters(sides[0].model), o->tokens, o->repeats);
        for (int i = 0; i < count; i++) report(o, &sides[i], i == 0 && count == 2 ? &sides[1] : NULL, &m, cx, list);
        for (int i = 0; i < count; i++) report_operations(&sides[i], o->repeats);
        code = bench_write_json(list, o->json);
    }
    for (int i = 0; i < count; i++) close_side(&sides[i]);
    bench_limits_close(&m);
    json_decref(list);
    return code;
}

int bench_model(int argc, char **argv) {
    bench_options o = { .model = "palimpsa-d-170m", .tokens = 1024, .repeats = 3 };
    const cli_option options[] = {
        { "model", OPT_TEXT, &o.model, "NAME|DIR",
          "as for 'train' (default palimpsa-d-170m); a metaplastic name is compared with its ablation" },
        { "rule", OPT_TEXT, &o.rule, "RULE", "memory rule on the D backbone: longhorn, gdn, kda, mamba3, ..." },
        { "tokens", OPT_INT, &o.tokens, "N", "tokens of one row (default 1024)" },
        { "layers", OPT_INT, &o.layers, "N", "override the number of layers" },
        { "vocab", OPT_INT, &o.vocab, "N", "override the vocabulary size" },
        { "expand-v", OPT_FLOAT, &o.expand_v, "X", "override value width over key width" },
        { "repeats", OPT_INT, &o.repeats, "N", "repetitions of each measurement (default 3)" },
        { "json", OPT_TEXT, &o.json, "FILE", "write the results as JSON" },
        CLI_COMMON_OPTIONS(o.common),
    };
    const cli_usage usage = {
        .synopsis = "bench model [options]",
        .about = "Measures a model: forward, forward and backward, and one-token steps.\n\n"
                 "Weights are random. Shares are of the matrix product (6 FLOP per parameter and token; "
                 "forward, which makes one token's logits, 2 per parameter of the blocks) and of reading "
                 "RAM (weights and state), both measured in the same run.",
        .examples = "  palimpsa bench model --model palimpsa-d-170m --tokens 1024\n"
                    "  palimpsa bench model --model palimpsa-d-760m --layers 1 --vocab 256\n",
        .options = options,
        .option_count = PAL_COUNT(options)
    };
    int positional;
    const int parsed = cli_parse(&usage, argc, argv, NULL, 0, &positional);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    if (o.tokens < STEPS || o.repeats < 1 || o.repeats > MOST_REPEATS)
        return cli_error(CLI_USAGE, "bench model: expected at least %d tokens and 1 to %d repeats", STEPS,
                         MOST_REPEATS);
    pal_context *cx;
    pal_error err;
    if (pal_context_new(&cx, o.common.threads, o.common.cpu, &err)) return cli_fail(&err);
    const int code = run_bench(&o, cx);
    pal_context_free(cx);
    return code;
}
