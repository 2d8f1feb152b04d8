/* SPDX-License-Identifier: MIT */
/* palimpsa bench decode: what generating text costs. Reading a prompt is measured against the matrix product, writing
 * tokens (steps with sampling) against reading memory, both limits in the same run. */
#include <jansson.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/context.h"
#include "bench.h"
#include "cli.h"

typedef struct {
    const char *model, *json;
    int prompt, piece, tokens, batch, layers, vocab, repeats;
    cli_common common;
} decode_options;

enum { MOST_BATCH = 64 };

typedef struct {
    pal_model *model;
    pal_work *work;
    pal_sampler *sampler;
    pal_state *states[MOST_BATCH];
    float *logits;
    int32_t *ids;
    double prefill[BENCH_REPEATS], step[BENCH_REPEATS];
} decode_side;

static int open_side(decode_side *s, const decode_options *o, const pal_context *cx) {
    pal_error err;
    pal_model_config config;
    const pal_preset_options preset = { .layers = o->layers, .vocab = o->vocab };
    const int context = o->prompt + o->tokens;
    if (pal_model_preset(&config, o->model, &preset, &err) ||
        pal_model_new(&s->model, &config, 1, PAL_FOR_INFERENCE, cx, &err))
        return cli_fail(&err);
    const pal_work_options work = { .tokens = o->piece > o->batch ? o->piece : o->batch,
                                    .sequences = o->batch,
                                    .context = context };
    if (pal_work_new(&s->work, s->model, cx, &work, &err)) return cli_fail(&err);
    if (pal_sampler_new(&s->sampler, &(pal_sampling){ .temperature = 0.8, .top_k = 40 }, config.vocab, &err))
        return cli_fail(&err);
    for (int i = 0; i < o->batch; i++)
        if (pal_state_new(&s->states[i], s->model, context, &err)) return cli_fail(&err);
    s->logits = pal_alloc((size_t)o->batch * (size_t)config.vocab_rows, sizeof *s->logits);
    s->ids = pal_alloc((size_t)o->prompt, sizeof *s->ids);
    if (!s->logits || !s->ids) return cli_error(CLI_FAILED, "bench: no memory");
    for (int t = 0; t < o->prompt; t++) s->ids[t] = (int32_t)((uint32_t)t * 2654435761u % (uint32_t)config.vocab);
    return CLI_OK;
}

static void close_side(decode_side *s) {
    for (int i = 0; i < MOST_BATCH; i++) pal_state_free(s->states[i]);
    pal_sampler_free(s->sampler);
    pal_work_free(s->work);
    pal_model_close(s->model);
    pal_free(s->logits);
    pal_free(s->ids);
}

static int run_once(decode_side *s, const decode_options *o, int repeat) {
    pal_error err;
    int32_t next[MOST_BATCH];
    const size_t rows = (size_t)pal_model_config_of(s->model)->vocab_rows;
    for (int i = 0; i < o->batch; i++) pal_state_reset(s->states[i]);
    double start = bench_now();
    if (pal_model_prefill(s->model, s->work, s->states[0], s->ids, o->prompt, s->logits, &err)) return cli_fail(&err);
    s->prefill[repeat] = bench_now() - start;
    for (int i = 1; i < o->batch; i++)
        if (pal_state_copy(s->states[i], s->states[0], &err)) return cli_fail(&err);
    for (int i = 0; i < o->batch; i++) next[i] = s->ids[i % o->prompt];
    double each[BENCH_REPEATS]; /* the median of single steps: one that was interrupted does not count */
    for (int t = 0; t < o->tokens; t++) {
        start = bench_now();
        if (pal_model_step(s->model, s->work, s->states, o->batch, next, s->logits, &err)) return cli_fail(&err);
        for (int i = 0; i < o->batch; i++)
            next[i] = pal_sampler_pick(s->sampler, s->logits + (size_t)i * rows, NULL, 1, (uint64_t)t);
        each[t] = bench_now() - start;
    }
    s->step[repeat] = bench_median(each, o->tokens);
    return CLI_OK;
}

static void report(const decode_options *o, const decode_side *s, const bench_limits *m, const pal_context *cx,
                   json_t *list) {
    const double peak = bench_median(m->flops, o->repeats), bandwidth = bench_median(m->bytes, o->repeats);
    const double prefill = bench_median(s->prefill, o->repeats), step = bench_median(s->step, o->repeats);
    const double flop = 2 * bench_block_parameters(s->model) * o->prompt;
    const double state = (double)pal_state_bytes(s->model, o->prompt),
                 bytes = bench_step_bytes(s->model, o->prompt) + (o->batch - 1) * state;
    char shape[64];
    printf("%d threads; matmul %.1f GFLOP/s, reading %.1f GB/s; %zu parameters, medians of %d\n",
           pal_context_threads(cx), peak * 1e-9, bandwidth * 1e-9, pal_model_parameters(s->model), o->repeats);
    printf("%-14s %-20s %6d tokens  %10.2f ms  %9.1f tokens/s  %6.1f GFLOP/s, %5.1f%% of matmul\n", "model.prefill",
           o->model, o->prompt, prefill * 1e3, o->prompt / prefill, flop / prefill * 1e-9, 100 * flop / peak / prefill);
    printf("%-14s %-20s %6d at once %10.2f ms  %9.1f tokens/s  %6.1f GB/s, %5.1f%% of reading\n", "model.decode",
           o->model, o->batch, step * 1e3, o->batch / step, bytes / step * 1e-9, 100 * bytes / bandwidth / step);
    snprintf(shape, sizeof shape, "B1 T%d", o->prompt);
    json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f}", "name", "model.prefill",
                                          "shape", shape, "variant", o->model, "threads", pal_context_threads(cx), "ns",
                                          prefill * 1e9, "bound_ns", flop / peak * 1e9, "gflops", flop / prefill * 1e-9,
                                          "tokens_per_s", o->prompt / prefill, "share", flop / peak / prefill));
    snprintf(shape, sizeof shape, "B%d T1", o->batch);
    json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f}", "name", "model.decode",
                                          "shape", shape, "variant", o->model, "threads", pal_context_threads(cx), "ns",
                                          step * 1e9, "bound_ns", bytes / bandwidth * 1e9, "gbs", bytes / step * 1e-9,
                                          "tokens_per_s", o->batch / step, "share", bytes / bandwidth / step));
}

static int run_bench(const decode_options *o, const pal_context *cx) {
    decode_side side = { 0 };
    bench_limits m = { 0 };
    json_t *list = json_array();
    int code = bench_check_json(o->json);
    if (!code) code = bench_limits_open(&m);
    if (!code) code = open_side(&side, o, cx);
    for (int r = -1; r < o->repeats && !code; r++) { /* the first round only warms up */
        bench_limits_measure(&m, cx, r < 0 ? 0 : r);
        code = run_once(&side, o, r < 0 ? 0 : r);
    }
    if (!code) report(o, &side, &m, cx, list);
    if (!code) code = bench_write_json(list, o->json);
    close_side(&side);
    bench_limits_close(&m);
    json_decref(list);
    return code;
}

int bench_decode(int argc, char **argv) {
    decode_options o = {
        .model = "palimpsa-m-170m", .prompt = 2048, .piece = 512, .tokens = 32, .batch = 1, .repeats = 3
    };
    const cli_option options[] = {
        { "model", OPT_TEXT, &o.model, "NAME",
          "a model with a size (default palimpsa-m-170m); its weights are random" },
        { "prompt", OPT_INT, &o.prompt, "N", "tokens to read (default 2048)" },
        { "piece", OPT_INT, &o.piece, "N", "tokens of the prompt read at once (default 512)" },
        { "tokens", OPT_INT, &o.tokens, "N", "tokens to write behind it (default 32)" },
        { "batch", OPT_INT, &o.batch, "N", "sequences that are written at once (default 1)" },
        { "layers", OPT_INT, &o.layers, "N", "layers instead of the model's own" },
        { "vocab", OPT_INT, &o.vocab, "N", "vocabulary instead of the model's own" },
        { "repeats", OPT_INT, &o.repeats, "N", "how often each is measured (default 3)" },
        { "json", OPT_TEXT, &o.json, "FILE", "write the results as JSON" },
        CLI_COMMON_OPTIONS(o.common),
    };
    const cli_usage usage = { .synopsis = "bench decode [options]",
                              .about = "Measures what 'palimpsa generate' does: reading a prompt, as a share of the "
                                       "matrix product (2 FLOP a parameter of the\n"
                                       "blocks), and writing tokens one by one with sampling, as a share of reading "
                                       "memory (weights and state). Both limits\n"
                                       "are measured in the same run.",
                              .examples = "  palimpsa bench decode --model palimpsa-m-170m\n  palimpsa bench decode "
                                          "--model transformer-170m --batch 8 --json decode.json\n",
                              .options = options,
                              .option_count = PAL_COUNT(options) };
    int positional;
    const int parsed = cli_parse(&usage, argc, argv, NULL, 0, &positional);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    if (o.prompt < 1 || o.piece < 1 || o.tokens < 1 || o.tokens > BENCH_REPEATS || o.batch < 1 ||
        o.batch > MOST_BATCH || o.repeats < 1 || o.repeats > BENCH_REPEATS)
        return cli_error(CLI_USAGE,
                         "bench decode: expected prompt and piece of at least 1, 1 to %d tokens, a batch of 1 to %d "
                         "and 1 to %d repeats",
                         BENCH_REPEATS, MOST_BATCH, BENCH_REPEATS);
    pal_context *cx;
    pal_error err;
    if (pal_context_new(&cx, o.common.threads, o.common.cpu, &err)) return cli_fail(&err);
    const int code = run_bench(&o, cx);
    pal_context_free(cx);
    return code;
}
